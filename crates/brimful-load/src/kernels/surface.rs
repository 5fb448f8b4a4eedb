//! Which voxels a triangle touches: exactly, without sampling.
//!
//! A triangle and a box touch if the box meets the plane of the triangle, their extents overlap along all three axes,
//! and in each of the three views along an axis no edge of the triangle leaves the box outside. Per triangle that is a
//! handful of linear functions of the voxel's middle (Schwarz and Seidel, "Fast Parallel Surface and Solid Voxelization
//! on GPUs", 2010). Boxes are closed: what only touches a face of two voxels marks both.

use std::ops::Range;

/// A cube of voxels with their middles at whole numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lattice {
    resolution: usize,
    end: f64,
}

impl Lattice {
    pub(crate) fn new(resolution: usize) -> Lattice {
        Lattice {
            resolution,
            end: resolution as f64,
        }
    }

    #[inline]
    fn place(self, [x, y, z]: [usize; 3]) -> usize {
        (x * self.resolution + y) * self.resolution + z
    }

    /// The whole numbers from `low` to `high` inside of the lattice.
    #[inline]
    fn inside(self, low: f64, high: f64) -> Range<usize> {
        // A cast cuts off towards zero.
        let end = (high + 1.0).clamp(0.0, self.end);
        let low = low.clamp(0.0, self.end);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped above"
        )]
        let (before, end) = (low as u32, end as u32);
        let first = before + u32::from(f64::from(before) < low);
        first as usize..end as usize
    }
}

/// Calls `mark` for each voxel that a triangle touches; `corners` are in units of voxels.
#[inline]
pub(crate) fn mark_triangle(
    corners: [[f64; 3]; 3],
    lattice: Lattice,
    mark: &mut impl FnMut(usize),
) {
    let sides: [[f64; 4]; 3] =
        std::array::from_fn(|axis| [corners[0][axis], corners[1][axis], corners[2][axis], 0.0]);
    let extents = sides.map(|[one, two, three, _]| {
        let low = one.min(two).min(three);
        let high = one.max(two).max(three);
        lattice.inside(low - 0.5, high + 0.5)
    });
    if extents.iter().filter(|extent| extent.len() > 1).count() > 1 {
        mark_tested(&sides, &extents, lattice, mark);
        return;
    }
    // One row of voxels holds all of it, and it reaches from the first to the last.
    let [first, second, third] = extents;
    for at_x in first {
        for at_y in second.clone() {
            for at_z in third.clone() {
                mark(lattice.place([at_x, at_y, at_z]));
            }
        }
    }
}

/// The same by testing the voxels near the plane; `sides` are the corners axis by axis.
#[inline]
fn mark_tested(
    sides: &[[f64; 4]; 3],
    extents: &[Range<usize>; 3],
    lattice: Lattice,
    mark: &mut impl FnMut(usize),
) {
    let edges = sides.map(|[one, two, three, _]| [two - one, three - two, one - three, 0.0]);
    let normal: [f64; 3] = std::array::from_fn(|axis| {
        let (next, after) = (&edges[(axis + 1) % 3], &edges[(axis + 2) % 3]);
        next[0] * after[1] - after[0] * next[1]
    });
    // Columns stand along the axis to which the triangle is steepest: few voxels of each are near the plane.
    let steeper = |one: usize, other: usize| {
        if normal[other].abs() > normal[one].abs() {
            other
        } else {
            one
        }
    };
    let w = steeper(steeper(0, 1), 2);
    let (u, v) = ([1, 2, 0][w], [2, 0, 1][w]);
    let view = |first: usize, second: usize, along: usize| {
        View::new(
            [&sides[first], &sides[second]],
            [&edges[first], &edges[second]],
            normal[along],
        )
    };
    let (view_uv, view_vw, view_wu) = (view(u, v, w), view(v, w, u), view(w, u, v));

    // Along a column, the plane is met around `level`, up to `reach` away.
    let [slope_u, slope_v] = [u, v].map(|axis| normal[axis] / normal[w]);
    let level_at_zero = sides[w][0] + slope_u * sides[u][0] + slope_v * sides[v][0];
    let reach = 0.5 * (1.0 + slope_u.abs() + slope_v.abs());
    let is_line = normal[w] == 0.0;
    for at_u in extents[u].clone() {
        let middle_u = at_u as f64;
        for at_v in extents[v].clone() {
            let middle_v = at_v as f64;
            if !view_uv.touches(middle_u, middle_v) {
                continue;
            }
            let mut column = extents[w].clone();
            if !is_line {
                let level = level_at_zero - slope_u * middle_u - slope_v * middle_v;
                let near = lattice.inside(level - reach, level + reach);
                column = column.start.max(near.start)..column.end.min(near.end);
            }
            for at_w in column {
                let middle_w = at_w as f64;
                if view_vw.touches(middle_v, middle_w) & view_wu.touches(middle_w, middle_u) {
                    let mut voxel = [at_u; 3];
                    (voxel[v], voxel[w]) = (at_v, at_w);
                    mark(lattice.place(voxel));
                }
            }
        }
    }
}

