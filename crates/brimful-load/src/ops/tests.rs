//! The ops of this folder, from the outside.

use super::*;
use crate::array::{Encoding, TensorSpec};
use crate::kernels::filter::Filter;

fn key(index: u64) -> SampleKey {
    SampleKey {
        seed: 1,
        epoch: 2,
        index,
    }
}

fn array(dtype: DType, shape: &[usize]) -> FieldSpec {
    FieldSpec::Array(TensorSpec::new(dtype, shape).unwrap())
}

fn value(dtype: DType, shape: &[usize], bytes: &[u8]) -> Value {
    let mut value = Value::default();
    value
        .set_array(dtype, shape, bytes.len())
        .copy_from_slice(bytes);
    value
}

fn bytes(shape: &[usize]) -> Value {
    let len: usize = shape.iter().product();
    let bytes: Vec<u8> = (0..251).cycle().take(len).collect();
    value(DType::U8, shape, &bytes)
}

fn floats(shape: &[usize], floats: &[f32]) -> Value {
    value(DType::F32, shape, bytemuck::cast_slice(floats))
}

fn applied(op: &dyn Op, key: SampleKey, input: &Value) -> Result<Value, OpError> {
    let mut out = Value::default();
    op.apply(key, input, Out::Value(&mut out), &mut Scratch::default())?;
    // A slot of a batch gets the same bytes, and one of another length none.
    let mut slot = vec![9; out.bytes().len()];
    op.apply(key, input, Out::Slot(&mut slot), &mut Scratch::default())?;
    assert_eq!(slot, out.bytes());
    slot.push(0);
    assert!(
        op.apply(key, input, Out::Slot(&mut slot), &mut Scratch::default())
            .is_err()
    );
    // What was promised is what came.
    let promised = op.output_spec(&array(input.dtype, &input.shape))?;
    assert_eq!(promised, array(out.dtype, &out.shape));
    Ok(out)
}

fn as_floats(value: &Value) -> Vec<f32> {
    value.elements::<f32>().into_owned()
}

/// Every op of this folder, for images of planes.
fn all() -> Vec<Box<dyn Op>> {
    let ragged = FieldSpec::Ragged {
        dtype: DType::U8,
        rank: 3,
    };
    vec![
        Box::new(Resize::new((4, 4), Filter::Bilinear, Layout::Planes, 3, &ragged).unwrap()),
        Box::new(Crop::new(0, (2, 2), CropAnchor::Center, Layout::Planes, 3)),
        Box::new(Flip::new(0, 1.0, Layout::Planes)),
        Box::new(Normalize::new(&[0.5; 3], &[0.5; 3], None, Layout::Planes).unwrap()),
        Box::new(Cast::new(DType::F16)),
        Box::new(Transpose::new(&[2, 0, 1]).unwrap()),
    ]
}

#[test]
fn every_op_refuses_bytes_that_are_not_decoded() {
    for op in all() {
        let error = op
            .output_spec(&FieldSpec::Encoded(Encoding::Image))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(op.name()) && error.contains("an image file"),
            "{error}"
        );
    }
}

#[test]
fn every_op_refuses_a_shape_that_its_bytes_do_not_fill() {
    for op in all() {
        for shape in [vec![3, 8, 9], vec![3, 8, 7], vec![usize::MAX, 2, 2]] {
            let mut input = bytes(&[3, 8, 8]);
            input.shape = shape;
            let mut out = Value::default();
            let result = op.apply(
                key(0),
                &input,
                Out::Value(&mut out),
                &mut Scratch::default(),
            );
            assert!(result.is_err(), "{op:?}");
        }
    }
}

#[test]
fn sides_of_zero_are_errors_where_an_image_is_needed() {
    for op in &all()[..3] {
        for shape in [[0, 8, 8], [3, 0, 8], [3, 8, 0]] {
            assert!(op.output_spec(&array(DType::U8, &shape)).is_err(), "{op:?}");
            let mut out = Value::default();
            let input = bytes(&shape);
            let result = op.apply(
                key(0),
                &input,
                Out::Value(&mut out),
                &mut Scratch::default(),
            );
            assert!(result.is_err(), "{op:?} {shape:?}");
        }
    }
}

#[test]
fn too_few_sides_are_errors() {
    for op in all().into_iter().filter(|op| op.name() != "cast") {
        let mut out = Value::default();
        let input = bytes(&[8]);
        assert!(op.output_spec(&array(DType::U8, &[8])).is_err(), "{op:?}");
        assert!(
            op.apply(
                key(0),
                &input,
                Out::Value(&mut out),
                &mut Scratch::default()
            )
            .is_err()
        );
    }
}

