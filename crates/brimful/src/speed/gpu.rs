//! A GPU as the model sees it.

use crate::cards::{self, Card, SustainedRates};
use crate::speed::op::Precision;

/// Peak rates of a GPU, in operations and bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuRates {
    pub single: f64,
    /// fp16 with sums in fp32.
    pub half: f64,
    pub bfloat16: f64,
    /// Nothing where fp32 is never computed in TF32.
    pub tf32: Option<f64>,
    /// What tensor cores reach at most; nothing where that is not known.
    pub tensor_limits: Option<TensorLimits>,
    /// The best rate of an fp32 matrix product that was measured.
    pub sustained_single: Option<f64>,
    pub bandwidth: f64,
    pub l2_bytes: f64,
    pub multiprocessors: f64,
}

/// The best matrix products by type of number: measured, or as much of the data sheet as in fp16.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorLimits {
    pub half: f64,
    pub bfloat16: f64,
    pub tf32: f64,
}

/// How well the rates of a GPU are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RatesBasis {
    /// The parameters were fitted on this GPU.
    Fitted,
    /// Somebody has measured matrix products on such a GPU.
    Measured,
    DataSheet,
}

impl RatesBasis {
    /// How well the rate is known that a step depends on most.
    pub fn of(card: &Card, precision: Precision) -> RatesBasis {
        if card.id == FITTED_GPU && precision == Precision::Half {
            return RatesBasis::Fitted;
        }
        let measured = cards::sustained(card).and_then(|rates| match precision {
            Precision::Half => rates.half,
            Precision::Bfloat16 => rates.bfloat16,
            Precision::Single | Precision::Double => rates.fp32,
        });
        match measured {
            Some(_) => RatesBasis::Measured,
            None => RatesBasis::DataSheet,
        }
    }
}

/// Half-precision trainings of the fit ran on it.
const FITTED_GPU: &str = "rtx-3090";
// The parameters were fitted with the rates of its data sheet, of which it reaches more.
const REFERENCE_HALF: f64 = 75.6 / 71.2;
// What the boards with a measurement reach of their data sheets in half precision: desktop boards 1.05 to 1.17,
// others 0.58 to 0.87.
const TYPICAL_GEFORCE: f64 = 1.08;
const TYPICAL_OTHER: f64 = 0.8;
// The same in fp32: multiprocessors with 128 lanes cannot feed all of them.
const TYPICAL_SINGLE_WIDE: f64 = 0.7;
const TYPICAL_SINGLE: f64 = 0.92;
// bfloat16 on a GPU without units for it, of its fp32 rate: 0.53 to 0.71 on T4 and V100.
const EMULATED_BFLOAT16: f64 = 0.6;

impl GpuRates {
    /// The rates of a card; nothing where its data sheet is not known.
    pub fn of(card: &Card) -> Option<GpuRates> {
        GpuRates::with(card, cards::sustained(card))
    }

    /// The rates of a card as if nobody had measured any.
    pub fn by_data_sheet(card: &Card) -> Option<GpuRates> {
        GpuRates::with(card, None)
    }

    fn with(card: &Card, measured: Option<&SustainedRates>) -> Option<GpuRates> {
        let peaks = cards::rates(card)?;
        let is_wide = card.compute_capability.is_some_and(|capability| {
            (capability.major, capability.minor) == (6, 1)
                || (capability.major, capability.minor) >= (8, 6)
        });
        // Desktop boards sum in fp16 twice as fast as in fp32, and clock higher than their sheets: some kernels
        // exceed the best product in fp32 sums. Others run at their limit of power.
        let is_desktop = card.name.contains("GeForce") || card.name.contains("TITAN");
        let typical = if is_desktop {
            TYPICAL_GEFORCE
        } else {
            TYPICAL_OTHER
        };
        let half = match (measured.and_then(|rates| rates.half), peaks.half) {
            (Some(measured), _) => Some(measured / REFERENCE_HALF),
            (None, Some(peak)) => Some(peak.value * typical / REFERENCE_HALF),
            (None, None) => None,
        };
        // What was measured of this type of number, or as much of the data sheet as fp16 reaches.
        let of_type = |measured: Option<f64>, peak: Option<cards::SourcedValue<f64>>| {
            let by_half = peak?.value / peaks.half?.value * half?;
            Some(measured.map_or(by_half, |rate| rate / REFERENCE_HALF))
        };
        let measured_of = |rate: fn(&SustainedRates) -> Option<f64>| measured.and_then(rate);
        let single = peaks.fp32.value;
        let sustained_single = measured.and_then(|rates| rates.fp32).unwrap_or(
            single
                * if is_wide {
                    TYPICAL_SINGLE_WIDE
                } else {
                    TYPICAL_SINGLE
                },
        );
        Some(GpuRates {
            single: single * TERA,
            half: half.unwrap_or(sustained_single) * TERA,
            bfloat16: of_type(measured_of(|rates| rates.bfloat16), peaks.bfloat16)
                .or(measured_of(|rates| rates.bfloat16))
                .unwrap_or(sustained_single * EMULATED_BFLOAT16)
                * TERA,
            tf32: of_type(measured_of(|rates| rates.tf32), peaks.tf32).map(|rate| rate * TERA),
            tensor_limits: half.filter(|_| !is_desktop).map(|rate| {
                let half = rate * REFERENCE_HALF;
                TensorLimits {
                    half: half * TERA,
                    bfloat16: measured_of(|rates| rates.bfloat16).unwrap_or(half) * TERA,
                    tf32: measured_of(|rates| rates.tf32).unwrap_or(half / 2.0) * TERA,
                }
            }),
            sustained_single: Some(sustained_single * TERA),
            bandwidth: peaks.bandwidth.value * 1e9,
            l2_bytes: peaks.l2.value * MIB,
            multiprocessors: f64::from(card.multiprocessors.value),
        })
    }

    /// The rate of a kernel on tensor cores, which no share of another GPU's exceeds.
    pub(crate) fn limited(&self, rate: f64, precision: Precision) -> f64 {
        let Some(limits) = self.tensor_limits else {
            return rate;
        };
        rate.min(match precision {
            Precision::Half => limits.half,
            Precision::Bfloat16 => limits.bfloat16,
            Precision::Single | Precision::Double => limits.tf32,
        })
    }

    /// Bytes that come from memory: a part of what a kernel reads is in the L2 cache, from the kernel before it.
    pub(crate) fn memory_bytes(&self, bytes: f64) -> f64 {
        bytes - (bytes * CACHED_SHARE).min(self.l2_bytes * CACHED_SHARE)
    }
}

const TERA: f64 = 1e12;
const MIB: f64 = 1_048_576.0;
/// Of the bytes of a kernel, and of the L2 cache.
const CACHED_SHARE: f64 = 0.5;
