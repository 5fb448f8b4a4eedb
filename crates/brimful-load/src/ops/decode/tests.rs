use std::path::Path;

use proptest::prelude::*;

use super::*;

const KEY: SampleKey = SampleKey {
    seed: 0,
    epoch: 0,
    index: 0,
};

const EXACT: [&str; 9] = [
    "rgb.png",
    "rgba.png",
    "gray.png",
    "gray-alpha.png",
    "palette.png",
    "bits.png",
    "gray-16.png",
    "lossless.webp",
    "lossless-alpha.webp",
];
/// With how far a color may be off: Pillow's JPEG library continues half-sized colors otherwise at the lower edge.
const CLOSE: [(&str, u8); 7] = [
    ("420.jpg", 4),
    ("422.jpg", 2),
    ("444.jpg", 2),
    ("progressive.jpg", 4),
    ("gray.jpg", 1),
    ("lossy.webp", 0),
    ("lossy-alpha.webp", 0),
];

fn all() -> impl Iterator<Item = &'static str> {
    EXACT.into_iter().chain(CLOSE.map(|(name, _)| name))
}

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/load/images");
    std::fs::read(folder.join(name)).unwrap()
}

fn decode(op: &DecodeImage, bytes: &[u8]) -> Result<Value, OpError> {
    let mut input = Value::default();
    input
        .set_encoded(bytes.len())
        .own(bytes.len())
        .copy_from_slice(bytes);
    let mut value = Value::default();
    op.apply(KEY, &input, Out::Value(&mut value), &mut Scratch::default())?;
    Ok(value)
}

/// To what Pillow decodes, color by color.
fn differences(name: &str) -> Vec<u8> {
    let value = decode(&DecodeImage::default(), &fixture(name)).unwrap();
    assert_eq!(
        (value.dtype, &value.shape[..]),
        (DType::U8, &[22, 29, 3][..])
    );
    let expected = fixture(&format!("{name}.rgb"));
    assert_eq!(value.bytes().len(), expected.len());
    value
        .bytes()
        .iter()
        .zip(&expected)
        .map(|(a, b)| a.abs_diff(*b))
        .collect()
}

#[test]
fn lossless_images_are_those_of_pillow() {
    for name in EXACT {
        assert!(
            differences(name).iter().all(|&difference| difference == 0),
            "{name}"
        );
    }
}

#[test]
fn lossy_images_are_close_to_those_of_pillow() {
    for (name, most) in CLOSE {
        let differences = differences(name);
        assert!(
            differences.iter().all(|&difference| difference <= most),
            "{name}"
        );
        let n_far = differences
            .iter()
            .filter(|&&difference| difference > 2)
            .count();
        assert!(n_far <= 1, "{name}: {n_far}");
    }
}

#[test]
fn images_beyond_the_limit_are_errors() {
    let small = DecodeImage {
        max_pixels: 22 * 29 - 1,
        ..DecodeImage::default()
    };
    let narrow = DecodeImage {
        longest_side: 28,
        ..DecodeImage::default()
    };
    for name in all() {
        assert_eq!(
            decode(&small, &fixture(name)).unwrap_err().to_string(),
            "decode expected an image of at most 637 pixels, as `max_pixels` of decode says, found 29x22, which are 638",
            "{name}"
        );
        assert_eq!(
            decode(&narrow, &fixture(name)).unwrap_err().to_string(),
            "decode expected an image of at most 28 pixels a side, found 29x22",
            "{name}"
        );
    }
}

