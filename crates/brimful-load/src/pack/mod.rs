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
mod error;
mod output;
mod settings;
#[cfg(test)]
mod tests;
mod work;

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

pub use document::{DocumentEncoder, DocumentScratch, TokenSink, Unfinished};
pub use error::PackError;
pub use output::Packed;
pub use settings::PackSettings;

use crate::pack::output::Output;
use crate::pack::work::Shared;
use crate::pipeline::Pipeline;
use crate::text::Tokenizer;

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
        settings: &PackSettings,
    ) -> Result<Packing, PackError> {
        let stored = settings.stored_type(&tokenizer)?;
        let encoder = DocumentEncoder::new(
            pipeline,
            &settings.field,
            tokenizer,
            stored,
            settings.end_id,
            settings.special_tokens,
        )?;
        let n_threads = settings.threads_within(pipeline.source().max_sample_bytes())?;
        let output = Output::create(path, stored)?;
        let shared = Arc::new(Shared::new(encoder, output, n_threads));
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
