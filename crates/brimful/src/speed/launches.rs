//! Kernels that an operator launches. Each costs a moment in which the GPU does nothing else.

use crate::speed::op::CapturedOp;

/// Tensors that one kernel of an operator on lists takes (PyTorch's multi-tensor kernels, by the number of lists).
const TENSORS_PER_KERNEL: f64 = 110.0;

/// Kernels of one call.
pub(crate) fn of(op: &CapturedOp) -> f64 {
    let name = op.short_name();
    if name.starts_with("_foreach")
        || name.starts_with("_fused_adam")
        || name.starts_with("_fused_sgd")
    {
        return (op.tensors as f64 / TENSORS_PER_KERNEL).ceil().max(1.0);
    }
    if name.contains("batch_norm") || name == "native_layer_norm_backward" {
        return 2.0;
    }
    if name == "convolution_backward" {
        return op.output_mask.iter().filter(|made| **made).count().max(1) as f64;
    }
    if name.contains("attention") && name.ends_with("backward") {
        return 3.0;
    }
    1.0
}