/// A triangle seen along one axis: for each edge the line beyond which no box touches it.
/// Four of everything, the last one always touching: that fills vector registers.
#[derive(Clone, Copy, Debug)]
struct View {
    first: [f64; 4],
    second: [f64; 4],
    constant: [f64; 4],
}

impl View {
    #[inline]
    fn new(sides: [&[f64; 4]; 2], edges: [&[f64; 4]; 2], facing: f64) -> View {
        let sign = if facing < 0.0 { -1.0 } else { 1.0 };
        // Across each edge, towards the inside.
        let first = edges[1].map(|edge| -sign * edge);
        let second = edges[0].map(|edge| sign * edge);
        let constant = std::array::from_fn(|edge| {
            let reach = 0.5 * (first[edge].abs() + second[edge].abs());
            reach - first[edge] * sides[0][edge] - second[edge] * sides[1][edge]
        });
        View {
            first,
            second,
            constant,
        }
    }

    #[expect(
        clippy::needless_bitwise_bool,
        reason = "a branch for each would be guessed wrong half of the time"
    )]
    #[inline]
    fn touches(&self, first: f64, second: f64) -> bool {
        let inside: [f64; 4] = std::array::from_fn(|edge| {
            self.first[edge] * first + self.second[edge] * second + self.constant[edge]
        });
        (inside[0] >= 0.0) & (inside[1] >= 0.0) & (inside[2] >= 0.0) & (inside[3] >= 0.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn minus(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
        [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
    }

    const SIDE: usize = 8;

    fn marked(corners: [[f64; 3]; 3]) -> Vec<usize> {
        let mut marked = Vec::new();
        mark_triangle(corners, Lattice::new(SIDE), &mut |at| marked.push(at));
        marked.sort_unstable();
        marked
    }

    /// Distance from the middle of the box, in the greatest coordinate, to the triangle: found by halving triangles, and
    /// so from above and from below.
    fn distance_bounds(corners: [[f64; 3]; 3], depth: u32) -> (f64, f64) {
        let middle: [f64; 3] =
            std::array::from_fn(|axis| corners.iter().map(|c| c[axis]).sum::<f64>() / 3.0);
        let norm = |point: [f64; 3]| point.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
        let spread = corners
            .iter()
            .map(|&corner| norm(minus(corner, middle)))
            .fold(0.0, f64::max);
        let here = norm(middle);
        // What is farther than any that counts need not be known exactly.
        if depth == 0 || here - spread > 0.6 {
            return ((here - spread).max(0.0), here);
        }
        let [a, b, c] = corners;
        let between =
            |a: [f64; 3], b: [f64; 3]| std::array::from_fn(|axis| f64::midpoint(a[axis], b[axis]));
        let (ab, bc, ca) = (between(a, b), between(b, c), between(c, a));
        [[a, ab, ca], [ab, b, bc], [ca, bc, c], [ab, bc, ca]]
            .into_iter()
            .map(|part| distance_bounds(part, depth - 1))
            .fold((f64::INFINITY, f64::INFINITY), |best, part| {
                (best.0.min(part.0), best.1.min(part.1))
            })
    }

    fn corner() -> impl Strategy<Value = [f64; 3]> {
        // Multiples of a sixteenth: edges along axes, flat and empty triangles come up.
        [0..(16 * SIDE), 0..(16 * SIDE), 0..(16 * SIDE)]
            .prop_map(|sixteenths| sixteenths.map(|n| n as f64 / 16.0))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn the_voxels_are_those_at_most_half_a_voxel_from_the_triangle(corners in [corner(), corner(), corner()]) {
            let marked = marked(corners);
            for at in 0..SIDE * SIDE * SIDE {
                let middle = [at / SIDE / SIDE, at / SIDE % SIDE, at % SIDE].map(|n| n as f64);
                let (least, most) = distance_bounds(corners.map(|corner| minus(corner, middle)), 7);
                let is_marked = marked.binary_search(&at).is_ok();
                prop_assert!(!is_marked || least <= 0.5 + 1e-9, "{at} is marked and {least} away");
                prop_assert!(is_marked || most >= 0.5 - 1e-9, "{at} is not marked and at most {most} away");
            }
        }

        #[test]
        fn any_triangle_stays_inside_of_the_grid(corners: [[f32; 3]; 3]) {
            for at in marked(corners.map(|corner| corner.map(f64::from))) {
                prop_assert!(at < SIDE * SIDE * SIDE);
            }
        }
    }

    #[test]
    fn a_point_and_a_line_are_triangles_too() {
        assert_eq!(marked([[1.0, 1.0, 1.0]; 3]), [SIDE * SIDE + SIDE + 1]);
        let line = marked([[0.0, 0.0, 0.0], [0.0, 0.0, 3.0], [0.0, 0.0, 1.0]]);
        assert_eq!(line, [0, 1, 2, 3]);
    }

    #[test]
    fn what_lies_between_two_voxels_is_in_both() {
        assert_eq!(marked([[0.0, 0.0, 0.5]; 3]), [0, 1]);
    }
}
