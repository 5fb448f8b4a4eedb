//! Small pictures of arrays.

use brimful::preview::Picture;
use brimful_load::{DType, TensorSpec};
use half::{bf16, f16};

/// Width or height of a picture, whichever is larger.
const MAX_PIXELS: usize = 96;
/// Arrays with fewer rows or columns are lists of numbers.
const MIN_PIXELS: usize = 8;
/// Rows and columns that a long array keeps, where it has them.
const KEPT_PIXELS: usize = 32;

/// How an array lies in memory: its picture's size, and steps between elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PictureLayout {
    height: usize,
    width: usize,
    channels: usize,
    /// Slices of a volume: a pixel shows the highest value behind it.
    depth: usize,
    row_step: usize,
    column_step: usize,
    channel_step: usize,
    slice_step: usize,
}

impl PictureLayout {
    fn of(shape: &[usize]) -> Option<PictureLayout> {
        let shape = match shape {
            [1, rest @ ..] if rest.len() >= 2 => rest,
            _ => shape,
        };
        let plain = |height, width, channels: usize| PictureLayout {
            height,
            width,
            channels: if channels >= 3 { 3 } else { 1 },
            depth: 1,
            row_step: width * channels,
            column_step: channels,
            channel_step: 1,
            slice_step: 0,
        };
        let planes = |height, width| PictureLayout {
            row_step: width,
            column_step: 1,
            ..plain(height, width, 1)
        };
        let form = match *shape {
            [height, width] => plain(height, width, 1),
            [height, width, channels @ (1 | 3 | 4)] => plain(height, width, channels),
            [3, height, width] => PictureLayout {
                channels: 3,
                channel_step: height * width,
                ..planes(height, width)
            },
            // A small last dimension is that of channels.
            [depth, height, width] if width.saturating_mul(4) >= height => PictureLayout {
                depth,
                slice_step: height * width,
                ..planes(height, width)
            },
            _ => return None,
        };
        (form.height >= MIN_PIXELS && form.width >= MIN_PIXELS).then_some(form)
    }

    fn at(&self, row: usize, column: usize, channel: usize, slice: usize) -> usize {
        row * self.row_step
            + column * self.column_step
            + channel * self.channel_step
            + slice * self.slice_step
    }

    /// Height and width of the picture.
    fn small(&self) -> (usize, usize) {
        let longest = self.height.max(self.width);
        let side = |side: usize| {
            let scaled = side * MAX_PIXELS / longest.max(MAX_PIXELS);
            scaled.max(side.min(KEPT_PIXELS))
        };
        (side(self.height), side(self.width))
    }
}

/// A picture of an array, or `None` if its shape is not that of an image or a volume.
pub(crate) fn picture(form: &TensorSpec, bytes: &[u8]) -> Option<Picture> {
    // The bytes of a shape can be counted, unless one of its dimensions is 0: only then can a product overflow.
    if form.bytes() == 0 || bytes.len() < form.bytes() {
        return None;
    }
    let picture = PictureLayout::of(form.shape())?;
    let (height, width) = picture.small();
    let mut values = Vec::with_capacity(height * width * picture.channels);
    for row in 0..height {
        let rows = part(row, height, picture.height);
        for column in 0..width {
            let columns = part(column, width, picture.width);
            for channel in 0..picture.channels {
                let mean = mean_of(&picture, form.dtype(), bytes, &rows, &columns, channel);
                values.push(mean);
            }
        }
    }
    let range = match form.dtype() {
        DType::U8 | DType::Bool => None,
        _ => Some(range_of(values.iter().copied())?),
    };
    let (low, high) = match (range, form.dtype()) {
        (Some(range), _) => range,
        (None, DType::Bool) => (0.0, 1.0),
        (None, _) => (0.0, 255.0),
    };
    let pixels: Vec<u8> = values
        .iter()
        .map(|value| level(*value, low, high))
        .collect();
    let (width, height) = (u32::try_from(width).ok()?, u32::try_from(height).ok()?);
    Some(Picture {
        png: png_of(&pixels, width, height, picture.channels)?,
        width,
        height,
        range,
    })
}

