//! The resize against a plain one in f64, and against what torch makes.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole numbers of 0 to 255"
)]

use proptest::prelude::*;

use super::filter::{Axis, Filter};
use super::resize::{Resize, room_bytes};

/// An image of `channels` side by side.
#[derive(Clone, Debug)]
struct Image {
    high: usize,
    wide: usize,
    channels: usize,
    values: Vec<f64>,
}

fn kernel(filter: Filter, x: f64) -> f64 {
    let x = x.abs();
    match filter {
        Filter::Bilinear => f64::max(0.0, 1.0 - x),
        Filter::Bicubic if x < 1.0 => 1.5 * x.powi(3) - 2.5 * x.powi(2) + 1.0,
        Filter::Bicubic if x < 2.0 => -0.5 * x.powi(3) + 2.5 * x.powi(2) - 4.0 * x + 2.0,
        Filter::Bicubic => 0.0,
    }
}

/// The input columns that count for one output column, with their weights.
fn weights(filter: Filter, from: usize, to: usize, at: usize) -> Vec<(usize, f64)> {
    let scale = from as f64 / to as f64;
    let center = (at as f64 + 0.5) * scale;
    let mut weights: Vec<(usize, f64)> = (0..from)
        .map(|column| (column, (column as f64 + 0.5 - center) / scale.max(1.0)))
        .map(|(column, distance)| (column, kernel(filter, distance)))
        .filter(|(_, weight)| *weight != 0.0)
        .collect();
    let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
    for (_, weight) in &mut weights {
        *weight /= total;
    }
    weights
}

/// Columns first; `between` is done to what lies between the passes.
fn plain(image: &Image, to: (usize, usize), filter: Filter, between: fn(f64) -> f64) -> Vec<f64> {
    let Image {
        high,
        wide,
        channels,
        values,
    } = image;
    let (high_to, wide_to) = to;
    let mut narrow = vec![0.0; high * wide_to * channels];
    for x in 0..wide_to {
        let weights = weights(filter, *wide, wide_to, x);
        for (y, c) in (0..*high).flat_map(|y| (0..*channels).map(move |c| (y, c))) {
            let sum: f64 = weights
                .iter()
                .map(|(column, weight)| weight * values[(y * wide + column) * channels + c])
                .sum();
            narrow[(y * wide_to + x) * channels + c] = between(sum);
        }
    }
    let width = wide_to * channels;
    let mut result = vec![0.0; high_to * width];
    for (y, to) in result.chunks_exact_mut(width).enumerate() {
        for (row, weight) in weights(filter, *high, high_to, y) {
            for (to, from) in to.iter_mut().zip(&narrow[row * width..]) {
                *to += weight * from;
            }
        }
    }
    result
}

fn resized_bytes(image: &Image, to: (usize, usize), filter: Filter) -> Vec<u8> {
    let rows = Axis::new(filter, image.high, to.0).unwrap();
    let columns = Axis::new(filter, image.wide, to.1).unwrap();
    let resize = Resize {
        rows: &rows,
        columns: &columns,
        channels: image.channels,
    };
    let from: Vec<u8> = image.values.iter().map(|&value| value as u8).collect();
    let mut result = vec![77; to.0 * to.1 * image.channels];
    let (mut first, mut second) = (Vec::new(), Vec::new());
    resize.bytes(&from, &mut result, [&mut first, &mut second]);
    let width = |wide: usize| wide * image.channels;
    let most = room_bytes(
        filter,
        false,
        (image.high, width(image.wide)),
        (to.0, width(to.1)),
    );
    assert!(2 * (first.capacity() + second.capacity()) as u64 <= most);
    assert!((rows.held_bytes() as u64) <= Axis::bytes_for(filter, image.high, to.0));
    result
}

fn resized_floats(image: &Image, to: (usize, usize), filter: Filter) -> Vec<f32> {
    let rows = Axis::new(filter, image.high, to.0).unwrap();
    let columns = Axis::new(filter, image.wide, to.1).unwrap();
    let resize = Resize {
        rows: &rows,
        columns: &columns,
        channels: image.channels,
    };
    // One byte off: nothing may need alignment.
    let mut from = vec![0];
    from.extend(
        image
            .values
            .iter()
            .flat_map(|&value| (value as f32).to_ne_bytes()),
    );
    let mut result = vec![77; 1 + 4 * to.0 * to.1 * image.channels];
    let (mut first, mut second) = (Vec::new(), Vec::new());
    resize.floats(&from[1..], &mut result[1..], [&mut first, &mut second]);
    let width = |wide: usize| wide * image.channels;
    let most = room_bytes(
        filter,
        true,
        (image.high, width(image.wide)),
        (to.0, width(to.1)),
    );
    assert!(4 * (first.capacity() + second.capacity()) as u64 <= most);
    result[1..]
        .as_chunks()
        .0
        .iter()
        .map(|&bytes| f32::from_ne_bytes(bytes))
        .collect()
}

