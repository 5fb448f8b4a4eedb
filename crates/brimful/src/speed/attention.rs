//! Fused attention: its two matrix products, without the matrix of weights in memory.

use crate::speed::gpu::GpuRates;
use crate::speed::matmul::together;
use crate::speed::op::Precision;
use crate::speed::parameters::{Parameter, Parameters};

/// One fused kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Attention {
    pub(crate) backward: bool,
    pub(crate) flops: f64,
    pub(crate) bytes: f64,
    pub(crate) precision: Precision,
}

impl Attention {
    pub(crate) fn seconds(&self, gpu: &GpuRates, p: &Parameters) -> f64 {
        let peak = match self.precision {
            Precision::Half => gpu.half,
            Precision::Bfloat16 => gpu.bfloat16,
            _ => gpu.sustained_single.unwrap_or(gpu.single),
        };
        let share = p.get(if self.backward {
            Parameter::AttentionBackward
        } else {
            Parameter::AttentionForward
        });
        let moving =
            gpu.memory_bytes(self.bytes) / (gpu.bandwidth * p.get(Parameter::MatmulBandwidth));
        together(self.flops / (peak * share), moving)
    }
}
