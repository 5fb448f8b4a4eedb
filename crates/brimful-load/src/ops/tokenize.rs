//! Text to token ids.

use std::sync::Arc;

use super::layout::wrong_spec;
use super::{Op, OpError, Out, SampleKey, Scratch};
use crate::array::{DType, Encoding, FieldSpec, TensorSpec};
use crate::random::mixed;
use crate::text::Tokenizer;
use crate::value::Value;

/// Bytes of a text that are looked at for each token that is wanted, unless somebody says otherwise. Common text has four
/// or five bytes in a token; what has more than this is mostly spaces.
const BYTES_PER_TOKEN: usize = 32;

/// And in no case fewer or more than these.
const FEWEST_BYTES: usize = 4 << 10;
const MAX_BYTES: usize = 1 << 20;

/// What comes out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenizeOutput {
    #[default]
    Ids,
    /// 1 where there is a token of the text or around it, 0 where it is filled up.
    Mask,
}

/// The first tokens of a text as `int64`, filled up at the end to one length.
#[derive(Clone, Debug)]
pub struct Tokenize {
    tokenizer: Arc<Tokenizer>,
    /// Of the pair of ids and mask: the second of them finds what the first has encoded.
    number: u64,
    /// Tokens of a sample.
    pub length: usize,
    pub pad_id: u32,
    /// Whether the tokenizer's special tokens are put around the text; they are within the length.
    pub special_tokens: bool,
    /// Longer texts are cut.
    pub max_bytes: usize,
    pub gives: TokenizeOutput,
}

impl Tokenize {
    const NAME: &'static str = "tokenize";

    /// As the tokenizer has it, filled up with its own padding or with 0.
    pub fn new(number: u64, tokenizer: Arc<Tokenizer>, length: usize) -> Tokenize {
        Tokenize {
            number,
            length,
            pad_id: tokenizer.pad_id().unwrap_or(0),
            special_tokens: true,
            max_bytes: length
                .saturating_mul(BYTES_PER_TOKEN)
                .clamp(FEWEST_BYTES, MAX_BYTES),
            gives: TokenizeOutput::Ids,
            tokenizer,
        }
    }

    /// The same pair's mask.
    pub fn mask(&self) -> Tokenize {
        Tokenize {
            gives: TokenizeOutput::Mask,
            ..self.clone()
        }
    }

    fn around(&self) -> (&[u32], &[u32]) {
        if self.special_tokens {
            self.tokenizer.around()
        } else {
            (&[], &[])
        }
    }

    fn encode(&self, text: &[u8], scratch: &mut Scratch) -> Result<(), OpError> {
        let malformed = |expected: &str, found: String| OpError::Malformed {
            op: Tokenize::NAME,
            expected: expected.to_owned(),
            found,
        };
        let text = std::str::from_utf8(text).map_err(|error| {
            malformed(
                "UTF-8",
                format!("something else from byte {} on", error.valid_up_to()),
            )
        })?;
        let (before, behind) = self.around();
        let room = self.length.saturating_sub(before.len() + behind.len());
        let Scratch {
            ids, vocabulary, ..
        } = scratch;
        self.tokenizer
            .first(text, room, self.max_bytes, vocabulary, ids)
            .map_err(|error| malformed("text for its tokenizer", error.to_string()))
    }

    fn write(&self, ids: &[u32], out: &mut [u8]) {
        let (before, behind) = self.around();
        let all = before.iter().chain(ids).chain(behind);
        let places = out.as_chunks_mut::<8>().0;
        let (used, rest) =
            places.split_at_mut((before.len() + ids.len() + behind.len()).min(places.len()));
        let (each, pad): (fn(u32) -> i64, i64) = match self.gives {
            TokenizeOutput::Ids => (i64::from, i64::from(self.pad_id)),
            TokenizeOutput::Mask => (|_| 1, 0),
        };
        for (place, &id) in used.iter_mut().zip(all) {
            *place = each(id).to_le_bytes();
        }
        rest.fill(pad.to_le_bytes());
    }
}

