//! Copies a block of elements between two arrays of different sides.

/// One side of a block: how often, and how far apart in bytes in either array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dimension {
    pub(super) count: usize,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// The block of `sides` elements of `element` bytes that begins at the beginnings of both.
///
/// Both must reach as far as the sides say; they are made so by whoever calls.
pub(super) fn copy(from: &[u8], to: &mut [u8], element: usize, sides: &[Dimension]) {
    // The inner sides that lie without gaps in both arrays are one run.
    let mut run = element;
    let mut outer = sides;
    while let Some((side, rest)) = outer.split_last()
        && (side.count == 1 || side.from == run && side.to == run)
    {
        run *= side.count;
        outer = rest;
    }
    copy_outer(from, to, run, outer);
}

fn copy_outer(from: &[u8], to: &mut [u8], run: usize, sides: &[Dimension]) {
    match sides {
        [] => to[..run].copy_from_slice(&from[..run]),
        [side, inner @ ..] => {
            for at in 0..side.count {
                copy_outer(&from[at * side.from..], &mut to[at * side.to..], run, inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_a_larger_array_lands_in_its_place() {
        // 2x2 elements of 2 bytes out of rows of 3, into rows of 4.
        let from: Vec<u8> = (0..12).collect();
        let mut to = [99; 16];
        let side = |count, from, to| Dimension { count, from, to };
        copy(&from, &mut to, 2, &[side(2, 6, 8), side(2, 2, 2)]);
        assert_eq!(&to[..8], [0, 1, 2, 3, 99, 99, 99, 99]);
        assert_eq!(&to[8..], [6, 7, 8, 9, 99, 99, 99, 99]);
    }

    #[test]
    fn nothing_is_copied_of_an_empty_side() {
        let mut to = [1; 4];
        let empty = Dimension {
            count: 0,
            from: 4,
            to: 4,
        };
        copy(&[], &mut to, 4, &[empty]);
        assert_eq!(to, [1; 4]);
    }

    #[test]
    fn elements_that_lie_apart_are_gathered() {
        let from: Vec<u8> = (0..12).collect();
        let mut to = [0; 4];
        let side = Dimension {
            count: 4,
            from: 3,
            to: 1,
        };
        copy(&from[1..], &mut to, 1, &[side]);
        assert_eq!(to, [1, 4, 7, 10]);
    }
}
