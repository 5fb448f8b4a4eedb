//! Several sources with the same fields, one after another.

use std::sync::Arc;

use crate::array::Field;
use crate::error::ReadError;
use crate::reading::Choice;
use crate::source::{Source, check_index};
use crate::value::Value;

/// The samples of the first source, then those of the second, and so on.
#[derive(Debug)]
pub struct Concatenated {
    /// With the number of its first sample.
    sources: Vec<(u64, Arc<dyn Source>)>,
    len: u64,
}

impl Concatenated {
    /// Nothing where there are no sources, or where their fields differ.
    pub fn new(sources: Vec<Arc<dyn Source>>) -> Option<Concatenated> {
        let fields = sources.first()?.fields().to_vec();
        let mut len = 0_u64;
        let mut counted = Vec::with_capacity(sources.len());
        for source in sources {
            if source.fields() != fields {
                return None;
            }
            let first = len;
            len = len.checked_add(source.len())?;
            counted.push((first, source));
        }
        Some(Concatenated {
            sources: counted,
            len,
        })
    }

    /// The source of a sample, and the number of the sample there.
    fn find(&self, index: u64) -> (&dyn Source, u64) {
        let after = self.sources.partition_point(|(first, _)| *first <= index);
        // The first source begins with 0, so there is one before.
        let (first, source) = &self.sources[after.saturating_sub(1)];
        (&**source, index - first)
    }
}

impl Source for Concatenated {
    fn len(&self) -> u64 {
        self.len
    }

    fn fields(&self) -> &[Field] {
        self.sources[0].1.fields()
    }

    fn max_sample_bytes(&self) -> u64 {
        let each = self
            .sources
            .iter()
            .map(|(_, source)| source.max_sample_bytes());
        each.max().unwrap_or_default()
    }

    fn kept_bytes(&self) -> u64 {
        let each = self.sources.iter().map(|(_, source)| source.kept_bytes());
        each.fold(0, u64::saturating_add)
    }

    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError> {
        check_index(index, self.len)?;
        let (source, index) = self.find(index);
        source.read(index, values)
    }

    fn read_into(
        &self,
        index: u64,
        slots: &mut [&mut [u8]],
        values: &mut [Value],
    ) -> Result<(), ReadError> {
        check_index(index, self.len)?;
        let (source, index) = self.find(index);
        source.read_into(index, slots, values)
    }

    fn place(&self, index: u64) -> String {
        let (source, index) = self.find(index);
        source.place(index)
    }

    fn choice(&self) -> &Choice {
        self.sources[0].1.choice()
    }
}
