//! Convolutions: three matrix products without a matrix, or for each channel alone.
//!
//! Forward, the gradient of the input and the gradient of the weight are matrix products over the same data. Tensor
//! cores want the channels last: for tensors in PyTorch's usual layout cuDNN converts there and back. Convolutions of
//! groups compute with padded channels. With one channel per group no tensor core is used.

use crate::speed::gpu::GpuRates;
use crate::speed::matmul::{Product, together};
use crate::speed::op::{CapturedOp, Precision};
use crate::speed::parameters::{Parameter, Parameters};

/// Which of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Input,
    Weight,
}

/// One kernel of a convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Convolution {
    pub(crate) direction: Direction,
    pub(crate) product: Product,
    pub(crate) groups: Groups,
    pub(crate) flops: f64,
    pub(crate) bytes: f64,
    /// Bytes of converting to the layout that tensor cores want.
    pub(crate) layout_bytes: f64,
    pub(crate) channels_last: bool,
    /// Channels that tensor cores cannot take without padding.
    pub(crate) unaligned: bool,
    /// Places of the kernel.
    pub(crate) taps: f64,
    /// Winograd's algorithm can compute it with fewer multiplications.
    pub(crate) winograd: bool,
    pub(crate) precision: Precision,
    pub(crate) tf32: bool,
}

/// How channels are tied together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Groups {
    One,
    Several,
    /// Each channel alone.
    Depthwise,
}

/// The kernels of an operator; nothing for shapes that no convolution has.
pub(crate) fn of(op: &CapturedOp, tf32: bool) -> Vec<Convolution> {
    let is_backward = op.short_name().ends_with("backward");
    let wanted: &[&Vec<u64>] = match (&op.shapes[..], is_backward) {
        ([input, weight, ..], false) => &[input, weight, &op.output],
        ([output, input, weight, ..], true) => &[input, weight, output],
        _ => return Vec::new(),
    };
    let &[input, weight, output] = wanted else {
        return Vec::new();
    };
    let Some(sizes) = Sizes::of(input, weight, output, op) else {
        return Vec::new();
    };
    let directions: &[Direction] = if is_backward {
        match op.output_mask[..] {
            [true, false, ..] => &[Direction::Input],
            [false, true, ..] => &[Direction::Weight],
            [false, false, ..] => &[],
            _ => &[Direction::Input, Direction::Weight],
        }
    } else if op.transposed {
        &[Direction::Input]
    } else {
        &[Direction::Forward]
    };
    let mut kernels: Vec<Convolution> = directions
        .iter()
        .map(|direction| sizes.kernel(*direction, op, tf32))
        .collect();
    let wants_channels_last = op.precision() != Precision::Double
        && (op.precision() != Precision::Single || tf32)
        && !op.channels_last;
    if wants_channels_last
        && sizes.groups != Groups::Depthwise
        && let Some(first) = kernels.first_mut()
    {
        let (x, y) = (sizes.input_bytes, sizes.output_bytes);
        first.layout_bytes = 2.0
            * match directions {
                [Direction::Forward] => x + y,
                [Direction::Weight] => x + 2.0 * y,
                _ => 2.0 * x + 2.0 * y,
            };
    }
    kernels
}

struct Sizes {
    images: f64,
    input_places: f64,
    output_places: f64,
    input_channels: f64,
    output_channels: f64,
    n_groups: f64,
    taps: f64,
    is_three_by_three: bool,
    strides: f64,
    groups: Groups,
    input_bytes: f64,
    output_bytes: f64,
    weight_bytes: f64,
}

