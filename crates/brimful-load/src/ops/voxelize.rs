//! A mesh file to a grid of voxels.

use std::f64::consts::TAU;

use crate::array::{DType, Encoding, FieldSpec, TensorSpec};
use crate::error::OpError;
use crate::kernels::{MeshLimit, Occupied, Placement, for_each_occupied, parse_off, rotate};
use crate::ops::{Op, Out, SampleKey, Scratch};
use crate::value::Value;

const NAME: &str = "voxelize";

/// The largest grid along one side: a grid of `float32` then takes 4 GiB.
const MAX_RESOLUTION: usize = 1024;

/// Which of the draws of a sample is ours.
const DRAW: u64 = 0x766f_7865_6c69_7a65;

/// An OFF file to a grid of ones where the mesh is and zeros elsewhere, in the order x, y, z.
///
/// [`Placement`] says how a mesh is laid into the grid, [`Occupied`] which voxels count. With [`Occupied::Points`] the
/// grids are those of the example project `modelnet-voxel` (which reads numbers in double precision first: a decimal of
/// more than 16 digits may round to the neighboring number there). [`Occupied::Surface`] marks more: all voxels that
/// a triangle touches, hence also those inside of triangles larger than a voxel.
#[derive(Clone, Debug)]
pub struct Voxelize {
    /// Voxels along one side.
    pub resolution: usize,
    /// [`DType::U8`] or [`DType::F32`].
    pub dtype: DType,
    /// Whether the grid is of one channel, `[1, N, N, N]`, and not `[N, N, N]`.
    pub channel: bool,
    pub occupied: Occupied,
    /// Turns the mesh around z by a multiple of this part of a full turn, drawn anew in each epoch; 1 leaves it as it is.
    pub rotations: u32,
    /// Larger meshes are errors.
    pub limit: MeshLimit,
}

impl Voxelize {
    /// A grid of `float32` with the vertices and the middles of triangles, of meshes up to four million of each.
    pub fn new(resolution: usize) -> Voxelize {
        Voxelize {
            resolution,
            dtype: DType::F32,
            channel: false,
            occupied: Occupied::Points,
            rotations: 1,
            limit: MeshLimit {
                vertices: 1 << 22,
                triangles: 1 << 22,
            },
        }
    }

    fn shape(&self) -> Vec<usize> {
        let side = self.resolution;
        [1, side, side, side][usize::from(!self.channel)..].to_vec()
    }
}

