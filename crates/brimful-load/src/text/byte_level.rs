//! The words of a text for byte-level tokenizers (GPT-2, Llama 3, Qwen and their kind), found without the library.
//!
//! The library keeps for every character where it came from and makes a string of every word. Tokens need neither. The
//! words are found here only if they are the same: for a byte-level pre-tokenizer whose pattern can be read here, a text
//! without added tokens, and a normalizer that does not change it. Everything else goes through the library.

use aho_corasick::AhoCorasick;
use regex_automata::meta::{Cache, Regex};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, PatternID};
use serde_json::Value as Json;

/// The pattern of GPT-2, which the library has built in.
const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// How such patterns end: a run of spaces leaves its last one to the word behind it.
const SPACES: &str = r"|\s+(?!\S)|\s+";
/// What only the library's regular expressions have.
const OTHERS: [&str; 8] = ["++", "*+", "?+", r"\G", r"\K", r"\1", r"\2", r"\k"];
/// Groups that mean the same there and here.
const GROUPS: [&str; 2] = ["(?:", "(?i:"];
/// Bytes of an automaton that is built while it runs.
const AUTOMATON_BYTES: usize = 1 << 20;
/// Bytes that the search keeps for each thread.
pub(super) const SEARCH_BYTES: usize = 3 * AUTOMATON_BYTES;
/// Added tokens that are looked for in texts.
const MAX_ADDED: usize = 10_000;

/// Finds words.
#[derive(Debug)]
pub(super) struct ByteLevelWords {
    /// The pattern up to its spaces, and `\s+`.
    pattern: Regex,
    added: Option<AhoCorasick>,
    /// Whether other texts are changed by a normalizer.
    is_for_ascii: bool,
}

/// The pattern of `\s+`.
const IS_SPACES: PatternID = PatternID::new_unchecked(1);

impl ByteLevelWords {
    /// Nothing where the library must find the words.
    pub(super) fn of(inner: &tokenizers::Tokenizer) -> Option<ByteLevelWords> {
        let is_for_ascii = match inner.get_normalizer() {
            None => false,
            Some(normalizer) => {
                let normalizer = serde_json::to_value(normalizer).ok()?;
                let kind = normalizer.get("type")?.as_str()?;
                if !["NFC", "NFD", "NFKC", "NFKD"].contains(&kind) {
                    return None;
                }
                true
            }
        };
        let pre_tokenizer = serde_json::to_value(inner.get_pre_tokenizer()?).ok()?;
        let pattern = pattern_of(&pre_tokenizer)?;
        let head = pattern.strip_suffix(SPACES)?;
        let is_known = |at: usize| GROUPS.iter().any(|group| head[at..].starts_with(group));
        if OTHERS.iter().any(|other| head.contains(other))
            || has_possessive_count(head)
            || !head.match_indices("(?").all(|(at, _)| is_known(at))
        {
            return None;
        }
        let config = Regex::config()
            .hybrid_cache_capacity(AUTOMATON_BYTES)
            .onepass(false)
            .backtrack(false);
        let pattern = Regex::builder()
            .configure(config)
            .syntax(syntax::Config::new())
            .build_many(&[head, r"\s+"])
            .ok()?;
        // An empty word would be found again and again; a `\b` is one too.
        let shortest = syntax::parse(head).ok()?.properties().minimum_len();
        if shortest.is_none_or(|bytes| bytes == 0) {
            return None;
        }
        let added = inner.get_added_tokens_decoder();
        if added.len() > MAX_ADDED {
            return None;
        }
        // The library looks for what a normalizer makes of them, which can be ASCII where they are not.
        if is_for_ascii && added.values().any(|token| !token.content.is_ascii()) {
            return None;
        }
        let contents: Vec<&str> = added.values().map(|token| &*token.content).collect();
        if contents.contains(&"") {
            return None;
        }
        Some(ByteLevelWords {
            pattern,
            is_for_ascii,
            added: if contents.is_empty() {
                None
            } else {
                Some(AhoCorasick::new(contents).ok()?)
            },
        })
    }