#[test]
fn resize_gives_all_images_one_size() {
    for (layout, shape, expected) in [
        (Layout::Planes, &[3, 20, 30][..], &[3, 5, 7][..]),
        (Layout::Planes, &[20, 30], &[5, 7]),
        (Layout::Planes, &[2, 3, 20, 30], &[2, 3, 5, 7]),
        (Layout::Interleaved, &[20, 30, 3], &[5, 7, 3]),
    ] {
        let kind = array(DType::U8, shape);
        let op = Resize::new((5, 7), Filter::Bicubic, layout, 3, &kind).unwrap();
        assert_eq!(applied(&op, key(0), &bytes(shape)).unwrap().shape, expected);
        assert!(op.scratch_bytes(&kind) > 0);
    }
}

#[test]
fn ragged_images_are_resized_as_those_of_known_size_are() {
    for layout in [Layout::Planes, Layout::Interleaved] {
        let kind = FieldSpec::Ragged {
            dtype: DType::U8,
            rank: 3,
        };
        let op = Resize::new((6, 6), Filter::Bilinear, layout, 3, &kind).unwrap();
        let promised = op.output_spec(&kind).unwrap();
        let mut scratch = Scratch::default();
        for size in [(9, 12), (20, 5), (9, 12)] {
            let shape = match layout {
                Layout::Planes => [3, size.0, size.1],
                Layout::Interleaved => [size.0, size.1, 3],
            };
            let known = Resize::new(
                (6, 6),
                Filter::Bilinear,
                layout,
                3,
                &array(DType::U8, &shape),
            )
            .unwrap();
            let expected = applied(&known, key(0), &bytes(&shape)).unwrap();
            let mut out = Value::default();
            op.apply(key(0), &bytes(&shape), Out::Value(&mut out), &mut scratch)
                .unwrap();
            assert_eq!(out.bytes(), expected.bytes());
            assert_eq!(array(out.dtype, &out.shape), promised);
        }
        assert!(scratch.held_bytes() as u64 <= op.scratch_bytes(&kind));
    }
}

#[test]
fn resize_refuses_what_it_does_not_do() {
    let good = array(DType::U8, &[3, 8, 8]);
    let new = |size, spec: &FieldSpec| Resize::new(size, Filter::Bilinear, Layout::Planes, 3, spec);
    assert!(new((0, 4), &good).is_err());
    assert!(new((4, 70_000), &good).is_err());
    assert!(new((4, 4), &array(DType::I32, &[3, 8, 8])).is_err());
    assert!(new((4, 4), &array(DType::U8, &[70_000, 8])).is_err());
    assert!(
        new(
            (4, 4),
            &FieldSpec::Ragged {
                dtype: DType::U8,
                rank: 4
            }
        )
        .is_err()
    );
    let error = new((4, 4), &array(DType::I32, &[3, 8, 8])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "resize expected uint8 or float32, found int32 3x8x8"
    );
}

#[test]
fn the_size_of_ragged_images_is_bounded() {
    let kind = FieldSpec::Ragged {
        dtype: DType::U8,
        rank: 2,
    };
    let op = Resize::new((4, 4), Filter::Bilinear, Layout::Planes, 3, &kind).unwrap();
    let mut out = Value::default();
    let result = op.apply(
        key(0),
        &bytes(&[1, 20_000]),
        Out::Value(&mut out),
        &mut Scratch::default(),
    );
    assert!(result.unwrap_err().to_string().contains("16384"));
    let kind = FieldSpec::Ragged {
        dtype: DType::U8,
        rank: 3,
    };
    let op = Resize::new((4, 4), Filter::Bilinear, Layout::Interleaved, 3, &kind).unwrap();
    let result = op.apply(
        key(0),
        &bytes(&[2, 2, 5]),
        Out::Value(&mut out),
        &mut Scratch::default(),
    );
    assert!(result.unwrap_err().to_string().contains("4 channels"));
}

#[test]
fn crop_takes_the_middle_or_a_fixed_place() {
    let input = bytes(&[5, 6]);
    let center = Crop::new(0, (2, 2), CropAnchor::Center, Layout::Planes, 3);
    assert_eq!(
        applied(&center, key(0), &input).unwrap().bytes(),
        [8, 9, 14, 15]
    );
    let place = CropAnchor::At { top: 3, left: 4 };
    let fixed = Crop::new(0, (2, 2), place, Layout::Planes, 3);
    assert_eq!(
        applied(&fixed, key(0), &input).unwrap().bytes(),
        [22, 23, 28, 29]
    );
    let pixels = Crop::new(0, (1, 2), CropAnchor::Center, Layout::Interleaved, 3);
    let input = bytes(&[1, 4, 3]);
    assert_eq!(
        applied(&pixels, key(0), &input).unwrap().bytes(),
        [3, 4, 5, 6, 7, 8]
    );
    let wide = floats(&[1, 3], &[1.0, 2.0, 3.0]);
    let one = Crop::new(0, (1, 1), CropAnchor::Center, Layout::Planes, 3);
    assert_eq!(as_floats(&applied(&one, key(0), &wide).unwrap()), [2.0]);
}

