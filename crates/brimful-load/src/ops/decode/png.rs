//! PNG, by `png`: row by row, so that nothing is held but a few rows.

use std::io::Cursor;

use png::{ColorType, InterlaceInfo, Limits, Transformations};

use super::image::{DecodeImage, malformed};
use crate::error::OpError;
use crate::ops::Out;

/// What the decoder may take for chunks other than the picture: palettes, and what it does not tell of.
const MAX_BYTES: usize = 4 << 20;

impl DecodeImage {
    pub(super) fn png(&self, bytes: &[u8], out: &mut Out<'_>) -> Result<(), OpError> {
        let wrong = |error| malformed("a sound PNG file", error);
        let mut options = png::DecodeOptions::default();
        options.set_ignore_text_chunk(true);
        options.set_ignore_iccp_chunk(true);
        // As Pillow. A chunk whose checksum is wrong may be one of pixels, with a flipped bit in its name. The Adler-32 of
        // all pixels covers nothing that CRC-32 does not, and would add a sixth to the time.
        options.set_skip_ancillary_crc_failures(false);
        let mut decoder = png::Decoder::new_with_options(Cursor::new(bytes), options);
        decoder.set_limits(Limits { bytes: MAX_BYTES });
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
        let stride = 3 * width;
        let (mut line, mut n_done) = (0, 0);
        let mut spread = Vec::new();
        while let Some(row) = reader.next_interlaced_row().map_err(wrong)? {
            let n_pixels = row.data().len() / channels;
            match row.interlace() {
                InterlaceInfo::Null(_) => {
                    let to = pixels.get_mut(line * stride..).unwrap_or_default();
                    to_rgb(row.data(), channels, to);
                    line += 1;
                }
                InterlaceInfo::Adam7(info) => {
                    spread.resize(n_pixels * 3, 0);
                    to_rgb(row.data(), channels, &mut spread);
                    png::expand_interlaced_row(pixels, stride, &spread, info, 24);
                }
            }
            n_done += n_pixels;
        }
        if n_done == width * height {
            return Ok(());
        }
        Err(malformed(
            format!("{} pixels in a PNG file", width * height),
            n_done,
        ))
    }
}

/// Without transparency, and gray as three equal colors.
pub(super) fn to_rgb(from: &[u8], channels: usize, to: &mut [u8]) {
    let pixels = from.chunks_exact(channels).zip(to.chunks_exact_mut(3));
    if channels == 4 {
        pixels.for_each(|(from, to)| to.copy_from_slice(&from[..3]));
    } else {
        pixels.for_each(|(from, to)| to.fill(from[0]));
    }
}
