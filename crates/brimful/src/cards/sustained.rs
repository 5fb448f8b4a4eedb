//! The best rates of matrix products that were measured on real cards.
//!
//! A data sheet gives a peak at the boost clock. Boards with a power limit, such as the L4 and the T4, never keep that
//! clock in a large matrix product; desktop boards run above it. So a prediction uses what was measured, where it was.

/// The best rates of large matrix products, in 10^12 operations per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SustainedRates {
    pub id: &'static str,
    /// fp16 or bfloat16, summed in fp32.
    pub half: Option<f64>,
    pub fp32: Option<f64>,
    pub source: &'static str,
}

const NEUSIGHT: &str =
    "the best of the fp32 products in sitar-lab/NeuSight, scripts/asplos/data/dataset";
const MATMULS: &str = "zzc0721/torch-performance-test-data, the best of its matrix products";
const BOTH: &str = "fp16: zzc0721/torch-performance-test-data; fp32: sitar-lab/NeuSight, scripts/asplos/data/dataset";

const fn row(
    id: &'static str,
    half: Option<f64>,
    fp32: Option<f64>,
    source: &'static str,
) -> SustainedRates {
    SustainedRates {
        id,
        half,
        fp32,
        source,
    }
}

#[rustfmt::skip]
pub(super) const SUSTAINED: &[SustainedRates] = &[
    row("t4", Some(42.0), Some(4.4), BOTH),
    row("p100-16gb", None, Some(7.3), NEUSIGHT),
    row("l4", Some(71.0), Some(11.1), BOTH),
    row("l20", Some(114.0), None, MATMULS),
    row("l40s", Some(269.0), None, MATMULS),
    row("a100-40gb", Some(265.0), None, MATMULS),
    row("a100-80gb", Some(265.0), None, MATMULS),
    row("a100-pcie-40gb", None, Some(16.8), NEUSIGHT),
    row("a100-pcie-80gb", None, Some(18.3), NEUSIGHT),
    row("h100-80gb", Some(797.0), Some(52.3), BOTH),
    row("b200", Some(1696.0), None, MATMULS),
    row("rtx-2080-ti", Some(58.6), None, MATMULS),
    row("rtx-3090", Some(76.7), None, MATMULS),
    row("rtx-4090", Some(173.0), None, MATMULS),
    row("rtx-5070-ti", Some(99.0), None, MATMULS),
    row("rtx-5090", Some(240.0), None, MATMULS),
    row("rtx-a2000-12gb", Some(37.3), None, MATMULS),
    row("rtx-pro-6000-server", Some(417.0), None, MATMULS),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_of_a_card_whose_rates_are_known() {
        for row in SUSTAINED {
            let card = crate::cards::find(row.id).unwrap();
            let peaks = crate::cards::rates(card).unwrap();
            // Desktop boards run above the clock of the sheet, up to a sixth.
            if let (Some(measured), Some(peak)) = (row.half, peaks.half) {
                assert!(measured < peak.value * 1.2, "{}", row.id);
            }
            if let Some(measured) = row.fp32 {
                assert!(measured < peaks.fp32.value * 1.2, "{}", row.id);
            }
            assert!(!row.source.is_empty());
        }
    }
}
