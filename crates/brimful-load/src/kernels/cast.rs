//! Numbers of one type as numbers of another.
//!
//! Each chunk goes through one of four wide types, which hold what comes in exactly: 13 x 13 loops would be two hundred
//! kilobytes of code for a pass over memory that is in the first cache anyway.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "that is what is asked for, and how is said below"
)]

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::array::DType;

/// Elements that are converted at once.
const CHUNK: usize = 256;

/// Converts all elements. Both slices hold as many.
///
/// - To whole numbers: fractions are cut off towards zero, what is too large or too small becomes the largest or
///   smallest, NaN becomes 0.
/// - To floats: the nearest one; what is too large becomes infinite.
/// - To booleans: whether it is not zero; NaN is not zero.
pub fn cast(from_type: DType, to_type: DType, from: &[u8], to: &mut [u8]) {
    if from_type == to_type && from_type != DType::Bool {
        to.copy_from_slice(from);
        return;
    }
    let is_to_float = matches!(to_type, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
    match from_type {
        DType::U64 => chunks::<u64>(from_type, to_type, from, to),
        DType::F64 => chunks::<f64>(from_type, to_type, from, to),
        DType::F16 | DType::BF16 | DType::F32 => chunks::<f32>(from_type, to_type, from, to),
        DType::Bool | DType::U8 | DType::I8 | DType::U16 | DType::I16 if is_to_float => {
            chunks::<f32>(from_type, to_type, from, to);
        }
        _ => chunks::<i64>(from_type, to_type, from, to),
    }
}

fn chunks<W: Wide>(from_type: DType, to_type: DType, from: &[u8], to: &mut [u8]) {
    let mut wide = [W::default(); CHUNK];
    let from = from.chunks(CHUNK * from_type.size());
    let to = to.chunks_mut(CHUNK * to_type.size());
    for (from, to) in from.zip(to) {
        let wide = &mut wide[..from.len() / from_type.size()];
        W::read(from_type, from, wide);
        W::write(to_type, wide, to);
    }
}

/// A type that holds every value of some others.
trait Wide: Copy + Default {
    fn read(from_type: DType, from: &[u8], wide: &mut [Self]);
    fn write(to_type: DType, wide: &[Self], to: &mut [u8]);
}

fn read<const SIZE: usize, W>(from: &[u8], wide: &mut [W], value: impl Fn([u8; SIZE]) -> W) {
    let (from, _) = from.as_chunks::<SIZE>();
    for (&from, wide) in from.iter().zip(wide) {
        *wide = value(from);
    }
}

fn write<const SIZE: usize, W: Copy>(wide: &[W], to: &mut [u8], bytes: impl Fn(W) -> [u8; SIZE]) {
    let (to, _) = to.as_chunks_mut::<SIZE>();
    for (&wide, to) in wide.iter().zip(to) {
        *to = bytes(wide);
    }
}

/// Whole numbers to everything. `TryFrom` fails only on what is out of range, so the sign says to which side.
macro_rules! write_whole {
    ($wide:expr, $to_type:expr, $to:expr, $is_negative:expr) => {{
        let (wide, to) = ($wide, $to);
        macro_rules! saturated {
            ($type:ty) => {
                write(wide, to, |value| {
                    let limit = if $is_negative(value) {
                        <$type>::MIN
                    } else {
                        <$type>::MAX
                    };
                    <$type>::try_from(value).unwrap_or(limit).to_ne_bytes()
                })
            };
        }
        match $to_type {
            DType::Bool => write(wide, to, |value| [u8::from(value != 0)]),
            DType::U8 => saturated!(u8),
            DType::I8 => saturated!(i8),
            DType::U16 => saturated!(u16),
            DType::I16 => saturated!(i16),
            DType::U32 => saturated!(u32),
            DType::I32 => saturated!(i32),
            DType::U64 => saturated!(u64),
            DType::I64 => saturated!(i64),
            DType::F16 => write(wide, to, |value| f16::from_f64(value as f64).to_ne_bytes()),
            DType::BF16 => write(wide, to, |value| bf16::from_f64(value as f64).to_ne_bytes()),
            DType::F32 => write(wide, to, |value| (value as f32).to_ne_bytes()),
            DType::F64 => write(wide, to, |value| (value as f64).to_ne_bytes()),
        }
    }};
}

/// Floats to everything but half floats; `as` saturates, and makes 0 of NaN.
macro_rules! write_float {
    ($wide:expr, $to_type:expr, $to:expr) => {{
        let (wide, to) = ($wide, $to);
        match $to_type {
            DType::Bool => write(wide, to, |value| [u8::from(value != 0.0)]),
            DType::U8 => write(wide, to, |value| [value as u8]),
            DType::I8 => write(wide, to, |value| (value as i8).to_ne_bytes()),
            DType::U16 => write(wide, to, |value| (value as u16).to_ne_bytes()),
            DType::I16 => write(wide, to, |value| (value as i16).to_ne_bytes()),
            DType::U32 => write(wide, to, |value| (value as u32).to_ne_bytes()),
            DType::I32 => write(wide, to, |value| (value as i32).to_ne_bytes()),
            DType::U64 => write(wide, to, |value| (value as u64).to_ne_bytes()),
            DType::I64 => write(wide, to, |value| (value as i64).to_ne_bytes()),
            DType::F32 => write(wide, to, |value| (value as f32).to_ne_bytes()),
            DType::F64 => write(wide, to, |value| f64::from(value).to_ne_bytes()),
            DType::F16 | DType::BF16 => unreachable!("written apart"),
        }
    }};
}

impl Wide for i64 {
    fn read(from_type: DType, from: &[u8], wide: &mut [i64]) {
        match from_type {
            DType::Bool => read(from, wide, |[byte]| i64::from(byte != 0)),
            DType::U8 => read(from, wide, |[byte]| i64::from(byte)),
            DType::I8 => read(from, wide, |bytes| i64::from(i8::from_ne_bytes(bytes))),
            DType::U16 => read(from, wide, |bytes| i64::from(u16::from_ne_bytes(bytes))),
            DType::I16 => read(from, wide, |bytes| i64::from(i16::from_ne_bytes(bytes))),
            DType::U32 => read(from, wide, |bytes| i64::from(u32::from_ne_bytes(bytes))),
            DType::I32 => read(from, wide, |bytes| i64::from(i32::from_ne_bytes(bytes))),
            DType::I64 => read(from, wide, i64::from_ne_bytes),
            DType::U64 | DType::F16 | DType::BF16 | DType::F32 | DType::F64 => {
                unreachable!("they go through other types")
            }
        }
    }

    fn write(to_type: DType, wide: &[i64], to: &mut [u8]) {
        write_whole!(wide, to_type, to, |value: i64| value < 0);
    }
}

impl Wide for u64 {
    fn read(_: DType, from: &[u8], wide: &mut [u64]) {
        read(from, wide, u64::from_ne_bytes);
    }

    fn write(to_type: DType, wide: &[u64], to: &mut [u8]) {
        write_whole!(wide, to_type, to, |_| false);
    }
}

impl Wide for f64 {
    fn read(_: DType, from: &[u8], wide: &mut [f64]) {
        read(from, wide, f64::from_ne_bytes);
    }

    fn write(to_type: DType, wide: &[f64], to: &mut [u8]) {
        match to_type {
            DType::F16 => write(wide, to, |value| f16::from_f64(value).to_ne_bytes()),
            DType::BF16 => write(wide, to, |value| bf16::from_f64(value).to_ne_bytes()),
            _ => write_float!(wide, to_type, to),
        }
    }
}

impl Wide for f32 {
    fn read(from_type: DType, from: &[u8], wide: &mut [f32]) {
        match from_type {
            DType::Bool => read(from, wide, |[byte]| f32::from(u8::from(byte != 0))),
            DType::U8 => read(from, wide, |[byte]| f32::from(byte)),
            DType::I8 => read(from, wide, |bytes| f32::from(i8::from_ne_bytes(bytes))),
            DType::U16 => read(from, wide, |bytes| f32::from(u16::from_ne_bytes(bytes))),
            DType::I16 => read(from, wide, |bytes| f32::from(i16::from_ne_bytes(bytes))),
            DType::F16 => {
                let mut halves = [f16::ZERO; CHUNK];
                let halves = &mut halves[..wide.len()];
                bytemuck::cast_slice_mut(halves).copy_from_slice(from);
                halves.convert_to_f32_slice(wide);
            }
            DType::BF16 => read(from, wide, |bytes| bf16::from_ne_bytes(bytes).to_f32()),
            DType::F32 => read(from, wide, f32::from_ne_bytes),
            DType::U32 | DType::I32 | DType::U64 | DType::I64 | DType::F64 => {
                unreachable!("they go through other types")
            }
        }
    }

    fn write(to_type: DType, wide: &[f32], to: &mut [u8]) {
        match to_type {
            DType::F16 => {
                let mut halves = [f16::ZERO; CHUNK];
                let halves = &mut halves[..wide.len()];
                halves.convert_from_f32_slice(wide);
                to.copy_from_slice(bytemuck::cast_slice(halves));
            }
            DType::BF16 => write(wide, to, |value| bf16::from_f32(value).to_ne_bytes()),
            _ => write_float!(wide, to_type, to),
        }
    }
}
