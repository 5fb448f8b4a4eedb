//! What decoding takes of memory, measured with the worst files that the formats allow: never more than was said before
//! the first image, and next to nothing for an image that is refused.

mod counting;

use std::panic;
use std::sync::Once;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use brimful_load::ops::DecodeImage;
use brimful_load::{Encoding, FieldSpec, Op, OpError, Out, SampleKey, Scratch, Value};

use counting::{Counting, HELD, PEAK};

/// What is held is counted for all threads, so that one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    // A backtrace of a decoder's panic would count as memory of the decoder.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| panic::set_hook(brimful_load::quiet_hook(panic::take_hook())));
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[global_allocator]
static COUNTING: Counting = Counting {
    taken: |layout| layout.size(),
};

const OP: DecodeImage = DecodeImage {
    max_pixels: 1 << 20,
    longest_side: 1 << 13,
};

/// Decodes a file: what comes of it, and the bytes that were held at the most.
fn measured(op: &DecodeImage, file: &[u8]) -> (Result<Value, OpError>, u64) {
    let key = SampleKey {
        seed: 0,
        epoch: 0,
        index: 0,
    };
    let mut input = Value::default();
    let len = file.len();
    input.set_encoded(len).own(len).copy_from_slice(file);
    let mut value = Value::default();
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = op.apply(key, &input, Out::Value(&mut value), &mut Scratch::default());
    let peak = PEAK.load(Ordering::Relaxed) - before;
    (result.map(|()| value), peak as u64)
}

/// That decoding a file takes no more than was said, and gives the bytes it took besides the result.
fn check(what: &str, file: &[u8]) -> (Result<(), String>, u64) {
    let (result, peak) = measured(&OP, file);
    let said = OP.reservation(&FieldSpec::Encoded(Encoding::Image), file.len() as u64);
    assert!(
        peak <= said.scratch + said.result,
        "{what}: {peak} bytes of {said:?}"
    );
    let image = result.as_ref().map_or(0, |value| value.bytes().len());
    let result = result.map(drop).map_err(|error| error.to_string());
    (result, peak - image as u64)
}

fn part(marker: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len() + 2).expect("a part of 64 KiB");
    [&[0xff, marker][..], &len.to_be_bytes(), payload].concat()
}

/// A JPEG whose coefficients are all zero, of components with these sampling factors.
fn jpeg(
    width: u16,
    height: u16,
    sampling: &[(u8, u8)],
    is_progressive: bool,
    scans: &[&[u8]],
) -> Vec<u8> {
    let mut file = b"\xff\xd8".to_vec();
    file.extend(part(0xdb, &[&[0][..], &[1; 64]].concat()));
    let mut frame = vec![8];
    frame.extend(height.to_be_bytes());
    frame.extend(width.to_be_bytes());
    frame.push(u8::try_from(sampling.len()).expect("four at the most"));
    for (id, (across, down)) in (1..).zip(sampling) {
        frame.extend([id, across << 4 | down, 0]);
    }
    file.extend(part(if is_progressive { 0xc2 } else { 0xc0 }, &frame));
    // One code of one bit: no difference, or the end of the block.
    for table in [0x00, 0x10] {
        let mut lengths = [0; 18];
        (lengths[0], lengths[1]) = (table, 1);
        file.extend(part(0xc4, &lengths));
    }
    for components in scans {
        let mut scan = vec![u8::try_from(components.len()).expect("four at the most")];
        for id in *components {
            scan.extend([*id, 0]);
        }
        scan.extend([0, if is_progressive { 0 } else { 63 }, 0]);
        file.extend(part(0xda, &scan));
        // One bit for each code: one of each block, or two.
        let own = components.iter().map(|&id| sampling[usize::from(id) - 1]);
        let per_unit: u32 = own.map(|(across, down)| u32::from(across * down)).sum();
        let most = |side: fn(&(u8, u8)) -> u8| {
            8 * u32::from(sampling.iter().map(side).max().expect("some"))
        };
        let units =
            u32::from(width).div_ceil(most(|s| s.0)) * u32::from(height).div_ceil(most(|s| s.1));
        let bits = units * per_unit * if is_progressive { 1 } else { 2 };
        file.extend(vec![0; bits.div_ceil(8) as usize]);
    }
    file.extend(b"\xff\xd9");
    file
}

#[test]
fn jpegs_of_any_sampling_take_what_was_said() {
    let _alone = alone();
    let samplings: [&[(u8, u8)]; 9] = [
        &[(1, 1)],
        &[(1, 1); 3],
        &[(1, 1); 4],
        &[(2, 2), (1, 1), (1, 1)],
        &[(4, 4), (1, 1), (1, 1)],
        &[(4, 4); 4],
        &[(2, 2), (1, 1), (1, 1), (2, 2)],
        &[(1, 2), (1, 2), (1, 4), (4, 4)],
        &[(2, 4), (2, 3), (2, 4), (2, 4)],
    ];
    for (width, height) in [(500, 500), (8161, 33), (33, 8161)] {
        for sampling in samplings {
            let ids = &[1, 2, 3, 4][..sampling.len()];
            let each: Vec<&[u8]> = ids.chunks(1).collect();
            for is_progressive in [false, true] {
                for scans in [&[ids][..], &each] {
                    let what = format!("{width}x{height} {sampling:?} {is_progressive} {scans:?}");
                    // Some of these are refused, with their memory already taken.
                    let _ = check(&what, &jpeg(width, height, sampling, is_progressive, scans));
                }
            }
        }
    }
}

