//! What follows from a compute capability, and from the number of multiprocessors within one.
//!
//! The limits are those of the table "Technical Specifications per Compute Capability" in NVIDIA's CUDA C++
//! Programming Guide. They decide which kernels PyTorch chooses. Cache, clocks and bus width belong to a
//! card, not to a capability; they are taken from the card of the same capability whose number of
//! multiprocessors is nearest, then the size of its memory, as its data sheet or `deviceQuery` gives them. Only
//! cuDNN's heuristics read those.

/// For example 7.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ComputeCapability {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl ComputeCapability {
    /// The version of the code that runs on such a card, as `cudaFuncGetAttributes` tells it: that of the nearest
    /// generation PyTorch's builds have code for (7.0, 7.5, 8.0, 8.6, 9.0, 10.0, 12.0). CUB refuses any other.
    pub(crate) fn code_version(self) -> i32 {
        let (major, minor) = match (self.major, self.minor) {
            (8, 6..) => (8, 6),
            (7, 5..) => (7, 5),
            // Only builds for ARM have code for 11.0; all have it for 10.0.
            (11, _) => (10, 0),
            (major, _) => (major, 0),
        };
        i32::try_from(major * 10 + minor).unwrap_or(0)
    }
}

/// Limits that hold for every card of one compute capability.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    cc: (u32, u32),
    pub(crate) threads_per_multiprocessor: u32,
    pub(crate) blocks_per_multiprocessor: u32,
    pub(crate) shared_per_multiprocessor: u32,
    /// The most one block may ask for with `cudaFuncSetAttribute`.
    pub(crate) shared_per_block_optin: u32,
    /// What the system takes of each block's shared memory: 1 KiB since compute capability 8.0.
    pub(crate) shared_reserved_per_block: u32,
}

/// Figures of one card.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Board {
    cc: (u32, u32),
    multiprocessors: u32,
    /// Distinguishes boards with the same chip.
    memory_gib: u32,
    pub(crate) l2_bytes: u32,
    pub(crate) clock_khz: u32,
    pub(crate) memory_clock_khz: u32,
    pub(crate) bus_width_bits: u32,
}

pub(crate) const WARP: u32 = 32;
pub(crate) const THREADS_PER_BLOCK: u32 = 1024;
pub(crate) const SHARED_PER_BLOCK: u32 = 48 << 10;
/// 32-bit registers, per multiprocessor and per block: the same for every capability here.
pub(crate) const REGISTERS: u32 = 64 << 10;
pub(crate) const CONSTANT_BYTES: u32 = 64 << 10;
pub(crate) const TEXTURE_ALIGNMENT: u32 = 512;

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

const fn row(
    cc: (u32, u32),
    threads: u32,
    blocks: u32,
    shared: u32,
    optin: u32,
    reserved: u32,
) -> Limits {
    Limits {
        cc,
        threads_per_multiprocessor: threads,
        blocks_per_multiprocessor: blocks,
        shared_per_multiprocessor: shared * KIB,
        shared_per_block_optin: optin * KIB,
        shared_reserved_per_block: reserved * KIB,
    }
}

const LIMITS: &[Limits] = &[
    //  capability, threads, blocks, shared KiB per multiprocessor, per block at most, reserved per block
    row((6, 0), 2048, 32, 64, 48, 0),
    row((6, 1), 2048, 32, 96, 48, 0),
    row((7, 0), 2048, 32, 96, 96, 0),
    row((7, 5), 1024, 16, 64, 64, 0),
    row((8, 0), 2048, 32, 164, 163, 1),
    row((8, 6), 1536, 16, 100, 99, 1),
    row((8, 7), 1536, 16, 164, 163, 1),
    row((8, 9), 1536, 24, 100, 99, 1),
    row((9, 0), 2048, 32, 228, 227, 1),
    row((10, 0), 2048, 32, 228, 227, 1),
    row((10, 3), 2048, 32, 228, 227, 1),
    row((11, 0), 1536, 24, 228, 227, 1),
    row((12, 0), 1536, 24, 100, 99, 1),
    row((12, 1), 1536, 24, 100, 99, 1),
];

