//! The best rates of matrix products that were measured on real cards.
//!
//! A data sheet gives a peak at the boost clock. Boards with a power limit, such as the L4 and the T4, never keep that
//! clock in a large matrix product; desktop boards run above it. So a prediction uses what was measured, where it was.

/// The best rates of large matrix products, in 10^12 operations per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SustainedRates {
    pub id: &'static str,
    /// fp16, summed in fp32.
    pub half: Option<f64>,
    pub bfloat16: Option<f64>,
    pub tf32: Option<f64>,
    pub fp32: Option<f64>,
    pub source: &'static str,
}

const NEUSIGHT: &str = "sitar-lab/NeuSight, scripts/asplos/data/dataset: about the best of the fp32 products that take more than 20 ms";
const MATMULS: &str =
    "zzc0721/torch-performance-test-data, database.md; the median where there are several";
const BOTH: &str = "zzc0721/torch-performance-test-data, database.md, the median where there are several; fp32: sitar-lab/NeuSight, scripts/asplos/data/dataset, about the best of the products that take more than 20 ms";

/// Rates for fp16, bfloat16, TF32 and fp32.
const fn row(id: &'static str, rates: [Option<f64>; 4], source: &'static str) -> SustainedRates {
    SustainedRates {
        id,
        half: rates[0],
        bfloat16: rates[1],
        tf32: rates[2],
        fp32: rates[3],
        source,
    }
}

#[rustfmt::skip]
pub(super) const SUSTAINED: &[SustainedRates] = &[
    row("t4", [Some(41.9), Some(2.3), None, Some(4.4)], BOTH),
    row("p100-16gb", [None, None, None, Some(7.3)], NEUSIGHT),
    row("p40", [None, None, None, Some(10.1)], MATMULS),
    row("gtx-1080-ti", [None, None, None, Some(10.1)], MATMULS),
    row("gtx-1660-ti", [Some(0.6), Some(2.8), None, Some(5.2)], MATMULS),
    row("v100-sxm2-16gb", [Some(94.8), Some(10.3), None, Some(14.1)], MATMULS),
    row("v100-sxm2-32gb", [Some(94.8), Some(10.3), None, Some(14.1)], "the V100-SXM2-16GB of zzc0721/torch-performance-test-data, database.md, which has the same chip and clock"),
    row("rtx-2070", [Some(31.5), Some(4.4), None, Some(7.9)], MATMULS),
    row("rtx-2080-ti", [Some(58.6), Some(7.3), None, Some(13.0)], MATMULS),
    row("a100-40gb", [Some(247.6), Some(246.3), None, Some(18.1)], MATMULS),
    row("a100-80gb", [Some(258.7), Some(264.5), None, Some(19.2)], MATMULS),
    row("a100-pcie-40gb", [Some(241.5), Some(234.1), Some(108.3), Some(16.8)], BOTH),
    row("a100-pcie-80gb", [None, None, None, Some(18.3)], NEUSIGHT),
    row("a800-80gb", [Some(266.0), Some(266.5), None, Some(19.1)], MATMULS),
    row("rtx-3070", [Some(43.0), Some(41.4), None, Some(13.7)], MATMULS),
    row("rtx-3080-10gb", [Some(64.1), Some(64.7), Some(32.0), Some(21.1)], MATMULS),
    row("rtx-3080-ti", [Some(76.7), Some(77.4), Some(38.1), Some(24.6)], MATMULS),
    row("rtx-3090", [Some(75.6), Some(76.5), None, Some(24.8)], MATMULS),
    row("rtx-a2000-12gb", [Some(36.0), Some(37.3), Some(14.4), Some(5.5)], MATMULS),
    row("rtx-a4000", [Some(65.4), Some(62.8), Some(34.3), Some(11.9)], MATMULS),
    row("rtx-a6000", [Some(120.5), Some(123.3), None, Some(23.9)], MATMULS),
    row("l4", [Some(68.8), Some(70.9), Some(31.9), Some(11.1)], BOTH),
    row("l20", [Some(113.3), Some(114.1), Some(58.2), Some(37.3)], MATMULS),
    row("l40s", [Some(264.0), Some(269.1), None, Some(46.9)], MATMULS),
    row("rtx-4060", [Some(32.6), Some(31.2), Some(15.6), Some(8.3)], MATMULS),
    row("rtx-4090", [Some(166.5), Some(165.2), Some(85.7), Some(54.7)], MATMULS),
    row("h100-80gb", [Some(759.1), Some(790.6), Some(402.1), Some(52.3)], BOTH),
    row("h100-pcie-80gb", [Some(458.0), Some(495.9), Some(240.4), Some(37.0)], MATMULS),
    row("h20", [Some(142.0), Some(142.1), Some(71.8), Some(32.0)], MATMULS),
    row("h200", [Some(759.4), Some(790.3), None, Some(51.3)], MATMULS),
    row("b200", [Some(1627.6), Some(1696.0), None, Some(66.2)], MATMULS),
    row("rtx-5060", [Some(39.6), Some(40.1), Some(19.2), Some(13.3)], MATMULS),
    row("rtx-5060-ti-16gb", [Some(47.9), Some(48.2), Some(24.1), Some(17.4)], MATMULS),
    row("rtx-5070", [Some(67.4), Some(67.2), Some(33.8), Some(24.1)], MATMULS),
    row("rtx-5070-ti", [Some(98.7), Some(99.1), Some(50.5), Some(33.1)], MATMULS),
    row("rtx-5080", [Some(102.4), Some(102.9), Some(50.7), Some(33.6)], MATMULS),
    row("rtx-5090", [Some(228.6), Some(232.2), Some(122.2), Some(67.5)], MATMULS),
    row("rtx-pro-6000-blackwell", [Some(315.5), Some(418.0), None, Some(77.2)], MATMULS),
    row("rtx-pro-6000-server", [Some(312.8), Some(409.4), None, Some(77.0)], MATMULS),
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
