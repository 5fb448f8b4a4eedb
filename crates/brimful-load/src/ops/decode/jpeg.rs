//! JPEG, by `zune-jpeg`.

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::image::{DecodeImage, MAX_NOTES, malformed};
use crate::error::OpError;
use crate::ops::Out;

/// Parts of them. The decoder sorts some anew for each that it finds.
const MAX_PARTS: usize = 2000;

impl DecodeImage {
    pub(super) fn jpeg(&self, bytes: &[u8], out: &mut Out<'_>) -> Result<(), OpError> {
        let wrong = |error| malformed("a sound JPEG file", error);
        let options = DecoderOptions::default()
            .set_strict_mode(true)
            .set_max_width(usize::from(u16::MAX))
            .set_max_height(usize::from(u16::MAX))
            .jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(picture(bytes)?), options);
        decoder.decode_headers().map_err(wrong)?;
        let (width, height) = decoder
            .dimensions()
            .ok_or_else(|| malformed("a sound JPEG file", "one without a size"))?;
        let pixels = self.pixels(out, width, height)?;
        decoder.decode_into(pixels).map_err(wrong)
    }
}

/// The file up to the end of the picture: phones put films and further pictures behind it. An error where there are too
/// many notes.
fn picture(bytes: &[u8]) -> Result<&[u8], OpError> {
    let (mut n_parts, mut n_bytes) = (0, 0);
    let mut at = 2;
    while let Some(rest) = bytes.get(at..)
        && let Some(sign) = memchr::memchr(0xff, rest)
    {
        at += sign + 1;
        let (marker, len) = match &bytes[at..] {
            // The end.
            [0xd9, ..] => return Ok(&bytes[..=at]),
            // A byte of the picture that looks like a sign; places to begin again; signs without anything.
            [0x00 | 0x01 | 0xd0..=0xd8, ..] => (1, 0),
            // A sign may be repeated.
            [0xff, ..] => (0, 0),
            [_, high, low, ..] => (1, usize::from(u16::from_be_bytes([*high, *low]))),
            // The decoder says what is wrong.
            _ => return Ok(bytes),
        };
        at += marker + len;
        n_parts += usize::from(len > 0);
        n_bytes += len as u64;
        if n_parts > MAX_PARTS || n_bytes > MAX_NOTES {
            return Err(malformed(
                format!("a JPEG file with at most {MAX_NOTES} bytes of notes in {MAX_PARTS} parts"),
                "more",
            ));
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(marker: u8, payload: &[u8]) -> Vec<u8> {
        let len = u16::try_from(payload.len() + 2).unwrap();
        [&[0xff, marker][..], &len.to_be_bytes(), payload].concat()
    }

    #[test]
    fn a_file_ends_where_its_picture_does() {
        // A thumbnail with an end of its own, a scan with a stuffed byte, the end, and a film.
        let head = [&b"\xff\xd8"[..], &part(0xe1, b"\xff\xd9")].concat();
        let scan = [
            &part(0xda, &[0; 10])[..],
            b"\x01\xff\x00\xff\xd0\x02\xff\xff\xd9",
        ]
        .concat();
        let whole = [&head[..], &scan].concat();
        let followed = [&whole[..], b"film \xff\xe1\xff\xff"].concat();
        assert_eq!(picture(&followed).unwrap(), whole);
        for cut in 0..whole.len() {
            assert_eq!(picture(&whole[..cut]).unwrap(), &whole[..cut]);
        }
    }

    #[test]
    fn notes_beyond_the_limit_are_an_error() {
        let notes = |n: usize, bytes: usize| {
            let parts = part(0xe2, &vec![7; bytes]).repeat(n);
            [&b"\xff\xd8"[..], &parts, b"\xff\xd9"].concat()
        };
        assert!(picture(&notes(64, 65_000)).is_ok());
        assert!(picture(&notes(65, 65_000)).is_err());
        assert!(picture(&notes(2000, 10)).is_ok());
        assert!(picture(&notes(2001, 10)).is_err());
    }
}
