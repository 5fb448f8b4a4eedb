//! A tokenizer's changes to a text, kept within bounds.
//!
//! A `tokenizer.json` says what is replaced by what. One that replaces every letter by two, twenty times over, would ask
//! for a million times the text; so the length is looked at after every change.

use std::sync::atomic::{AtomicBool, Ordering};

use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::{NormalizedString, Normalizer};

/// A text may become so many times longer. Decomposed Korean, the longest of what people write, is three times itself.
const TIMES: usize = 4;

/// And by so many bytes, so that short texts may have any character.
const SLACK: usize = 64 << 10;

/// Longest text that one change may put in the place of a match.
const MAX_CONTENT_LEN: usize = 64;

/// Changes a text as the tokenizer would, and stops where it grows too much.
#[derive(Debug)]
pub(super) struct Bounded<'a> {
    normalizer: &'a NormalizerWrapper,
    max_bytes: usize,
    /// The caller of a normalizer may forget its error.
    was_exceeded: AtomicBool,
}

impl<'a> Bounded<'a> {
    pub(super) fn new(normalizer: &'a NormalizerWrapper, text: &str) -> Bounded<'a> {
        Bounded {
            normalizer,
            max_bytes: text.len().saturating_mul(TIMES).saturating_add(SLACK),
            was_exceeded: AtomicBool::new(false),
        }
    }

    pub(super) fn was_exceeded(&self) -> bool {
        self.was_exceeded.load(Ordering::Relaxed)
    }

    fn run(
        &self,
        normalizer: &NormalizerWrapper,
        text: &mut NormalizedString,
    ) -> tokenizers::Result<()> {
        if let NormalizerWrapper::Sequence(all) = normalizer {
            return all.as_ref().iter().try_for_each(|one| self.run(one, text));
        }
        normalizer.normalize(text)?;
        if text.get().len() > self.max_bytes {
            self.was_exceeded.store(true, Ordering::Relaxed);
            return Err("the text grows too much".into());
        }
        Ok(())
    }
}

impl Normalizer for Bounded<'_> {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        self.run(self.normalizer, text)
    }
}

/// Bytes of the longest text that is put in somewhere, where it is too long.
pub(super) fn too_long_content(normalizer: &NormalizerWrapper) -> Option<usize> {
    let bytes = match normalizer {
        NormalizerWrapper::Sequence(all) => all.as_ref().iter().find_map(too_long_content)?,
        NormalizerWrapper::Replace(replace) => replace.content.len(),
        NormalizerWrapper::Prepend(prepend) => prepend.prepend.len(),
        _ => 0,
    };
    (bytes > MAX_CONTENT_LEN).then_some(bytes)
}