impl Sizes {
    fn of(input: &[u64], weight: &[u64], output: &[u64], op: &CapturedOp) -> Option<Sizes> {
        // A transposed convolution is the gradient of the input of one with input and output exchanged.
        let (input, output) = if op.transposed {
            (output, input)
        } else {
            (input, output)
        };
        let ([images, channels, places @ ..], [out, per_group, taps @ ..], [_, _, made @ ..]) =
            (input, weight, output)
        else {
            return None;
        };
        let product = |sizes: &[u64]| sizes.iter().map(|size| *size as f64).product::<f64>();
        let n_groups = op.groups.max(1) as f64;
        let bytes = op.precision().bytes();
        let strides: f64 = match op.stride[..] {
            [one] => (one as f64).powi(i32::try_from(places.len()).unwrap_or(1)),
            _ => product(&op.stride),
        };
        let groups = match op.groups {
            0 | 1 => Groups::One,
            _ if *per_group == 1 => Groups::Depthwise,
            _ => Groups::Several,
        };
        let sizes = Sizes {
            images: *images as f64,
            input_places: product(places),
            output_places: product(made),
            input_channels: (*channels as f64 / n_groups).max(1.0),
            output_channels: (*out as f64 / n_groups).max(1.0),
            n_groups,
            taps: product(taps),
            is_three_by_three: *taps == WINOGRAD_KERNEL,
            strides: strides.max(1.0),
            groups,
            input_bytes: product(input) * bytes,
            output_bytes: product(output) * bytes,
            weight_bytes: product(weight) * bytes,
        };
        Some(sizes)
    }

    fn kernel(&self, direction: Direction, op: &CapturedOp, tf32: bool) -> Convolution {
        // Tensor cores take eight channels at a time.
        let padded = |channels: f64| (channels / 8.0).ceil() * 8.0;
        let (input, output) = (self.input_channels, self.output_channels);
        let (rows, columns, depth) = match direction {
            Direction::Forward => (
                self.images * self.output_places,
                output,
                padded(input) * self.taps,
            ),
            Direction::Input => (
                self.images * self.input_places,
                input,
                (padded(output) * self.taps / self.strides).max(1.0),
            ),
            Direction::Weight => (
                output,
                padded(input) * self.taps,
                self.images * self.output_places,
            ),
        };
        let flops =
            2.0 * self.images * self.output_places * output * input * self.taps * self.n_groups;
        Convolution {
            direction,
            product: Product {
                batch: self.n_groups,
                rows,
                columns,
                depth,
            },
            groups: self.groups,
            flops,
            bytes: self.input_bytes + self.output_bytes + self.weight_bytes,
            layout_bytes: 0.0,
            channels_last: op.channels_last,
            unaligned: match self.groups {
                Groups::Several => {
                    !EVEN_GROUPS.contains(&(input, output)) || self.n_groups % 32.0 != 0.0
                }
                _ => !(is_aligned(input) || input <= FEW_CHANNELS) || !is_aligned(output),
            },
            taps: self.taps,
            winograd: self.groups == Groups::One
                && self.is_three_by_three
                && self.strides <= 1.0
                && input >= WINOGRAD_CHANNELS,
            precision: op.precision(),
            tf32,
        }
    }
}

/// Kernels that Winograd's algorithm is made for.
const WINOGRAD_KERNEL: [u64; 2] = [3, 3];
const WINOGRAD_CHANNELS: f64 = 16.0;
/// cuDNN has kernels of their own for the first convolution of an image model.
const FEW_CHANNELS: f64 = 4.0;
/// Channels of a group for which cuDNN has kernels that compute 32 groups at once.
const EVEN_GROUPS: [(f64, f64); 4] = [(4.0, 4.0), (8.0, 8.0), (16.0, 16.0), (32.0, 32.0)];
/// Places of the kernels of depthwise convolutions that PyTorch has compiled for their size.
const COMPILED_TAPS: [f64; 3] = [1.0, 9.0, 25.0];

fn is_aligned(channels: f64) -> bool {
    channels % 8.0 == 0.0
}

