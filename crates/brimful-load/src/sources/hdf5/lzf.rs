//! LZF, the compression that h5py brings along.
//!
//! A stream is a row of literal runs (a byte below 32, then that many bytes and one more) and of copies from what was
//! already written (three bits of length, thirteen of distance; a length of seven goes on in a byte of its own).

/// Decompresses all of `input`, and says how many bytes of `output` it wrote; nothing where it does not fit or makes
/// no sense.
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Option<usize> {
    let (mut at, mut done) = (0, 0);
    while at < input.len() {
        let control = usize::from(input[at]);
        at += 1;
        if control < 32 {
            let len = control + 1;
            let run = input.get(at..at + len)?;
            output.get_mut(done..done + len)?.copy_from_slice(run);
            at += len;
            done += len;
        } else {
            let mut len = control >> 5;
            if len == 7 {
                len += usize::from(*input.get(at)?);
                at += 1;
            }
            len += 2;
            let distance = ((control & 31) << 8 | usize::from(*input.get(at)?)) + 1;
            at += 1;
            let from = done.checked_sub(distance)?;
            if done + len > output.len() {
                return None;
            }
            if distance >= len {
                output.copy_within(from..from + len, done);
            } else {
                // It reads what it writes: a pattern that repeats.
                for k in 0..len {
                    output[done + k] = output[from + k];
                }
            }
            done += len;
        }
    }
    Some(done)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn literals_and_copies_are_put_together() {
        let mut output = [0; 16];
        // "abc", then 5 bytes from 3 back, then 10 from 1 back.
        let input = [2, b'a', b'b', b'c', 3 << 5, 2, 6 << 5, 0];
        assert_eq!(decompress(&input, &mut output), Some(16));
        assert_eq!(&output, b"abcabcabbbbbbbbb");
    }

    #[test]
    fn long_copies_go_on_in_a_byte_of_their_own() {
        let mut output = [0; 300];
        let input = [0, 9, 7 << 5, 255, 0];
        assert_eq!(decompress(&input, &mut output), Some(1 + 264));
        assert!(output[..265].iter().all(|&byte| byte == 9));
    }

    #[test]
    fn what_reaches_out_of_its_bounds_is_refused() {
        let mut output = [0; 4];
        for input in [
            &[5, 1, 2][..],      // literals that are not there
            &[4, 1, 2, 3, 4, 5], // more than fits
            &[0, 1, 1 << 5, 5],  // from before the beginning
            &[0, 1, 3 << 5, 0],  // a copy of more than fits
            &[0, 1, 7 << 5],     // the length is cut off
            &[0, 1, 1 << 5],     // the distance is cut off
        ] {
            assert_eq!(decompress(input, &mut output), None, "{input:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(input in prop::collection::vec(any::<u8>(), 0..200), room in 0_usize..500) {
            let mut output = vec![0; room];
            let done = decompress(&input, &mut output);
            prop_assert!(done.is_none_or(|done| done <= room));
        }
    }
}