/// How many levels bytes are off at the most.
fn bytes_off(image: &Image, to: (usize, usize), filter: Filter) -> f64 {
    let expected = plain(image, to, filter, |value| value.clamp(0.0, 255.0));
    let expected = expected.iter().map(|value| value.clamp(0.0, 255.0).round());
    let found = resized_bytes(image, to, filter);
    expected
        .zip(found)
        .map(|(expected, found)| (expected - f64::from(found)).abs())
        .fold(0.0, f64::max)
}

fn noise(high: usize, wide: usize, channels: usize, seed: u64) -> Image {
    let values = (0..(high * wide * channels) as u64)
        .map(|at| (crate::random::mixed(at ^ (seed << 32)) % 256) as f64)
        .collect();
    Image {
        high,
        wide,
        channels,
        values,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn bytes_are_within_one_level_of_plain_arithmetic(
        high in 1_usize..70, wide in 1_usize..70, high_to in 1_usize..70, wide_to in 1_usize..70,
        channels in 1_usize..5, is_cubic: bool, is_stark: bool, seed: u64,
    ) {
        let filter = if is_cubic { Filter::Bicubic } else { Filter::Bilinear };
        let mut image = noise(high, wide, channels, seed);
        if is_stark {
            image.values.iter_mut().for_each(|value| *value = if *value < 128.0 { 0.0 } else { 255.0 });
        }
        prop_assert!(bytes_off(&image, (high_to, wide_to), filter) <= 1.0);
    }

    #[test]
    fn floats_are_those_of_plain_arithmetic(
        high in 1_usize..70, wide in 1_usize..70, high_to in 1_usize..70, wide_to in 1_usize..70,
        channels in 1_usize..5, is_cubic: bool, seed: u64,
    ) {
        let filter = if is_cubic { Filter::Bicubic } else { Filter::Bilinear };
        let image = noise(high, wide, channels, seed);
        let expected = plain(&image, (high_to, wide_to), filter, |value| value);
        let found = resized_floats(&image, (high_to, wide_to), filter);
        for (expected, found) in expected.iter().zip(&found) {
            // Relative to the values that were added up.
            prop_assert!((expected - f64::from(*found)).abs() <= 1e-5 * 255.0);
        }
    }
}

#[test]
fn far_down_and_far_up_bytes_stay_within_one_level() {
    for filter in [Filter::Bilinear, Filter::Bicubic] {
        for (image, to) in [
            (noise(700, 3, 1, 1), (2, 3)),
            (noise(3, 900, 1, 2), (3, 1)),
            (noise(300, 200, 3, 3), (7, 5)),
            (noise(2, 3, 1, 4), (300, 400)),
        ] {
            assert!(bytes_off(&image, to, filter) <= 1.0, "{filter:?} {to:?}");
        }
    }
}

#[test]
fn one_color_stays_that_color() {
    for filter in [Filter::Bilinear, Filter::Bicubic] {
        for (high, wide, to) in [
            (640, 480, (224, 224)),
            (1000, 30, (3, 50)),
            (5, 5, (64, 65)),
        ] {
            for color in [0, 1, 127, 128, 254, 255] {
                let mut image = noise(high, wide, 1, 0);
                image.values.fill(f64::from(color));
                let found = resized_bytes(&image, to, filter);
                assert!(
                    found.iter().all(|&value| i32::from(value) == color),
                    "{filter:?} {color}"
                );
            }
        }
    }
}

#[test]
fn the_same_size_is_the_same_image() {
    let image = noise(33, 65, 3, 9);
    let same: Vec<u8> = image.values.iter().map(|&value| value as u8).collect();
    for filter in [Filter::Bilinear, Filter::Bicubic] {
        assert_eq!(resized_bytes(&image, (33, 65), filter), same);
    }
}

#[test]
fn what_is_not_a_number_stays_where_it_is() {
    let mut image = noise(40, 40, 1, 5);
    image.values[20 * 40 + 20] = f64::NAN;
    let found = resized_floats(&image, (20, 20), Filter::Bilinear);
    let touched = found.iter().filter(|value| value.is_nan()).count();
    assert_eq!(touched, 4);
}

#[test]
fn planes_are_resized_each_for_itself() {
    let images = [
        noise(30, 20, 1, 1),
        noise(30, 20, 1, 2),
        noise(30, 20, 1, 3),
    ];
    let from: Vec<u8> = images
        .iter()
        .flat_map(|image| image.values.iter().map(|&value| value as u8))
        .collect();
    for filter in [Filter::Bilinear, Filter::Bicubic] {
        let rows = Axis::new(filter, 30, 17).unwrap();
        let columns = Axis::new(filter, 20, 41).unwrap();
        let resize = Resize {
            rows: &rows,
            columns: &columns,
            channels: 1,
        };
        let mut found = vec![0; 3 * 17 * 41];
        resize.bytes(&from, &mut found, [&mut Vec::new(), &mut Vec::new()]);
        let expected: Vec<u8> = images
            .iter()
            .flat_map(|image| resized_bytes(image, (17, 41), filter))
            .collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn sides_that_cannot_be_are_refused() {
    for (from, to) in [
        (0, 5),
        (5, 0),
        (Axis::MAX_LEN + 1, 5),
        (5, Axis::MAX_LEN + 1),
    ] {
        assert!(Axis::new(Filter::Bilinear, from, to).is_none());
    }
    assert!(Axis::new(Filter::Bicubic, Axis::MAX_LEN, 1).is_some());
}

/// From `torch.nn.functional.interpolate(…, antialias=True, align_corners=False)` of torch 2.13.0 on an x86-64; PIL
/// 13.0.0 makes the same bytes.
#[expect(clippy::unreadable_literal, reason = "as they were printed")]
#[test]
fn small_images_are_those_of_torch() {
    check_torch(
        (8, 7),
        (3, 4),
        Filter::Bilinear,
        &[100, 131, 109, 126, 137, 92, 109, 101, 114, 146, 123, 141],
        &[
            99.55388, 131.29897, 108.759995, 126.44109, 137.60431, 92.36668, 109.13239, 101.23243,
            113.922295, 145.66739, 123.12842, 140.80952,
        ],
    );
    check_torch(
        (8, 7),
        (3, 4),
        Filter::Bicubic,
        &[97, 135, 105, 131, 146, 87, 108, 97, 113, 151, 121, 146],
        &[
            97.04609, 134.88803, 105.174, 131.04286, 145.9545, 87.50143, 107.7352, 96.47241,
            112.6673, 150.50923, 120.795204, 146.66406,
        ],
    );
    check_torch(
        (3, 4),
        (5, 6),
        Filter::Bilinear,
        &[
            0, 46, 106, 167, 100, 17, 15, 61, 121, 182, 115, 32, 37, 83, 143, 204, 137, 54, 104,
            150, 184, 143, 127, 121, 148, 194, 211, 102, 120, 165,
        ],
        &[
            0.0, 45.5, 106.16668, 166.83334, 99.5, 17.0, 14.800001, 60.300003, 120.966675,
            181.63335, 114.3, 31.800001, 37.0, 82.5, 143.16667, 203.83334, 136.5, 54.0, 103.60001,
            149.10002, 184.16667, 142.4333, 126.299995, 120.60001, 148.0, 193.5, 211.49998,
            101.49997, 119.5, 165.0,
        ],
    );
    check_torch(
        (3, 4),
        (5, 6),
        Filter::Bicubic,
        &[
            0, 34, 106, 179, 97, 3, 6, 44, 119, 201, 114, 13, 31, 74, 146, 219, 137, 43, 104, 158,
            198, 137, 122, 128, 150, 211, 229, 80, 110, 181,
        ],
        &[
            -8.779279, 34.67814, 106.337204, 178.85568, 97.20755, 3.352269, 2.0206335, 44.803776,
            118.649574, 200.40187, 114.07596, 13.398057, 31.013172, 74.47059, 146.12968, 218.64813,
            137.00002, 43.144722, 104.73706, 157.97148, 197.92319, 136.5511, 122.73091, 127.80343,
            150.39052, 210.04329, 229.17993, 79.912285, 110.619316, 180.6353,
        ],
    );
}

/// Of the image with `(37 y² + 91 x) mod 256` at `(y, x)`.
fn check_torch(
    (high, wide): (usize, usize),
    to: (usize, usize),
    filter: Filter,
    bytes: &[u8],
    floats: &[f32],
) {
    let values = (0..high * wide)
        .map(|at| (37 * (at / wide).pow(2) + 91 * (at % wide)) % 256)
        .map(|value| value as f64)
        .collect();
    let image = Image {
        high,
        wide,
        channels: 1,
        values,
    };
    for (expected, found) in bytes.iter().zip(resized_bytes(&image, to, filter)) {
        assert!(expected.abs_diff(found) <= 1, "{expected} {found}");
    }
    for (expected, found) in floats.iter().zip(resized_floats(&image, to, filter)) {
        assert!((expected - found).abs() <= 1e-4, "{expected} {found}");
    }
}
