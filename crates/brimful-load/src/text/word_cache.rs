//! What became of words that were met before.

use regex_automata::meta::Cache;

use crate::random::mixed;
use crate::text::byte_level::SEARCH_BYTES;

/// Longest word that is kept, in bytes as the model sees it.
const MAX_WORD_BYTES: usize = 34;

/// Most tokens of a word that is kept.
const MAX_TOKENS: usize = 6;

/// Two megabytes: the words of common use, and little more than what a processor has at hand.
const SLOTS: usize = 1 << 15;

/// The tokens of words, for one thread.
///
/// A word has one place, and the last one that came there stays: the memory is the same for any text, and no word of
/// a text can slow the others down by more than itself.
#[derive(Debug, Default)]
pub struct WordCache {
    slots: Vec<Slot>,
    /// What the search for words has found out, and for which tokenizer.
    search: Option<(u32, Cache)>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    tokens: [u32; MAX_TOKENS],
    /// Number of the tokenizer; 0 where there is no word yet.
    tokenizer: u32,
    word: [u8; MAX_WORD_BYTES],
    len: u8,
    n_tokens: u8,
}

const _: () = assert!(size_of::<Slot>() == 64, "one line of a processor's cache");

impl WordCache {
    /// Bytes that it takes once it is used, with the search for words.
    pub const BYTES: usize = SLOTS * size_of::<Slot>() + SEARCH_BYTES;

    pub(crate) fn held_bytes(&self) -> usize {
        let search = self.search.as_ref();
        self.slots.capacity() * size_of::<Slot>()
            + search.map_or(0, |(_, search)| search.memory_usage())
    }

    /// The search of a tokenizer, or a new one.
    pub(super) fn take_search(&mut self, tokenizer: u32, new: impl FnOnce() -> Cache) -> Cache {
        match self.search.take() {
            Some((known, search)) if known == tokenizer => search,
            _ => new(),
        }
    }

    pub(super) fn keep_search(&mut self, tokenizer: u32, search: Cache) {
        self.search = Some((tokenizer, search));
    }

    /// Puts the tokens of a word behind `ids`; `encode` is asked where they are not known.
    pub(super) fn append<E>(
        &mut self,
        tokenizer: u32,
        word: &str,
        ids: &mut Vec<u32>,
        encode: impl FnOnce(&str, &mut Vec<u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = word.as_bytes();
        if bytes.len() > MAX_WORD_BYTES {
            return encode(word, ids);
        }
        if self.slots.is_empty() {
            self.slots = vec![
                Slot {
                    tokens: [0; MAX_TOKENS],
                    tokenizer: 0,
                    word: [0; MAX_WORD_BYTES],
                    len: 0,
                    n_tokens: 0,
                };
                SLOTS
            ];
        }
        let mut padded = [0; MAX_WORD_BYTES];
        padded[..bytes.len()].copy_from_slice(bytes);
        let slot = &mut self.slots[place(&padded, tokenizer)];
        let is_known = slot.tokenizer == tokenizer
            && usize::from(slot.len) == bytes.len()
            && slot.word == padded;
        if is_known {
            ids.extend_from_slice(&slot.tokens[..usize::from(slot.n_tokens)]);
            return Ok(());
        }
        let before = ids.len();
        encode(word, ids)?;
        let tokens = &ids[before..];
        if let Some(place) = slot.tokens.get_mut(..tokens.len()) {
            place.copy_from_slice(tokens);
            slot.tokenizer = tokenizer;
            slot.word = padded;
            slot.len = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
            slot.n_tokens = u8::try_from(tokens.len()).unwrap_or(u8::MAX);
        }
        Ok(())
    }
}

fn place(padded: &[u8; MAX_WORD_BYTES], tokenizer: u32) -> usize {
    let (eights, rest) = padded.as_chunks::<8>();
    let rest = rest.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    let start = u64::from(tokenizer) ^ rest;
    let hash = eights.iter().fold(start, |hash, eight| {
        (hash.rotate_left(25) ^ u64::from_le_bytes(*eight)).wrapping_mul(0x9fb2_1c65_1e98_df25)
    });
    #[expect(clippy::cast_possible_truncation, reason = "the bits that are wanted")]
    let place = mixed(hash) as usize % SLOTS;
    place
}