impl Op for Voxelize {
    fn name(&self) -> &'static str {
        NAME
    }

    fn output_spec(&self, input: &FieldSpec) -> Result<FieldSpec, OpError> {
        let wrong = |expected: &str, found: String| OpError::WrongKind {
            op: NAME,
            expected: expected.to_owned(),
            found,
        };
        if !matches!(
            input,
            FieldSpec::Encoded(Encoding::Mesh | Encoding::Unknown)
        ) {
            return Err(wrong("a mesh file", input.to_string()));
        }
        if !(1..=MAX_RESOLUTION).contains(&self.resolution) {
            return Err(wrong(
                "a resolution from 1 to 1024",
                self.resolution.to_string(),
            ));
        }
        if self.rotations == 0 {
            return Err(wrong("one rotation or more", "none".to_owned()));
        }
        if !matches!(self.dtype, DType::U8 | DType::F32) {
            return Err(wrong("uint8 or float32 to be made", self.dtype.to_string()));
        }
        TensorSpec::new(self.dtype, self.shape())
            .map(FieldSpec::Array)
            .ok_or_else(|| wrong("a grid that fits into memory", self.resolution.to_string()))
    }

    fn scratch_bytes(&self, _: &FieldSpec) -> u64 {
        let points = (self.limit.vertices as u64).saturating_add(self.limit.triangles as u64);
        points.saturating_mul(size_of::<[f32; 3]>() as u64)
    }

    fn apply(
        &self,
        key: SampleKey,
        input: &Value,
        mut out: Out<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), OpError> {
        let Scratch {
            points, triangles, ..
        } = scratch;
        parse_off(input.bytes(), self.limit, points, triangles).map_err(|error| {
            OpError::Malformed {
                op: NAME,
                expected: format!("{} at byte {}", error.expected, error.at),
                found: error.found,
            }
        })?;
        if self.rotations > 1 {
            let number = key.draw(DRAW, 0) % u64::from(self.rotations);
            rotate(points, TAU * number as f64 / f64::from(self.rotations));
        }
        let n = self.resolution;
        let placement = Placement::new(points, triangles, n).ok_or_else(|| OpError::Malformed {
            op: NAME,
            expected: "a mesh with an extent".to_owned(),
            found: format!("{} vertices at one place or too far apart", points.len()),
        })?;
        let grid = out.array(NAME, self.dtype, &self.shape())?;
        grid.fill(0);
        if self.dtype == DType::U8 {
            for_each_occupied(points, triangles, n, self.occupied, &placement, |at| {
                grid[at] = 1;
            });
        } else {
            // A slot need not be aligned.
            let (grid, _) = grid.as_chunks_mut();
            for_each_occupied(points, triangles, n, self.occupied, &placement, |at| {
                grid[at] = 1_f32.to_ne_bytes();
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SampleKey = SampleKey {
        seed: 0,
        epoch: 0,
        index: 0,
    };

    // Two triangles, one of them in the level z = 1.
    const MESH: &str = "OFF4 2 0\n0 0 0\n2 0 1\n2 2 1\n0 2 1\n3 0 1 2\n3 1 2 3\n";

    fn mesh(text: &str) -> Value {
        let mut value = Value::default();
        value
            .set_encoded(text.len())
            .own(text.len())
            .copy_from_slice(text.as_bytes());
        value
    }

    fn grid(op: &Voxelize, text: &str) -> Result<Value, OpError> {
        let mut value = Value::default();
        op.apply(
            KEY,
            &mesh(text),
            Out::Value(&mut value),
            &mut Scratch::default(),
        )?;
        Ok(value)
    }

    #[test]
    fn grids_are_those_of_the_example_project() {
        // Made by `voxelize` of examples/modelnet-voxel/train.py at resolution 5, with NumPy 2.
        let expected = [1, 23, 82, 93, 103, 123];
        let value = grid(&Voxelize::new(5), MESH).unwrap();
        assert_eq!(
            (value.dtype, &value.shape[..]),
            (DType::F32, &[5, 5, 5][..])
        );
        let marked: Vec<usize> = value
            .elements::<f32>()
            .iter()
            .enumerate()
            .filter(|&(_, &voxel)| voxel > 0.5)
            .map(|(at, _)| at)
            .collect();
        assert_eq!(marked, expected);
    }

    #[test]
    fn bytes_and_channels_hold_the_same_voxels() {
        let floats = grid(&Voxelize::new(7), MESH).unwrap();
        let bytes = Voxelize {
            dtype: DType::U8,
            channel: true,
            ..Voxelize::new(7)
        };
        let mut slot = vec![9; 7 * 7 * 7];
        bytes
            .apply(
                KEY,
                &mesh(MESH),
                Out::Slot(&mut slot),
                &mut Scratch::default(),
            )
            .unwrap();
        let expected: Vec<f32> = slot.iter().map(|&voxel| f32::from(voxel)).collect();
        assert_eq!(*floats.elements::<f32>(), expected[..]);
        let form = TensorSpec::new(DType::U8, [1, 7, 7, 7]).unwrap();
        assert_eq!(
            bytes
                .output_spec(&FieldSpec::Encoded(Encoding::Mesh))
                .unwrap(),
            FieldSpec::Array(form)
        );
    }

    #[test]
    fn the_surface_holds_all_points_and_more() {
        let points = grid(&Voxelize::new(9), MESH).unwrap();
        let op = Voxelize {
            occupied: Occupied::Surface,
            ..Voxelize::new(9)
        };
        let surface = grid(&op, MESH).unwrap();
        let (points, surface) = (points.elements::<f32>(), surface.elements::<f32>());
        assert!(
            points
                .iter()
                .zip(surface.iter())
                .all(|(point, surface)| point <= surface)
        );
        assert!(points.iter().sum::<f32>() < surface.iter().sum::<f32>());
    }

    #[test]
    fn a_rotation_depends_on_the_key_only() {
        let op = Voxelize {
            rotations: 4,
            ..Voxelize::new(9)
        };
        let turned = |epoch| {
            let mut value = Value::default();
            let key = SampleKey { epoch, ..KEY };
            op.apply(
                key,
                &mesh(MESH),
                Out::Value(&mut value),
                &mut Scratch::default(),
            )
            .unwrap();
            value.bytes().to_vec()
        };
        let mut seen: Vec<_> = (0..40).map(turned).collect();
        assert_eq!(turned(3), seen[3]);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn what_cannot_be_made_is_said_when_the_pipeline_is_put_together() {
        let mesh = FieldSpec::Encoded(Encoding::Mesh);
        let refused =
            |op: Voxelize, spec: &FieldSpec| op.output_spec(spec).unwrap_err().to_string();
        assert_eq!(
            refused(Voxelize::new(32), &FieldSpec::Encoded(Encoding::Image)),
            "voxelize expected a mesh file, found an image file"
        );
        assert_eq!(
            refused(Voxelize::new(0), &mesh),
            "voxelize expected a resolution from 1 to 1024, found 0"
        );
        let halves = Voxelize {
            dtype: DType::F16,
            ..Voxelize::new(32)
        };
        assert_eq!(
            refused(halves, &mesh),
            "voxelize expected uint8 or float32 to be made, found float16"
        );
    }

    #[test]
    fn a_mesh_that_is_none_is_told_with_its_place() {
        let message = |text| grid(&Voxelize::new(8), text).unwrap_err().to_string();
        assert_eq!(
            message("OFF\n1 0 0\n0 x 0\n"),
            "voxelize expected a finite number at byte 12, found \"x 0\""
        );
        assert_eq!(
            message("OFF\n1 0 0\n0 0 0\n"),
            "voxelize expected a mesh with an extent, found 1 vertices at one place or too far apart"
        );
    }
}
