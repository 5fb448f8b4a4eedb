//! Another source with one field more: the number of each sample.

use std::sync::Arc;

use crate::array::{DType, Field, FieldSpec, TensorSpec};
use crate::error::ReadError;
use crate::reading::Choice;
use crate::source::Source;
use crate::value::Value;

#[derive(Debug)]
pub struct Numbered {
    source: Arc<dyn Source>,
    fields: Vec<Field>,
}

impl Numbered {
    /// The number comes last, as `int64`.
    pub fn new(source: Arc<dyn Source>, name: &str) -> Numbered {
        let number = TensorSpec::new(DType::I64, []).expect("one element");
        let own = Field {
            name: name.to_owned(),
            spec: FieldSpec::Array(number),
        };
        let fields = source.fields().iter().cloned().chain([own]).collect();
        Numbered { source, fields }
    }
}

impl Source for Numbered {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn max_sample_bytes(&self) -> u64 {
        let number = crate::buffer::PAGE as u64;
        self.source.max_sample_bytes().saturating_add(number)
    }

    fn kept_bytes(&self) -> u64 {
        self.source.kept_bytes()
    }

    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError> {
        let Some((number, others)) = values.split_last_mut() else {
            return Ok(());
        };
        self.source.read(index, others)?;
        number
            .set_array(DType::I64, &[], size_of::<u64>())
            .copy_from_slice(&index.to_ne_bytes());
        Ok(())
    }

    fn place(&self, index: u64) -> String {
        self.source.place(index)
    }

    fn choice(&self) -> &Choice {
        self.source.choice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Order;
    use crate::sources::{Npy, Part};

    fn numbers(len: i64) -> (tempfile::TempDir, Arc<dyn Source>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let bytes: Vec<u8> = (0..len).flat_map(|at| (at * 10).to_le_bytes()).collect();
        std::fs::write(&path, bytes).unwrap();
        let source = Npy::raw("data", &path, DType::I64, &[], None).unwrap();
        (folder, Arc::new(source))
    }

    fn all(source: &dyn Source) -> Vec<Vec<i64>> {
        let mut values: Vec<Value> = source.fields().iter().map(|_| Value::default()).collect();
        (0..source.len())
            .map(|index| {
                source.read(index, &mut values).unwrap();
                values
                    .iter()
                    .map(|value| value.elements::<i64>()[0])
                    .collect()
            })
            .collect()
    }

    #[test]
    fn parts_of_one_order_are_all_samples_once() {
        let (_folder, source) = numbers(100);
        let order = Order::shuffled(100, 7, 0);
        let part = |positions| Part::new(Arc::clone(&source), order.clone(), positions);
        let (one, other, none) = (part(0..80), part(80..u64::MAX), part(200..300));
        assert_eq!((one.len(), other.len(), none.len()), (80, 20, 0));
        let mut found = all(&one);
        found.extend(all(&other));
        assert!(!found.is_sorted());
        found.sort_unstable();
        assert_eq!(found, all(&*source));
        assert!(one.read(80, &mut [Value::default()]).is_err());
        assert_eq!(one.place(1), source.place(order.at(1)));
    }

    #[test]
    fn numbers_are_those_of_the_source_below() {
        let (_folder, source) = numbers(10);
        let numbered: Arc<dyn Source> = Arc::new(Numbered::new(source, "number"));
        let part = Part::new(Arc::clone(&numbered), Order::in_turn(10), 6..9);
        assert_eq!(all(&part), [[60, 6], [70, 7], [80, 8]]);
    }
}
