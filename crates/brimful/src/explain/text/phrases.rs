//! Many phrases, one pass.

use std::collections::HashMap;

use crate::explain::text::clean::Reading;
use crate::explain::text::sign::{Facts, Rank, Sign};
use crate::explain::{Cause, Detail};

/// Something that programs print. Written as they print it; searched without white space and in small letters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phrase {
    words: &'static str,
    tell: Tell,
}

/// What a phrase means.
#[derive(Clone, Copy, Debug)]
enum Tell {
    /// Always the same.
    Means(Rank, Cause, Detail),
    /// It depends on what stands around it.
    Ask(fn(&Reading, Hit) -> Option<Sign>),
}

/// Where a phrase was found, in bytes of the reading's `flat`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    pub(super) at: usize,
    pub(super) end: usize,
}

pub(super) const fn means(words: &'static str, rank: Rank, cause: Cause, detail: Detail) -> Phrase {
    Phrase {
        words,
        tell: Tell::Means(rank, cause, detail),
    }
}

pub(super) const fn ask(words: &'static str, answer: fn(&Reading, Hit) -> Option<Sign>) -> Phrase {
    Phrase {
        words,
        tell: Tell::Ask(answer),
    }
}

impl Hit {
    /// This place as a sign.
    pub(super) fn sign(self, rank: Rank, cause: Cause, detail: Detail) -> Sign {
        Sign {
            cause,
            detail,
            rank,
            at: self.at,
            facts: Facts::default(),
        }
    }
}

/// The first four bytes of every phrase, so that a text is walked once however many phrases there are.
#[derive(Debug)]
pub(super) struct Index {
    phrases: Vec<(String, Tell)>,
    by_first_bytes: HashMap<[u8; 4], Vec<usize>>,
    /// Which pairs of first bytes occur at all: most places of a text are ruled out here.
    may_begin: Vec<bool>,
}

/// A phrase that is printed more often than this in one text is looked at so often at its beginning, and
/// [`LAST_HITS`] times at its end.
const FIRST_HITS: usize = 192;
const LAST_HITS: usize = 64;

impl Index {
    pub(super) fn new(families: &[&[Phrase]]) -> Index {
        let mut index = Index {
            phrases: Vec::new(),
            by_first_bytes: HashMap::new(),
            may_begin: vec![false; 1 << 16],
        };
        for phrase in families.iter().flat_map(|family| family.iter()) {
            let flat: String = phrase
                .words
                .chars()
                .filter(|c| !c.is_whitespace())
                .map(|c| c.to_ascii_lowercase())
                .collect();
            let Some(first) = flat.as_bytes().first_chunk::<4>().copied() else {
                debug_assert!(false, "a phrase needs four bytes: {flat}");
                continue;
            };
            index.may_begin[pair(first[0], first[1])] = true;
            index
                .by_first_bytes
                .entry(first)
                .or_default()
                .push(index.phrases.len());
            index.phrases.push((flat, phrase.tell));
        }
        index
    }

    /// Every sign in a text, in no order.
    pub(super) fn signs(&self, reading: &Reading) -> Vec<Sign> {
        let mut places: Vec<Vec<usize>> = vec![Vec::new(); self.phrases.len()];
        for (at, window) in reading.flat.as_bytes().windows(4).enumerate() {
            let &[a, b, c, d] = window else { continue };
            if !self.may_begin[pair(a, b)] {
                continue;
            }
            let Some(candidates) = self.by_first_bytes.get(&[a, b, c, d]) else {
                continue;
            };
            for candidate in candidates {
                if reading.flat.as_bytes()[at..].starts_with(self.phrases[*candidate].0.as_bytes())
                {
                    places[*candidate].push(at);
                }
            }
        }
        let mut signs = Vec::new();
        for (places, (flat, tell)) in places.iter().zip(&self.phrases) {
            let last_begin = places.len().saturating_sub(LAST_HITS).max(FIRST_HITS);
            let first = places.iter().take(FIRST_HITS);
            let last = places.iter().skip(last_begin);
            for at in first.chain(last) {
                let hit = Hit {
                    at: *at,
                    end: at + flat.len(),
                };
                match tell {
                    Tell::Means(rank, cause, detail) => {
                        signs.push(hit.sign(*rank, *cause, *detail));
                    }
                    Tell::Ask(answer) => signs.extend(answer(reading, hit)),
                }
            }
        }
        signs
    }
}

fn pair(a: u8, b: u8) -> usize {
    usize::from(a) << 8 | usize::from(b)
}
