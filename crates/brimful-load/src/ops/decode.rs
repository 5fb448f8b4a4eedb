//! An image file to pixels.

use std::fmt::Display;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use image_webp::WebPDecoder;
use png::{ColorType, Transformations};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use crate::array::{DType, Encoding, Kind};
use crate::error::OpError;
use crate::ops::{Op, Out, SampleKey, Scratch};
use crate::value::Value;

const NAME: &str = "decode";

/// A JPEG, PNG or WebP file to `uint8` of height, width and three colors: red, green, blue.
///
/// As Pillow's `convert("RGB")` does it: gray becomes three equal colors, transparency is dropped and what lies under it
/// kept, palettes are looked up. Of 16 bits the upper 8 are kept. Color profiles are not applied, nor is the orientation
/// that a camera noted (EXIF): `ImageOps.exif_transpose` would. A damaged or cut file is an error, also a JPEG of which
/// some readers show what can be saved. So is an animation in WebP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeImage {
    /// Larger images are errors before their memory is taken.
    pub max_width: u32,
    pub max_height: u32,
    pub max_pixels: u64,
}

impl Default for DecodeImage {
    /// 64 megapixels, in any proportion.
    fn default() -> DecodeImage {
        DecodeImage {
            max_width: 1 << 16,
            max_height: 1 << 16,
            max_pixels: 64 << 20,
        }
    }
}

/// What decoding takes for a pixel besides the result: the coefficients of a progressive JPEG with four colors, or a
/// picture with transparency in WebP and what is made of it.
const BYTES_PER_PIXEL: u64 = 12;

impl Op for DecodeImage {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self, input: &Kind) -> Result<Kind, OpError> {
        match input {
            Kind::Encoded(Encoding::Image | Encoding::Unknown) => Ok(Kind::Ragged {
                dtype: DType::U8,
                rank: 3,
            }),
            _ => Err(OpError::WrongKind {
                op: NAME,
                expected: "an image file".to_owned(),
                found: input.to_string(),
            }),
        }
    }

    fn scratch_bytes(&self, _: &Kind) -> u64 {
        self.max_pixels.saturating_mul(BYTES_PER_PIXEL)
    }

    fn apply(
        &self,
        _: SampleKey,
        input: &Value,
        mut out: Out<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), OpError> {
        let bytes = input.bytes();
        // The decoders are not ours, and the file is hostile: should one of them give up, it is about this file only.
        // What it was writing to is written anew before anybody reads it.
        let decoded = catch_unwind(AssertUnwindSafe(|| match Format::of(bytes) {
            Some(Format::Jpeg) => self.jpeg(bytes, &mut out),
            Some(Format::Png) => self.png(bytes, &mut out, &mut scratch.bytes),
            Some(Format::WebP) => self.webp(bytes, &mut out, &mut scratch.bytes),
            None => Err(malformed(
                "a JPEG, PNG or WebP file",
                format!(
                    "bytes that begin with \"{}\"",
                    bytes[..bytes.len().min(12)].escape_ascii()
                ),
            )),
        }));
        decoded.unwrap_or_else(|_| {
            Err(malformed(
                "a sound image",
                "one at which the decoder gave up",
            ))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Jpeg,
    Png,
    WebP,
}

impl Format {
    /// By the first bytes: extensions lie.
    fn of(bytes: &[u8]) -> Option<Format> {
        match bytes {
            [0xff, 0xd8, 0xff, ..] => Some(Format::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Format::Png),
            [
                b'R',
                b'I',
                b'F',
                b'F',
                _,
                _,
                _,
                _,
                b'W',
                b'E',
                b'B',
                b'P',
                ..,
            ] => Some(Format::WebP),
            _ => None,
        }
    }
}

impl DecodeImage {
    fn jpeg(&self, bytes: &[u8], out: &mut Out<'_>) -> Result<(), OpError> {
        let wrong = |error| malformed("a sound JPEG file", error);
        let options = DecoderOptions::default()
            .set_strict_mode(true)
            .set_max_width(self.max_width as usize)
            .set_max_height(self.max_height as usize)
            .jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
        decoder.decode_headers().map_err(wrong)?;
        let (width, height) = decoder
            .dimensions()
            .ok_or_else(|| malformed("a sound JPEG file", "one without a size"))?;
        let pixels = self.pixels(out, width, height)?;
        decoder.decode_into(pixels).map_err(wrong)
    }

    fn png(&self, bytes: &[u8], out: &mut Out<'_>, scratch: &mut Vec<u8>) -> Result<(), OpError> {
        let wrong = |error| malformed("a sound PNG file", error);
        let mut decoder = png::Decoder::new(Cursor::new(bytes));
        decoder.set_ignore_text_chunk(true);
        decoder.set_ignore_iccp_chunk(true);
        decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
        let info = decoder.read_header_info().map_err(wrong)?;
        let (width, height) = (info.width as usize, info.height as usize);
        let pixels = self.pixels(out, width, height)?;
        let mut reader = decoder.read_info().map_err(wrong)?;
        let channels = match reader.output_color_type().0 {
            ColorType::Rgb => {
                reader.next_frame(pixels).map_err(wrong)?;
                return Ok(());
            }
            ColorType::Rgba => 4,
            ColorType::GrayscaleAlpha => 2,
            ColorType::Grayscale | ColorType::Indexed => 1,
        };
        scratch.resize(width * height * channels, 0);
        reader.next_frame(scratch).map_err(wrong)?;
        to_rgb(scratch, channels, pixels);
        Ok(())
    }

    fn webp(&self, bytes: &[u8], out: &mut Out<'_>, scratch: &mut Vec<u8>) -> Result<(), OpError> {
        let wrong = |error| malformed("a sound WebP file", error);
        let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(wrong)?;
        if decoder.is_animated() {
            return Err(malformed("a WebP file of one picture", "an animation"));
        }
        let (width, height) = decoder.dimensions();
        // The picture inside has a size of its own, and memory for it is taken before the two are compared.
        if let Some(inner) = lossy_sizes(bytes).find(|&size| size != (width, height)) {
            return Err(malformed(
                format!("a picture of {width}x{height}"),
                format!("{}x{}", inner.0, inner.1),
            ));
        }
        let (width, height) = (width as usize, height as usize);
        let pixels = self.pixels(out, width, height)?;
        if !decoder.has_alpha() {
            return decoder.read_image(pixels).map_err(wrong);
        }
        scratch.resize(width * height * 4, 0);
        decoder.read_image(scratch).map_err(wrong)?;
        to_rgb(scratch, 4, pixels);
        Ok(())
    }

    /// Where pixels go, if so many are allowed.
    fn pixels<'a>(
        &self,
        out: &'a mut Out<'_>,
        width: usize,
        height: usize,
    ) -> Result<&'a mut [u8], OpError> {
        let is_allowed = width <= self.max_width as usize
            && height <= self.max_height as usize
            && (width as u64).saturating_mul(height as u64) <= self.max_pixels;
        if !is_allowed || width == 0 || height == 0 {
            return Err(malformed(
                format!(
                    "an image of at most {}x{} and {} pixels",
                    self.max_width, self.max_height, self.max_pixels
                ),
                format!("{width}x{height}"),
            ));
        }
        out.array(NAME, DType::U8, &[height, width, 3])
    }
}

