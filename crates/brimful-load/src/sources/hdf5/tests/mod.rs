//! What the fixtures of `fixtures/hdf5` say, and what is left of it when they lie.

mod damaged;
mod fixtures;
mod hostile;

use std::path::{Path, PathBuf};

use super::{DatasetRequest, Hdf5};
use crate::reading::{Access, Choice};
use crate::source::Source;
use crate::value::Value;
use brimful::units::Bytes;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/hdf5")
        .join(name)
}

/// Nothing is free: the file is read past the page cache.
const TIGHT: Option<Bytes> = Some(Bytes(0));

fn opened(file: &str, dataset: &str, axis: usize, headroom: Option<Bytes>) -> Hdf5 {
    let wanted = DatasetRequest {
        axis,
        ..DatasetRequest::new(dataset)
    };
    Hdf5::open(&fixture(file), &[wanted], headroom).unwrap()
}

/// One sample of the only field.
fn read(source: &Hdf5, index: u64) -> Value {
    let mut values = vec![Value::default()];
    source.read(index, &mut values).unwrap();
    values.remove(0)
}

/// Its elements as numbers, whatever their type is.
fn numbers(value: &Value) -> Vec<f64> {
    use crate::array::DType;
    fn all<T: bytemuck::AnyBitPattern>(value: &Value, as_f64: impl Fn(T) -> f64) -> Vec<f64> {
        value
            .elements::<T>()
            .iter()
            .map(|&element| as_f64(element))
            .collect()
    }
    match value.dtype {
        DType::Bool | DType::U8 => all::<u8>(value, f64::from),
        DType::I8 => all::<i8>(value, f64::from),
        DType::U16 => all::<u16>(value, f64::from),
        DType::I16 => all::<i16>(value, f64::from),
        DType::U32 => all::<u32>(value, f64::from),
        DType::I32 => all::<i32>(value, f64::from),
        DType::U64 => all::<u64>(value, |element| element as f64),
        DType::I64 => all::<i64>(value, |element| element as f64),
        DType::F16 => all::<half::f16>(value, f64::from),
        DType::BF16 => all::<half::bf16>(value, f64::from),
        DType::F32 => all::<f32>(value, f64::from),
        DType::F64 => all::<f64>(value, |element| element),
    }
}

/// The elements that the formula of the fixtures gives for one sample of a dataset of those sides.
fn expected(dims: &[usize], axis: usize, index: usize) -> Vec<f64> {
    let n_elements: usize = dims.iter().product();
    let inner: usize = dims[axis + 1..].iter().product();
    (0..n_elements)
        .filter(|k| k / inner % dims[axis] == index)
        .map(|k| ((7 * k + 3) % 101) as f64)
        .collect()
}

/// Checks all samples of a dataset, with every way to read.
fn check(file: &str, dataset: &str, dims: &[usize], axis: usize) {
    for access in [Access::Mapped, Access::Read, Access::Direct] {
        let wanted = DatasetRequest {
            axis,
            ..DatasetRequest::new(dataset)
        };
        let choice = Choice {
            access,
            reason: "it is tested".to_owned(),
        };
        let source = Hdf5::open_with(&fixture(file), &[wanted], |_| choice).unwrap();
        assert_eq!(source.len(), dims[axis] as u64, "{dataset}");
        let mut values = vec![Value::default()];
        for index in (0..dims[axis]).rev() {
            source.read(index as u64, &mut values).unwrap();
            let held = values[0].piece.held_bytes() as u64;
            assert!(held <= source.max_sample_bytes(), "{dataset}: {held}");
            let mut shape = dims.to_vec();
            shape.remove(axis);
            assert_eq!(values[0].shape, shape, "{dataset}");
            assert_eq!(
                numbers(&values[0]),
                expected(dims, axis, index),
                "{dataset} {index} {access:?}"
            );
        }
    }
}
