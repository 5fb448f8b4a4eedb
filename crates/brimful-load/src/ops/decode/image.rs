//! What decoding may take, whatever a file says of itself.

use std::fmt::Display;

use crate::array::DType;
use crate::error::OpError;
use crate::ops::Out;

pub(super) const NAME: &str = "decode";

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
pub(super) const BYTES_PER_PIXEL: u64 = 8;

/// For a pixel of the longer side: the rows of a JPEG that are at work (at most 914 bytes, over 4000 ways to sample its
/// colors), and its coefficients up to 31 pixels beyond the edges.
const BYTES_PER_SIDE: u64 = 1536;

/// Tables of the decoders, whatever the image.
pub(super) const FIXED_BYTES: u64 = 1 << 20;

/// Bytes of all that is not the picture of a JPEG file itself: tables, thumbnails, color profiles and other notes. The
/// decoder copies some of them, and puts parts of them together in a second copy.
pub(super) const MAX_NOTES: u64 = 4 << 20;

impl DecodeImage {
    /// Bytes that the prefix codes of a lossless WebP file may take.
    pub(super) fn max_codes(&self) -> u64 {
        // So that they and 5 bytes for a pixel stay below the bound for all.
        (self.max_pixels.saturating_mul(BYTES_PER_PIXEL - 5)).saturating_add(self.other_bytes())
    }

    /// Bytes that are not counted by the pixel.
    pub(super) fn other_bytes(&self) -> u64 {
        2 * MAX_NOTES + BYTES_PER_SIDE * u64::from(self.longest_side)
    }

    /// The output buffer for an image of this size, or an error if it has too many pixels.
    pub(super) fn pixels<'a>(
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

pub(super) fn malformed(expected: impl Into<String>, found: impl Display) -> OpError {
    OpError::Malformed {
        op: NAME,
        expected: expected.into(),
        found: found.to_string(),
    }
}
