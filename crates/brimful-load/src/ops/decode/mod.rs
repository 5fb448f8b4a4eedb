//! An image file to pixels.

mod image;
mod jpeg;
mod png;
mod prefix_codes;
#[cfg(test)]
mod tests;
mod webp;

use crate::array::{DType, Encoding, FieldSpec};
use crate::catch_panics::catch_panics;
use crate::error::OpError;
use crate::ops::{Layout, Op, Out, Reservation, SampleKey, Scratch};
use crate::value::Value;

pub use image::DecodeImage;
use image::{BYTES_PER_PIXEL, FIXED_BYTES, NAME, malformed};

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
