//! The parameters of the model: shares of a GPU's peak rates that kinds of kernels reach.

use std::collections::BTreeMap;

use crate::speed::fitted::FITTED;

/// Defines every parameter once: its place, its name in the data file, the value that is assumed before any
/// measurement, and how far from it a fit may go (one standard deviation of its logarithm).
macro_rules! parameters {
    ($($name:ident $text:literal $prior:literal $spread:literal;)*) => {
        /// A parameter of the model.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Parameter { $($name),* }

        impl Parameter {
            pub const ALL: &'static [Parameter] = &[$(Parameter::$name),*];

            pub fn name(self) -> &'static str {
                match self { $(Parameter::$name => $text),* }
            }

            /// The value before any measurement.
            pub fn prior(self) -> f64 {
                match self { $(Parameter::$name => $prior),* }
            }

            /// How well the prior is known: one standard deviation of its logarithm.
            pub fn prior_spread(self) -> f64 {
                match self { $(Parameter::$name => $spread),* }
            }
        }
    };
}

parameters! {
    MatmulHalf "matmul.half" 0.85 0.3;
    MatmulHalfBatched "matmul.half_batched" 0.6 0.4;
    MatmulBfloat16 "matmul.bfloat16" 1.0 0.1;
    MatmulTf32 "matmul.tf32" 1.15 0.2;
    MatmulSingle "matmul.single" 0.95 0.2;
    MatmulSingleBatched "matmul.single_batched" 0.85 0.3;
    MatmulDepthHalf "matmul.depth_half" 64.0 0.7;
    MatmulDepthSingle "matmul.depth_single" 24.0 0.7;
    MatmulBandwidth "matmul.bandwidth" 0.8 0.2;
    ConvolutionForward "convolution.nchw.forward" 0.75 0.4;
    ConvolutionInput "convolution.nchw.input" 0.65 0.4;
    ConvolutionWeight "convolution.nchw.weight" 0.55 0.4;
    ConvolutionForwardNhwc "convolution.nhwc.forward" 0.75 0.4;
    ConvolutionInputNhwc "convolution.nhwc.input" 0.65 0.4;
    ConvolutionWeightNhwc "convolution.nhwc.weight" 0.55 0.4;
    ConvolutionSingle "convolution.single" 0.8 0.3;
    ConvolutionPlain "convolution.plain" 0.85 0.2;
    Winograd "convolution.winograd" 1.6 0.2;
    ConvolutionLayout "convolution.layout" 0.8 0.4;
    GroupedForward "grouped.nchw.forward" 0.3 0.6;
    GroupedInput "grouped.nchw.input" 0.3 0.6;
    GroupedWeight "grouped.nchw.weight" 0.2 0.6;
    GroupedForwardNhwc "grouped.nhwc.forward" 0.3 0.6;
    GroupedInputNhwc "grouped.nhwc.input" 0.3 0.6;
    GroupedWeightNhwc "grouped.nhwc.weight" 0.2 0.6;
    GroupedPadding "grouped.nchw.padding" 16.0 0.5;
    GroupedPaddingNhwc "grouped.nhwc.padding" 4.0 0.8;
    GroupedUneven "grouped.nchw.uneven" 0.8 0.5;
    GroupedUnevenNhwc "grouped.nhwc.uneven" 0.4 0.6;
    Unaligned "convolution.nchw.unaligned" 0.8 0.4;
    UnalignedNhwc "convolution.nhwc.unaligned" 0.6 0.4;
    DepthwiseForward "depthwise.nchw.forward" 0.3 0.6;
    DepthwiseInput "depthwise.nchw.input" 0.3 0.6;
    DepthwiseWeight "depthwise.nchw.weight" 0.1 0.6;
    DepthwiseForwardNhwc "depthwise.nhwc.forward" 0.3 0.6;
    DepthwiseInputNhwc "depthwise.nhwc.input" 0.3 0.6;
    DepthwiseWeightNhwc "depthwise.nhwc.weight" 0.1 0.6;
    DepthwiseOdd "depthwise.odd_kernel" 0.7 0.4;
    DepthwiseBandwidth "depthwise.bandwidth" 0.6 0.4;
    AttentionForward "attention.forward" 0.5 0.3;
    AttentionBackward "attention.backward" 0.4 0.3;
    Recurrent "recurrent" 0.3 0.5;
    BatchNormForward "memory.batch_norm.forward" 0.6 0.4;
    BatchNormBackward "memory.batch_norm.backward" 0.6 0.4;
    BatchNormForwardNhwc "memory.batch_norm.nhwc.forward" 0.6 0.4;
    BatchNormBackwardNhwc "memory.batch_norm.nhwc.backward" 0.6 0.4;
    LayerNormForward "memory.layer_norm.forward" 0.7 0.4;
    LayerNormBackward "memory.layer_norm.backward" 0.6 0.4;
    Softmax "memory.softmax" 0.8 0.4;
    Copies "memory.copy" 0.8 0.4;
    PoolForward "memory.pool.forward" 0.8 0.5;
    PoolBackward "memory.pool.backward" 0.4 0.5;
    PoolForwardNhwc "memory.pool.nhwc.forward" 0.8 0.5;
    PoolBackwardNhwc "memory.pool.nhwc.backward" 0.4 0.5;
    Reductions "memory.reduction" 0.8 0.4;
    Gathers "memory.gather" 0.5 0.5;
    Optimizer "memory.optimizer" 0.8 0.3;
    Broadcast "memory.broadcast" 0.7 0.3;
    Elementwise "memory.elementwise" 0.85 0.2;
    Launch "launch_microseconds" 3.0 0.5;
    HostCall "host_call_microseconds" 20.0 0.7;
}

/// A value for each parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters(Vec<f64>);

impl Parameters {
    pub fn priors() -> Parameters {
        Parameters(Parameter::ALL.iter().map(|p| p.prior()).collect())
    }

    /// Those that were fitted to measurements. What was not fitted keeps its prior.
    pub fn fitted() -> Parameters {
        let mut parameters = Parameters::priors();
        for (name, value) in FITTED.values {
            let known = Parameter::ALL.iter().find(|p| p.name() == *name);
            if let Some(parameter) = known {
                parameters.set(*parameter, *value);
            }
        }
        parameters
    }

    pub fn get(&self, parameter: Parameter) -> f64 {
        self.0[parameter as usize]
    }

    pub fn set(&mut self, parameter: Parameter, value: f64) {
        self.0[parameter as usize] = value;
    }

    pub fn by_name(&self) -> BTreeMap<String, f64> {
        let pair = |p: &Parameter| (p.name().to_owned(), self.get(*p));
        Parameter::ALL.iter().map(pair).collect()
    }
}