const fn board(
    cc: (u32, u32),
    multiprocessors: u32,
    memory_gib: u32,
    l2_kib: u32,
    clock_mhz: u32,
    memory_clock_khz: u32,
    bus_width_bits: u32,
) -> Board {
    Board {
        cc,
        multiprocessors,
        memory_gib,
        l2_bytes: l2_kib * KIB,
        clock_khz: clock_mhz * 1000,
        memory_clock_khz,
        bus_width_bits,
    }
}

/// H200's clock is as public logs of `nvidia-smi` show it. Of B200's and B300's sixteen memory controllers one is off: public
/// logs show a bus of 7680 bits, and their memory is 15/16 of what the stacks hold.
const BOARDS: &[Board] = &[
    //   capability, multiprocessors, memory GiB, L2 KiB, clock MHz, memory clock kHz, bus bits
    board((6, 0), 56, 16, 4096, 1328, 715_000, 4096), // P100
    board((6, 1), 20, 8, 2048, 1113, 3_003_000, 256), // P4
    board((7, 0), 80, 16, 6144, 1530, 877_000, 4096), // V100
    board((7, 5), 40, 16, 4096, 1590, 5_001_000, 256), // T4
    board((7, 5), 68, 11, 5632, 1545, 7_000_000, 352), // RTX 2080 Ti
    board((8, 0), 108, 40, 40 * KIB, 1410, 1_215_000, 5120), // A100
    board((8, 6), 28, 12, 2304, 1777, 7_501_000, 192), // RTX 3060
    board((8, 6), 46, 8, 4096, 1725, 7_001_000, 256), // RTX 3070
    board((8, 6), 68, 10, 5120, 1710, 9_501_000, 320), // RTX 3080
    board((8, 6), 72, 24, 6144, 1695, 6_251_000, 384), // A10
    board((8, 6), 80, 24, 6144, 1710, 6_251_000, 384), // A10G
    board((8, 6), 82, 24, 6144, 1695, 9_751_000, 384), // RTX 3090
    board((8, 6), 84, 48, 6144, 1800, 8_001_000, 384), // RTX A6000
    board((8, 7), 8, 16, 2048, 918, 1_600_000, 128),  // Orin NX and Nano
    board((8, 7), 16, 64, 4096, 1300, 1_600_000, 256), // AGX Orin
    board((8, 9), 24, 8, 24 * KIB, 2460, 8_501_000, 128), // RTX 4060
    board((8, 9), 46, 12, 36 * KIB, 2475, 10_501_000, 192), // RTX 4070
    board((8, 9), 58, 24, 48 * KIB, 2040, 6_251_000, 192), // L4
    board((8, 9), 76, 16, 64 * KIB, 2505, 11_201_000, 256), // RTX 4080
    board((8, 9), 128, 24, 72 * KIB, 2520, 10_501_000, 384), // RTX 4090
    board((8, 9), 142, 48, 96 * KIB, 2520, 9_001_000, 384), // L40S
    board((9, 0), 114, 80, 50 * KIB, 1755, 1_593_000, 5120), // H100 PCIe
    board((9, 0), 132, 80, 50 * KIB, 1980, 2_619_000, 5120), // H100 SXM
    board((9, 0), 132, 140, 60 * KIB, 1980, 3_201_000, 6144), // H200
    board((10, 0), 148, 180, 126 * KIB, 1965, 3_996_000, 7680), // B200
    board((10, 3), 148, 270, 126 * KIB, 1965, 3_996_000, 7680), // B300
    board((11, 0), 20, 123, 32 * KIB, 1049, 4_266_000, 256), // Thor
    board((12, 0), 30, 8, 24 * KIB, 2565, 14_001_000, 128), // RTX 5060
    board((12, 0), 36, 16, 32 * KIB, 2602, 14_001_000, 128), // RTX 5060 Ti
    board((12, 0), 48, 12, 48 * KIB, 2512, 14_001_000, 192), // RTX 5070
    board((12, 0), 70, 16, 48 * KIB, 2452, 14_001_000, 256), // RTX 5070 Ti; RTX PRO 4000 has the same cache
    board((12, 0), 84, 16, 64 * KIB, 2617, 15_001_000, 256), // RTX 5080
    board((12, 0), 170, 32, 96 * KIB, 2407, 14_001_000, 512), // RTX 5090
    board((12, 0), 188, 96, 128 * KIB, 2617, 14_001_000, 512), // RTX PRO 6000
    board((12, 1), 48, 122, 24 * KIB, 2418, 8_533_000, 256), // GB10
];