impl Convolution {
    pub(crate) fn seconds(&self, gpu: &GpuRates, p: &Parameters) -> f64 {
        let mut share = match self.groups {
            Groups::One if self.is_plain(gpu) => p.get(Parameter::ConvolutionPlain),
            _ => p.get(self.share()),
        };
        if self.groups == Groups::Depthwise && !COMPILED_TAPS.contains(&self.taps) {
            share *= p.get(Parameter::DepthwiseOdd);
        }
        let is_plain = self.is_plain(gpu);
        if self.winograd && is_plain {
            share *= p.get(Parameter::Winograd);
        }
        match (self.groups, self.unaligned && !is_plain, self.channels_last) {
            (Groups::One, true, false) => share *= p.get(Parameter::Unaligned),
            (Groups::One, true, true) => share *= p.get(Parameter::UnalignedNhwc),
            (Groups::Several, true, false) => share *= p.get(Parameter::GroupedUneven),
            (Groups::Several, true, true) => share *= p.get(Parameter::GroupedUnevenNhwc),
            _ => {}
        }
        let bytes = gpu.memory_bytes(self.bytes);
        if self.groups == Groups::Depthwise {
            let computing = self.flops / (gpu.single * share);
            let moving = bytes / (gpu.bandwidth * p.get(Parameter::DepthwiseBandwidth));
            return computing.hypot(moving);
        }
        let (peak, depth) = self.peak(gpu, p);
        if !is_plain {
            share = gpu.limited(peak * share, self.precision) / peak;
        }
        let computing = if self.groups == Groups::Several {
            let narrow = match self.direction {
                Direction::Weight => self.product.rows,
                _ => self.product.columns,
            };
            let padding = p.get(if self.channels_last {
                Parameter::GroupedPaddingNhwc
            } else {
                Parameter::GroupedPadding
            });
            self.flops * (padding / narrow).max(1.0) / peak
        } else {
            self.product.seconds(peak, gpu.multiprocessors, depth)
        };
        let moving = bytes / (gpu.bandwidth * p.get(Parameter::MatmulBandwidth));
        let layout = gpu.memory_bytes(self.layout_bytes)
            / (gpu.bandwidth * p.get(Parameter::ConvolutionLayout));
        together(computing / share, moving) + layout
    }

    /// fp32 without tensor cores, and fp64.
    fn is_plain(&self, gpu: &GpuRates) -> bool {
        match self.precision {
            Precision::Single => !(self.tf32 && gpu.tf32.is_some()),
            Precision::Double => true,
            Precision::Half | Precision::Bfloat16 => false,
        }
    }

    fn peak(&self, gpu: &GpuRates, p: &Parameters) -> (f64, f64) {
        let depth_half = p.get(Parameter::MatmulDepthHalf);
        match (self.precision, gpu.tf32) {
            (Precision::Half, _) => (gpu.half, depth_half),
            (Precision::Bfloat16, _) => (gpu.bfloat16, depth_half),
            (Precision::Single, Some(tf32)) if self.tf32 => {
                (tf32 * p.get(Parameter::ConvolutionSingle), depth_half)
            }
            _ => {
                let single = gpu.sustained_single.unwrap_or(gpu.single);
                // As for matrix products: a half at best.
                let halved = self.precision == Precision::Double;
                let rate = if halved { single / 2.0 } else { single };
                (rate, p.get(Parameter::MatmulDepthSingle))
            }
        }
    }

    fn share(&self) -> Parameter {
        use Direction::{Forward, Input, Weight};
        use Groups::{Depthwise, One, Several};
        match (self.groups, self.channels_last, self.direction) {
            (One, false, Forward) => Parameter::ConvolutionForward,
            (One, false, Input) => Parameter::ConvolutionInput,
            (One, false, Weight) => Parameter::ConvolutionWeight,
            (One, true, Forward) => Parameter::ConvolutionForwardNhwc,
            (One, true, Input) => Parameter::ConvolutionInputNhwc,
            (One, true, Weight) => Parameter::ConvolutionWeightNhwc,
            (Several, false, Forward) => Parameter::GroupedForward,
            (Several, false, Input) => Parameter::GroupedInput,
            (Several, false, Weight) => Parameter::GroupedWeight,
            (Several, true, Forward) => Parameter::GroupedForwardNhwc,
            (Several, true, Input) => Parameter::GroupedInputNhwc,
            (Several, true, Weight) => Parameter::GroupedWeightNhwc,
            (Depthwise, false, Forward) => Parameter::DepthwiseForward,
            (Depthwise, false, Input) => Parameter::DepthwiseInput,
            (Depthwise, false, Weight) => Parameter::DepthwiseWeight,
            (Depthwise, true, Forward) => Parameter::DepthwiseForwardNhwc,
            (Depthwise, true, Input) => Parameter::DepthwiseInputNhwc,
            (Depthwise, true, Weight) => Parameter::DepthwiseWeightNhwc,
        }
    }
}
