//! Antialiased resize: ours and `fast_image_resize`, with Pillow's arithmetic as the reference.
//!
//! `resize DIRECTORY` also writes the images and the results there as plain bytes, to compare them with Pillow itself.

use std::hint::black_box;

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use crate::kernels::filter::{Axis, Filter};
use crate::kernels::resize::Resize;
use crate::rounds::{Random, case, compare};

type Size = (usize, usize);

pub(crate) fn run() {
    let sizes: [(Size, Size); 4] = [
        ((500, 375), (256, 256)),
        ((1024, 768), (256, 256)),
        ((4000, 3000), (224, 224)),
        ((100, 100), (224, 224)),
    ];
    for filter in [Filter::Bilinear, Filter::Bicubic] {
        for (from, to) in sizes {
            one(filter, from, to);
        }
        planes(filter);
    }
}

/// A sample of NYU Depth V2: three planes of bytes one after the other, and one of floats.
fn planes(filter: Filter) {
    let (from, to) = ((480, 640), (224, 224));
    let n_from = from.0 * from.1;
    let bytes = image(from);
    let floats: Vec<f32> = bytes[..n_from]
        .iter()
        .map(|byte| f32::from(*byte) / 25.5)
        .collect();
    let float_bytes: &[u8] = bytemuck::cast_slice(&floats);
    let rows = Axis::new(filter, from.1, to.1).expect("sides in range");
    let columns = Axis::new(filter, from.0, to.0).expect("sides in range");
    let resize = Resize {
        rows: &rows,
        columns: &columns,
        channels: 1,
    };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let (mut float_first, mut float_second) = (Vec::new(), Vec::new());
    let mut out = vec![0; 3 * to.0 * to.1];
    let mut float_out = vec![0; 4 * to.0 * to.1];
    let options = options(filter);
    let (mut resizer, mut float_resizer) = (Resizer::new(), Resizer::new());
    let plane = |pixel| Image::new(to.0 as u32, to.1 as u32, pixel);
    let (mut their_bytes, mut their_floats) = (plane(PixelType::U8), plane(PixelType::F32));
    let title = format!("{} 480x640 to 224x224, planes", filter.name());
    compare(
        &format!("{title}: 3 of bytes"),
        400,
        vec![
            case("ours", || {
                resize.bytes(&bytes, &mut out, [&mut first, &mut second]);
                black_box(&mut out);
            }),
            case("fast_image_resize", || {
                for plane in bytes.chunks_exact(n_from) {
                    let source = ImageRef::new(from.0 as u32, from.1 as u32, plane, PixelType::U8);
                    let source = source.expect("the size is right");
                    resizer
                        .resize(&source, &mut their_bytes, &options)
                        .expect("the sizes are right");
                    black_box(&mut their_bytes);
                }
            }),
        ],
    );
    compare(
        &format!("{title}: 1 of float32"),
        400,
        vec![
            case("ours", || {
                resize.floats(
                    float_bytes,
                    &mut float_out,
                    [&mut float_first, &mut float_second],
                );
                black_box(&mut float_out);
            }),
            case("fast_image_resize", || {
                let source =
                    ImageRef::new(from.0 as u32, from.1 as u32, float_bytes, PixelType::F32);
                let source = source.expect("the size is right");
                float_resizer
                    .resize(&source, &mut their_floats, &options)
                    .expect("the sizes are right");
                black_box(&mut their_floats);
            }),
        ],
    );
}

fn options(filter: Filter) -> ResizeOptions {
    ResizeOptions::new().resize_alg(ResizeAlg::Convolution(match filter {
        Filter::Bilinear => FilterType::Bilinear,
        Filter::Bicubic => FilterType::CatmullRom,
    }))
}

