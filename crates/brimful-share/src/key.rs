//! Keys of dicts: bytes that are equal where Python says that the keys are.

use crate::error::Damaged;
use crate::layout::{Item, MAX_DEPTH};
use crate::list::List;

/// A key as bytes, made part by part; 1, 1.0 and True are the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key(Vec<u8>);

const NONE: u8 = 0;
const INT: u8 = 1;
const BIG_INT: u8 = 2;
const FLOAT: u8 = 3;
const STR: u8 = 4;
const LOOSE_STR: u8 = 5;
const BYTES: u8 = 6;
const TUPLE: u8 = 7;

/// 2^63: below it every whole float is an i64.
const BEYOND_INT: f64 = 9_223_372_036_854_775_808.0;

impl Key {
    pub fn push_none(&mut self) {
        self.0.push(NONE);
    }

    pub fn push_int(&mut self, value: i64) {
        self.0.push(INT);
        self.0.extend(value.to_le_bytes());
    }

    pub fn push_float(&mut self, value: f64) {
        if value.fract() == 0.0 && (-BEYOND_INT..BEYOND_INT).contains(&value) {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "whole, and inside of the range"
            )]
            self.push_int(value as i64);
        } else {
            self.0.push(FLOAT);
            self.0.extend(value.to_bits().to_le_bytes());
        }
    }

    pub fn push_str(&mut self, text: &[u8]) {
        self.push_span(STR, text);
    }

    pub fn push_loose_str(&mut self, text: &[u8]) {
        self.push_span(LOOSE_STR, text);
    }

    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.push_span(BYTES, bytes);
    }

    pub fn push_big_int(&mut self, bytes: &[u8]) {
        self.push_span(BIG_INT, bytes);
    }

    /// So many parts follow.
    pub fn push_tuple(&mut self, len: usize) {
        self.0.push(TUPLE);
        self.0.extend((len as u64).to_le_bytes());
    }

    fn push_span(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        self.0.extend((bytes.len() as u64).to_le_bytes());
        self.0.extend(bytes);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is the key that `item` stands for.
    pub(crate) fn is(&self, bytes: &[u8], item: Item<'_>) -> Result<bool, Damaged> {
        if let Item::Str(text) = item {
            return Ok(self.0.first() == Some(&STR) && self.0.get(9..) == Some(text));
        }
        let mut other = Key::default();
        Ok(other.push_item(bytes, item, 0)? && *self == other)
    }

    /// Appends what `item` stands for; false for what cannot be a key.
    pub(crate) fn push_item(
        &mut self,
        bytes: &[u8],
        item: Item<'_>,
        depth: usize,
    ) -> Result<bool, Damaged> {
        match item {
            Item::None => self.push_none(),
            Item::Bool(value) => self.push_int(i64::from(value)),
            Item::Int(value) => self.push_int(value),
            Item::BigInt(value) => self.push_big_int(value),
            Item::Float(value) => self.push_float(value),
            Item::Str(text) => self.push_str(text),
            Item::LooseStr(text) => self.push_loose_str(text),
            Item::Bytes(value) => self.push_bytes(value),
            Item::Tuple(at) if depth < MAX_DEPTH => {
                let parts = List::read(bytes, at)?;
                self.push_tuple(parts.len());
                for idx in 0..parts.len() {
                    // A tuple that repeats itself may be endless; no key of ours is that long.
                    if self.0.len() > bytes.len() {
                        return Ok(false);
                    }
                    if !self.push_item(bytes, parts.get(bytes, idx)?, depth + 1)? {
                        return Ok(false);
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Mixes 8 bytes at a time; the seed is chance, so that nobody can prepare keys that collide.
pub(crate) fn hash(seed: u64, bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |state: u64, value: u64| {
        let wide = u128::from(state ^ value) * u128::from(ODD);
        let [low, high] = [wide & u128::from(u64::MAX), wide >> 64];
        u64::try_from(low ^ high).expect("both halves have 64 bits")
    };
    let mut state = mix(seed, bytes.len() as u64);
    let chunks = bytes.chunks_exact(8);
    let mut rest = [0; 8];
    rest[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    for chunk in chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        state = mix(state, u64::from_le_bytes(word));
    }
    mix(mix(state, u64::from_le_bytes(rest)), seed.rotate_left(32))
}
