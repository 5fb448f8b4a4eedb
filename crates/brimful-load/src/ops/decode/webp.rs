//! WebP, by `image-webp`.
//!
//! Only the picture itself is handed to the decoder, as if the file held nothing else: transparency that is kept apart
//! is dropped anyway, and would take twice the memory of the colors.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

use image_webp::WebPDecoder;

use super::image::{DecodeImage, malformed};
use super::png::to_rgb;
use super::prefix_codes;
use crate::error::OpError;
use crate::ops::Out;

impl DecodeImage {
    pub(super) fn webp(&self, bytes: &[u8], out: &mut Out<'_>) -> Result<(), OpError> {
        let wrong = |error| malformed("a sound WebP file", error);
        let picture = Picture::find(bytes)?;
        let (width, height) = picture.size;
        let pixels = self.pixels(out, width, height)?;
        if picture.is_lossless {
            let most = self.max_codes();
            let codes = prefix_codes::bytes(picture.data, most)
                .ok_or_else(|| malformed("a sound WebP file", "one with broken codes"))?;
            if codes > most {
                return Err(malformed(
                    format!("a WebP file whose codes take at most {most} bytes of memory"),
                    "more",
                ));
            }
        } else if picture.data.len() > 4 * width * height + (64 << 10) {
            // It is copied to be decoded, and has no reason to be larger than its pixels.
            return Err(malformed(
                format!("a lossy picture of {width}x{height}"),
                format!("one of {} bytes", picture.data.len()),
            ));
        }
        let mut decoder = WebPDecoder::new(picture.alone()).map_err(wrong)?;
        if !decoder.has_alpha() {
            return decoder.read_image(pixels).map_err(wrong);
        }
        // Not kept from image to image: a JPEG takes its memory elsewhere, and the two would add up.
        let mut with_alpha = vec![0; width * height * 4];
        decoder.read_image(&mut with_alpha).map_err(wrong)?;
        to_rgb(&with_alpha, 4, pixels);
        Ok(())
    }
}

/// The one picture of a file.
struct Picture<'a> {
    is_lossless: bool,
    /// Width and height.
    size: (usize, usize),
    /// The chunk, and what is in it.
    chunk: &'a [u8],
    data: &'a [u8],
}

impl<'a> Picture<'a> {
    fn find(bytes: &'a [u8]) -> Result<Picture<'a>, OpError> {
        const ANIMATION: u8 = 2;
        let mut canvas = None;
        let mut rest = bytes.get(12..).unwrap_or_default();
        while let Some((header, behind)) = rest.split_first_chunk::<8>() {
            let [name @ .., l0, l1, l2, l3] = header;
            let len = u32::from_le_bytes([*l0, *l1, *l2, *l3]) as usize;
            let Some(data) = behind.get(..len) else {
                return Err(malformed(
                    format!("{len} bytes in a part of a WebP file"),
                    behind.len(),
                ));
            };
            match (name, data) {
                (b"VP8X", [flags, ..]) if flags & ANIMATION != 0 => {
                    return Err(malformed("a WebP file of one picture", "an animation"));
                }
                (b"VP8X", [_, _, _, _, sides @ ..]) if sides.len() >= 6 => {
                    let one = |at: usize| {
                        u32::from_le_bytes([sides[at], sides[at + 1], sides[at + 2], 0]) as usize
                            + 1
                    };
                    canvas = Some((one(0), one(3)));
                }
                (b"VP8 " | b"VP8L", _) => {
                    let is_lossless = name == b"VP8L";
                    let size = size_of(data, is_lossless)
                        .ok_or_else(|| malformed("a sound WebP file", "one without a size"))?;
                    // A picture that is larger than its canvas is no picture but a trap.
                    if let Some((width, height)) = canvas.filter(|&canvas| canvas != size) {
                        return Err(malformed(
                            format!("a picture of {width}x{height}"),
                            format!("{}x{}", size.0, size.1),
                        ));
                    }
                    return Ok(Picture {
                        is_lossless,
                        size,
                        chunk: &rest[..8 + len],
                        data,
                    });
                }
                _ => {}
            }
            // Parts begin at even places; the last one need not be filled up.
            rest = behind.get(len.next_multiple_of(2)..).unwrap_or_default();
        }
        Err(malformed("a picture in a WebP file", "none"))
    }

    /// A file of nothing but the picture.
    fn alone(&self) -> TwoParts<'a> {
        let mut head = *b"RIFF\0\0\0\0WEBP";
        let len = u32::try_from(self.chunk.len() + 4).unwrap_or(u32::MAX);
        head[4..8].copy_from_slice(&len.to_le_bytes());
        TwoParts {
            head,
            rest: self.chunk,
            at: 0,
        }
    }
}

/// Width and height, as the picture itself tells them.
fn size_of(data: &[u8], is_lossless: bool) -> Option<(usize, usize)> {
    let side = |bits: u32| (bits & 0x3fff) as usize;
    if is_lossless {
        let bits = u32::from_le_bytes(data.get(1..5)?.try_into().ok()?);
        // One more than the bits say; what reads them takes the largest for none.
        Some((side(bits) + 1, side(bits >> 14) + 1))
    } else {
        let bits = u32::from_le_bytes(data.get(6..10)?.try_into().ok()?);
        Some((side(bits), side(bits >> 16)))
    }
}

/// Two pieces of memory, read as one file.
struct TwoParts<'a> {
    head: [u8; 12],
    rest: &'a [u8],
    at: usize,
}

impl TwoParts<'_> {
    fn left(&self) -> &[u8] {
        match self.head.get(self.at..) {
            Some(head) if !head.is_empty() => head,
            _ => self
                .rest
                .get(self.at - self.head.len()..)
                .unwrap_or_default(),
        }
    }
}

impl Read for TwoParts<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.left().read(out)?;
        self.at += read;
        Ok(read)
    }
}

impl BufRead for TwoParts<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.left())
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount;
    }
}

impl Seek for TwoParts<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let len = (self.head.len() + self.rest.len()) as u64;
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => (self.at as u64).checked_add_signed(by),
            SeekFrom::End(by) => len.checked_add_signed(by),
        };
        let at = at.and_then(|at| usize::try_from(at).ok());
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at as u64)
    }
}
