//! Where samples come from.

use std::fmt;

use crate::array::Field;
use crate::error::ReadError;
use crate::pipeline::copied;
use crate::reading::Choice;
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
    fn largest_sample(&self) -> u64;

    /// Reads one sample into `values`, one for each field, with the memory that these already have.
    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError>;

    /// Reads one sample straight into the slots of a batch, one for each field. Sources whose samples lie ready in the
    /// file do better than this.
    fn read_into(
        &self,
        index: u64,
        slots: &mut [&mut [u8]],
        values: &mut [Value],
    ) -> Result<(), ReadError> {
        self.read(index, values)?;
        for (value, slot) in values.iter().zip(slots) {
            copied(value, slot)?;
        }
        Ok(())
    }

    /// The file and the place in it, for messages: `nyu.h5, sample 17`.
    fn place(&self, index: u64) -> String;

    /// How its bytes are read, and why so.
    fn choice(&self) -> &Choice;
}
