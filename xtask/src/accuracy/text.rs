//! Texts as keys: a hash, and reasons without their numbers.

/// FNV-1a with a finisher: the same on every machine.
pub(crate) fn hash(text: &str) -> u64 {
    let mut hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        hash ^= hash >> 33;
        hash = hash.wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

/// The reason without what differs from row to row.
pub(super) fn plain(reason: &str) -> String {
    let end = reason.find([',', '(']).unwrap_or(reason.len());
    let mut plain = String::new();
    for character in reason[..end].trim().chars() {
        match character {
            '0'..='9' if plain.ends_with('N') => {}
            '0'..='9' => plain.push('N'),
            other => plain.push(other),
        }
    }
    plain
}
