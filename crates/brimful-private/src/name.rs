//! Names that nobody can guess.

use std::sync::atomic::{AtomicU64, Ordering};

/// Sixteen letters and digits. Names are only ever used for exclusive creation, so that one that exists already, even if
/// it was guessed, is never used.
pub(crate) fn random() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = [0; 16];
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    if filled.ok() != Some(bytes.len()) {
        // A sandbox without random numbers.
        bytes = fallback().to_le_bytes();
    }
    bytes
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 32)]))
        .collect()
}

fn fallback() -> u128 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mixed = now.tv_nsec.cast_unsigned() ^ u64::from(std::process::id()) << 32 ^ count << 56;
    u128::from(mixed).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_differ_and_are_harmless() {
        let names: std::collections::BTreeSet<String> = (0..100).map(|_| super::random()).collect();
        assert_eq!(names.len(), 100);
        assert!(names.iter().all(|name| {
            name.len() == 16
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        }));
        assert_ne!(super::fallback(), super::fallback());
    }
}