    pub(super) fn new_search(&self) -> Cache {
        self.pattern.create_cache()
    }

    /// Whether the library would give the same words for this text.
    pub(super) fn can_read(&self, text: &str) -> bool {
        let has_added = |added: &AhoCorasick| added.is_match(text);
        (!self.is_for_ascii || text.is_ascii()) && !self.added.as_ref().is_some_and(has_added)
    }

    /// Gives each word to `take`, as it stands in the text, until that returns false.
    pub(super) fn each<E>(
        &self,
        text: &str,
        search: &mut Cache,
        mut take: impl FnMut(&str) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut at = 0;
        while at < text.len() {
            let input = Input::new(text).range(at..);
            // Words follow each other as a rule, and a search that may begin later looks at everything twice.
            let here = input.clone().anchored(Anchored::Yes);
            let found = self.pattern.search_with(search, &here);
            let Some(found) = found.or_else(|| self.pattern.search_with(search, &input)) else {
                take(&text[at..])?;
                return Ok(());
            };
            if found.start() > at && !take(&text[at..found.start()])? {
                return Ok(());
            }
            let mut end = found.end();
            if found.pattern() == IS_SPACES && end < text.len() {
                let spaces = &text[found.start()..end];
                let last = spaces
                    .char_indices()
                    .next_back()
                    .map_or(0, |(last, _)| last);
                if last > 0 {
                    end = found.start() + last;
                }
            }
            if !take(&text[found.start()..end])? {
                return Ok(());
            }
            at = end;
        }
        Ok(())
    }
}

/// The pattern of a pre-tokenizer that cuts a text by it and then takes its bytes; nothing for others.
fn pattern_of(pre_tokenizer: &Json) -> Option<String> {
    match pre_tokenizer.get("type")?.as_str()? {
        "ByteLevel" if is_byte_level(pre_tokenizer, true) => Some(GPT_2.to_owned()),
        "Sequence" => {
            let [split, bytes] = pre_tokenizer.get("pretokenizers")?.as_array()?.as_slice() else {
                return None;
            };
            let is_split = split.get("type")? == "Split"
                && split.get("behavior")? == "Isolated"
                && split.get("invert")? == &Json::Bool(false);
            let pattern = split.get("pattern")?.get("Regex")?.as_str()?;
            (is_split && is_byte_level(bytes, false)).then(|| pattern.to_owned())
        }
        _ => None,
    }
}

/// Whether there is a `{1,3}+`, which only the library's regular expressions have. `\p{L}+` is none.
fn has_possessive_count(pattern: &str) -> bool {
    pattern.match_indices("}+").any(|(end, _)| {
        let inside = pattern[..end].rsplit_once('{').map(|(_, inside)| inside);
        inside.is_some_and(|inside| {
            inside
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b',')
        })
    })
}

fn is_byte_level(pre_tokenizer: &Json, use_regex: bool) -> bool {
    let is = |name: &str, value: bool| pre_tokenizer.get(name) == Some(&Json::Bool(value));
    pre_tokenizer
        .get("type")
        .is_some_and(|kind| kind == "ByteLevel")
        && is("add_prefix_space", false)
        && is("use_regex", use_regex)
}

/// Writes a word as the vocabularies of byte-level tokenizers have it: a character for each byte.
pub(super) fn write_characters(word: &str, out: &mut String) {
    out.clear();
    out.extend(word.bytes().map(character));
}

/// The character of a byte: itself where it can be printed, else one from U+0100 on, in the order of the bytes.
fn character(byte: u8) -> char {
    let code = u32::from(byte);
    let code = match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0..=0x20 => 0x100 + code,
        0x7F..=0xA0 => 0x100 + 0x21 + code - 0x7F,
        0xAD => 0x100 + 0x21 + 0x22,
    };
    char::from_u32(code).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_of_its_own() {
        let mut all: Vec<char> = (0..=255).map(character).collect();
        assert_eq!(
            (all[0x20], all[0x0A], all[0xAD], all[0xA0]),
            ('Ġ', 'Ċ', 'Ń', 'ł')
        );
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 256);
    }
}