#[test]
fn a_crop_that_is_larger_than_the_image_is_an_error() {
    let far = CropAnchor::At {
        top: usize::MAX,
        left: 0,
    };
    for (size, place) in [
        ((6, 2), CropAnchor::Center),
        ((2, 7), CropAnchor::Random),
        ((2, 2), far),
        ((0, 2), CropAnchor::Center),
    ] {
        let op = Crop::new(0, size, place, Layout::Planes, 3);
        assert!(op.output_spec(&array(DType::U8, &[5, 6])).is_err());
        if size.0 > 0 {
            let mut out = Value::default();
            assert!(
                op.apply(
                    key(0),
                    &bytes(&[5, 6]),
                    Out::Value(&mut out),
                    &mut Scratch::default()
                )
                .is_err()
            );
        }
    }
}

#[test]
fn random_crops_reach_every_place_and_depend_on_the_key_only() {
    let op = Crop::new(4, (3, 4), CropAnchor::Random, Layout::Planes, 3);
    let input = bytes(&[5, 6]);
    let firsts: Vec<u8> = (0..400)
        .map(|index| applied(&op, key(index), &input).unwrap().bytes()[0])
        .collect();
    let again: Vec<u8> = (0..400)
        .rev()
        .map(|index| applied(&op, key(index), &input).unwrap().bytes()[0])
        .collect();
    assert!(firsts.iter().eq(again.iter().rev()));
    for expected in [0, 1, 2, 6, 7, 8, 12, 13, 14] {
        let times = firsts.split(|&first| first == expected).count() - 1;
        assert!((20..80).contains(&times), "{expected}: {times} of 400");
    }
    let other = Crop::new(5, (3, 4), CropAnchor::Random, Layout::Planes, 3);
    let others: Vec<u8> = (0..400)
        .map(|index| applied(&other, key(index), &input).unwrap().bytes()[0])
        .collect();
    assert_ne!(firsts, others, "the number of the op counts");
}

#[test]
fn flip_exchanges_left_and_right_as_often_as_asked() {
    let input = bytes(&[2, 3]);
    let flips = |probability: f64| {
        let op = Flip::new(0, probability, Layout::Planes);
        (0..1000)
            .filter(|&index| {
                let out = applied(&op, key(index), &input).unwrap();
                assert!(out.bytes() == [0, 1, 2, 3, 4, 5] || out.bytes() == [2, 1, 0, 5, 4, 3]);
                out.bytes()[0] == 2
            })
            .count()
    };
    assert_eq!(flips(0.0), 0);
    assert_eq!(flips(1.0), 1000);
    assert!((250..350).contains(&flips(0.3)));
    assert_eq!(flips(0.3), flips(0.3));
    let pixels = Flip::new(0, 1.0, Layout::Interleaved);
    assert_eq!(
        applied(&pixels, key(0), &bytes(&[1, 2, 3]))
            .unwrap()
            .bytes(),
        [3, 4, 5, 0, 1, 2]
    );
    assert!(
        Flip::new(0, f64::NAN, Layout::Planes)
            .output_spec(&array(DType::U8, &[2, 2]))
            .is_err()
    );
}

#[test]
fn normalize_does_what_torchvision_does() {
    let (mean, std) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    let expected = |value: u8, c: usize| (f32::from(value) / 255.0 - mean[c]) / std[c];
    for (layout, shape) in [
        (Layout::Planes, [3, 5, 7]),
        (Layout::Interleaved, [5, 7, 3]),
    ] {
        let op = Normalize::new(&mean, &std, None, layout).unwrap();
        let input = bytes(&shape);
        let out = applied(&op, key(0), &input).unwrap();
        for (at, (&value, found)) in input.bytes().iter().zip(as_floats(&out)).enumerate() {
            let channel = if layout == Layout::Planes {
                at / 35
            } else {
                at % 3
            };
            let expected = expected(value, channel);
            assert!(
                (found - expected).abs() < 1e-6,
                "{at}: {found} is not {expected}"
            );
        }
    }
}