/// The elements that one of `of` pixels stands for.
fn part(at: usize, of: usize, all: usize) -> std::ops::Range<usize> {
    at * all / of..((at + 1) * all / of).max(at * all / of + 1)
}

fn mean_of(
    form: &PictureLayout,
    dtype: DType,
    bytes: &[u8],
    rows: &std::ops::Range<usize>,
    columns: &std::ops::Range<usize>,
    channel: usize,
) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for row in rows.clone() {
        for column in columns.clone() {
            let behind = (0..form.depth)
                .filter_map(|slice| element(dtype, bytes, form.at(row, column, channel, slice)))
                .filter(|value| value.is_finite());
            if let Some(highest) = behind.reduce(f64::max) {
                sum += highest;
                count += 1.0;
            }
        }
    }
    if count > 0.0 { sum / count } else { f64::NAN }
}

/// The lowest and the highest of the finite values.
pub(crate) fn range_of(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.filter(|value| value.is_finite());
    finite.fold(None, |range: Option<(f64, f64)>, value| {
        let (low, high) = range.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

/// An element of 64 bits, whose digits a float cannot hold.
pub(crate) fn whole_number(dtype: DType, bytes: &[u8], at: usize) -> Option<i128> {
    let start = at.checked_mul(8)?;
    let word = bytes.get(start..start.checked_add(8)?)?;
    let word = word.first_chunk::<8>()?;
    match dtype {
        DType::U64 => Some(u64::from_le_bytes(*word).into()),
        DType::I64 => Some(i64::from_le_bytes(*word).into()),
        _ => None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of 255; what is no number is black"
)]
fn level(value: f64, low: f64, high: f64) -> u8 {
    let width = high - low;
    let share = if width > 0.0 {
        (value - low) / width
    } else {
        0.5
    };
    (share * 255.0).round() as u8
}

/// An element as a number.
pub(crate) fn element(dtype: DType, bytes: &[u8], at: usize) -> Option<f64> {
    let start = at.checked_mul(dtype.size())?;
    let word = bytes.get(start..start.checked_add(dtype.size())?)?;
    let mut wide = [0; 8];
    wide[..word.len()].copy_from_slice(word);
    let [a, b, c, d, ..] = wide;
    Some(match dtype {
        DType::Bool => f64::from(u8::from(a != 0)),
        DType::U8 => f64::from(a),
        DType::I8 => f64::from(i8::from_le_bytes([a])),
        DType::U16 => f64::from(u16::from_le_bytes([a, b])),
        DType::I16 => f64::from(i16::from_le_bytes([a, b])),
        DType::U32 => f64::from(u32::from_le_bytes([a, b, c, d])),
        DType::I32 => f64::from(i32::from_le_bytes([a, b, c, d])),
        DType::U64 => u64::from_le_bytes(wide) as f64,
        DType::I64 => i64::from_le_bytes(wide) as f64,
        DType::F16 => f16::from_le_bytes([a, b]).to_f64(),
        DType::BF16 => bf16::from_le_bytes([a, b]).to_f64(),
        DType::F32 => f64::from(f32::from_le_bytes([a, b, c, d])),
        DType::F64 => f64::from_le_bytes(wide),
    })
}

fn png_of(pixels: &[u8], width: u32, height: u32, channels: usize) -> Option<Vec<u8>> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(if channels == 3 {
        png::ColorType::Rgb
    } else {
        png::ColorType::Grayscale
    });
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    let mut writer = encoder.write_header().ok()?;
    writer.write_image_data(pixels).ok()?;
    writer.finish().ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixels(picture: &Picture) -> Vec<u8> {
        let decoder = png::Decoder::new(std::io::Cursor::new(&picture.png));
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (picture.width, picture.height));
        pixels
    }

    #[test]
    fn rows_of_pixels_and_planes_of_colors_give_the_same_picture() {
        let pixel = |row: usize, column: usize| [row, column, 7].map(|v| u8::try_from(v).unwrap());
        let mut by_rows = Vec::new();
        let mut by_planes = vec![0; 3 * 10 * 20];
        for row in 0..10 {
            for column in 0..20 {
                by_rows.extend(pixel(row, column));
                for (channel, value) in pixel(row, column).into_iter().enumerate() {
                    by_planes[channel * 200 + row * 20 + column] = value;
                }
            }
        }
        let of = |shape: [usize; 3], bytes: &[u8]| {
            picture(&TensorSpec::new(DType::U8, shape).unwrap(), bytes).unwrap()
        };
        let found = of([10, 20, 3], &by_rows);
        assert_eq!(pixels(&found), by_rows);
        assert_eq!(found, of([3, 10, 20], &by_planes));
        assert_eq!((found.width, found.height, found.range), (20, 10, None));
    }

    #[test]
    fn large_arrays_become_small_pictures_of_means() {
        let form = TensorSpec::new(DType::U8, [192, 384]).unwrap();
        let bytes: Vec<u8> = (0..192 * 384)
            .map(|at| if at % 2 == 0 { 10 } else { 30 })
            .collect();
        let found = picture(&form, &bytes).unwrap();
        assert_eq!((found.width, found.height), (96, 48));
        assert!(pixels(&found).iter().all(|pixel| *pixel == 20));
        let long = TensorSpec::new(DType::U8, [80, 3000]).unwrap();
        let found = picture(&long, &vec![0; 240_000]).unwrap();
        assert_eq!((found.width, found.height), (96, 32));
    }

    #[test]
    fn other_types_are_shown_between_their_lowest_and_highest_value() {
        let form = TensorSpec::new(DType::F32, [8, 8]).unwrap();
        let mut values = [0.0_f32; 64];
        values[0] = -2.0;
        values[1] = 6.0;
        values[2] = f32::NAN;
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let found = picture(&form, &bytes).unwrap();
        assert_eq!(found.range, Some((-2.0, 6.0)));
        assert_eq!(pixels(&found)[..4], [0, 255, 0, 64]);
    }

    #[test]
    fn a_volume_is_seen_from_the_front_and_lists_are_no_pictures() {
        let form = TensorSpec::new(DType::Bool, [1, 9, 8, 8]).unwrap();
        let mut bytes = vec![0; 9 * 64];
        bytes[5 * 64 + 9] = 1;
        let found = pixels(&picture(&form, &bytes).unwrap());
        assert_eq!(found[9], 255);
        assert_eq!(found.iter().filter(|pixel| **pixel > 0).count(), 1);
        for shape in [vec![], vec![1000], vec![4, 200], vec![2, 2, 9, 9]] {
            let form = TensorSpec::new(DType::U8, shape).unwrap();
            assert_eq!(picture(&form, &vec![0; form.bytes()]), None);
        }
        assert_eq!(picture(&form, &[0; 10]), None);
        let large = 1 << 40;
        for shape in [
            vec![0, large, large],
            vec![0, 1 << 20, 1 << 20],
            vec![224, 224, 12],
        ] {
            let form = TensorSpec::new(DType::U8, shape).unwrap();
            assert_eq!(picture(&form, &vec![0; form.bytes()]), None);
        }
        let nothing: Vec<u8> = [f32::NAN; 64]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let form = TensorSpec::new(DType::F32, [8, 8]).unwrap();
        assert_eq!(picture(&form, &nothing), None);
    }

    #[test]
    fn every_type_is_read() {
        for dtype in DType::ALL {
            let bytes = match dtype {
                DType::F16 => f16::ONE.to_le_bytes().to_vec(),
                DType::BF16 => bf16::ONE.to_le_bytes().to_vec(),
                DType::F32 => 1.0_f32.to_le_bytes().to_vec(),
                DType::F64 => 1.0_f64.to_le_bytes().to_vec(),
                other => 1_u64.to_le_bytes()[..other.size()].to_vec(),
            };
            assert_eq!(element(dtype, &bytes, 0), Some(1.0), "{dtype}");
            assert_eq!(element(dtype, &bytes, 1), None);
        }
    }
}
