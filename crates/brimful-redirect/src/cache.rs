//! Directories that were looked up before, and in which layers they lie.
//!
//! An entry holds while the shared generation stands still: layers change only through this library, and the real
//! files do not change during a rehearsal. The table needs no lock that a `fork` or a signal could find taken: a
//! reader that meets a writer misses, and an entry that a dead writer left behind is lost, not waited for.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::dir_state::DirState;

const N_ENTRIES: usize = 2048;
const KEY_WORDS: usize = 29;

struct Entry {
    /// Odd while it is written.
    sequence: AtomicU64,
    generation: AtomicU64,
    /// Length of the key, and the packed state.
    meta: AtomicU64,
    key: [AtomicU64; KEY_WORDS],
}

impl Entry {
    const fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            meta: AtomicU64::new(0),
            key: [const { AtomicU64::new(0) }; KEY_WORDS],
        }
    }
}

static ENTRIES: [Entry; N_ENTRIES] = [const { Entry::new() }; N_ENTRIES];

/// The state of a directory, if it is known for this generation.
pub(crate) fn get(path: &[u8], generation: u64) -> Option<DirState> {
    let entry = slot(path)?;
    let before = entry.sequence.load(Ordering::Acquire);
    if before % 2 == 1 || entry.generation.load(Ordering::Relaxed) != generation {
        return None;
    }
    let meta = entry.meta.load(Ordering::Relaxed);
    if meta >> 48 != path.len() as u64 {
        return None;
    }
    for (word, kept) in words(path).zip(&entry.key) {
        if kept.load(Ordering::Relaxed) != word {
            return None;
        }
    }
    fence(Ordering::Acquire);
    if entry.sequence.load(Ordering::Relaxed) != before {
        return None;
    }
    DirState::unpack(meta & 0xffff_ffff_ffff)
}

pub(crate) fn put(path: &[u8], generation: u64, state: DirState) {
    let Some(entry) = slot(path) else { return };
    let before = entry.sequence.load(Ordering::Relaxed);
    if before % 2 == 1
        || entry
            .sequence
            .compare_exchange(before, before + 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
    {
        return;
    }
    fence(Ordering::Release);
    entry.generation.store(generation, Ordering::Relaxed);
    entry
        .meta
        .store((path.len() as u64) << 48 | state.pack(), Ordering::Relaxed);
    for (word, kept) in words(path).zip(&entry.key) {
        kept.store(word, Ordering::Relaxed);
    }
    entry.sequence.store(before + 2, Ordering::Release);
}

/// `None` if the path is too long to be kept.
fn slot(path: &[u8]) -> Option<&'static Entry> {
    if path.len() > KEY_WORDS * 8 {
        return None;
    }
    let hash = words(path).fold(path.len() as u64, |hash, word| {
        (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    ENTRIES.get((hash >> 40) as usize % N_ENTRIES)
}

fn words(path: &[u8]) -> impl Iterator<Item = u64> + '_ {
    path.chunks(8).map(|chunk| {
        let mut word = [0_u8; 8];
        word.iter_mut()
            .zip(chunk)
            .for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Realm;

    #[test]
    fn an_entry_holds_for_its_generation_only() {
        let state = DirState {
            realm: Realm::Shared(3),
            mask: 0x8000_0005,
        };
        put(b"/cache/test", 7, state);
        assert_eq!(get(b"/cache/test", 7), Some(state));
        assert_eq!(get(b"/cache/test", 8), None);
        assert_eq!(get(b"/cache/tesu", 7), None);
        put(&[b'x'; 1000], 7, state);
        assert_eq!(get(&[b'x'; 1000], 7), None);
    }
}
