//! Rows from right to left.

/// Turns around the order of the pixels, of `pixel` bytes each, in every row of `width` pixels.
pub fn flip_rows(width: usize, pixel: usize, from: &[u8], to: &mut [u8]) {
    match pixel {
        1 => flip_sized::<1>(width, from, to),
        2 => flip_sized::<2>(width, from, to),
        3 => flip_sized::<3>(width, from, to),
        4 => flip_sized::<4>(width, from, to),
        8 => flip_sized::<8>(width, from, to),
        12 => flip_sized::<12>(width, from, to),
        _ => {
            let row = (width * pixel).max(1);
            for (from, to) in from.chunks_exact(row).zip(to.chunks_exact_mut(row)) {
                let pixels = from.chunks_exact(pixel).rev();
                for (from, to) in pixels.zip(to.chunks_exact_mut(pixel)) {
                    to.copy_from_slice(from);
                }
            }
        }
    }
}

fn flip_sized<const PIXEL: usize>(width: usize, from: &[u8], to: &mut [u8]) {
    let (from, _) = from.as_chunks::<PIXEL>();
    let (to, _) = to.as_chunks_mut::<PIXEL>();
    let width = width.max(1);
    for (from, to) in from.chunks_exact(width).zip(to.chunks_exact_mut(width)) {
        for (from, to) in from.iter().rev().zip(to) {
            *to = *from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_of_pixel_is_flipped() {
        for pixel in [1, 2, 3, 4, 5, 8, 12, 16] {
            let (high, wide) = (3, 7);
            let from: Vec<u8> = (0..=u8::MAX).cycle().take(high * wide * pixel).collect();
            let mut to = vec![0; from.len()];
            flip_rows(wide, pixel, &from, &mut to);
            for (y, x) in (0..high).flat_map(|y| (0..wide).map(move |x| (y, x))) {
                let place = |x: usize| (y * wide + x) * pixel..(y * wide + x + 1) * pixel;
                assert_eq!(to[place(x)], from[place(wide - 1 - x)], "{pixel} {y} {x}");
            }
        }
    }
}