#[test]
fn normalize_scales_as_told_and_leaves_floats_unscaled() {
    let one = Normalize::new(&[1.0], &[2.0], None, Layout::Planes).unwrap();
    let input = floats(&[3], &[1.0, 3.0, -1.0]);
    assert_eq!(
        as_floats(&applied(&one, key(0), &input).unwrap()),
        [0.0, 1.0, -1.0]
    );
    let scaled = Normalize::new(&[0.0], &[1.0], Some(0.5), Layout::Planes).unwrap();
    assert_eq!(
        as_floats(&applied(&scaled, key(0), &bytes(&[4])).unwrap()),
        [0.0, 0.5, 1.0, 1.5]
    );
    let two = Normalize::new(&[0.0, 10.0], &[1.0, 1.0], None, Layout::Interleaved).unwrap();
    let input = floats(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(
        as_floats(&applied(&two, key(0), &input).unwrap()),
        [1.0, -8.0, 3.0, -6.0]
    );
    assert!(two.output_spec(&array(DType::F32, &[2, 3])).is_err());
    assert!(two.output_spec(&array(DType::I64, &[2, 2])).is_err());
}

#[test]
fn normalize_refuses_figures_that_make_no_sense() {
    for (mean, std) in [
        (&[][..], &[][..]),
        (&[0.0], &[0.0]),
        (&[0.0, 0.0], &[1.0]),
        (&[f32::NAN], &[1.0]),
    ] {
        assert!(Normalize::new(mean, std, None, Layout::Planes).is_err());
    }
}

#[test]
fn casts_saturate_cut_off_and_round() {
    let cast = |dtype, input: &Value| applied(&Cast::new(dtype), key(0), input).unwrap();
    let input = floats(&[6], &[-1.5, 0.9, 255.7, 1e20, f32::NAN, f32::NEG_INFINITY]);
    assert_eq!(cast(DType::U8, &input).bytes(), [0, 0, 255, 255, 0, 0]);
    assert_eq!(
        cast(DType::I64, &input).elements::<i64>().as_ref(),
        [-1, 0, 255, i64::MAX, 0, i64::MIN]
    );
    assert_eq!(cast(DType::Bool, &input).bytes(), [1; 6]);
    let halves = cast(DType::F16, &input);
    let halves: Vec<f32> = as_floats(&cast(DType::F32, &halves));
    assert_eq!(halves[..4], [-1.5, 0.899_902_34, 255.75, f32::INFINITY]);
    let brains = as_floats(&cast(DType::F32, &cast(DType::BF16, &input)));
    assert_eq!(brains[..3], [-1.5, 0.898_437_5, 256.0]);
    let wide = value(
        DType::I64,
        &[4],
        bytemuck::cast_slice(&[i64::MIN, -1, 300, i64::MAX]),
    );
    assert_eq!(cast(DType::U8, &wide).bytes(), [0, 0, 255, 255]);
    assert_eq!(
        cast(DType::I16, &wide).elements::<i16>().as_ref(),
        [i16::MIN, -1, 300, i16::MAX]
    );
    let large = value(DType::U64, &[2], bytemuck::cast_slice(&[u64::MAX, 7]));
    assert_eq!(
        cast(DType::I64, &large).elements::<i64>().as_ref(),
        [i64::MAX, 7]
    );
    assert_eq!(cast(DType::U64, &large).bytes(), large.bytes());
}

#[test]
fn every_type_casts_to_every_other_and_back() {
    let numbers: Vec<u8> = [0, 1].repeat(300);
    let input = value(DType::U8, &[600], &numbers);
    for first in DType::ALL {
        for second in DType::ALL {
            let there = applied(&Cast::new(first), key(0), &input).unwrap();
            let over = applied(&Cast::new(second), key(0), &there).unwrap();
            let back = applied(&Cast::new(DType::U8), key(0), &over).unwrap();
            assert_eq!(back.bytes(), numbers, "{first} {second}");
        }
    }
}

#[test]
fn transpose_makes_planes_of_images_and_turns_planes() {
    let op = Transpose::new(&[2, 0, 1]).unwrap();
    assert_eq!(
        applied(&op, key(0), &bytes(&[1, 3, 2])).unwrap().bytes(),
        [0, 2, 4, 1, 3, 5]
    );
    let op = Transpose::new(&[0, 2, 1]).unwrap();
    let out = applied(&op, key(0), &bytes(&[3, 64, 48])).unwrap();
    assert_eq!(out.shape, [3, 48, 64]);
    let op = Transpose::new(&[1, 0]).unwrap();
    assert_eq!(
        as_floats(&applied(&op, key(0), &floats(&[2, 2], &[1.0, 2.0, 3.0, 4.0])).unwrap()),
        [1.0, 3.0, 2.0, 4.0]
    );
    assert_eq!(applied(&op, key(0), &bytes(&[0, 5])).unwrap().shape, [5, 0]);
}

#[test]
fn transpose_refuses_orders_that_are_none() {
    for order in [&[0, 0][..], &[1, 2], &[0, 1, 2, 3, 4, 5, 6, 7, 8]] {
        assert!(Transpose::new(order).is_err());
    }
    let op = Transpose::new(&[1, 0]).unwrap();
    assert!(op.output_spec(&array(DType::U8, &[2, 2, 2])).is_err());
    assert!(
        op.output_spec(&FieldSpec::Ragged {
            dtype: DType::U8,
            rank: 3
        })
        .is_err()
    );
}
