//! How fast each GPU of the catalogue is by its data sheet, with the source of each value.
//!
//! The named documents were not opened for all rows: many values were written down from memory of them, and compared
//! with published copies of their tables, with arithmetic (multiprocessors x lanes x clock, which a test repeats) and
//! with measured matrix products.
//!
//! The values are peaks at the boost clock of the sheet. Data-centre boards stay below them. Desktop boards run
//! above that clock while power and heat allow: matrix products were measured at up to 1.17 times the value here.
//!
//! - `fp32` counts a multiply-add of the CUDA cores as two operations, at the boost clock. For AMD it is the
//!   rate of the vector units; since the MI300 and since RDNA 3 that needs two operations issued at once, and plain
//!   code gets about half.
//! - `half` is the rate of the tensor cores (AMD: matrix cores) for dense fp16 inputs that are summed in fp32, which is
//!   what PyTorch asks for. The GeForce cards with tensor cores do this at half of the rate of their headlines, which
//!   are for sums in fp16; so do the A10G, the L40 and the L20. `bfloat16` and `tf32` are likewise dense.
//! - `None` means that there is no such unit: Kepler, Pascal and the GeForce 16 series have no tensor cores, those of
//!   Volta and Turing know neither bfloat16 nor TF32, and of AMD's only the MI300 series has a format like TF32.
//!   Such a format then runs on the CUDA cores: fp16 about as fast as fp32 on Pascal, but ten times slower on the
//!   GeForce 16 series, and bfloat16 slower than fp32 on all of them (measured in
//!   zzc0721/torch-performance-test-data).
//!
//! Where a sheet prints a rate with sparsity only, half of it stands here. Where it prints none for a format, the
//! value is the number of multiprocessors times what one does per clock times the boost clock, and is marked as
//! estimated. Boost clocks are those of the reference board; boards of other makers differ by a few per cent.
//!
//! A GPU that is not in this table has no speed prediction: no value could be confirmed, or, as with laptops and
//! small Jetsons, its clock depends on a power limit that is not part of the product name.

use crate::cards::{How, SourcedValue};

/// Peak rates of one kind of GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CardRates {
    pub id: &'static str,
    /// 10^12 operations per second.
    pub fp32: SourcedValue<f64>,
    pub half: Option<SourcedValue<f64>>,
    pub bfloat16: Option<SourcedValue<f64>>,
    pub tf32: Option<SourcedValue<f64>>,
    /// 10^9 bytes per second.
    pub bandwidth: SourcedValue<f64>,
    /// MiB.
    pub l2: SourcedValue<f64>,
    /// MHz.
    pub boost_clock: SourcedValue<u32>,
}

const VOLTA: &str = "NVIDIA Tesla V100 GPU architecture white paper";
const TURING: &str = "NVIDIA Turing GPU architecture white paper";
const GA100: &str = "NVIDIA A100 GPU architecture white paper";
const GA102: &str = "NVIDIA Ampere GA102 GPU architecture white paper";
const GH100: &str = "NVIDIA H100 GPU architecture white paper";
const ADA: &str = "NVIDIA Ada GPU architecture white paper";
const BLACKWELL: &str = "NVIDIA RTX Blackwell GPU architecture white paper";
const TECHPOWERUP: &str = "TechPowerUp GPU database";
const GTX_1650: &str =
    "TechPowerUp GPU database, the board with GDDR5; the one with GDDR6 has 192 GB/s and 1590 MHz";
const ROCM: &str = "ROCm documentation, AMD GPU specifications";

const LANES: &str = "multiprocessors x lanes x 2 x boost clock";
const LANES_AND_256: &str = "multiprocessors x lanes x 2 x boost clock; tensor cores: 256 multiply-adds per multiprocessor and clock for fp16 summed in fp32, half as many for TF32";
const LANES_AND_512: &str = "multiprocessors x lanes x 2 x boost clock; tensor cores: 512 multiply-adds per multiprocessor and clock for fp16 summed in fp32, half as many for TF32";

