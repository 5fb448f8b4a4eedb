//! Matrix products: tiles of the result on multiprocessors, in waves.
//!
//! A kernel computes the result in tiles, one on each multiprocessor at a time. The time is that of the tiles that one
//! multiprocessor computes, at a share of its peak rate that is lower for small tiles and for short sums. Where there
//! are fewer tiles than multiprocessors, the sum is split. Small or flat products are bound by memory instead.

use crate::speed::gpu::GpuRates;
use crate::speed::op::Precision;
use crate::speed::parameters::{Parameter, Parameters};

/// A matrix product, or as many as `batch` of the same size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Product {
    pub(crate) batch: f64,
    pub(crate) rows: f64,
    pub(crate) columns: f64,
    /// Terms of each sum.
    pub(crate) depth: f64,
}

/// Sizes of tiles, and the share of the peak rate that each can reach.
const TILES: [(f64, f64, f64); 5] = [
    (256.0, 128.0, 1.0),
    (128.0, 128.0, 1.0),
    (128.0, 64.0, 0.9),
    (64.0, 64.0, 0.75),
    (64.0, 32.0, 0.6),
];
/// A sum is split into parts of at least this many terms.
const LEAST_DEPTH: f64 = 512.0;
/// Number of waves from which multiprocessors that finish early take the next tile.
const FEW_WAVES: f64 = 4.0;

impl Product {
    /// Seconds at the peak rate `peak`, with the best tile. Each sum costs `extra` more terms than it has.
    pub(crate) fn seconds(&self, peak: f64, multiprocessors: f64, extra: f64) -> f64 {
        let of_tile = |(rows, columns, share): (f64, f64, f64)| {
            let tiles = self.batch * (self.rows / rows).ceil() * (self.columns / columns).ceil();
            let split = (multiprocessors / tiles)
                .floor()
                .min((self.depth / LEAST_DEPTH).floor())
                .max(1.0);
            let waves = tiles * split / multiprocessors;
            let waves = if waves.ceil() > FEW_WAVES {
                waves + 0.5
            } else {
                waves.ceil()
            };
            let tile = rows * columns * 2.0 * (self.depth / split + extra);
            waves * tile / (peak / multiprocessors * share)
        };
        TILES.into_iter().map(of_tile).fold(f64::INFINITY, f64::min)
    }
}

/// The rate that a product can reach at most, and the terms that each of its sums costs besides its own.
pub(crate) fn rate(
    precision: Precision,
    tf32: bool,
    batched: bool,
    gpu: &GpuRates,
    p: &Parameters,
) -> (f64, f64) {
    let depth_half = p.get(Parameter::MatmulDepthHalf);
    let half = p.get(if batched {
        Parameter::MatmulHalfBatched
    } else {
        Parameter::MatmulHalf
    });
    match precision {
        Precision::Half => (gpu.limited(gpu.half * half, precision), depth_half),
        Precision::Bfloat16 => {
            let rate = gpu.bfloat16 * half * p.get(Parameter::MatmulBfloat16);
            (gpu.limited(rate, precision), depth_half)
        }
        Precision::Single if tf32 && gpu.tf32.is_some() => {
            let peak = gpu.tf32.unwrap_or(gpu.single);
            let rate = peak * p.get(Parameter::MatmulTf32);
            (gpu.limited(rate, precision), depth_half)
        }
        Precision::Single => (single(gpu, batched, p), p.get(Parameter::MatmulDepthSingle)),
        // Cards for training have a half to a sixty-fourth; nobody trains with it by choice.
        Precision::Double => (
            single(gpu, batched, p) / 2.0,
            p.get(Parameter::MatmulDepthSingle),
        ),
    }
}

fn single(gpu: &GpuRates, batched: bool, p: &Parameters) -> f64 {
    let best = p.get(Parameter::MatmulSingle);
    let share = if batched {
        p.get(Parameter::MatmulSingleBatched)
    } else {
        best
    };
    match gpu.sustained_single {
        // It was measured with a large product, which reaches `best`.
        Some(measured) => measured * share / best,
        None => gpu.single * share,
    }
}

/// Both limits at once: close to the larger one, a little more where they are alike.
pub(crate) fn together(computing: f64, moving: f64) -> f64 {
    (computing.powi(4) + moving.powi(4)).powf(0.25)
}
