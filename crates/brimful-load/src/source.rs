//! Where samples come from.

use std::fmt;

use crate::array::Field;
use crate::error::ReadError;
use crate::reading::{Access, Choice};
use crate::remote;
use crate::value::Value;

/// A dataset of which any sample can be read at any time, by any number of threads at once.
///
/// One file of `sources/` is one format. A source opens its files once, checks what it can, and from then on only
/// reads. It takes no lock that another thread's read would wait for.
pub trait Source: fmt::Debug + Send + Sync {
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The fields of every sample, in the order in which `read` fills them.
    fn fields(&self) -> &[Field];

    /// Bytes that reading one sample takes at the most, all fields and the buffers of a decompression together.
    fn max_sample_bytes(&self) -> u64;

    /// Bytes that it keeps from sample to sample at the most, whoever reads. The loader counts them in full.
    fn kept_bytes(&self) -> u64 {
        match self.choice().access {
            Access::Remote => remote::KEPT,
            Access::Mapped | Access::Read | Access::Direct => 0,
        }
    }

    /// Reads one sample into `values`, one for each field, with the memory that these already have.
    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError>;

    /// Reads one sample straight into a batch: one slot for each field, of the bytes of its form. Only for sources whose
    /// fields are all arrays of a fixed form. `values` are memory to work with, and hold anything afterwards.
    fn read_into(
        &self,
        index: u64,
        slots: &mut [&mut [u8]],
        values: &mut [Value],
    ) -> Result<(), ReadError> {
        self.read(index, values)?;
        copy_to_slots(values, slots)
    }

    /// The file and the place in it, for messages: `nyu.h5, sample 17`.
    fn place(&self, index: u64) -> String;

    /// How its bytes are read, and why so.
    fn choice(&self) -> &Choice;
}

/// Copies each value into its slot.
fn copy_to_slots(values: &[Value], slots: &mut [&mut [u8]]) -> Result<(), ReadError> {
    check_slots(slots, values.len())?;
    for (value, slot) in values.iter().zip(slots) {
        let bytes = value.bytes();
        check_slot(slot, bytes.len())?;
        slot.copy_from_slice(bytes);
    }
    Ok(())
}

/// Whether there is a slot for each field.
pub(crate) fn check_slots(slots: &[&mut [u8]], n_fields: usize) -> Result<(), ReadError> {
    if slots.len() == n_fields {
        return Ok(());
    }
    Err(ReadError::Malformed {
        expected: format!("{n_fields} slots"),
        found: format!("{}", slots.len()),
    })
}

/// Whether a slot is of the bytes of a sample.
pub(crate) fn check_slot(slot: &[u8], bytes: usize) -> Result<(), ReadError> {
    if slot.len() == bytes {
        return Ok(());
    }
    Err(ReadError::Malformed {
        expected: format!("a slot of {bytes} bytes"),
        found: format!("one of {}", slot.len()),
    })
}

/// Whether there is such a sample.
pub(crate) fn check_index(index: u64, len: u64) -> Result<(), ReadError> {
    if index < len {
        return Ok(());
    }
    Err(ReadError::Malformed {
        expected: format!("a sample below {len}"),
        found: format!("number {index}"),
    })
}
