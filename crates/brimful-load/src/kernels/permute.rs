//! Arrays with their sides in another order.

use super::transpose::{Transposable, transpose};

/// Most sides that are permuted.
pub const MAX_DIMENSIONS: usize = 8;

/// Side `at` of the output is side `order[at]` of the input, whose sides are `shape`. Elements are of `size` bytes.
///
/// `order` holds each side once, and both slices are as long as the shape says; there are at most [`MAX_DIMENSIONS`].
pub fn permute(shape: &[usize], order: &[usize], size: usize, from: &[u8], to: &mut [u8]) {
    let sides = Dimensions::new(shape, order);
    match size {
        1 => permuted::<u8, 16>(sides, from, to),
        2 => permuted::<[u8; 2], 8>(sides, from.as_chunks().0, to.as_chunks_mut().0),
        4 => permuted::<[u8; 4], 4>(sides, from.as_chunks().0, to.as_chunks_mut().0),
        _ => permuted::<[u8; 8], 2>(sides, from.as_chunks().0, to.as_chunks_mut().0),
    }
}

/// A side of the output, and how far apart its elements are in the input.
#[derive(Clone, Copy, Debug, Default)]
struct Dimension {
    len: usize,
    stride: usize,
}

/// The sides of the output; those that lie one in the other in the input as well are one.
#[derive(Clone, Copy, Debug)]
struct Dimensions {
    sides: [Dimension; MAX_DIMENSIONS],
    count: usize,
}

impl Dimensions {
    fn new(shape: &[usize], order: &[usize]) -> Dimensions {
        let mut sides = [Dimension::default(); MAX_DIMENSIONS];
        let mut count = 0;
        for &at in order {
            let side = Dimension {
                len: shape[at],
                stride: shape[at + 1..].iter().product(),
            };
            if side.len == 1 {
                continue;
            }
            match sides[..count].last_mut() {
                Some(outer) if outer.stride == side.len * side.stride => {
                    outer.len *= side.len;
                    outer.stride = side.stride;
                }
                _ => {
                    sides[count] = side;
                    count += 1;
                }
            }
        }
        Dimensions { sides, count }
    }
}

fn permuted<T: Transposable, const N: usize>(sides: Dimensions, from: &[T], to: &mut [T]) {
    let Some((&inner, outer)) = sides.sides[..sides.count].split_last() else {
        to.copy_from_slice(from);
        return;
    };
    if to.is_empty() {
        return;
    }
    if inner.stride == 1 {
        let mut place = Position::default();
        for to in to.chunks_exact_mut(inner.len) {
            let start = place.start(outer);
            to.copy_from_slice(&from[start..start + inner.len]);
            place.advance(outer);
        }
        return;
    }
    // The side that lies densely in the input becomes rows, the one that does in the output columns, of a plane that is
    // turned; the other sides say which plane.
    let dense = outer
        .iter()
        .position(|side| side.stride == 1)
        .expect("some side of the input is its last one, and it is not the output's");
    let (before, within) = outer.split_at(dense);
    let (dense, within) = within.split_first().expect("it is in there");
    let between: usize = within.iter().map(|side| side.len).product();
    let row = between * inner.len;
    let mut place = Position::default();
    for to in to.chunks_exact_mut(dense.len * row) {
        let mut inside = Position::default();
        for at in 0..between {
            transpose::<T, N>(
                &from[place.start(before) + inside.start(within)..],
                inner.stride,
                (inner.len, dense.len),
                &mut to[at * inner.len..],
                row,
            );
            inside.advance(within);
        }
        place.advance(before);
    }
}

/// One place of the sides that are gone through, the last one fastest.
#[derive(Debug, Default)]
struct Position {
    at: [usize; MAX_DIMENSIONS],
}

impl Position {
    fn start(&self, sides: &[Dimension]) -> usize {
        sides
            .iter()
            .zip(self.at)
            .map(|(side, at)| side.stride * at)
            .sum()
    }

    fn advance(&mut self, sides: &[Dimension]) {
        for (side, at) in sides.iter().zip(&mut self.at).rev() {
            *at += 1;
            if *at < side.len {
                return;
            }
            *at = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(shape: &[usize], order: &[usize], size: usize) {
        let elements: usize = shape.iter().product();
        let from: Vec<u8> = (0..255).cycle().take(elements * size).collect();
        let mut to = vec![255; from.len()];
        permute(shape, order, size, &from, &mut to);
        let mut expected = Vec::new();
        let shape_to: Vec<usize> = order.iter().map(|&at| shape[at]).collect();
        for mut at_to in 0..elements {
            let mut place = vec![0; shape.len()];
            for (side, &len) in shape_to.iter().enumerate().rev() {
                place[order[side]] = at_to % len;
                at_to /= len;
            }
            let at = shape
                .iter()
                .zip(&place)
                .fold(0, |at, (len, place)| at * len + place);
            expected.extend_from_slice(&from[at * size..(at + 1) * size]);
        }
        assert_eq!(to, expected, "{shape:?} {order:?} {size}");
    }

    #[test]
    fn images_are_turned_to_planes_and_planes_on_their_side() {
        for size in [1, 2, 4, 8] {
            check(&[20, 30, 3], &[2, 0, 1], size);
            check(&[3, 40, 18], &[0, 2, 1], size);
            check(&[3, 20, 30], &[1, 2, 0], size);
        }
    }

    #[test]
    fn nothing_to_permute_is_a_copy() {
        check(&[4, 5], &[0, 1], 4);
        check(&[], &[], 4);
        check(&[1, 1], &[1, 0], 2);
        check(&[0, 3], &[1, 0], 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_order_of_any_sides(
            sides in proptest::collection::vec((1_usize..20, any::<u32>()), 1..4),
            size in prop::sample::select(vec![1_usize, 2, 4, 8]),
        ) {
            let shape: Vec<usize> = sides.iter().map(|side| side.0).collect();
            let mut order: Vec<usize> = (0..shape.len()).collect();
            order.sort_by_key(|&at| sides[at].1);
            check(&shape, &order, size);
        }
    }
}