impl Op for Tokenize {
    fn name(&self) -> &'static str {
        Tokenize::NAME
    }

    fn output_spec(&self, input: &FieldSpec) -> Result<FieldSpec, OpError> {
        let FieldSpec::Encoded(Encoding::Text | Encoding::Unknown) = input else {
            return Err(wrong_spec(Tokenize::NAME, "text", input));
        };
        let wrong = |expected: String, found: usize| OpError::WrongKind {
            op: Tokenize::NAME,
            expected,
            found: found.to_string(),
        };
        let (before, behind) = self.around();
        let fewest = (before.len() + behind.len()).max(1);
        if self.length < fewest {
            return Err(wrong(
                format!("a length of at least {fewest}, for the special tokens"),
                self.length,
            ));
        }
        if self.max_bytes == 0 {
            return Err(wrong("at least one byte of a text".to_owned(), 0));
        }
        TensorSpec::new(DType::I64, [self.length])
            .map(FieldSpec::Array)
            .ok_or_else(|| wrong("a length that fits into memory".to_owned(), self.length))
    }

    fn scratch_bytes(&self, _input: &FieldSpec) -> u64 {
        let ids = 2 * size_of::<u32>() as u64 * self.length as u64;
        Tokenizer::bytes_for(self.max_bytes as u64).saturating_add(ids)
    }

    fn apply(
        &self,
        _key: SampleKey,
        input: &Value,
        mut out: Out<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), OpError> {
        let out = out.array(Tokenize::NAME, DType::I64, &[self.length])?;
        let text = input.bytes();
        let wanted = Some((self.number, hash(text)));
        if scratch.encoded != wanted {
            scratch.encoded = None;
            self.encode(text, scratch)?;
            scratch.encoded = wanted;
        }
        self.write(&scratch.ids, out);
        Ok(())
    }
}

