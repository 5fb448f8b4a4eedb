//! A mesh of anyone's making: a grid of voxels, or refused.

use brimful_load::kernels::Occupied;
use brimful_load::ops::Voxelize;
use brimful_load::{DType, Encoding, FieldSpec, Op, Out, SampleKey, Scratch, Value};

use crate::input;

const SIDE: usize = 12;

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let mut file = Value::default();
    file.set_encoded(data.len())
        .own(data.len())
        .copy_from_slice(data);
    for (occupied, rotations) in [
        (Occupied::Points, 1),
        (Occupied::Surface, 1),
        (Occupied::Surface, 5),
    ] {
        let op = Voxelize {
            dtype: DType::U8,
            occupied,
            rotations,
            ..Voxelize::new(SIDE)
        };
        let promised = op.scratch_bytes(&FieldSpec::Encoded(Encoding::Mesh));
        let mut slot = vec![0; SIDE * SIDE * SIDE];
        for epoch in 0..2 {
            let key = SampleKey {
                seed: 0,
                epoch,
                index: 0,
            };
            let mut scratch = Scratch::default();
            let peak = input::peak_of(|| {
                if op
                    .apply(key, &file, Out::Slot(&mut slot), &mut scratch)
                    .is_ok()
                {
                    assert!(slot.iter().all(|&voxel| voxel <= 1));
                    assert!(slot.contains(&1), "a mesh is somewhere");
                }
            });
            assert!(peak as u64 <= promised, "{peak} bytes were held");
            assert!(
                peak <= 16 * data.len() + 4096,
                "{peak} bytes of {}",
                data.len()
            );
        }
    }
}