/// Width and height as the lossy pictures of a WebP file tell them.
fn lossy_sizes(bytes: &[u8]) -> impl Iterator<Item = (u32, u32)> {
    let mut rest = bytes.get(12..).unwrap_or_default();
    std::iter::from_fn(move || {
        loop {
            let (header, data) = rest.split_first_chunk::<8>()?;
            let len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
            rest = data
                .get(len.checked_next_multiple_of(2)?..)
                .unwrap_or_default();
            if let (b"VP8 ", Some(picture)) = (&header[..4], data.first_chunk::<10>()) {
                let side = |at: usize| {
                    u32::from(u16::from_le_bytes([picture[at], picture[at + 1]]) & 0x3fff)
                };
                return Some((side(6), side(8)));
            }
        }
    })
}

fn to_rgb(from: &[u8], channels: usize, to: &mut [u8]) {
    let pixels = from.chunks_exact(channels).zip(to.chunks_exact_mut(3));
    if channels == 4 {
        pixels.for_each(|(from, to)| to.copy_from_slice(&from[..3]));
    } else {
        pixels.for_each(|(from, to)| to.fill(from[0]));
    }
}

fn malformed(expected: impl Into<String>, found: impl Display) -> OpError {
    OpError::Malformed {
        op: NAME,
        expected: expected.into(),
        found: found.to_string(),
    }
}

#[cfg(test)]
mod tests {
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
            max_width: 28,
            ..DecodeImage::default()
        };
        for name in all() {
            assert!(
                decode(&small, &fixture(name))
                    .unwrap_err()
                    .to_string()
                    .contains("29x22"),
                "{name}"
            );
            assert!(decode(&narrow, &fixture(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn a_bomb_is_an_error_before_memory_is_taken() {
        let mut bomb = fixture("rgb.png");
        bomb[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
        let checksum = crc(&bomb[12..29]).to_be_bytes();
        bomb[29..33].copy_from_slice(&checksum);
        assert_eq!(
            decode(&DecodeImage::default(), &bomb)
                .unwrap_err()
                .to_string(),
            "decode expected an image of at most 65536x65536 and 67108864 pixels, found 65535x65535"
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
        let mesh = Kind::Encoded(Encoding::Mesh);
        assert!(DecodeImage::default().kind(&mesh).is_err());
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
}
