//! Text to token ids.

use std::sync::Arc;

use super::layout::wrong_kind;
use super::{Op, OpError, Out, SampleKey, Scratch, mixed};
use crate::array::{DType, Encoding, Form, Kind};
use crate::text::Tokenizer;
use crate::value::Value;

/// Bytes of a text that are looked at for each token that is wanted, unless somebody says otherwise. Common text has four
/// or five bytes in a token; what has more than this is mostly spaces.
const BYTES_PER_TOKEN: usize = 32;

/// And in no case fewer or more than these.
const FEWEST_BYTES: usize = 4 << 10;
const MOST_BYTES: usize = 1 << 20;

/// What comes out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gives {
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
    pub most_bytes: usize,
    pub gives: Gives,
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
            most_bytes: length
                .saturating_mul(BYTES_PER_TOKEN)
                .clamp(FEWEST_BYTES, MOST_BYTES),
            gives: Gives::Ids,
            tokenizer,
        }
    }

    /// The same pair's mask.
    pub fn mask(&self) -> Tokenize {
        Tokenize {
            gives: Gives::Mask,
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
            .first(text, room, self.most_bytes, vocabulary, ids)
            .map_err(|error| malformed("text for its tokenizer", error.to_string()))
    }

    fn write(&self, ids: &[u32], out: &mut [u8]) {
        let (before, behind) = self.around();
        let all = before.iter().chain(ids).chain(behind);
        let places = out.as_chunks_mut::<8>().0;
        let (used, rest) =
            places.split_at_mut((before.len() + ids.len() + behind.len()).min(places.len()));
        let (each, pad): (fn(u32) -> i64, i64) = match self.gives {
            Gives::Ids => (i64::from, i64::from(self.pad_id)),
            Gives::Mask => (|_| 1, 0),
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

    fn kind(&self, input: &Kind) -> Result<Kind, OpError> {
        let Kind::Encoded(Encoding::Text | Encoding::Unknown) = input else {
            return Err(wrong_kind(Tokenize::NAME, "text", input));
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
        if self.most_bytes == 0 {
            return Err(wrong("at least one byte of a text".to_owned(), 0));
        }
        Form::new(DType::I64, [self.length])
            .map(Kind::Array)
            .ok_or_else(|| wrong("a length that fits into memory".to_owned(), self.length))
    }

    fn scratch_bytes(&self, _input: &Kind) -> u64 {
        let ids = 2 * size_of::<u32>() as u64 * self.length as u64;
        Tokenizer::bytes_for(self.most_bytes as u64).saturating_add(ids)
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
