//! One document to its tokens.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::array::DType;
use crate::error::{OpError, ReadError};
use crate::pipeline::{Pipeline, PipelineError, SampleCause, SampleError};
use crate::source::Source;
use crate::text::{Tokenizer, WordCache};
use crate::value::Value;
use brimful_mapping::Guard;

/// Bytes of a text that are encoded in one go; a longer one is cut before a space, so that memory is bounded.
pub(super) const PIECE_BYTES: usize = 128 << 10;

/// Bytes of the tokens of a piece: one for each byte of it, in a vector that has grown, and once more as they are written.
pub(super) const IDS_BYTES: u64 = 3 * 4 * PIECE_BYTES as u64;

/// How the samples of a source become tokens.
#[derive(Debug)]
pub struct DocumentEncoder {
    source: Arc<dyn Source>,
    /// Place among the fields of the source.
    field: usize,
    field_name: String,
    tokenizer: Arc<Tokenizer>,
    stored: DType,
    end_id: Option<u32>,
    special_tokens: bool,
}

/// The memory of one thread, kept from document to document.
#[derive(Debug, Default)]
pub struct DocumentScratch {
    values: Vec<Value>,
    words: WordCache,
    ids: Vec<u32>,
}

/// Takes tokens as they are made.
pub trait TokenSink {
    type Stopped;

    fn take(&mut self, tokens: &[u8]) -> Result<(), Self::Stopped>;
}

/// A document that was not finished.
#[derive(Debug)]
pub enum Unfinished<S> {
    Failed(SampleError),
    Stopped(S),
}

impl DocumentEncoder {
    /// For the texts of one field, as tokens of that type.
    pub fn new(
        pipeline: &Pipeline,
        field: &str,
        tokenizer: Arc<Tokenizer>,
        stored: DType,
        end_id: Option<u32>,
        special_tokens: bool,
    ) -> Result<DocumentEncoder, PipelineError> {
        Ok(DocumentEncoder {
            field: pipeline.text_field(field, "pack")?,
            source: Arc::clone(pipeline.source()),
            field_name: field.to_owned(),
            tokenizer,
            stored,
            end_id,
            special_tokens,
        })
    }

