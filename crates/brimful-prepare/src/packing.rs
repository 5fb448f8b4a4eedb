//! Documents of a split to blocks of tokens.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brimful::units::Bytes;
use brimful_load::pack::{DocumentEncoder, DocumentScratch, TokenSink, Unfinished};
use brimful_load::text::Tokenizer;
use brimful_load::{DType, Pipeline};

use crate::blocks::{BlockBuilder, BlockForm};
use crate::error::PrepareError;
use crate::keep::Keep;
use crate::recipe::{OnSampleError, PackingOp};
use crate::run_file::RunWriter;

/// How documents become blocks.
#[derive(Debug)]
pub(crate) struct Packer {
    op: PackingOp,
    /// Opened by the first task that encodes: shard tasks do not.
    tokenizer: Mutex<Option<Arc<Tokenizer>>>,
    pub(crate) stored: DType,
}

/// Blocks that take what an encoder gives.
struct Blocks<'a> {
    builder: &'a mut BlockBuilder,
    run: &'a mut RunWriter,
}

impl TokenSink for Blocks<'_> {
    type Stopped = PrepareError;

    fn take(&mut self, tokens: &[u8]) -> Result<(), PrepareError> {
        self.builder.push(tokens, self.run)
    }
}

impl Packer {
    pub(crate) fn open(op: PackingOp) -> Result<Packer, PrepareError> {
        let tokenizer = Tokenizer::open(&op.tokenizer)?;
        let largest = tokenizer.largest_id().max(op.op.end_id.unwrap_or(0));
        let fits = u16::try_from(largest).is_ok();
        let stored = match op.op.dtype.as_deref() {
            None | Some("uint16") if fits => DType::U16,
            None | Some("uint32") => DType::U32,
            Some(other) => {
                return Err(PrepareError::Setting {
                    name: "dtype",
                    expected: if fits {
                        "uint16 or uint32".to_owned()
                    } else {
                        format!("uint32 for tokens up to {largest}")
                    },
                    found: other.to_owned(),
                });
            }
        };
        Ok(Packer {
            op,
            tokenizer: Mutex::new(Some(Arc::new(tokenizer))),
            stored,
        })
    }

    /// One whose tokens were found to fit into `stored`.
    pub(crate) fn of(op: PackingOp, stored: DType) -> Packer {
        Packer {
            op,
            tokenizer: Mutex::new(None),
            stored,
        }
    }

    pub(crate) fn tokenizer(&self) -> Result<Arc<Tokenizer>, PrepareError> {
        let mut opened = self
            .tokenizer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(tokenizer) = &*opened {
            return Ok(Arc::clone(tokenizer));
        }
        let tokenizer = Arc::new(Tokenizer::open(&self.op.tokenizer)?);
        Ok(Arc::clone(opened.insert(tokenizer)))
    }

    pub(crate) fn form(&self) -> BlockForm {
        BlockForm {
            block: self.op.block,
            token_bytes: self.stored.size(),
        }
    }

    pub(crate) fn encoder(&self, pipeline: &Pipeline) -> Result<DocumentEncoder, PrepareError> {
        let field = self.op.op.field_of(pipeline)?;
        Ok(DocumentEncoder::new(
            pipeline,
            &field,
            self.tokenizer()?,
            self.stored,
            self.op.op.end_id,
            self.op.op.special_tokens.unwrap_or(false),
        )?)
    }
}

/// Encodes documents in order.
pub(crate) fn pack(
    encoder: &DocumentEncoder,
    documents: Range<u64>,
    keep: &mut Keep,
    on_error: OnSampleError,
    builder: &mut BlockBuilder,
    run: &mut RunWriter,
    is_stopped: &AtomicBool,
) -> Result<(), PrepareError> {
    let mut scratch = DocumentScratch::default();
    for index in documents {
        if is_stopped.load(Ordering::Relaxed) {
            return Err(PrepareError::Stopped);
        }
        if !keep.takes(index, on_error, run.footer())? {
            continue;
        }
        let mark = if on_error == OnSampleError::Skip {
            // What is in the file cannot be taken back.
            run.make_room()?;
            Some(builder.mark(run))
        } else {
            None
        };
        builder.begin_document();
        let outcome = encoder.document(index, &mut scratch, &mut Blocks { builder, run });
        match (outcome, mark) {
            (Ok(tokens), _) => {
                run.footer().documents += 1;
                run.footer().tokens += tokens;
            }
            (Err(Unfinished::Stopped(error)), _) => return Err(error),
            (Err(Unfinished::Failed(error)), None) => return Err(error.into()),
            (Err(Unfinished::Failed(error)), Some(mark)) => {
                if !builder.go_back(mark, run) {
                    return Err(PrepareError::TooLongToSkip {
                        buffered: Bytes(run.capacity_bytes() / 2),
                        cause: error,
                    });
                }
                run.footer().skipped.add(&error);
            }
        }
    }
    Ok(())
}
