//! Which entries of a pickle's memo are ever fetched.

/// A bit for each memo index.
///
/// Writers store nearly every value and fetch few of them.
#[derive(Debug, Default)]
pub(super) struct FetchedEntries {
    bits: Vec<u64>,
}

impl FetchedEntries {
    pub(super) fn insert(&mut self, idx: usize) {
        let word = idx / 64;
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (idx % 64);
    }

    pub(super) fn contains(&self, idx: usize) -> bool {
        self.bits
            .get(idx / 64)
            .is_some_and(|word| word & (1 << (idx % 64)) != 0)
    }
}
