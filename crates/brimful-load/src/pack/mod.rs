//! Documents to one file of tokens, with where each document begins beside it.
//!
//! ```text
//!             ┌ thread ┐  each takes the next few samples
//!  Pipeline ─▶├ thread ┤ ──▶ tokens ──▶ NAME, in the order of the source
//!             └ thread ┘       └──────▶ NAME.documents
//! ```
//!
//! Both files have other names until they are whole, so what bears its name is never half of it.
//! The format of `NAME.documents` stands in `sources/tokens/documents.rs`; [`crate::sources::Tokens`] reads both.

mod document;
mod output;
#[cfg(test)]
mod tests;
mod work;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use brimful::units::Bytes;

use crate::array::DType;
use crate::pack::document::PIECE_BYTES;
use crate::pack::output::Output;
use crate::pack::work::{RUN_BYTES, Shared};
use crate::pipeline::{Pipeline, PipelineError, SampleError};
use crate::text::Tokenizer;

/// How documents are packed.
#[derive(Clone, Debug)]
pub struct Settings {
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

/// What was packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    pub documents: u64,
    pub tokens: u64,
    pub stored: DType,
}

/// Documents cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    #[error("{name} must be {expected}, found {found}")]
    Setting {
        name: &'static str,
        expected: String,
        found: String,
    },
    #[error(
        "memory budget of {memory} is too small: one thread and its longest document need {needed}"
    )]
    TooLittleMemory { needed: Bytes, memory: Bytes },
    #[error("another process is writing {}", path.display())]
    Busy { path: PathBuf },
    #[error("failed to write {}", path.display())]
    Unwritable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error(transparent)]
    Sample(#[from] SampleError),
}

/// Documents that are being packed. Dropping it ends its threads and leaves nothing behind.
#[derive(Debug)]
pub struct Packing {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Packing {
    pub fn start(
        pipeline: &Pipeline,
        tokenizer: Arc<Tokenizer>,
        path: &Path,
        settings: &Settings,
    ) -> Result<Packing, PackError> {
        let field = pipeline.text_field(&settings.field, "pack")?;
        let stored = settings.stored_type(&tokenizer)?;
        let source = Arc::clone(pipeline.source());
        let n_threads = settings.threads_within(source.max_sample_bytes())?;
        let output = Output::create(path, stored)?;
        let shared = Arc::new(Shared::new(
            document::Encoder {
                source,
                field,
                field_name: settings.field.clone(),
                tokenizer,
                stored,
                end_id: settings.end_id,
                special_tokens: settings.special_tokens,
            },
            output,
            n_threads,
        ));
        let threads = (0..n_threads)
            .map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name("brimful-pack".to_owned())
                    .spawn(move || shared.work())
            })
            .take_while(Result::is_ok)
            .flatten()
            .collect();
        Ok(Packing { shared, threads })
    }

    /// Samples of the source.
    pub fn total(&self) -> u64 {
        self.shared.total()
    }

    /// Those of them that are written.
    pub fn done(&self) -> u64 {
        self.shared.done()
    }

    /// What was packed; nothing where it is not over after `timeout`. An error is that of the first sample that failed,
    /// in the order of the source.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Packed>, PackError> {
        if self.threads.is_empty() {
            // The system gives no threads: the work is done here.
            self.shared.work();
        }
        if !self.shared.wait(timeout) {
            return Ok(None);
        }
        self.join();
        self.shared.finish().map(Some)
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A thread's panic was caught and told where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Packing {
    fn drop(&mut self) {
        self.shared.stop();
        self.join();
    }
}

impl Settings {
    fn stored_type(&self, tokenizer: &Tokenizer) -> Result<DType, PackError> {
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

    fn threads_within(&self, max_sample_bytes: u64) -> Result<usize, PackError> {
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
            .saturating_add(document::IDS_BYTES)
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
