//! Operators that are bound by memory: bytes divided by a share of the bandwidth.

use crate::speed::op::{CapturedOp, OpPhase};
use crate::speed::parameters::Parameter;

/// Operators that only write.
const FILLS: &[&str] = &[
    "zero_",
    "fill_",
    "zeros_like",
    "ones_like",
    "full_like",
    "full",
    "zeros",
    "ones",
];
/// Operators that copy.
const COPIES: &[&str] = &[
    "clone",
    "copy_",
    "_to_copy",
    "cat",
    "stack",
    "roll",
    "constant_pad_nd",
    "repeat",
    "flip",
    "slice_backward",
    "select_backward",
    "col2im",
    "im2col",
    "unfold_backward",
    "pixel_shuffle",
    "contiguous",
];
/// Operators that sum up.
const REDUCTIONS: &[&str] = &[
    "sum",
    "mean",
    "var_mean",
    "var",
    "std",
    "linalg_vector_norm",
    "amax",
    "amin",
    "std_mean",
    "norm",
    "max",
    "min",
    "argmax",
    "prod",
    "logsumexp",
];

/// The parameter that holds for an operator.
pub(crate) fn class(op: &CapturedOp) -> Parameter {
    let name = op.short_name();
    let backward = name.ends_with("backward");
    let last = op.channels_last;
    if name.contains("batch_norm") {
        return match (backward, last) {
            (false, false) => Parameter::BatchNormForward,
            (true, false) => Parameter::BatchNormBackward,
            (false, true) => Parameter::BatchNormForwardNhwc,
            (true, true) => Parameter::BatchNormBackwardNhwc,
        };
    }
    if name.contains("layer_norm") || name.contains("group_norm") || name.contains("rms_norm") {
        return if backward {
            Parameter::LayerNormBackward
        } else {
            Parameter::LayerNormForward
        };
    }
    if name.contains("softmax") {
        return Parameter::Softmax;
    }
    if name.starts_with("_foreach") || name.starts_with("_fused_") || op.phase == OpPhase::Optimizer
    {
        return Parameter::Optimizer;
    }
    if COPIES.contains(&name) {
        return Parameter::Copies;
    }
    if name.contains("pool") {
        return match (backward, last) {
            (false, false) => Parameter::PoolForward,
            (true, false) => Parameter::PoolBackward,
            (false, true) => Parameter::PoolForwardNhwc,
            (true, true) => Parameter::PoolBackwardNhwc,
        };
    }
    if REDUCTIONS.contains(&name) {
        return Parameter::Reductions;
    }
    if is_gather(name) {
        return Parameter::Gathers;
    }
    if is_broadcast(op) {
        return Parameter::Broadcast;
    }
    Parameter::Elementwise
}

/// Whether a smaller tensor is repeated over a larger one: such kernels calculate with places, and load one number
/// at a time.
fn is_broadcast(op: &CapturedOp) -> bool {
    let several = |shape: &&Vec<u64>| shape.iter().any(|size| *size > 1);
    let mut shapes = op.shapes.iter().filter(several);
    let Some(first) = shapes.next() else {
        return false;
    };
    shapes.any(|shape| shape != first)
}

fn is_gather(name: &str) -> bool {
    const PARTS: [&str; 5] = ["embedding", "gather", "scatter", "upsample", "grid_sampl"];
    name.starts_with("index") || PARTS.iter().any(|part| name.contains(part))
}

/// Bytes that an operator moves.
pub(crate) fn bytes(op: &CapturedOp) -> f64 {
    let (read, written) = (op.read_bytes as f64, op.written_bytes as f64);
    let name = op.short_name();
    if FILLS.contains(&name) || name == "_foreach_zero_" {
        return written;
    }
    // What is copied over is not read.
    if name == "copy_" || name == "_foreach_copy_" {
        return read.max(written);
    }
    // Of a table only the wanted rows are read.
    if matches!(name, "embedding" | "index" | "index_select" | "gather") {
        return 2.0 * written;
    }
    read + written
}
