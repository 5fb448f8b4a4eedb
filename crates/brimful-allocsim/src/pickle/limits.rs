//! How much a pickle may make of itself.

/// How much a pickle may make of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of everything built: values, references, memo and stack, without the input itself.
    pub max_built_bytes: u64,
    /// Maximum nesting of containers: 0 for `1`, 2 for `[[]]`.
    pub max_depth: u16,
    /// Highest number of memo entries, and so also of a memo index.
    pub max_memo_entries: usize,
}

/// Limits that every honest pickle of `len` bytes keeps.
///
/// One byte of input builds at most about 40, so the first limit only cuts files so large that the
/// values would not fit: from 4 GiB of them on.
pub fn limits_for(len: usize) -> Limits {
    const MIB: u64 = 1 << 20;
    Limits {
        max_built_bytes: (len as u64)
            .saturating_mul(64)
            .saturating_add(64 * MIB)
            .min(4096 * MIB),
        // A memory snapshot uses eight.
        max_depth: 64,
        // Each entry takes an instruction of at least one byte, and writers number them in order.
        max_memo_entries: len,
    }
}