pub(crate) fn limits(cc: ComputeCapability) -> Option<Limits> {
    LIMITS
        .iter()
        .find(|row| row.cc == (cc.major, cc.minor))
        .copied()
}

/// The card nearest to this one.
pub(crate) fn nearest_board(
    cc: ComputeCapability,
    multiprocessors: u32,
    memory: u64,
) -> Option<Board> {
    BOARDS
        .iter()
        .filter(|row| row.cc == (cc.major, cc.minor))
        .min_by_key(|row| {
            (
                row.multiprocessors.abs_diff(multiprocessors),
                (u64::from(row.memory_gib) << 30).abs_diff(memory),
            )
        })
        .copied()
}

/// The capabilities of the table, for messages.
pub(crate) fn known() -> String {
    let names: Vec<_> = LIMITS
        .iter()
        .map(|row| format!("{}.{}", row.cc.0, row.cc.1))
        .collect();
    names.join(", ")
}

impl Board {
    /// The share of L2 that may be set aside for persisting accesses: possible since compute capability 8.0,
    /// where `deviceQuery` shows three quarters of the cache.
    pub(crate) fn persisting_l2_bytes(&self) -> u32 {
        if self.cc.0 >= 8 {
            self.l2_bytes / 4 * 3
        } else {
            0
        }
    }

    /// `accessPolicyMaxWindowSize`: 128 MiB where there is persistence at all.
    pub(crate) fn access_window_bytes(&self) -> u32 {
        if self.cc.0 >= 8 { 128 * MIB - 1 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_capability_has_a_board() {
        for row in LIMITS {
            let cc = ComputeCapability {
                major: row.cc.0,
                minor: row.cc.1,
            };
            assert!(
                nearest_board(cc, 40, 16 << 30).is_some(),
                "no board for {}.{}",
                cc.major,
                cc.minor
            );
        }
    }

    #[test]
    fn the_nearest_board_is_of_the_same_capability() {
        let l4 = nearest_board(ComputeCapability { major: 8, minor: 9 }, 60, 24 << 30).unwrap();
        assert_eq!((l4.l2_bytes, l4.bus_width_bits), (48 * MIB, 192));
    }

    #[test]
    fn boards_of_one_chip_differ_by_their_memory() {
        let hopper = |gib: u64| {
            let cc = ComputeCapability { major: 9, minor: 0 };
            nearest_board(cc, 132, gib << 30).unwrap().l2_bytes
        };
        assert_eq!((hopper(79), hopper(139)), (50 * MIB, 60 * MIB));
    }

    #[test]
    fn code_is_of_a_generation_that_builds_have() {
        let version = |major, minor| ComputeCapability { major, minor }.code_version();
        assert_eq!((version(8, 9), version(12, 1)), (86, 120));
        assert_eq!((version(10, 3), version(11, 0)), (100, 100));
    }

    #[test]
    fn blocks_fit_into_a_multiprocessor() {
        for row in LIMITS {
            assert!(
                row.shared_per_block_optin + row.shared_reserved_per_block
                    <= row.shared_per_multiprocessor
            );
        }
    }
}