fn one(filter: Filter, from: Size, to: Size) {
    let image = image(from);
    let options = options(filter);
    let (mut rows, mut columns) = (Axis::default(), Axis::default());
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let mut ours = vec![0; to.0 * to.1 * 3];
    let mut resize = |is_new: bool, out: &mut [u8]| {
        if is_new {
            (rows, columns) = (Axis::default(), Axis::default());
        }
        assert!(rows.set(filter, from.1, to.1) && columns.set(filter, from.0, to.0));
        let resize = Resize {
            rows: &rows,
            columns: &columns,
            channels: 3,
        };
        resize.bytes(&image, out, [&mut first, &mut second]);
    };
    resize(true, &mut ours);
    let resize = std::cell::RefCell::new(resize);

    let (width, height) = (from.0 as u32, from.1 as u32);
    let source = ImageRef::new(width, height, &image, PixelType::U8x3).expect("the size is right");
    let mut theirs = Image::new(to.0 as u32, to.1 as u32, PixelType::U8x3);
    let mut resizer = Resizer::new();
    resizer
        .resize(&source, &mut theirs, &options)
        .expect("the sizes are right");

    let pillow = pillow(filter, &image, from, to);
    let title = format!(
        "{} {}x{} to {}x{}",
        filter.name(),
        from.0,
        from.1,
        to.0,
        to.1
    );
    println!(
        "{title}: from Pillow, ours {}; fast_image_resize {}; scratch held by fast_image_resize {} bytes",
        difference(&ours, &pillow),
        difference(theirs.buffer(), &pillow),
        resizer.size_of_internal_buffers(),
    );
    if let Some(folder) = std::env::args().nth(2) {
        let folder = std::path::Path::new(&folder);
        let outputs = [
            ("image", &image[..]),
            ("pillow", &pillow),
            ("ours", &ours),
            ("fast", theirs.buffer()),
        ];
        for (kind, bytes) in outputs {
            let name = format!(
                "{}-{}x{}-{}x{}.{kind}",
                filter.name(),
                from.0,
                from.1,
                to.0,
                to.1
            );
            std::fs::write(folder.join(name), bytes).expect("a directory that can be written to");
        }
    }
    let rounds = if from.0 > 2000 { 60 } else { 400 };
    let mut out = ours.clone();
    let mut kept_out = ours.clone();
    compare(
        &title,
        rounds,
        vec![
            case("ours, new weights", || {
                resize.borrow_mut()(true, &mut out);
                black_box(&mut out);
            }),
            case("ours, weights of the last image", || {
                resize.borrow_mut()(false, &mut kept_out);
                black_box(&mut kept_out);
            }),
            case("fast_image_resize", || {
                resizer
                    .resize(&source, &mut theirs, &options)
                    .expect("the sizes are right");
                black_box(&mut theirs);
            }),
        ],
    );
}

fn difference(one: &[u8], other: &[u8]) -> String {
    let differences = one.iter().zip(other).map(|(a, b)| a.abs_diff(*b));
    let max = differences.clone().max().unwrap_or(0);
    let n_different = differences.filter(|difference| *difference > 0).count();
    let share = 100.0 * n_different as f64 / one.len() as f64;
    format!("at most {max}, {share:.2} % differ")
}

/// Smooth areas, edges and noise, as photographs have them.
fn image((width, height): Size) -> Vec<u8> {
    let mut random = Random(1);
    let mut bytes = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            let edge = if (x / 37 + y / 23) % 2 == 0 { 90 } else { 0 };
            for channel in 0..3 {
                let slope = (x * 100 / width + y * 60 / height + channel * 15) as u64;
                bytes.push((slope + edge + random.below(24)).min(255) as u8);
            }
        }
    }
    bytes
}

/// The arithmetic of Pillow's `Resample.c`: columns first, weights of 22 bits, bytes between the passes.
fn pillow(filter: Filter, image: &[u8], from: Size, to: Size) -> Vec<u8> {
    let columns = weights(filter, from.0, to.0);
    let rows = weights(filter, from.1, to.1);
    let mut between = vec![0; to.0 * from.1 * 3];
    for y in 0..from.1 {
        for (x, (first, taps)) in columns.iter().enumerate() {
            for channel in 0..3 {
                let at = |tap: usize| image[(y * from.0 + first + tap) * 3 + channel];
                between[(y * to.0 + x) * 3 + channel] = sum(taps, at);
            }
        }
    }
    let mut out = vec![0; to.0 * to.1 * 3];
    for (y, (first, taps)) in rows.iter().enumerate() {
        for x in 0..to.0 {
            for channel in 0..3 {
                let at = |tap: usize| between[((first + tap) * to.0 + x) * 3 + channel];
                out[(y * to.0 + x) * 3 + channel] = sum(taps, at);
            }
        }
    }
    out
}

const BITS: u32 = 22;

fn sum(taps: &[i64], at: impl Fn(usize) -> u8) -> u8 {
    let products = taps
        .iter()
        .enumerate()
        .map(|(tap, weight)| weight * i64::from(at(tap)));
    let sum: i64 = (1 << (BITS - 1)) + products.sum::<i64>();
    (sum >> BITS).clamp(0, 255) as u8
}

fn weights(filter: Filter, from: usize, to: usize) -> Vec<(usize, Vec<i64>)> {
    let scale = from as f64 / to as f64;
    let width = scale.max(1.0);
    let reach = match filter {
        Filter::Bilinear => 1.0,
        Filter::Bicubic => 2.0,
    } * width;
    let weight = |x: f64| {
        let x = x.abs();
        match filter {
            Filter::Bilinear => (1.0 - x).max(0.0),
            Filter::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Filter::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5,
            Filter::Bicubic => 0.0,
        }
    };
    (0..to)
        .map(|at| {
            let center = (at as f64 + 0.5) * scale;
            let first = (center - reach + 0.5).max(0.0) as usize;
            let end = ((center + reach + 0.5) as usize).min(from);
            let taps: Vec<f64> = (first..end)
                .map(|column| weight((column as f64 - center + 0.5) / width))
                .collect();
            let total: f64 = taps.iter().sum();
            let scaled = taps
                .iter()
                .map(|tap| (tap / total * f64::from(1 << BITS)).round() as i64);
            (first, scaled.collect())
        })
        .collect()
}