/// Rates for fp16, bfloat16 and TF32.
type Tensor = [Option<f64>; 3];

const NO_TENSOR: Tensor = [None; 3];

/// Volta and Turing.
const fn half_only(half: f64) -> Tensor {
    [Some(half), None, None]
}

/// NVIDIA since Ampere, and AMD's MI300 series: bfloat16 is as fast as fp16.
const fn tensor(half: f64, tf32: f64) -> Tensor {
    [Some(half), Some(half), Some(tf32)]
}

/// AMD without TF32.
const fn matrix(half: f64, bfloat16: f64) -> Tensor {
    [Some(half), Some(bfloat16), None]
}

/// From a data sheet, a white paper or a published table.
const fn sheet<T: Copy>(value: T, source: &'static str) -> SourcedValue<T> {
    sourced(value, How::DataSheet, source)
}

/// Computed from other values.
const fn derived<T: Copy>(value: T, source: &'static str) -> SourcedValue<T> {
    sourced(value, How::Estimated, source)
}

/// Printed by somebody's machine.
const fn seen<T: Copy>(value: T, source: &'static str) -> SourcedValue<T> {
    sourced(value, How::Measured, source)
}

const fn sourced<T: Copy>(value: T, how: How, source: &'static str) -> SourcedValue<T> {
    SourcedValue { value, how, source }
}

const fn optional(value: Option<f64>, how: How, source: &'static str) -> Option<SourcedValue<f64>> {
    match value {
        Some(value) => Some(sourced(value, how, source)),
        None => None,
    }
}

/// A row whose rates and bandwidth stand in one document, cache and clock in `chip`.
#[expect(clippy::too_many_arguments, reason = "they are the columns of a table")]
const fn sheeted(
    id: &'static str,
    source: &'static str,
    fp32: f64,
    tensor: Tensor,
    bandwidth: f64,
    chip: &'static str,
    l2: f64,
    boost_clock: u32,
) -> CardRates {
    CardRates {
        id,
        fp32: sheet(fp32, source),
        half: optional(tensor[0], How::DataSheet, source),
        bfloat16: optional(tensor[1], How::DataSheet, source),
        tf32: optional(tensor[2], How::DataSheet, source),
        bandwidth: sheet(bandwidth, source),
        l2: sheet(l2, chip),
        boost_clock: sheet(boost_clock, chip),
    }
}

/// A row whose rates are computed from the boost clock; the other values are from `chip`.
#[expect(clippy::too_many_arguments, reason = "they are the columns of a table")]
const fn computed(
    id: &'static str,
    source: &'static str,
    fp32: f64,
    tensor: Tensor,
    bandwidth: f64,
    chip: &'static str,
    l2: f64,
    boost_clock: u32,
) -> CardRates {
    CardRates {
        bandwidth: sheet(bandwidth, chip),
        l2: sheet(l2, chip),
        boost_clock: sheet(boost_clock, chip),
        ..estimated(id, source, fp32, tensor, bandwidth, l2, boost_clock)
    }
}

/// A row of AMD: rates, bandwidth and clock stand in one document.
const fn amd(
    id: &'static str,
    source: &'static str,
    fp32: f64,
    tensor: Tensor,
    bandwidth: f64,
    l2: f64,
    boost_clock: u32,
) -> CardRates {
    CardRates {
        l2: sheet(l2, ROCM),
        ..sheeted(id, source, fp32, tensor, bandwidth, source, l2, boost_clock)
    }
}

/// A row whose values are all derived, such as that of a part of a board.
const fn estimated(
    id: &'static str,
    source: &'static str,
    fp32: f64,
    tensor: Tensor,
    bandwidth: f64,
    l2: f64,
    boost_clock: u32,
) -> CardRates {
    CardRates {
        id,
        fp32: derived(fp32, source),
        half: optional(tensor[0], How::Estimated, source),
        bfloat16: optional(tensor[1], How::Estimated, source),
        tf32: optional(tensor[2], How::Estimated, source),
        bandwidth: derived(bandwidth, source),
        l2: derived(l2, source),
        boost_clock: derived(boost_clock, source),
    }
}

