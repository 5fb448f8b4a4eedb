//! Many phrases, one pass.

use aho_corasick::AhoCorasick;

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

/// Finds all phrases in one pass over a text, also those that overlap.
#[derive(Debug)]
pub(super) struct Index {
    automaton: AhoCorasick,
    /// In the order of the automaton's patterns.
    tells: Vec<Tell>,
}

/// A phrase that is printed more often than this in one text is looked at so often at its beginning, and
/// [`LAST_HITS`] times at its end.
const FIRST_HITS: usize = 192;
const LAST_HITS: usize = 64;

impl Index {
    pub(super) fn new(families: &[&[Phrase]]) -> Index {
        let phrases = || families.iter().flat_map(|family| family.iter());
        let automaton = AhoCorasick::new(phrases().map(|phrase| flat(phrase.words)))
            .expect("far fewer bytes of phrases than an automaton can have states");
        Index {
            automaton,
            tells: phrases().map(|phrase| phrase.tell).collect(),
        }
    }

    /// Every sign in a text, in no order.
    pub(super) fn signs(&self, reading: &Reading) -> Vec<Sign> {
        let mut hits: Vec<Vec<Hit>> = vec![Vec::new(); self.tells.len()];
        for found in self.automaton.find_overlapping_iter(&reading.flat) {
            hits[found.pattern()].push(Hit {
                at: found.start(),
                end: found.end(),
            });
        }
        let mut signs = Vec::new();
        for (hits, tell) in hits.iter().zip(&self.tells) {
            let last_begin = hits.len().saturating_sub(LAST_HITS).max(FIRST_HITS);
            let first = hits.iter().take(FIRST_HITS);
            let last = hits.iter().skip(last_begin);
            for hit in first.chain(last) {
                match tell {
                    Tell::Means(rank, cause, detail) => {
                        signs.push(hit.sign(*rank, *cause, *detail));
                    }
                    Tell::Ask(answer) => signs.extend(answer(reading, *hit)),
                }
            }
        }
        signs
    }
}

fn flat(words: &str) -> String {
    let flat: String = words
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_ascii_lowercase())
        .collect();
    debug_assert!(flat.len() >= 4, "a phrase needs four bytes: {flat}");
    flat
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(phrases: &[Phrase], text: &str) -> Vec<(Detail, usize)> {
        let signs = Index::new(&[phrases]).signs(&Reading::new(text));
        signs.iter().map(|sign| (sign.detail, sign.at)).collect()
    }

    const fn phrase(words: &'static str, detail: Detail) -> Phrase {
        means(words, Rank::Named, Cause::HostAllocFailed, detail)
    }

    #[test]
    fn phrases_that_overlap_are_all_found() {
        let phrases = [
            phrase("out of memory", Detail::Refused),
            phrase("memory error", Detail::FailedElsewhere),
            phrase("Out Of Memory Error", Detail::WorkerVanished),
            phrase("out of memory", Detail::FailedElsewhere),
        ];
        let found = places(&phrases, "so out of\nmemory error");
        assert_eq!(
            found,
            [
                (Detail::Refused, 2),
                (Detail::FailedElsewhere, 7),
                (Detail::WorkerVanished, 2),
                (Detail::FailedElsewhere, 2),
            ]
        );
    }

    #[test]
    fn a_phrase_in_every_line_is_looked_at_at_both_ends() {
        let text = "killed by somebody\n".repeat(1000);
        let found = places(&[phrase("killed by", Detail::Refused)], &text);
        assert_eq!(found.len(), FIRST_HITS + LAST_HITS);
        let last = found.last().map(|(_, at)| *at);
        assert_eq!(last, Some("killedbysomebody".len() * 999));
    }
}
