//! How long a step takes on a GPU, before it has run there: a physical model of the captured operators.
//!
//! One rehearsed step gives every operator with its shapes ([`CapturedStep`]). Each becomes one or more kernels
//! (`matmul`, `convolution`, `attention`, `memory_bound`), whose time on a GPU follows from its peak rates
//! ([`GpuRates`]) and from the share of them that such kernels reach ([`Parameters`]). The shares were fitted to
//! measured training speeds (`cargo xtask fit`); how far off the result is, is on the page of the accuracy.

mod answer;
mod attention;
mod convolution;
mod fit_result;
mod fitted;
mod gpu;
mod launches;
mod matmul;
mod memory_bound;
mod op;
mod parameters;
mod step;

pub use answer::{RateRange, SecondsRange, Speed, SpeedBasis, StepFacts, StepTime};
pub use fit_result::{FittedParameters, Spreads};
pub use fitted::FITTED;
pub use gpu::{GpuRates, RatesBasis, TensorLimits};
pub use op::{CapturedOp, CapturedStep, OpPhase, Precision};
pub use parameters::{Parameter, Parameters};
pub use step::{Kernels, Part, SecondsByPart};

#[cfg(test)]
mod tests;
