//! Tokenizers that were broken, and texts that take the most memory: errors, no panic, and never more than is said.

#![expect(clippy::disallowed_methods, reason = "tests make files of all kinds")]

mod counting;

use std::alloc::Layout;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use brimful_load::text::{Tokenizer, WordCache};

use counting::{Counting, HELD, PEAK};

/// How often each tokenizer is broken at random.
const ROUNDS: usize = 400;

#[global_allocator]
static COUNTING: Counting = Counting { taken };

/// What glibc takes for it: small pieces come in steps of 16 bytes, with 8 of its own, and never less than 32.
fn taken(layout: Layout) -> usize {
    (layout.size() + 8).next_multiple_of(16).max(32)
}

/// Bytes that `work` takes more than there were, at the most.
fn peak_of(work: impl FnOnce()) -> usize {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    work();
    PEAK.load(Ordering::Relaxed).saturating_sub(before)
}

fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fixtures/load/tokenizers"
    ))
    .join(format!("{name}.json"))
}

/// One test, so that nothing else is counted.
#[test]
fn memory_stays_below_what_is_said_and_broken_tokenizers_are_errors() {
    texts_take_no_more_than_is_said();
    broken_tokenizers_are_errors();
}

fn texts_take_no_more_than_is_said() {
    let nasty = [
        "a ",
        "a",
        ".",
        "1",
        " ",
        "\n",
        "a.",
        "word ",
        "é",
        "日",
        "日 ",
        "\u{1f980}",
        "<pad>",
        "한",
        "e\u{301}",
    ];
    for name in ["byte_level", "word_piece", "whole_text", "pieces"] {
        let tokenizer = Tokenizer::open(&fixture(name)).expect("a fixture");
        let mut words = WordCache::default();
        let mut ids = Vec::with_capacity(8 << 20);
        for part in nasty {
            let text = part.repeat((64 << 10) / part.len());
            let peak = peak_of(|| {
                ids.clear();
                tokenizer
                    .append(&text, usize::MAX, &mut words, &mut ids)
                    .expect("text");
            });
            let said = Tokenizer::bytes_for(text.len() as u64);
            assert!(peak as u64 <= said, "{name}, {part:?}: {peak} over {said}");
        }
    }
}

fn broken_tokenizers_are_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("broken.json");
    let mut dice = 1_u64;
    let mut below = |end: usize| {
        dice = dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(dice >> 33).expect("31 bits") % end
    };
    for name in ["byte_level", "word_piece", "whole_text", "pieces"] {
        let whole = std::fs::read(fixture(name)).expect("a fixture");
        let peak = peak_of(|| {
            for round in 0..ROUNDS {
                let mut bytes = whole.clone();
                if round % 4 == 0 {
                    bytes.truncate(below(whole.len()));
                } else {
                    for _ in 0..=below(3) {
                        let at = below(bytes.len());
                        bytes[at] = b"0123456789\"{}[],:aZ-\xff"[below(21)];
                    }
                }
                std::fs::write(&path, &bytes).expect("written");
                if let Ok(tokenizer) = Tokenizer::open(&path) {
                    let (mut ids, mut words) = (Vec::new(), WordCache::default());
                    let _ = tokenizer.append("some text 123 ünd more", 100, &mut words, &mut ids);
                }
            }
        });
        assert!(peak < 64 << 20, "{peak}");
    }
}
