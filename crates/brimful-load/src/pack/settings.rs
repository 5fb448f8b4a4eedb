//! How documents are packed.

use brimful::units::Bytes;

use crate::array::DType;
use crate::pack::document::{IDS_BYTES, PIECE_BYTES};
use crate::pack::error::PackError;
use crate::pack::work::RUN_BYTES;
use crate::text::Tokenizer;

/// How documents are packed.
#[derive(Clone, Debug)]
pub struct PackSettings {
    /// The field that is the text.
    pub field: String,
    /// [`DType::U16`] or [`DType::U32`]; without it the smaller one that all tokens fit into.
    pub stored: Option<DType>,
    /// Put behind every document.
    pub end_id: Option<u32>,
    /// Whether the tokenizer's special tokens are put around every document.
    pub special_tokens: bool,
    /// Nothing for one per processor.
    pub threads: Option<usize>,
    /// All that it may hold.
    pub memory: Bytes,
}

impl PackSettings {
    pub(super) fn stored_type(&self, tokenizer: &Tokenizer) -> Result<DType, PackError> {
        let largest = tokenizer.largest_id().max(self.end_id.unwrap_or(0));
        let fits = u16::try_from(largest).is_ok();
        match self.stored {
            None | Some(DType::U16) if fits => Ok(DType::U16),
            None | Some(DType::U32) => Ok(DType::U32),
            Some(DType::U16) => Err(PackError::Setting {
                name: "dtype",
                expected: format!("uint32 for tokens up to {largest}"),
                found: "uint16".to_owned(),
            }),
            Some(other) => Err(PackError::Setting {
                name: "dtype",
                expected: "uint16 or uint32".to_owned(),
                found: other.to_string(),
            }),
        }
    }

    pub(super) fn threads_within(&self, max_sample_bytes: u64) -> Result<usize, PackError> {
        if self.threads == Some(0) {
            return Err(PackError::Setting {
                name: "threads",
                expected: "at least 1".to_owned(),
                found: "0".to_owned(),
            });
        }
        // A run that is written to and one that waits for its turn, in vectors that have grown.
        let needed = max_sample_bytes
            .saturating_add(Tokenizer::bytes_for(PIECE_BYTES as u64))
            .saturating_add(IDS_BYTES)
            .saturating_add(2 * 2 * RUN_BYTES as u64);
        if needed > self.memory.get() {
            return Err(PackError::TooLittleMemory {
                needed: Bytes(needed),
                memory: self.memory,
            });
        }
        let most = usize::try_from(self.memory.get() / needed.max(1)).unwrap_or(usize::MAX);
        Ok(self.threads.unwrap_or_else(crate::processors).min(most))
    }
}
