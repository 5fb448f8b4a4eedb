//! The first samples of a dataset: of a trial, or of its first shard.

use brimful::preview::{
    MAX_DOCUMENTS, MAX_SAMPLES, Preview, PreviewField, PreviewValue, short_number,
};
use brimful_load::expression::{Expression, PathList, SourceExpression};
use brimful_load::text::Tokenizer;
use brimful_load::{DType, Opening, SampleMaker, TensorSpec};

use crate::error::PrepareError;
use crate::manifest::Manifest;
use crate::map::slots_of;
use crate::picture::{element, picture, range_of, whole_number};
use crate::preparation::Preparation;
use crate::records::sample_key;
use crate::run_file::RunFile;

/// Tokens of a block that are shown.
const MAX_TOKENS: usize = 100;
/// Numbers of an array that are shown.
const MAX_NUMBERS: usize = 8;
/// Blocks of tokens take more room than pictures.
const MAX_BLOCKS: usize = 8;

impl Preparation {
    /// The first samples of a dataset that is finished, as a loader gives them.
    pub fn preview(&self, manifest: &Manifest) -> Result<Preview, PrepareError> {
        let mut preview = self.empty_preview();
        let Some(shard) = manifest.shards.first() else {
            return Ok(preview);
        };
        let path = PathList::One(self.work().out().join(&shard.file));
        let tokens = self.packer().map(|packer| (packer.form(), packer.stored));
        let source = match &tokens {
            None => SourceExpression {
                arrow: Some(path),
                ..SourceExpression::default()
            },
            Some((form, stored)) => SourceExpression {
                tokens: Some(path),
                length: Some(form.block),
                dtype: Some(stored.to_string()),
                documents: Some(true),
                ..SourceExpression::default()
            },
        };
        let expression = Expression {
            source,
            ..Expression::default()
        };
        let pipeline = expression.open(&Opening::default())?;
        let sizes: Vec<usize> = pipeline.forms()?.iter().map(TensorSpec::bytes).collect();
        let mut record = vec![0; sizes.iter().sum()];
        let mut maker = SampleMaker::new(pipeline);
        let tokenizer = self.preview_tokenizer();
        for index in 0..shard.samples.min(self.preview_samples()) {
            let mut slots = slots_of(&mut record, &sizes);
            maker.make(sample_key(0, 0, index), &mut slots)?;
            preview.samples.push(match &tokens {
                None => self.values(&record),
                Some((form, stored)) => {
                    let start = form.tokens_bytes() + sizes.get(1).copied().unwrap_or(0);
                    let positions = record.get(start..).unwrap_or_default();
                    let wide = positions.len() / form.block.max(1);
                    let is_start = |at: &usize| {
                        let position = positions.get(at * wide..(at + 1) * wide);
                        position.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
                    };
                    let starts: Vec<usize> = (0..form.block).filter(is_start).collect();
                    let block = &record[..form.tokens_bytes()];
                    vec![documents(*stored, block, &starts, tokenizer.as_ref())]
                }
            });
        }
        Ok(preview)
    }

    /// The first samples of a run.
    pub(crate) fn preview_run(&self, run: &RunFile) -> Result<Preview, PrepareError> {
        let mut preview = self.empty_preview();
        let Some(segment) = run.footer.segments.first() else {
            return Ok(preview);
        };
        let reader = run.file()?;
        let tokenizer = self.preview_tokenizer();
        let mut record = Vec::new();
        for place in 0..segment.count.min(self.preview_samples()) {
            record.clear();
            reader.records(segment, place..place + 1, &mut record)?;
            preview.samples.push(match self.packer() {
                None => self.values(&record),
                Some(packer) => {
                    let form = packer.form();
                    let starts: Vec<usize> = form.starts(&record).collect();
                    let block = record.get(..form.tokens_bytes()).unwrap_or_default();
                    let stored = packer.stored;
                    vec![documents(stored, block, &starts, tokenizer.as_ref())]
                }
            });
        }
        Ok(preview)
    }

    fn empty_preview(&self) -> Preview {
        let fields = self.fields().iter().map(|field| PreviewField {
            name: field.name.clone(),
            dtype: field.form.dtype().to_string(),
            shape: field.form.shape().to_vec(),
        });
        Preview {
            fields: fields.collect(),
            samples: Vec::new(),
        }
    }

    fn preview_samples(&self) -> u64 {
        let has_blocks = self.packer().is_some();
        (if has_blocks { MAX_BLOCKS } else { MAX_SAMPLES }) as u64
    }