    /// Documents.
    pub fn len(&self) -> u64 {
        self.source.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Maximum number of bytes that one thread holds.
    pub fn max_bytes(&self) -> u64 {
        self.source
            .max_sample_bytes()
            .saturating_add(self.source.kept_bytes())
            .saturating_add(Tokenizer::bytes_for(PIECE_BYTES as u64))
            .saturating_add(IDS_BYTES)
    }

    /// Gives the tokens of one document, piece by piece, and tells how many they were.
    ///
    /// A mistake of ours in one document must not leave everybody waiting forever: a panic is its failure.
    pub fn document<S: TokenSink>(
        &self,
        index: u64,
        read_scratch: &mut DocumentScratch,
        sink: &mut S,
    ) -> Result<u64, Unfinished<S::Stopped>> {
        // The text may be that of a mapped file.
        let _guard = Guard::enter();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.encoded(index, read_scratch, sink)));
        let is_finished = matches!(outcome, Ok(Ok(_) | Err(Unfinished::Stopped(_))));
        let mut values = read_scratch.values.iter();
        let truncated = match values.try_for_each(|value| value.piece.check_all()) {
            Err(error) if !is_finished => Some(ReadError::from(error)),
            _ => None,
        };
        if outcome.is_err() {
            *read_scratch = DocumentScratch::default();
        }
        match (outcome, truncated) {
            (_, Some(truncated)) => Err(self.failed(index, truncated.into())),
            (Ok(outcome), None) => outcome,
            (Err(_), None) => Err(self.failed(index, SampleCause::Panic("a panic".to_owned()))),
        }
    }

    fn failed<S>(&self, index: u64, cause: SampleCause) -> Unfinished<S> {
        Unfinished::Failed(SampleError {
            place: self.source.place(index),
            index,
            field: Some(self.field_name.clone()),
            cause: Box::new(cause),
        })
    }

    fn encoded<S: TokenSink>(
        &self,
        index: u64,
        read_scratch: &mut DocumentScratch,
        sink: &mut S,
    ) -> Result<u64, Unfinished<S::Stopped>> {
        let failed = |cause| self.failed(index, cause);
        let DocumentScratch { values, words, ids } = read_scratch;
        values.resize_with(self.source.fields().len(), Value::default);
        self.source
            .read(index, values)
            .map_err(|error| failed(error.into()))?;
        let malformed = |expected: &str, found: String| {
            failed(SampleCause::Op(OpError::Malformed {
                op: "pack",
                expected: expected.to_owned(),
                found,
            }))
        };
        let text = std::str::from_utf8(values[self.field].bytes()).map_err(|error| {
            let from = error.valid_up_to();
            malformed("UTF-8", format!("something else from byte {from} on"))
        })?;
        let (before, behind) = if self.special_tokens {
            self.tokenizer.around()
        } else {
            (&[][..], &[][..])
        };
        let mut count = 0;
        let mut give = |ids: &mut Vec<u32>| {
            // What is given is written: no token may come of bytes that the file does not have.
            let checked = values[self.field].piece.check();
            checked.map_err(|error| failed(ReadError::from(error).into()))?;
            let bytes = self
                .bytes_of(ids)
                .map_err(|id| malformed(&format!("tokens of {}", self.stored), id.to_string()))?;
            sink.take(&bytes).map_err(Unfinished::Stopped)?;
            count += ids.len() as u64;
            ids.clear();
            Ok(())
        };
        ids.clear();
        ids.extend_from_slice(before);
        for piece in pieces(text) {
            self.tokenizer
                .append(piece, usize::MAX, words, ids)
                .map_err(|error| malformed("text for its tokenizer", error.to_string()))?;
            give(ids)?;
        }
        ids.extend_from_slice(behind);
        ids.extend(self.end_id);
        give(ids)?;
        Ok(count)
    }

    /// Tokens as they lie in the file; the first one that does not fit is an error.
    fn bytes_of(&self, ids: &[u32]) -> Result<Vec<u8>, u32> {
        match self.stored {
            DType::U16 => ids
                .iter()
                .map(|&id| u16::try_from(id).map(u16::to_le_bytes).map_err(|_| id))
                .collect::<Result<Vec<_>, u32>>()
                .map(Vec::into_flattened),
            _ => Ok(ids.iter().flat_map(|id| id.to_le_bytes()).collect()),
        }
    }
}

/// Cuts a long text before a space, or where there is none for long between two characters.
///
/// Most tokenizers have a word begin with the space before it, so that nothing changes at such a place.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let most = rest.floor_char_boundary(PIECE_BYTES);
        let cut = if most == rest.len() {
            most
        } else {
            let bytes = rest.as_bytes();
            let is_lone = |&at: &usize| {
                bytes[at] == b' ' && !bytes[at - 1].is_ascii_whitespace() && bytes[at + 1] != b' '
            };
            (most / 2..most).rev().find(is_lone).unwrap_or(most)
        };
        let (piece, after) = rest.split_at(cut);
        rest = after;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_before_lone_spaces() {
        let words = "word  and more ".repeat(30_000);
        let all: Vec<&str> = pieces(&words).collect();
        assert_eq!(all.concat(), words);
        assert_eq!(all.len(), 4);
        assert!(
            all[1..]
                .iter()
                .all(|piece| piece.starts_with(" more") || piece.starts_with(" word"))
        );
        let letters = "ü".repeat(100_001);
        let all: Vec<&str> = pieces(&letters).collect();
        assert_eq!(all.concat(), letters);
        assert!(all.iter().all(|piece| piece.len() <= PIECE_BYTES));
        assert_eq!(pieces("").count(), 0);
        assert_eq!(pieces(&"x".repeat(PIECE_BYTES)).count(), 1);
    }
}
