//! Some samples of another source: a range of them, as they are or shuffled before.

use std::ops::Range;
use std::sync::Arc;

use crate::array::Field;
use crate::error::ReadError;
use crate::order::Order;
use crate::reading::Choice;
use crate::source::{Source, check_index};
use crate::value::Value;

/// The samples at these positions of an order.
///
/// Two parts of one shuffled order have no sample in common: that is how data is split for training and validation,
/// without a list of numbers.
#[derive(Debug)]
pub struct Part {
    source: Arc<dyn Source>,
    order: Order,
    positions: Range<u64>,
}

impl Part {
    /// `positions` are cut to those that there are.
    pub fn new(source: Arc<dyn Source>, order: Order, positions: Range<u64>) -> Part {
        let end = positions.end.min(order.len()).min(source.len());
        let positions = positions.start.min(end)..end;
        Part {
            source,
            order,
            positions,
        }
    }

    fn number(&self, index: u64) -> Result<u64, ReadError> {
        check_index(index, self.len())?;
        Ok(self.order.at(self.positions.start + index))
    }
}

impl Source for Part {
    fn len(&self) -> u64 {
        self.positions.end - self.positions.start
    }

    fn fields(&self) -> &[Field] {
        self.source.fields()
    }

    fn max_sample_bytes(&self) -> u64 {
        self.source.max_sample_bytes()
    }

    fn kept_bytes(&self) -> u64 {
        self.source.kept_bytes()
    }

    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError> {
        self.source.read(self.number(index)?, values)
    }

    fn read_into(
        &self,
        index: u64,
        slots: &mut [&mut [u8]],
        values: &mut [Value],
    ) -> Result<(), ReadError> {
        self.source.read_into(self.number(index)?, slots, values)
    }

    fn place(&self, index: u64) -> String {
        let number = self.number(index);
        number.map_or_else(
            |_| format!("sample {index}"),
            |number| self.source.place(number),
        )
    }

    fn choice(&self) -> &Choice {
        self.source.choice()
    }
}