#[test]
fn the_bound_for_a_pixel_is_the_least_that_holds() {
    let _alone = alone();
    let (result, scratch) = check(
        "four colors",
        &jpeg(1024, 1024, &[(1, 1); 4], true, &[&[1, 2, 3, 4]]),
    );
    result.unwrap();
    assert!(scratch >= 8 << 20, "{scratch}");
}

#[test]
fn notes_of_a_jpeg_are_copied_twice_at_the_most() {
    let _alone = alone();
    let mut file = jpeg(64, 64, &[(1, 1); 3], true, &[&[1, 2, 3]]);
    let picture = file.split_off(2);
    let size = 60_000_u32;
    let count = 64;
    for at in 0..count {
        let mut note = b"http://ns.adobe.com/xmp/extension/\0".to_vec();
        note.extend([b'A'; 32]);
        note.extend((size * count).to_be_bytes());
        note.extend((size * at).to_be_bytes());
        note.extend(vec![7; size as usize]);
        file.extend(part(0xe1, &note));
    }
    file.extend(picture);
    let (result, scratch) = check("notes", &file);
    result.unwrap();
    assert!(scratch > 2 * u64::from(size * count), "{scratch}");
}

#[test]
fn a_png_takes_a_few_rows() {
    let _alone = alone();
    for color in [png::ColorType::Rgba, png::ColorType::Grayscale] {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, 1024, 1024);
        encoder.set_color(color);
        let mut writer = encoder.write_header().unwrap();
        writer
            .write_image_data(&vec![9; 1024 * 1024 * color.samples()])
            .unwrap();
        writer.finish().unwrap();
        let (result, scratch) = check("png", &file);
        result.unwrap();
        assert!(scratch < 1 << 19, "{color:?}: {scratch}");
    }
}

#[test]
fn a_lossless_webp_takes_five_bytes_a_pixel() {
    let _alone = alone();
    for (color, channels) in [
        (image_webp::ColorType::Rgb8, 3),
        (image_webp::ColorType::Rgba8, 4),
    ] {
        let mut file = Vec::new();
        image_webp::WebPEncoder::new(&mut file)
            .encode(&vec![9; 1024 * 1024 * channels], 1024, 1024, color)
            .unwrap();
        let (result, scratch) = check("webp", &file);
        result.unwrap();
        assert!(scratch < 5 << 20, "{color:?}: {scratch}");
    }
}

/// Bits from the lowest of each byte on.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    count: usize,
}

impl Bits {
    fn put(&mut self, value: u32, width: u32) {
        for bit in 0..width {
            if self.count.is_multiple_of(8) {
                self.bytes.push(0);
            }
            let last = self.bytes.last_mut().expect("pushed above");
            *last |= u8::from(value >> bit & 1 == 1) << (self.count % 8);
            self.count += 1;
        }
    }

    /// A code of one symbol.
    fn put_single(&mut self, symbol: u32) {
        self.put(0b101, 3);
        self.put(symbol, 8);
    }

    /// A code of eleven symbols, of one to ten bits: the smallest that becomes a table of 1024 words.
    fn put_code(&mut self) {
        self.put(0, 1);
        // The lengths 1 to 6 take three bits each, 7 to 10 take four.
        self.put(14 - 4, 4);
        for length in [0, 0, 0, 3, 3, 3, 3, 3, 0, 3, 4, 4, 4, 4] {
            self.put(length, 3);
        }
        self.put(0b0011, 4);
        self.put(11 - 2, 4);
        for length in (1..=10).chain([10]) {
            let (code, width) = if length <= 6 {
                (length - 1, 3)
            } else {
                (12 + length - 7, 4)
            };
            self.put(u32::reverse_bits(code) >> (32 - width), width);
        }
    }
}

/// A lossless WebP file of 64x64 pixels with so many groups of codes, of 1.1 KB each in the file and 20 in memory.
fn webp_of_groups(groups: u32) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.put(0x2f, 8);
    bits.put(63, 14);
    bits.put(63, 14);
    bits.put(0, 4);
    // No transforms, no colors from before, groups for blocks of 4x4 pixels: the last one for all.
    bits.put(0b00100, 3);
    bits.put(0, 3);
    bits.put(0, 1);
    for symbol in [(groups - 1) & 255, (groups - 1) >> 8, 0, 0, 0] {
        bits.put_single(symbol);
    }
    for _ in 0..5 * groups {
        bits.put_code();
    }
    bits.bytes.extend([0; 64 * 64 / 2]);
    let data = &bits.bytes;
    let len = u32::try_from(data.len()).expect("megabytes");
    let whole = [
        b"WEBPVP8L",
        &len.to_le_bytes()[..],
        data,
        &[0][..data.len() % 2],
    ]
    .concat();
    let len = u32::try_from(whole.len()).expect("megabytes");
    [b"RIFF", &len.to_le_bytes()[..], &whole].concat()
}

#[test]
fn a_webp_whose_codes_would_take_gigabytes_is_refused_before_they_do() {
    let _alone = alone();
    let (result, scratch) = check("300 groups", &webp_of_groups(300));
    result.unwrap();
    assert!(scratch > 300 * 5 * 4096, "the codes are there: {scratch}");
    let file = webp_of_groups(20_000);
    assert!(file.len() < 2 << 20);
    let (result, scratch) = check("20000 groups", &file);
    let error = result.unwrap_err();
    assert!(error.contains("whose codes take at most"), "{error}");
    assert!(scratch < 1 << 20, "{scratch}");
}
