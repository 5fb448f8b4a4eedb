//! A tokenizer as Hugging Face's `tokenizers` writes it to a `tokenizer.json`.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use brimful::printable::is_printable;
use tokenizers::models::ModelWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{
    Decoder, Encoding, Model, OffsetReferential, OffsetType, PostProcessor, PreTokenizedString,
    PreTokenizer,
};

use crate::catch_panics::catch_panics;
use crate::error::SourceError;
use crate::problem::Problem;
use crate::text::bounded::{Bounded, too_long_content};
use crate::text::byte_level::{self, ByteLevelWords};
use crate::text::word_cache::WordCache;

/// Largest file that is read. The largest in use in November 2026 has 33 MB; what is made of it takes many times as much.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Characters of the library's messages that are passed on.
const MAX_MESSAGE: usize = 300;

/// Most special tokens around a text.
const MAX_ADDED: usize = 4096;

/// Bytes of memory for each byte of a text while it is encoded, at the most: the library keeps the text before and after
/// its changes, where each character came from, and a string for every word. Measured with words of one byte each, where
/// it is most (365): see `tests/tokenizer_memory.rs`.
const BYTES_PER_BYTE: u64 = 400;

/// A first look at a text takes so many bytes for each token that is wanted; common text has four or five.
const LOOK_BYTES: usize = 8;

/// Tokens at the end of a look that the cut may have changed.
const MARGIN: usize = 64;

/// What the short way to words is compared with the library on, for every tokenizer that it is used with.
const SAMPLES: [&str; 4] = [
    "It's  the DON'T, we'll\n\n\tfind 1234567 items; x=y+2  (ok?)...  \r\n   end   ",
    "naïve café Ünïcödé e\u{301} 中文字符 日本語 한국어 देवनागरी العربية ١٢٣ ½ Ⅷ ² 🙂👍🏽",
    " \u{a0}\u{2003}x\u{3000} \u{85} \u{200b}y \u{feff}z\u{0} \u{1f} a\u{2028}b ' 's 'S 'LL",
    "   ",
];

/// Any number of threads encode with it at once, without locks and without threads of its own.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    path: PathBuf,
    /// No other tokenizer of this process has it.
    number: u32,
    before: Vec<u32>,
    behind: Vec<u32>,
    pad_id: Option<u32>,
    largest_id: u32,
    /// The short way to words; nothing where there is only the library's.
    byte_level: Option<ByteLevelWords>,
}