/// Tells texts apart.
fn hash(text: &[u8]) -> u64 {
    let (eights, rest) = text.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let step = |hash: u64, eight: &[u8; 8]| {
        let bits = (hash ^ u64::from_le_bytes(*eight)).wrapping_mul(0x9fb2_1c65_1e98_df25);
        bits ^ bits >> 29
    };
    mixed(step(eights.iter().fold(text.len() as u64, step), &last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::Opening;
    use crate::ops::Cast;
    use crate::pipeline::{OpScratch, Pipeline, PipelineError, Read, ReadScratch};
    use crate::sources::Lines;
    use crate::sources::testing::fixture;

    const KEY: SampleKey = SampleKey {
        seed: 0,
        epoch: 0,
        index: 1,
    };

    fn tokenizer(name: &str) -> Arc<Tokenizer> {
        let path = fixture(&format!("tokenizers/{name}.json"));
        Arc::new(Tokenizer::open(&path).unwrap())
    }

    fn applied(op: &Tokenize, text: &[u8], scratch: &mut Scratch) -> Result<Vec<i64>, OpError> {
        let mut input = Value::default();
        input
            .set_encoded(text.len())
            .own(text.len())
            .copy_from_slice(text);
        let mut slot = vec![0xee; 8 * op.length];
        op.apply(KEY, &input, Out::Slot(&mut slot), scratch)?;
        let mut value = Value::default();
        op.apply(KEY, &input, Out::Value(&mut value), scratch)?;
        assert_eq!(value.bytes(), slot);
        Ok(value.elements().into_owned())
    }

    #[test]
    fn a_text_is_cut_and_filled_up() {
        let mut scratch = Scratch::default();
        let op = Tokenize::new(0, tokenizer("byte_level"), 6);
        let short = applied(&op, b"a", &mut scratch).unwrap();
        assert_eq!(short[1..], [1; 5], "the tokenizer's own padding");
        let mask = applied(&op.mask(), b"a", &mut scratch).unwrap();
        assert_eq!(mask, [1, 0, 0, 0, 0, 0]);
        let long = applied(&op, b"a1a2a3a4a5a6", &mut scratch).unwrap();
        assert_eq!([long[0], long[2], long[4]], [short[0]; 3]);
        let mask = applied(&op.mask(), b"a1a2a3a4a5a6", &mut scratch).unwrap();
        assert_eq!(mask, [1; 6]);
        assert_eq!(applied(&op, b"", &mut scratch).unwrap(), [1; 6]);
        let zeros = Tokenize { pad_id: 0, ..op };
        assert_eq!(applied(&zeros, b"a", &mut scratch).unwrap()[1..], [0; 5]);
    }

    #[test]
    fn special_tokens_stay_where_a_text_is_cut() {
        let mut scratch = Scratch::default();
        let op = Tokenize::new(0, tokenizer("word_piece"), 4);
        let ids = applied(&op, b"the data the data the data", &mut scratch).unwrap();
        assert_eq!((ids[0], ids[3]), (2, 3));
        assert_eq!(applied(&op, b"", &mut scratch).unwrap(), [2, 3, 0, 0]);
        assert_eq!(
            applied(&op.mask(), b"", &mut scratch).unwrap(),
            [1, 1, 0, 0]
        );
        let plain = Tokenize {
            number: 1,
            special_tokens: false,
            ..op
        };
        assert_eq!(applied(&plain, b"the", &mut scratch).unwrap()[1..], [0; 3]);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let mut scratch = Scratch::default();
        let text = FieldSpec::Encoded(Encoding::Text);
        let op = Tokenize::new(0, tokenizer("word_piece"), 1);
        let found = op.output_spec(&text).unwrap_err().to_string();
        assert_eq!(
            found,
            "tokenize expected a length of at least 2, for the special tokens, found 1"
        );
        let op = Tokenize::new(0, tokenizer("byte_level"), 4);
        assert!(
            op.output_spec(&FieldSpec::Encoded(Encoding::Image))
                .is_err()
        );
        assert_eq!(op.output_spec(&text).unwrap().to_string(), "int64 4");
        let found = applied(&op, b"ab\xff", &mut scratch)
            .unwrap_err()
            .to_string();
        assert_eq!(
            found,
            "tokenize expected UTF-8, found something else from byte 2 on"
        );
        assert!(
            Tokenize::new(0, tokenizer("byte_level"), usize::MAX)
                .output_spec(&text)
                .is_err()
        );
    }

    #[test]
    fn ids_and_mask_are_two_fields_of_one_text() {
        let source = Lines::open(&[fixture("lines.txt")], None, &Opening::default()).unwrap();
        let pipeline = Pipeline::new(Arc::new(source));
        let mut mask = None;
        let both = pipeline
            .copy("text", "mask")
            .unwrap()
            .with("text", |number, _| {
                let ids = Tokenize::new(number, tokenizer("byte_level"), 8);
                mask = Some(ids.mask());
                Ok(Arc::new(ids))
            })
            .unwrap()
            .with("mask", |_, _| Ok(Arc::new(mask.take().unwrap())))
            .unwrap()
            .with("mask", |_, _| Ok(Arc::new(Cast::new(DType::Bool))))
            .unwrap();
        let forms = both.forms().unwrap();
        assert_eq!(
            forms.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["int64 8", "bool 8"]
        );
        let (mut ids, mut mask) = ([0; 64], [0; 8]);
        let (mut read_scratch, mut op_scratch) = (ReadScratch::default(), OpScratch::default());
        let mut slots = [&mut ids[..], &mut mask[..]];
        let read = both.read(KEY, &mut slots, &mut read_scratch).unwrap();
        assert_eq!(read, Read::IntoScratch);
        both.make(KEY, &mut slots, &mut read_scratch, &mut op_scratch)
            .unwrap();
        let padding = ids
            .as_chunks::<8>()
            .0
            .iter()
            .map(|id| u8::from(i64::from_le_bytes(*id) != 1));
        assert_eq!(padding.collect::<Vec<_>>(), mask);
        assert!(read_scratch.held_bytes() as u64 <= both.bytes_to_read());
        assert!(op_scratch.held_bytes() as u64 <= both.bytes_to_make());
        let taken = both.copy("text", "mask");
        assert!(matches!(taken, Err(PipelineError::TakenName { .. })));
    }
}
