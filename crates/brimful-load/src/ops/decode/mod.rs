//! An image file to pixels.

mod jpeg;
mod png;
mod prefix_codes;
#[cfg(test)]
mod tests;
mod webp;

use std::fmt::Display;

use crate::array::{DType, Encoding, FieldSpec};
use crate::catch_panics::catch_panics;
use crate::error::OpError;
use crate::ops::{Layout, Op, Out, Reservation, SampleKey, Scratch};
use crate::value::Value;

const NAME: &str = "decode";

/// A JPEG, PNG or WebP file to `uint8` of height, width and three colors: red, green, blue.
///
/// As Pillow's `convert("RGB")` does it: gray becomes three equal colors, transparency is dropped and what lies under it
/// kept, palettes are looked up. Of 16 bits the upper 8 are kept. Color profiles are not applied, nor is the orientation
/// that a camera noted (EXIF): `ImageOps.exif_transpose` would. A damaged or cut file is an error, also a JPEG of which
/// some readers show what can be saved. So is an animation in WebP.
///
/// A file is hostile. What decoding takes of memory is bounded by these numbers alone, whatever it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeImage {
    /// Larger images are errors before their memory is taken.
    pub max_pixels: u64,
    /// Pixels of the longer side.
    pub longest_side: u32,
}

impl Default for DecodeImage {
    /// 16 megapixels, in any proportion.
    fn default() -> DecodeImage {
        DecodeImage {
            max_pixels: 16 << 20,
            longest_side: 1 << 14,
        }
    }
}

/// What decoding takes for a pixel besides the result: the coefficients of a JPEG of several scans and four colors, two
/// bytes each. WebP takes 5 and its codes, PNG nothing. `tests/decoding_memory.rs` measures all of it.
const BYTES_PER_PIXEL: u64 = 8;

/// For a pixel of the longer side: the rows of a JPEG that are at work (at most 914 bytes, over 4000 ways to sample its
/// colors), and its coefficients up to 31 pixels beyond the edges.
const BYTES_PER_SIDE: u64 = 1536;

/// Tables of the decoders, whatever the image.
const FIXED_BYTES: u64 = 1 << 20;

impl DecodeImage {
    /// Bytes that the prefix codes of a lossless WebP file may take.
    fn max_codes(&self) -> u64 {
        // So that they and 5 bytes for a pixel stay below the bound for all.
        (self.max_pixels.saturating_mul(BYTES_PER_PIXEL - 5)).saturating_add(self.other_bytes())
    }

    /// Bytes that are not counted by the pixel.
    fn other_bytes(&self) -> u64 {
        2 * jpeg::MAX_NOTES + BYTES_PER_SIDE * u64::from(self.longest_side)
    }

    /// Where pixels go, if so many are allowed.
    fn pixels<'a>(
        &self,
        out: &'a mut Out<'_>,
        width: usize,
        height: usize,
    ) -> Result<&'a mut [u8], OpError> {
        let pixels = (width as u64).saturating_mul(height as u64);
        if pixels == 0 {
            return Err(malformed(
                "an image of some pixels",
                format!("{width}x{height}"),
            ));
        }
        if width.max(height) > self.longest_side as usize {
            return Err(malformed(
                format!("an image of at most {} pixels a side", self.longest_side),
                format!("{width}x{height}"),
            ));
        }
        if pixels > self.max_pixels {
            return Err(malformed(
                format!(
                    "an image of at most {} pixels, as `max_pixels` of decode says",
                    self.max_pixels
                ),
                format!("{width}x{height}, which are {pixels}"),
            ));
        }
        out.array(NAME, DType::U8, &[height, width, 3])
    }
}

impl Op for DecodeImage {
    fn name(&self) -> &'static str {
        NAME
    }

    fn layout(&self, _input: Layout) -> Layout {
        Layout::Interleaved
    }

    fn output_spec(&self, input: &FieldSpec) -> Result<FieldSpec, OpError> {
        match input {
            FieldSpec::Encoded(Encoding::Image | Encoding::Unknown) => Ok(FieldSpec::Ragged {
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

    fn scratch_bytes(&self, _: &FieldSpec) -> u64 {
        self.max_pixels
            .saturating_mul(BYTES_PER_PIXEL)
            .saturating_add(self.other_bytes())
            .saturating_add(FIXED_BYTES)
    }

    fn reservation(&self, input: &FieldSpec, _: u64) -> Reservation {
        Reservation {
            scratch: self.scratch_bytes(input),
            result: self.max_pixels.saturating_mul(3),
        }
    }

    fn apply(
        &self,
        _: SampleKey,
        input: &Value,
        mut out: Out<'_>,
        _: &mut Scratch,
    ) -> Result<(), OpError> {
        let bytes = input.bytes();
        // The decoders are not ours, and the file is hostile: should one of them give up, it is about this file only.
        // What it was writing to is written anew before anybody reads it.
        let decoded = catch_panics(|| match Format::of(bytes) {
            Some(Format::Jpeg) => self.jpeg(bytes, &mut out),
            Some(Format::Png) => self.png(bytes, &mut out),
            Some(Format::WebP) => self.webp(bytes, &mut out),
            None => Err(malformed(
                "a JPEG, PNG or WebP file",
                format!(
                    "bytes that begin with \"{}\"",
                    bytes[..bytes.len().min(12)].escape_ascii()
                ),
            )),
        });
        decoded.unwrap_or_else(|| {
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
        if bytes.starts_with(b"\xff\xd8\xff") {
            return Some(Format::Jpeg);
        }
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            return Some(Format::Png);
        }
        let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
        is_webp.then_some(Format::WebP)
    }
}

fn malformed(expected: impl Into<String>, found: impl Display) -> OpError {
    OpError::Malformed {
        op: NAME,
        expected: expected.into(),
        found: found.to_string(),
    }
}