/// A text that cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub enum NotEncoded {
    #[error("a text that the tokenizer's normalizer makes many times longer")]
    GrowsTooMuch,
    #[error("a text that it rejects: {0}")]
    Refused(String),
    #[error("a tokenizer that contradicts itself")]
    Contradiction,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`, or the one of a folder.
    pub fn open(path: &Path) -> Result<Tokenizer, SourceError> {
        let path = if path.is_dir() {
            path.join("tokenizer.json")
        } else {
            path.to_owned()
        };
        Tokenizer::opened(&path).map_err(|problem| problem.of(&path))
    }

    fn opened(path: &Path) -> Result<Tokenizer, Problem> {
        let mut bytes = Vec::new();
        let file = File::open(path)?;
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(Problem::malformed(
                format!("a tokenizer of at most {MAX_FILE_BYTES} bytes"),
                "a larger one",
            ));
        }
        // The library checks less than it should; a panic of its is an error of the file.
        let contradiction = || Problem::malformed("a tokenizer", "one that contradicts itself");
        let parsed =
            catch_panics(|| tokenizers::Tokenizer::from_bytes(&bytes)).ok_or_else(contradiction)?;
        drop(bytes);
        let inner =
            parsed.map_err(|error| Problem::malformed("a tokenizer", message_of(&error)))?;
        catch_panics(|| Tokenizer::of(inner, path)).ok_or_else(contradiction)?
    }

    fn of(mut inner: tokenizers::Tokenizer, path: &Path) -> Result<Tokenizer, Problem> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        if let Some(bytes) = inner.get_normalizer().and_then(too_long_content) {
            return Err(Problem::malformed(
                "replacements of a few characters",
                format!("one of {bytes} bytes"),
            ));
        }
        let pad_id = inner.get_padding().map(|padding| padding.pad_id);
        let mut model = inner.get_model().clone();
        if let ModelWrapper::BPE(bpe) = &model
            && bpe.dropout.is_some_and(|dropout| dropout != 0.0)
        {
            return Err(Problem::unsupported(
                "a tokenizer whose results are random",
                "set `dropout` of its model to null: the same text must give the same tokens",
            ));
        }
        // Words are kept for each thread by `WordCache`, within known memory.
        model.resize_cache(0);
        inner.with_model(model);
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|error| Problem::malformed("a tokenizer", message_of(&error)))?;
        let (before, behind) = around(&inner)?;
        let largest_id = inner.get_vocab(true).into_values().max().unwrap_or(0);
        let around = before.iter().chain(&behind).copied().max().unwrap_or(0);
        Ok(Tokenizer {
            path: path.to_owned(),
            // Two: words of the short way are kept as they stand in the text.
            number: NEXT.fetch_add(2, Ordering::Relaxed),
            before,
            behind,
            pad_id,
            largest_id: largest_id.max(around),
            byte_level: ByteLevelWords::of(&inner),
            inner,
        }
        .checked())
    }

    /// Gives up the short way where it finds other tokens than the library in a text that has something of everything.
    fn checked(mut self) -> Tokenizer {
        let mut words = WordCache::default();
        let (mut short, mut long) = (Vec::new(), Vec::new());
        let is_same = self.byte_level.is_none()
            || SAMPLES.iter().all(|text| {
                short.clear();
                long.clear();
                self.encode(text, usize::MAX, &mut words, &mut short)
                    .is_ok()
                    == self
                        .encode_by_library(text, usize::MAX, &mut words, &mut long)
                        .is_ok()
                    && short == long
            });
        if !is_same {
            self.byte_level = None;
        }
        self
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it fills up with, where it says so.
    pub fn pad_id(&self) -> Option<u32> {
        self.pad_id
    }

    /// The largest token that it gives.
    pub fn largest_id(&self) -> u32 {
        self.largest_id
    }

    /// Special tokens before and behind a text.
    pub fn around(&self) -> (&[u32], &[u32]) {
        (&self.before, &self.behind)
    }

    /// The text of some tokens, for people to look at; nothing where the library finds none.
    pub fn text_of(&self, tokens: &[u32]) -> Option<String> {
        let decoded = || {
            // Without a decoder the library shows the letters that stand for bytes.
            if self.inner.get_decoder().is_none() && self.byte_level.is_some() {
                let each = tokens.iter().map(|id| self.inner.id_to_token(*id));
                let each = each.map(Option::unwrap_or_default).collect();
                return ByteLevel::default().decode(each).ok();
            }
            self.inner.decode(tokens, false).ok()
        };
        catch_panics(decoded).flatten()
    }

    /// Bytes of memory that encoding a text of so many bytes takes at the most, besides the tokens.
    pub fn bytes_for(text: u64) -> u64 {
        text.saturating_mul(BYTES_PER_BYTE)
            .saturating_add(WordCache::BYTES as u64)
    }

    /// Puts the tokens of a text behind `ids`, without special ones around it. Stops when there are `most` new ones or
    /// more.
    pub fn append(
        &self,
        text: &str,
        most: usize,
        words: &mut WordCache,
        ids: &mut Vec<u32>,
    ) -> Result<(), NotEncoded> {
        // What a file says wrong of its vocabulary shows only here, as a panic of the library.
        catch_panics(|| self.encode(text, most, words, ids))
            .unwrap_or(Err(NotEncoded::Contradiction))
    }

    fn encode(
        &self,
        text: &str,
        most: usize,
        words: &mut WordCache,
        ids: &mut Vec<u32>,
    ) -> Result<(), NotEncoded> {
        let Some(byte_level) = self.byte_level.as_ref().filter(|way| way.can_read(text)) else {
            return self.encode_by_library(text, most, words, ids);
        };
        let end = ids.len().saturating_add(most);
        let model = self.inner.get_model();
        let number = self.number + 1;
        let mut search = words.take_search(number, || byte_level.new_search());
        let mut characters = String::new();
        let found = byte_level.each(text, &mut search, |word| {
            if ids.len() >= end {
                return Ok(false);
            }
            words.append(number, word, ids, |word, ids| {
                byte_level::write_characters(word, &mut characters);
                let tokens = model.tokenize(&characters)?;
                ids.extend(tokens.iter().map(|token| token.id));
                Ok::<_, tokenizers::Error>(())
            })?;
            Ok(true)
        });
        words.keep_search(number, search);
        found.map_err(|error| NotEncoded::Refused(message_of(&error)))
    }

    #[cfg(test)]
    pub(super) fn has_short_way(&self) -> bool {
        self.byte_level.is_some()
    }

    #[cfg(test)]
    pub(super) fn append_by_library(
        &self,
        text: &str,
        words: &mut WordCache,
        ids: &mut Vec<u32>,
    ) -> Result<(), NotEncoded> {
        self.encode_by_library(text, usize::MAX, words, ids)
    }

    fn encode_by_library(
        &self,
        text: &str,
        most: usize,
        words: &mut WordCache,
        ids: &mut Vec<u32>,
    ) -> Result<(), NotEncoded> {
        let refused = |error: tokenizers::Error| NotEncoded::Refused(message_of(&error));
        let mut pieces = self.normalized(text)?;
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(refused)?;
        }
        let end = ids.len().saturating_add(most);
        let model = self.inner.get_model();
        for (word, _, tokens) in pieces.get_splits(OffsetReferential::Normalized, OffsetType::None)
        {
            if ids.len() >= end {
                break;
            }
            if let Some(tokens) = tokens {
                ids.extend(tokens.iter().map(|token| token.id));
                continue;
            }
            words
                .append(self.number, word, ids, |word, ids| {
                    let tokens = model.tokenize(word)?;
                    ids.extend(tokens.iter().map(|token| token.id));
                    Ok(())
                })
                .map_err(refused)?;
        }
        Ok(())
    }

    /// The first `n` tokens of a text, of which at most `max_bytes` are looked at.
    ///
    /// A long text is not encoded to its end for its beginning: as much is taken as gives some more tokens than wanted,
    /// so that those at the cut are not among the ones that are given.
    pub fn first(
        &self,
        text: &str,
        n: usize,
        max_bytes: usize,
        words: &mut WordCache,
        ids: &mut Vec<u32>,
    ) -> Result<(), NotEncoded> {
        let text = &text[..text.floor_char_boundary(max_bytes)];
        let enough = n.saturating_add(MARGIN);
        let mut look = enough.saturating_mul(LOOK_BYTES);
        loop {
            ids.clear();
            let part = &text[..text.floor_char_boundary(look)];
            self.append(part, enough, words, ids)?;
            if ids.len() >= enough || part.len() == text.len() {
                ids.truncate(n);
                return Ok(());
            }
            look = look.saturating_mul(4);
        }
    }

    fn normalized(&self, text: &str) -> Result<PreTokenizedString, NotEncoded> {
        let vocabulary = self.inner.get_added_vocabulary();
        let Some(normalizer) = self.inner.get_normalizer() else {
            return Ok(vocabulary.extract_and_normalize(None::<&Bounded<'_>>, text));
        };
        let bounded = Bounded::new(normalizer, text);
        let pieces = vocabulary.extract_and_normalize(Some(&bounded), text);
        if bounded.was_exceeded() {
            return Err(NotEncoded::GrowsTooMuch);
        }
        Ok(pieces)
    }
}

impl fmt::Debug for Tokenizer {
    /// Without its vocabulary.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer({})", self.path.display())
    }
}

/// What the library says, which quotes what it found: as long as the file, and with its control characters.
fn message_of(error: &tokenizers::Error) -> String {
    let text = error.to_string();
    let printable = text.chars().map(|c| if is_printable(c) { c } else { ' ' });
    printable.take(MAX_MESSAGE).collect()
}

/// The special tokens that the tokenizer puts before and behind a text: what it makes of one token that nobody has.
fn around(inner: &tokenizers::Tokenizer) -> Result<(Vec<u32>, Vec<u32>), Problem> {
    const TEXT: u32 = u32::MAX;
    let Some(processor) = inner.get_post_processor() else {
        return Ok((Vec::new(), Vec::new()));
    };
    let added = processor.added_tokens(false);
    if added > MAX_ADDED {
        return Err(Problem::malformed(
            format!("at most {MAX_ADDED} special tokens around a text"),
            added.to_string(),
        ));
    }
    let text: Encoding = [(TEXT, String::new(), (0, 0), None, 0)]
        .into_iter()
        .collect();
    let all = inner
        .post_process(text, None, true)
        .map_err(|error| Problem::malformed("a tokenizer", message_of(&error)))?;
    let ids = all.get_ids();
    let mut parts = ids.split(|&id| id == TEXT);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(before), Some(behind), None) => Ok((before.to_vec(), behind.to_vec())),
        _ => Err(Problem::unsupported(
            "a tokenizer that gives a text other than once",
            "its `post_processor` should have the text once, and special tokens around it",
        )),
    }
}