#[test]
fn a_bomb_is_an_error_before_memory_is_taken() {
    let mut bomb = fixture("rgb.png");
    bomb[16..24].copy_from_slice(&[0, 0, 0x3f, 0xff, 0, 0, 0x3f, 0xff]);
    let checksum = crc(&bomb[12..29]).to_be_bytes();
    bomb[29..33].copy_from_slice(&checksum);
    assert_eq!(
        decode(&DecodeImage::default(), &bomb)
            .unwrap_err()
            .to_string(),
        "decode expected an image of at most 16777216 pixels, as `max_pixels` of decode says, found 16383x16383, \
         which are 268402689"
    );

    // The frame is larger than the file says.
    let mut bomb = fixture("lossy-alpha.webp");
    let picture = bomb
        .windows(4)
        .position(|window| window == b"VP8 ")
        .unwrap()
        + 8;
    bomb[picture + 6..picture + 10].copy_from_slice(&[0xff, 0x3f, 0xff, 0x3f]);
    assert_eq!(
        decode(&DecodeImage::default(), &bomb)
            .unwrap_err()
            .to_string(),
        "decode expected a picture of 29x22, found 16383x16383"
    );
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

#[test]
fn other_files_are_told_by_their_first_bytes() {
    let message = |bytes| {
        decode(&DecodeImage::default(), bytes)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        message(b"GIF89a and more"),
        "decode expected a JPEG, PNG or WebP file, found bytes that begin with \"GIF89a and m\""
    );
    assert!(message(b"").contains("begin with \"\""));
    let mesh = FieldSpec::Encoded(Encoding::Mesh);
    assert!(DecodeImage::default().output_spec(&mesh).is_err());
}

#[test]
fn half_a_file_is_an_error() {
    for name in all() {
        let bytes = fixture(name);
        assert!(
            decode(&DecodeImage::default(), &bytes[..bytes.len() * 2 / 3]).is_err(),
            "{name}"
        );
    }
}

#[test]
fn a_flipped_bit_in_a_png_file_is_an_error_or_changes_no_pixel() {
    for name in EXACT.iter().filter(|name| !name.contains("webp")) {
        let whole = fixture(name);
        let sound = decode(&DecodeImage::default(), &whole).unwrap();
        for at in 0..8 * whole.len() {
            let mut bytes = whole.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            if let Ok(value) = decode(&DecodeImage::default(), &bytes) {
                assert!(value.bytes() == sound.bytes(), "{name}, bit {at}");
            }
        }
    }
}

#[test]
fn a_slot_takes_an_image_of_its_size_only() {
    let op = DecodeImage::default();
    let bytes = fixture("rgb.png");
    let mut input = Value::default();
    input
        .set_encoded(bytes.len())
        .own(bytes.len())
        .copy_from_slice(&bytes);
    let mut slot = vec![0; 22 * 29 * 3];
    op.apply(KEY, &input, Out::Slot(&mut slot), &mut Scratch::default())
        .unwrap();
    assert_eq!(slot, fixture("rgb.png.rgb"));
    let mut small = [0; 9];
    assert!(
        op.apply(KEY, &input, Out::Slot(&mut small), &mut Scratch::default())
            .is_err()
    );
}

proptest! {
    #[test]
    fn damaged_files_are_errors_or_images_within_the_limit(
        which in 0_usize..16,
        cut in 0_usize..3000,
        flips in prop::collection::vec((0_usize..1000, any::<u8>()), 0..6),
    ) {
        let mut bytes = fixture(all().nth(which).unwrap());
        for (at, byte) in flips {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(cut.max(bytes.len() / 2));
        let op = DecodeImage { max_pixels: 1 << 20, ..DecodeImage::default() };
        if let Ok(value) = decode(&op, &bytes) {
            prop_assert!(value.bytes().len() <= 3 << 20);
        }
    }
}

/// A PNG file of pixels of so many bytes, in the seven passes of Adam7.
fn interlaced(width: usize, height: usize, color: u8, pixels: &[u8]) -> Vec<u8> {
    let size = pixels.len() / (width * height);
    let mut rows = Vec::new();
    for (left, top, across, down) in [
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ] {
        for y in (top..height).step_by(down).filter(|_| left < width) {
            rows.push(0);
            for x in (left..width).step_by(across) {
                rows.extend(&pixels[(y * width + x) * size..][..size]);
            }
        }
    }
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut zlib, &rows).unwrap();
    let mut header = Vec::new();
    for side in [width, height] {
        header.extend(u32::try_from(side).unwrap().to_be_bytes());
    }
    header.extend([8, color, 0, 0, 1]);
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, data) in [
        (b"IHDR", header),
        (b"IDAT", zlib.finish().unwrap()),
        (b"IEND", Vec::new()),
    ] {
        file.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        let named = [&name[..], &data].concat();
        file.extend(&named);
        file.extend(crc(&named).to_be_bytes());
    }
    file
}

#[test]
fn interlaced_images_are_put_together() {
    for (width, height) in [(1, 1), (3, 2), (8, 8), (13, 21), (5, 1), (1, 9)] {
        for (color, size) in [(0, 1), (4, 2), (2, 3), (6, 4)] {
            let count = width * height * size;
            let pixels: Vec<u8> = (0..=250).cycle().step_by(37).take(count).collect();
            let expected: Vec<u8> = pixels
                .chunks(size)
                .flat_map(|pixel| match *pixel {
                    [r, g, b] | [r, g, b, _] => [r, g, b],
                    _ => [pixel[0]; 3],
                })
                .collect();
            let file = interlaced(width, height, color, &pixels);
            let value = decode(&DecodeImage::default(), &file).unwrap();
            assert_eq!(value.bytes(), expected, "{width}x{height} of {size}");
        }
    }
}

#[test]
fn an_animation_is_an_error() {
    let mut file = fixture("lossy-alpha.webp");
    assert_eq!(&file[12..16], b"VP8X");
    file[20] |= 2;
    assert_eq!(
        decode(&DecodeImage::default(), &file)
            .unwrap_err()
            .to_string(),
        "decode expected a WebP file of one picture, found an animation"
    );
}