/// In the order of the catalogue.
#[rustfmt::skip]
pub(super) const RATES: &[CardRates] = &[
    // id, source, fp32, tensor cores, bandwidth, source of the rest, L2, boost clock
    // Data centres.
    sheeted("t4", "NVIDIA T4 data sheet; Turing white paper", 8.1, half_only(65.0), 320.0, TURING, 4.0, 1590),
    sheeted("p100-16gb", "NVIDIA Tesla P100 PCIe data sheet", 9.3, NO_TENSOR, 732.0, TECHPOWERUP, 4.0, 1329),
    sheeted("v100-sxm2-16gb", VOLTA, 15.7, half_only(125.0), 900.0, VOLTA, 6.0, 1530),
    sheeted("v100-sxm2-32gb", VOLTA, 15.7, half_only(125.0), 900.0, VOLTA, 6.0, 1530),
    estimated("k80", "half of what the NVIDIA Tesla K80 data sheet gives for a board of two GPUs (8.73 and 480); cache and clock: TechPowerUp", 4.37, NO_TENSOR, 240.0, 1.5, 875),
    sheeted("l4", "NVIDIA L4 data sheet", 30.3, tensor(121.0, 60.0), 300.0, TECHPOWERUP, 48.0, 2040),
    sheeted("a10", "NVIDIA A10 data sheet", 31.2, tensor(125.0, 62.5), 600.0, TECHPOWERUP, 6.0, 1695),
    sheeted("a10g", "NVIDIA A10G data sheet", 35.0, tensor(70.0, 35.0), 600.0, TECHPOWERUP, 6.0, 1710),
    sheeted("a30", "NVIDIA A30 data sheet", 10.3, tensor(165.0, 82.0), 933.0, TECHPOWERUP, 24.0, 1440),
    sheeted("a40", GA102, 37.4, tensor(149.7, 74.8), 696.0, GA102, 6.0, 1740),
    sheeted("a2", "NVIDIA A2 data sheet", 4.5, tensor(18.0, 9.0), 200.0, TECHPOWERUP, 2.0, 1770),
    sheeted("a16", "NVIDIA A16 data sheet, one of the four GPUs of a board", 4.5, tensor(17.9, 9.0), 200.0, TECHPOWERUP, 2.0, 1755),
    sheeted("l40", "NVIDIA L40 data sheet", 90.5, tensor(181.05, 90.5), 864.0, TECHPOWERUP, 96.0, 2490),
    CardRates { l2: seen(96.0, "public log: deviceQuery, 96 MiB; TechPowerUp has 48"), ..sheeted("l40s", "NVIDIA L40S data sheet", 91.6, tensor(362.05, 183.0), 864.0, TECHPOWERUP, 48.0, 2520) },
    sheeted("l20", "NVIDIA L20 data sheet", 59.8, tensor(119.5, 59.8), 864.0, TECHPOWERUP, 96.0, 2520),
    sheeted("a100-40gb", "NVIDIA A100 data sheet", 19.5, tensor(312.0, 156.0), 1555.0, GA100, 40.0, 1410),
    sheeted("a100-pcie-40gb", "NVIDIA A100 data sheet", 19.5, tensor(312.0, 156.0), 1555.0, GA100, 40.0, 1410),
    sheeted("a100-80gb", "NVIDIA A100 data sheet", 19.5, tensor(312.0, 156.0), 2039.0, GA100, 40.0, 1410),
    sheeted("a100-pcie-80gb", "NVIDIA A100 data sheet", 19.5, tensor(312.0, 156.0), 1935.0, GA100, 40.0, 1410),
    estimated("a100-80gb-mig-3g.40gb", "42 of the 108 multiprocessors and 4 of the 8 memory slices of an A100 80 GB SXM", 7.58, tensor(121.3, 60.7), 1019.5, 20.0, 1410),
    sheeted("a800-80gb", "NVIDIA A800 data sheet", 19.5, tensor(312.0, 156.0), 2039.0, GA100, 40.0, 1410),
    CardRates { bandwidth: derived(3352.3, "5120 bits x 2 x 2619 MHz; the data sheet rounds to 3.35 TB/s"), ..sheeted("h100-80gb", "NVIDIA H100 data sheet and white paper", 66.9, tensor(989.4, 494.7), 3352.0, GH100, 50.0, 1980) },
    CardRates { bandwidth: derived(2039.0, "5120 bits x 2 x 1593 MHz; the data sheet rounds to 2 TB/s"), ..sheeted("h100-pcie-80gb", "NVIDIA H100 data sheet and white paper", 51.2, tensor(756.0, 378.0), 2039.0, GH100, 50.0, 1755) },
    CardRates { l2: derived(60.0, "as on the H200, which also has six stacks of memory and prints 60 MiB; TechPowerUp has 50"), ..sheeted("h100-nvl", "NVIDIA H100 NVL data sheet", 60.0, tensor(835.5, 417.5), 3900.0, TECHPOWERUP, 60.0, 1785) },
    estimated("h100-mig-2g.20gb", "32 of the 132 multiprocessors and 2 of the 8 memory slices of an H100 SXM", 16.2, tensor(239.9, 119.9), 838.1, 12.5, 1980),
    CardRates { boost_clock: derived(1980, "the clock at which 132 multiprocessors give the 67 of the data sheet; TechPowerUp has 1755"), ..sheeted("h800", "NVIDIA H800 data sheet", 67.0, tensor(989.5, 494.5), 3350.0, TECHPOWERUP, 50.0, 1980) },
    CardRates { fp32: derived(39.5, "78 multiprocessors x 128 lanes x 2 x 1980 MHz; the data sheet has 44, which no clock of this chip gives"), boost_clock: derived(1980, "the highest clock of the H100 and the H200, of which this is a part; not printed for this GPU"), ..sheeted("h20", "NVIDIA H20 data sheet", 39.5, tensor(148.0, 74.0), 4000.0, "NVIDIA H20 data sheet", 60.0, 1980) },
    CardRates { fp32: derived(39.5, "78 multiprocessors x 128 lanes x 2 x 1980 MHz; the data sheet has 44, which no clock of this chip gives"), boost_clock: derived(1980, "the highest clock of the H100 and the H200, of which this is a part; not printed for this GPU"), bandwidth: derived(4800.0, "as on the H200, which has the same 141 GB of HBM3e"), ..sheeted("h20-141gb", "NVIDIA H20 data sheet", 39.5, tensor(148.0, 74.0), 4800.0, "NVIDIA H20 data sheet", 60.0, 1980) },
    CardRates { l2: seen(60.0, "public log: deviceQuery, 60 MiB; TechPowerUp has 50"), boost_clock: seen(1980, "awslabs/amazon-eks-ami#1985 (nvidia-smi on H200: Max Clocks, Graphics: 1980 MHz)"), ..sheeted("h200", "NVIDIA H200 data sheet", 67.0, tensor(989.5, 494.5), 4800.0, TECHPOWERUP, 60.0, 1980) },
    CardRates { l2: derived(60.0, "as on the H200, which also has six stacks of memory and prints 60 MiB; TechPowerUp has 50"), boost_clock: derived(1980, "the clock at which 132 multiprocessors give the 67 of the data sheet"), ..sheeted("gh200-96gb", "NVIDIA GH200 data sheet, 96 GB of HBM3", 67.0, tensor(990.0, 494.0), 4000.0, TECHPOWERUP, 60.0, 1980) },
    CardRates { bandwidth: derived(7672.3, "pytorch/ao#4002: 7680 bits x 2 x 3996 MHz; the data sheets have 7.7 or 8 TB/s"), l2: seen(126.5, "pytorch/ao#4002 (device query on NVIDIA B200: L2 Cache Size: 126.50 MB)"), ..sheeted("b200", "NVIDIA HGX B200 data sheet, an eighth of the board, without sparsity", 75.0, tensor(2250.0, 1125.0), 7672.0, TECHPOWERUP, 126.5, 1965) },
    CardRates { l2: derived(126.5, "as on the B200"), ..sheeted("b300", "NVIDIA HGX B300 data sheet, an eighth of the board, without sparsity; bandwidth: Blackwell Ultra, 8 TB/s", 75.0, tensor(2250.0, 1125.0), 8000.0, TECHPOWERUP, 126.5, 2032) },
    CardRates { l2: derived(126.5, "as on the B200"), boost_clock: derived(2056, "the clock at which 152 multiprocessors give the 80 of the GB200 data sheet"), ..sheeted("gb200", "NVIDIA GB200 data sheet, half of a superchip, without sparsity", 80.0, tensor(2500.0, 1250.0), 8000.0, TECHPOWERUP, 126.5, 2056) },
    CardRates { fp32: derived(80.0, "as on the GB200; the data sheet has 6 PFLOPS for 72 GPUs, rounded"), l2: derived(126.5, "as on the B200"), boost_clock: derived(2056, "the clock at which 152 multiprocessors give the 80 of the GB200 data sheet"), ..sheeted("gb300", "NVIDIA GB300 NVL72 data sheet, one of 72 GPUs, without sparsity", 80.0, tensor(2500.0, 1250.0), 8000.0, TECHPOWERUP, 126.5, 2056) },
    sheeted("p40", "NVIDIA Tesla P40 data sheet", 11.8, NO_TENSOR, 346.0, TECHPOWERUP, 3.0, 1531),
    // Workstations and home computers.
    computed("gtx-1080-ti", LANES, 11.3, NO_TENSOR, 484.0, TECHPOWERUP, 2.75, 1582),
    computed("gtx-1650", LANES, 2.98, NO_TENSOR, 128.0, GTX_1650, 1.0, 1665),
    computed("gtx-1660-ti", LANES, 5.44, NO_TENSOR, 288.0, TECHPOWERUP, 1.5, 1770),
    computed("rtx-2060-6gb", LANES_AND_256, 6.45, half_only(25.8), 336.0, TECHPOWERUP, 3.0, 1680),
    computed("rtx-2060-12gb", LANES_AND_256, 7.18, half_only(28.7), 336.0, TECHPOWERUP, 3.0, 1650),
    sheeted("rtx-2070", TURING, 7.5, half_only(29.9), 448.0, TURING, 4.0, 1620),
    sheeted("rtx-2080-ti", TURING, 13.4, half_only(53.8), 616.0, TURING, 5.5, 1545),
    computed("rtx-3050-8gb", LANES_AND_256, 9.1, tensor(18.2, 9.1), 224.0, TECHPOWERUP, 2.0, 1777),
    computed("rtx-3050-6gb", LANES_AND_256, 6.77, tensor(13.5, 6.77), 168.0, TECHPOWERUP, 2.0, 1470),
    CardRates { l2: seen(2.25, "public log: deviceQuery, 2359296 bytes; TechPowerUp has 3"), ..computed("rtx-3060-12gb", LANES_AND_256, 12.7, tensor(25.5, 12.7), 360.0, TECHPOWERUP, 3.0, 1777) },
    sheeted("rtx-3070", GA102, 20.3, tensor(40.6, 20.3), 448.0, GA102, 4.0, 1725),
    computed("rtx-3070-ti", LANES_AND_256, 21.7, tensor(43.5, 21.7), 608.3, TECHPOWERUP, 4.0, 1770),
    sheeted("rtx-3080-10gb", GA102, 29.8, tensor(59.5, 29.8), 760.0, GA102, 5.0, 1710),
    computed("rtx-3080-12gb", LANES_AND_256, 30.6, tensor(61.3, 30.6), 912.4, TECHPOWERUP, 6.0, 1710),
    computed("rtx-3080-ti", LANES_AND_256, 34.1, tensor(68.2, 34.1), 912.4, TECHPOWERUP, 6.0, 1665),
    sheeted("rtx-3090", GA102, 35.6, tensor(71.2, 35.6), 936.0, GA102, 6.0, 1695),
    computed("rtx-3090-ti", LANES_AND_256, 40.0, tensor(80.0, 40.0), 1008.0, TECHPOWERUP, 6.0, 1860),
    computed("rtx-4060", LANES_AND_256, 15.1, tensor(30.2, 15.1), 272.0, TECHPOWERUP, 24.0, 2460),
    computed("rtx-4060-ti-16gb", LANES_AND_256, 22.1, tensor(44.1, 22.1), 288.0, TECHPOWERUP, 32.0, 2535),
    computed("rtx-4060-ti-8gb", LANES_AND_256, 22.1, tensor(44.1, 22.1), 288.0, TECHPOWERUP, 32.0, 2535),
    computed("rtx-4070", LANES_AND_256, 29.1, tensor(58.3, 29.1), 504.2, TECHPOWERUP, 36.0, 2475),
    computed("rtx-4070-ti", LANES_AND_256, 40.1, tensor(80.2, 40.1), 504.2, TECHPOWERUP, 48.0, 2610),
    sheeted("rtx-4080", ADA, 48.7, tensor(97.5, 48.7), 716.8, ADA, 64.0, 2505),
    computed("rtx-4080-super", LANES_AND_256, 52.2, tensor(104.4, 52.2), 736.3, TECHPOWERUP, 64.0, 2550),
    sheeted("rtx-4090", ADA, 82.6, tensor(165.2, 82.6), 1008.0, ADA, 72.0, 2520),
    CardRates { l2: seen(24.0, "public log: deviceQuery, 24 MiB; TechPowerUp has 32"), ..computed("rtx-5060", LANES_AND_256, 19.2, tensor(38.4, 19.2), 448.0, TECHPOWERUP, 32.0, 2497) },
    computed("rtx-5060-ti-16gb", LANES_AND_256, 23.7, tensor(47.4, 23.7), 448.0, TECHPOWERUP, 32.0, 2572),
    sheeted("rtx-5070", BLACKWELL, 30.9, tensor(61.7, 30.9), 672.0, BLACKWELL, 48.0, 2512),
    sheeted("rtx-5070-ti", BLACKWELL, 43.9, tensor(87.9, 43.9), 896.0, BLACKWELL, 48.0, 2452),
    sheeted("rtx-5080", BLACKWELL, 56.3, tensor(112.6, 56.3), 960.0, BLACKWELL, 64.0, 2617),
    sheeted("rtx-5090", BLACKWELL, 104.8, tensor(209.5, 104.8), 1792.0, BLACKWELL, 96.0, 2407),
    sheeted("rtx-a2000-12gb", "NVIDIA RTX A2000 data sheet", 8.0, tensor(31.9, 16.0), 288.0, TECHPOWERUP, 3.0, 1200),
    sheeted("rtx-a4000", "NVIDIA RTX A4000 data sheet", 19.2, tensor(76.7, 38.3), 448.0, TECHPOWERUP, 4.0, 1560),
    sheeted("rtx-a5000", "NVIDIA RTX A5000 data sheet", 27.8, tensor(111.1, 55.6), 768.0, TECHPOWERUP, 6.0, 1695),
    sheeted("rtx-a6000", GA102, 38.7, tensor(154.8, 77.4), 768.0, GA102, 6.0, 1800),
    computed("rtx-4000-ada", LANES_AND_512, 26.7, tensor(106.9, 53.5), 360.0, TECHPOWERUP, 48.0, 2175),
    computed("rtx-6000-ada", LANES_AND_512, 91.1, tensor(364.2, 182.1), 960.0, TECHPOWERUP, 96.0, 2505),
    computed("rtx-pro-6000-blackwell", LANES_AND_512, 126.0, tensor(503.8, 251.9), 1792.0, TECHPOWERUP, 128.0, 2617),
    CardRates { fp32: sheet(120.0, "NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet"), bandwidth: sheet(1597.0, "NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet"), l2: sheet(128.0, "TechPowerUp GPU database"), boost_clock: derived(2493, "the clock at which 188 multiprocessors give the 120 of the data sheet; TechPowerUp has 2617"), ..estimated("rtx-pro-6000-server", "four times and twice the fp32 rate, as on the Workstation Edition; 417 was measured in zzc0721/torch-performance-test-data#162", 120.0, tensor(480.0, 240.0), 1597.0, 128.0, 2493) },
    computed("rtx-pro-6000-max-q", LANES_AND_512, 109.7, tensor(438.9, 219.5), 1792.0, TECHPOWERUP, 128.0, 2280),
    computed("rtx-pro-5000", LANES_AND_512, 66.9, tensor(267.7, 133.9), 1344.0, TECHPOWERUP, 96.0, 2377),
    computed("rtx-pro-4500", LANES_AND_512, 50.5, tensor(202.1, 101.1), 896.0, TECHPOWERUP, 64.0, 2407),
    computed("rtx-pro-4000", LANES_AND_512, 36.8, tensor(147.3, 73.7), 672.0, TECHPOWERUP, 48.0, 2055),
    sheeted("quadro-rtx-4000", "NVIDIA Quadro RTX 4000 data sheet", 7.1, half_only(57.0), 416.0, TECHPOWERUP, 4.0, 1545),
    sheeted("quadro-rtx-5000", "NVIDIA Quadro RTX 5000 data sheet", 11.2, half_only(89.2), 448.0, TECHPOWERUP, 4.0, 1815),
    sheeted("quadro-rtx-6000", TURING, 16.3, half_only(130.5), 672.0, TURING, 6.0, 1770),
    sheeted("quadro-rtx-8000", TURING, 16.3, half_only(130.5), 672.0, TURING, 6.0, 1770),
    sheeted("titan-rtx", "NVIDIA TITAN RTX specifications", 16.3, half_only(130.0), 672.0, TECHPOWERUP, 6.0, 1770),
    sheeted("titan-v", "NVIDIA TITAN V specifications, printed for a clock below the boost clock", 13.8, half_only(110.0), 652.8, TECHPOWERUP, 4.5, 1455),
    CardRates { fp32: sheet(5.3, "NVIDIA Jetson AGX Orin technical brief"), bandwidth: sheet(204.8, "NVIDIA Jetson AGX Orin technical brief"), l2: sheet(4.0, "NVIDIA Jetson AGX Orin technical brief"), boost_clock: sheet(1300, "NVIDIA Jetson AGX Orin technical brief"), ..estimated("jetson-agx-orin-64gb", "NVIDIA Jetson AGX Orin technical brief: 5.3 for the CUDA cores, 170 sparse INT8 for the tensor cores, of which a quarter is dense fp16; at 1300 MHz, the highest power mode", 5.3, tensor(42.5, 21.3), 204.8, 4.0, 1300) },
    // AMD.
    amd("mi100", "AMD Instinct MI100 data sheet", 23.1, matrix(184.6, 92.3), 1228.8, 8.0, 1502),
    amd("mi210", "AMD Instinct MI210 data sheet", 22.6, matrix(181.0, 181.0), 1638.4, 8.0, 1700),
    estimated("mi250x-gcd", "half of what the AMD Instinct MI250X data sheet gives for the two dies (47.9, 383 and 3276.8); cache: ROCm documentation", 23.95, matrix(191.5, 191.5), 1638.4, 8.0, 1700),
    amd("mi300x", "AMD Instinct MI300X data sheet", 163.4, tensor(1307.4, 653.7), 5300.0, 32.0, 2100),
    amd("mi325x", "AMD Instinct MI325X data sheet", 163.4, tensor(1307.4, 653.7), 6000.0, 32.0, 2100),
    amd("mi350x", "AMD Instinct MI350X data sheet", 144.2, matrix(2306.9, 2306.9), 8000.0, 32.0, 2200),
    amd("mi355x", "AMD Instinct MI355X data sheet", 157.3, matrix(2516.6, 2516.6), 8000.0, 32.0, 2400),
    amd("rx-7900-xtx", "AMD Radeon RX 7900 XTX specifications", 61.4, matrix(122.8, 122.8), 960.0, 6.0, 2500),
    amd("rx-9070-xt", "AMD Radeon RX 9070 XT specifications", 48.7, matrix(194.6, 194.6), 640.0, 8.0, 2970),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cards::{Card, all};
    use crate::machine::ComputeCapability;

    /// Its sheet prints rates for a lower clock than the boost clock.
    const PRINTED_FOR_ANOTHER_CLOCK: [&str; 1] = ["titan-v"];

    fn card(id: &str) -> &'static Card {
        all()
            .iter()
            .find(|card| card.id == id)
            .unwrap_or_else(|| panic!("{id} is not in the catalogue"))
    }

    /// Lanes for fp32 of one multiprocessor.
    fn lanes(capability: ComputeCapability) -> u32 {
        match (capability.major, capability.minor) {
            (3, _) => 192,
            (6 | 8, 0) | (7, _) => 64,
            _ => 128,
        }
    }

    fn tensor_rates(rates: &CardRates) -> impl Iterator<Item = SourcedValue<f64>> {
        [rates.half, rates.bfloat16, rates.tf32]
            .into_iter()
            .flatten()
    }

    #[test]
    fn ids_are_unique_and_in_the_catalogue() {
        let mut seen = BTreeSet::new();
        for rates in RATES {
            assert_eq!(card(rates.id).id, rates.id);
            assert!(seen.insert(rates.id), "{} stands here twice", rates.id);
        }
    }

    #[test]
    fn every_figure_is_positive_and_has_a_source() {
        for rates in RATES {
            let values = [rates.fp32, rates.bandwidth, rates.l2]
                .into_iter()
                .chain(tensor_rates(rates));
            for rate in values {
                assert!(rate.value > 0.0, "{}", rates.id);
                assert!(!rate.source.is_empty(), "{}", rates.id);
            }
            assert!(rates.boost_clock.value > 0, "{}", rates.id);
            assert!(!rates.boost_clock.source.is_empty(), "{}", rates.id);
        }
    }

    #[test]
    fn fp32_follows_from_multiprocessors_and_clock() {
        const TOLERANCE: f64 = 0.08;
        for rates in RATES {
            let card = card(rates.id);
            let Some(capability) = card.compute_capability else {
                continue;
            };
            if PRINTED_FOR_ANOTHER_CLOCK.contains(&rates.id) {
                continue;
            }
            let per_clock = f64::from(card.multiprocessors.value * lanes(capability) * 2);
            let expected = per_clock * f64::from(rates.boost_clock.value) / 1e6;
            let off = (expected / rates.fp32.value - 1.0).abs();
            assert!(
                off < TOLERANCE,
                "{}: {} by the clock, {} here",
                rates.id,
                expected,
                rates.fp32.value
            );
        }
    }

    #[test]
    fn tensor_cores_are_no_slower_than_cuda_cores() {
        for rates in RATES {
            for rate in tensor_rates(rates) {
                assert!(rate.value >= rates.fp32.value * 0.98, "{}", rates.id);
            }
        }
    }

    #[test]
    fn formats_follow_the_generation() {
        for rates in RATES {
            let Some(capability) = card(rates.id).compute_capability else {
                continue;
            };
            let since_ampere = capability.major >= 8;
            assert_eq!(rates.bfloat16.is_some(), since_ampere, "{}", rates.id);
            assert_eq!(rates.tf32.is_some(), since_ampere, "{}", rates.id);
            if capability.major < 7 {
                assert!(rates.half.is_none(), "{}", rates.id);
            }
        }
    }
}
