//! From a mesh to the voxels that it touches.
//!
//! The mesh is moved and scaled, by the same factor along all axes, so that its middle lies in the middle of the grid
//! and its longest side reaches from the middle of the first voxel to that of the last. Voxel `i` is what rounds to `i`.

use crate::kernels::surface::{Lattice, mark_triangle};

/// Which voxels are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Occupied {
    /// Those with a vertex or with the middle of a triangle: enough for finely divided meshes, and holes elsewhere.
    #[default]
    Points,
    /// Those that a triangle touches anywhere.
    Surface,
}

/// Where a mesh lies in the grid. Single precision and this order of operations are part of the definition: they decide
/// about points between two voxels.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    middle: [f32; 3],
    reach: f32,
    steps: f32,
}

impl Placement {
    /// Nothing where the mesh has no points or no extent that `f32` can tell.
    pub fn new(
        vertices: &[[f32; 3]],
        triangles: &[[u32; 3]],
        resolution: usize,
    ) -> Option<Placement> {
        let mut low = [f32::INFINITY; 3];
        let mut high = [f32::NEG_INFINITY; 3];
        let mut include = |point: [f32; 3]| {
            for axis in 0..3 {
                low[axis] = low[axis].min(point[axis]);
                high[axis] = high[axis].max(point[axis]);
            }
        };
        vertices.iter().copied().for_each(&mut include);
        // The middle of three equal numbers can round to one beyond them.
        for &triangle in triangles {
            include(middle(corners(vertices, triangle)));
        }
        let middle: [f32; 3] = std::array::from_fn(|axis| f32::midpoint(low[axis], high[axis]));
        let reach = (0..3)
            .map(|axis| (high[axis] - middle[axis]).max(middle[axis] - low[axis]))
            .fold(0.0, f32::max);
        let is_sound = reach.is_finite() && reach > 0.0 && middle.iter().all(|m| m.is_finite());
        is_sound.then_some(Placement {
            middle,
            reach,
            steps: (resolution - 1) as f32,
        })
    }

    /// In units of voxels, from the middle of the first one.
    #[inline]
    fn place(&self, point: [f32; 3]) -> [f32; 3] {
        std::array::from_fn(|axis| {
            ((point[axis] - self.middle[axis]) / self.reach + 1.0) * self.steps / 2.0
        })
    }
}

/// Calls `mark` with the place in the grid of every occupied voxel, some of them several times.
///
/// The grid is in the order x, y, z, the last one contiguous. Every corner of a triangle must be a vertex.
#[inline]
pub fn for_each_occupied(
    vertices: &[[f32; 3]],
    triangles: &[[u32; 3]],
    resolution: usize,
    occupied: Occupied,
    placement: &Placement,
    mut mark: impl FnMut(usize),
) {
    let voxel = |point: [f32; 3]| {
        let [x, y, z] = placement
            .place(point)
            .map(|place| nearest(place, resolution));
        (x * resolution + y) * resolution + z
    };
    for &vertex in vertices {
        mark(voxel(vertex));
    }
    for &triangle in triangles {
        mark(voxel(middle(corners(vertices, triangle))));
    }
    if occupied == Occupied::Surface {
        let lattice = Lattice::new(resolution);
        for &triangle in triangles {
            let corners =
                corners(vertices, triangle).map(|corner| placement.place(corner).map(f64::from));
            mark_triangle(corners, lattice, &mut mark);
        }
    }
}

/// Turns points around the upright axis, z.
pub fn rotate(points: &mut [[f32; 3]], angle: f64) {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "single precision is what points have"
    )]
    let (sine, cosine) = (angle.sin() as f32, angle.cos() as f32);
    for [x, y, _] in points {
        (*x, *y) = (*x * cosine + *y * sine, *y * cosine - *x * sine);
    }
}

#[inline]
fn corners(vertices: &[[f32; 3]], triangle: [u32; 3]) -> [[f32; 3]; 3] {
    triangle.map(|corner| vertices[corner as usize])
}

#[inline]
fn middle([a, b, c]: [[f32; 3]; 3]) -> [f32; 3] {
    std::array::from_fn(|axis| (a[axis] + b[axis] + c[axis]) / 3.0)
}

/// The nearest whole number, the even one of two that are as near, and inside of the grid.
#[inline]
fn nearest(place: f32, resolution: usize) -> usize {
    // Here neighboring `f32`s are one apart: the addition rounds, and the low bits are the number.
    const ONE_APART: f32 = 8_388_608.0;
    let number = (place + ONE_APART).to_bits() & 0x007f_ffff;
    (number as usize).min(resolution - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(
        vertices: &[[f32; 3]],
        triangles: &[[u32; 3]],
        resolution: usize,
        occupied: Occupied,
    ) -> Vec<usize> {
        let placement = Placement::new(vertices, triangles, resolution).unwrap();
        let mut marked = Vec::new();
        for_each_occupied(
            vertices,
            triangles,
            resolution,
            occupied,
            &placement,
            |at| marked.push(at),
        );
        marked.sort_unstable();
        marked.dedup();
        marked
    }

    const CORNERS: [[f32; 3]; 3] = [[0.0, 0.0, 0.0], [4.0, 0.0, 0.0], [0.0, 4.0, 0.0]];

    #[test]
    fn points_are_vertices_and_middles_of_triangles() {
        // Flat in z: 2 of 0..=4, halfway. The middle of the triangle is at 4/3.
        let at = |x: usize, y: usize| (x * 5 + y) * 5 + 2;
        assert_eq!(
            grid(&CORNERS, &[[0, 1, 2]], 5, Occupied::Points),
            [at(0, 0), at(0, 4), at(1, 1), at(4, 0)]
        );
    }

    #[test]
    fn the_surface_is_all_that_the_triangle_touches() {
        let at = |x: usize, y: usize| (x * 5 + y) * 5 + 2;
        let mut expected: Vec<_> = (0..5)
            .flat_map(|x| (0..5).map(move |y| (x, y)))
            // The diagonal x + y = 4 also touches the corners of the voxels beyond it.
            .filter(|(x, y)| x + y <= 5)
            .map(|(x, y)| at(x, y))
            .collect();
        expected.sort_unstable();
        assert_eq!(grid(&CORNERS, &[[0, 1, 2]], 5, Occupied::Surface), expected);
    }

    #[test]
    fn a_mesh_without_extent_has_no_placement() {
        assert!(Placement::new(&[], &[], 32).is_none());
        assert!(Placement::new(&[[1.0, 2.0, 3.0]; 4], &[[0, 1, 2]], 32).is_none());
        let far = [[3.4e38, 0.0, 0.0], [3.3e38, 0.0, 0.0]];
        assert!(Placement::new(&far, &[[0, 1, 1]], 32).is_none());
    }

    #[test]
    fn halves_round_to_even_numbers() {
        let rounded = [0.0, 0.5, 1.5, 2.5, 2.499_999_8, 31.5].map(|place| nearest(place, 64));
        assert_eq!(rounded, [0, 0, 2, 2, 2, 32]);
        assert_eq!(nearest(31.5, 32), 31);
    }

    #[test]
    fn a_quarter_turn_swaps_the_level_axes() {
        let mut points = [[1.0, 0.0, 3.0], [0.0, 2.0, 0.0]];
        rotate(&mut points, std::f64::consts::FRAC_PI_2);
        let expected = [[0.0, -1.0, 3.0], [2.0, 0.0, 0.0]];
        for (point, expected) in points.as_flattened().iter().zip(expected.as_flattened()) {
            assert!((point - expected).abs() < 1e-6);
        }
    }
}