    /// If it cannot be opened, tokens are shown as numbers.
    fn preview_tokenizer(&self) -> Option<std::sync::Arc<Tokenizer>> {
        self.packer()?.tokenizer().ok()
    }

    fn values(&self, mut record: &[u8]) -> Vec<PreviewValue> {
        let mut values = Vec::new();
        for field in self.fields() {
            let (bytes, rest) = record.split_at(field.form.bytes().min(record.len()));
            record = rest;
            values.push(match picture(&field.form, bytes) {
                Some(picture) => PreviewValue::Picture(picture),
                None => PreviewValue::Numbers(numbers(&field.form, bytes)),
            });
        }
        values
    }
}

/// The beginning of a block as texts, one for each document in it.
fn documents(
    stored: DType,
    block: &[u8],
    starts: &[usize],
    tokenizer: Option<&std::sync::Arc<Tokenizer>>,
) -> PreviewValue {
    let n_tokens = block.len() / stored.size();
    let shown = n_tokens.min(MAX_TOKENS);
    let shown = starts
        .get(MAX_DOCUMENTS)
        .map_or(shown, |next| shown.min(*next));
    let mut cuts: Vec<usize> = starts.iter().copied().filter(|at| *at < shown).collect();
    if cuts.first() != Some(&0) {
        cuts.insert(0, 0);
    }
    cuts.push(shown);
    let text = |range: &[usize]| {
        let tokens = (range[0]..range[1]).filter_map(|at| element(stored, block, at));
        let tokens: Vec<u32> = tokens.map(token).collect();
        let decoded = tokenizer.and_then(|tokenizer| tokenizer.text_of(&tokens));
        decoded.unwrap_or_else(|| {
            let words: Vec<String> = tokens.iter().map(u32::to_string).collect();
            words.join(" ")
        })
    };
    PreviewValue::Documents {
        texts: cuts.windows(2).map(text).collect(),
        n_left_out: n_tokens - shown,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tokens are stored as uint16 or uint32"
)]
fn token(value: f64) -> u32 {
    value as u32
}

/// Some numbers of an array, and between which values all of them are.
fn numbers(form: &TensorSpec, bytes: &[u8]) -> String {
    let count = bytes.len() / form.dtype().size();
    let values = || (0..count).filter_map(|at| element(form.dtype(), bytes, at));
    let first: Vec<String> = (0..count.min(MAX_NUMBERS))
        .filter_map(|at| match whole_number(form.dtype(), bytes, at) {
            Some(whole) => Some(whole.to_string()),
            None => element(form.dtype(), bytes, at).map(short_number),
        })
        .collect();
    let first = first.join(" ");
    if count <= MAX_NUMBERS {
        return first;
    }
    match range_of(values()) {
        Some((low, high)) => {
            let (low, high) = (short_number(low), short_number(high));
            format!("{first} … ({count} numbers from {low} to {high})")
        }
        None => format!("{first} … ({count} numbers, none of them finite)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_arrays_are_shown_by_their_first_numbers_and_their_range() {
        let form = TensorSpec::new(DType::U8, [10]).unwrap();
        assert_eq!(
            numbers(&form, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 200]),
            "0 1 2 3 4 5 6 7 … (10 numbers from 0 to 200)"
        );
        let label = TensorSpec::new(DType::I64, []).unwrap();
        assert_eq!(numbers(&label, &(-3_i64).to_le_bytes()), "-3");
        let id = 9_007_199_254_740_993_i64;
        assert_eq!(numbers(&label, &id.to_le_bytes()), id.to_string());
    }

    #[test]
    fn a_block_is_cut_where_documents_begin() {
        let block: Vec<u8> = (0..300_u16).flat_map(u16::to_le_bytes).collect();
        let found = documents(DType::U16, &block, &[0, 3, 5, 250], None);
        let PreviewValue::Documents { texts, n_left_out } = found else {
            panic!("{found:?}");
        };
        assert_eq!(n_left_out, 200);
        assert_eq!(texts[..2], ["0 1 2", "3 4"]);
        assert_eq!(texts.len(), 3);
        assert!(texts[2].ends_with("98 99"));
        let short: Vec<usize> = (0..60).map(|at| at * 4).collect();
        let found = documents(DType::U16, &block, &short, None);
        let PreviewValue::Documents { texts, n_left_out } = found else {
            panic!("{found:?}");
        };
        assert_eq!((texts.len(), n_left_out), (6, 300 - 24));
    }
}
