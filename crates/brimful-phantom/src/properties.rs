//! Everything a program can ask about a device: attributes by number, and the property structure of CUDA 12
//! and 13.

use std::ffi::{c_int, c_void};

use crate::abi;
use crate::card;
use crate::machine::{Device, pci_slot};

/// Answers `cudaDeviceGetAttribute` and `cuDeviceGetAttribute`, whose numbers agree.
///
/// The numbers are those of `enum cudaDeviceAttr` in `driver_types.h`; what is not here is zero, "no".
pub(crate) fn attribute(device: &Device, number: c_int) -> c_int {
    let limits = &device.limits;
    let board = &device.board;
    let cc = device.spec.cc;
    let value = match number {
        1 => card::THREADS_PER_BLOCK,
        2 | 3 => 1024,         // MaxBlockDimX, Y
        4 => 64,               // MaxBlockDimZ
        5 | 11 => 0x7fff_ffff, // MaxGridDimX, MaxPitch
        6 | 7 => 65_535,       // MaxGridDimY, Z
        8 => card::SHARED_PER_BLOCK,
        9 => card::CONSTANT_BYTES,
        10 => card::WARP,
        12 | 82 => card::REGISTERS, // per block, per multiprocessor
        13 => board.clock_khz,
        14 | 30 => card::TEXTURE_ALIGNMENT, // also SurfaceAlignment
        16 => device.spec.multiprocessors,
        34 => u32::try_from(pci_slot(device.index)).unwrap_or(0),
        36 => board.memory_clock_khz,
        37 => board.bus_width_bits,
        38 => board.l2_bytes,
        39 => limits.threads_per_multiprocessor,
        40 => 3,  // AsyncEngineCount
        51 => 32, // TexturePitchAlignment
        75 => cc.major,
        76 => cc.minor,
        81 => limits.shared_per_multiprocessor,
        // SingleToDoublePrecisionPerfRatio: the cards for computing have half as many units for doubles.
        87 => if matches!((cc.major, cc.minor), (6..=10, 0)) { 2 } else { 32 },
        97 => limits.shared_per_block_optin,
        106 => limits.blocks_per_multiprocessor,
        108 => board.persisting_l2_bytes(),
        109 => board.access_window_bytes(),
        111 => limits.shared_reserved_per_block,
        120 | 127 => u32::from(cc.major >= 9), // ClusterLaunch, TensorMapAccessSupported
        126 => if cc.major >= 9 { 4 } else { 1 }, // MemSyncDomainCount
        131 | 134 => return -1, // NumaId, HostNumaId
        // "Yes": GpuOverlap, CanMapHostMemory, ConcurrentKernels, UnifiedAddressing;
        15 | 19 | 31 | 41
        // StreamPrioritiesSupported, GlobalL1CacheSupported, LocalL1CacheSupported, ManagedMemory;
        | 78..=80 | 83
        // ConcurrentManagedAccess, ComputePreemptionSupported, CanUseHostPointerForRegisteredMem,
        // CooperativeLaunch;
        | 89..=91 | 95
        // HostRegisterSupported, virtual memory management, handles as POSIX file descriptors;
        | 99 | 102 | 103
        // SparseCudaArraySupported, TimelineSemaphoreInteropSupported, MemoryPoolsSupported, and their handle
        // types;
        | 112 | 114 | 115 | 119
        // DeferredMappingCudaArraySupported, IpcEventSupport, UnifiedFunctionPointers.
        | 121 | 125 | 129 => 1,
        // Among the rest multicast (132): it would need a fabric between devices.
        _ => 0,
    };
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// The size of `struct cudaDeviceProp` in CUDA 13.0's and in CUDA 12.8's `driver_types.h`.
const SIZE_13: usize = 1008;
const SIZE_12: usize = 1032;

/// Attribute number, then where the field stands in CUDA 13 and in CUDA 12; `NONE` where it has none.
///
/// Found with `offsetof` on the headers of the packages nvidia-cuda-runtime 13.0.96 and 12.8.90.
const FIELDS_32: &[(c_int, usize, usize)] = &[
    (12, 304, 304), // regsPerBlock
    (10, 308, 308), // warpSize
    (1, 320, 320),  // maxThreadsPerBlock
    (2, 324, 324),  // maxThreadsDim
    (3, 328, 328),
    (4, 332, 332),
    (5, 336, 336), // maxGridSize
    (6, 340, 340),
    (7, 344, 344),
    (13, NONE, 348),  // clockRate
    (75, 360, 360),   // major
    (76, 364, 364),   // minor
    (15, NONE, 384),  // deviceOverlap
    (16, 384, 388),   // multiProcessorCount
    (18, 388, 396),   // integrated
    (19, 392, 400),   // canMapHostMemory
    (31, 560, 576),   // concurrentKernels
    (32, 564, 580),   // ECCEnabled
    (33, 568, 584),   // pciBusID
    (34, 572, 588),   // pciDeviceID
    (50, 576, 592),   // pciDomainID
    (40, 584, 600),   // asyncEngineCount
    (41, 588, 604),   // unifiedAddressing
    (36, NONE, 608),  // memoryClockRate
    (37, 592, 612),   // memoryBusWidth
    (38, 596, 616),   // l2CacheSize
    (108, 600, 620),  // persistingL2CacheMaxSize
    (39, 604, 624),   // maxThreadsPerMultiProcessor
    (78, 608, 628),   // streamPrioritiesSupported
    (79, 612, 632),   // globalL1CacheSupported
    (80, 616, 636),   // localL1CacheSupported
    (82, 632, 648),   // regsPerMultiprocessor
    (83, 636, 652),   // managedMemory
    (87, NONE, 668),  // singleToDoublePrecisionPerfRatio
    (89, 656, 676),   // concurrentManagedAccess
    (90, 660, 680),   // computePreemptionSupported
    (91, 664, 684),   // canUseHostPointerForRegisteredMem
    (95, 668, 688),   // cooperativeLaunch
    (106, 688, 712),  // maxBlocksPerMultiProcessor
    (109, 692, 716),  // accessPolicyMaxWindowSize
    (99, 704, 728),   // hostRegisterSupported
    (112, 708, 732),  // sparseCudaArraySupported
    (114, 716, 740),  // timelineSemaphoreInteropSupported
    (115, 720, 744),  // memoryPoolsSupported
    (119, 736, 760),  // memoryPoolSupportedHandleTypes
    (121, 740, 764),  // deferredMappingCudaArraySupported
    (125, 744, 768),  // ipcEventSupported
    (120, 748, 772),  // clusterLaunch
    (129, 752, 776),  // unifiedFunctionPointers
    (131, 760, NONE), // deviceNumaId
    (134, 768, NONE), // hostNumaId
];

/// The same for the fields of eight bytes.
const FIELDS_64: &[(c_int, usize, usize)] = &[
    (8, 296, 296),   // sharedMemPerBlock
    (11, 312, 312),  // memPitch
    (9, 352, 352),   // totalConstMem
    (14, 368, 368),  // textureAlignment
    (51, 376, 376),  // texturePitchAlignment
    (30, 552, 568),  // surfaceAlignment
    (81, 624, 640),  // sharedMemPerMultiprocessor
    (97, 672, 696),  // sharedMemPerBlockOptin
    (111, 696, 720), // reservedSharedMemPerBlock
];

const NONE: usize = usize::MAX;
const NAME: usize = 0;
const NAME_LENGTH: usize = 256;
const UUID: usize = 256;
const TOTAL_MEMORY: usize = 288;

/// The layout a caller expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    Cuda12,
    Cuda13,
}

/// Fills a caller's `struct cudaDeviceProp`.
pub(crate) fn fill(out: *mut c_void, device: &Device, layout: Layout) {
    let bytes = bytes(device, layout);
    if !out.is_null() {
        // SAFETY: the caller's structure has the size of its own CUDA generation, which `bytes` has too.
        unsafe {
            out.cast::<u8>()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }
}

fn bytes(device: &Device, layout: Layout) -> Vec<u8> {
    let place = |thirteen, twelve| {
        if layout == Layout::Cuda13 {
            thirteen
        } else {
            twelve
        }
    };
    let mut out = vec![0_u8; place(SIZE_13, SIZE_12)];
    let mut set = |at: usize, value: &[u8]| {
        if let Some(field) = at
            .checked_add(value.len())
            .and_then(|end| out.get_mut(at..end))
        {
            field.copy_from_slice(value);
        }
    };
    let name = device.spec.name.as_bytes();
    set(NAME, name.get(..NAME_LENGTH - 1).unwrap_or(name));
    set(UUID, &device.uuid);
    set(TOTAL_MEMORY, &device.spec.memory.to_ne_bytes());
    for (number, thirteen, twelve) in FIELDS_32 {
        set(
            place(*thirteen, *twelve),
            &attribute(device, *number).to_ne_bytes(),
        );
    }
    for (number, thirteen, twelve) in FIELDS_64 {
        set(
            place(*thirteen, *twelve),
            &i64::from(attribute(device, *number)).to_ne_bytes(),
        );
    }
    out
}

/// How many blocks of a kernel run on one multiprocessor at a time.
///
/// The kernel's registers are not known: 32 a thread is the mean the compiler aims at for full occupancy.
pub(crate) fn resident_blocks(device: &Device, threads: c_int, dynamic_shared: usize) -> c_int {
    let limits = &device.limits;
    let Ok(threads @ 1..=card::THREADS_PER_BLOCK) = u32::try_from(threads) else {
        return 0;
    };
    let threads = threads.next_multiple_of(card::WARP);
    let shared = u32::try_from(dynamic_shared)
        .unwrap_or(u32::MAX)
        .saturating_add(limits.shared_reserved_per_block);
    let by_threads = limits.threads_per_multiprocessor / threads;
    let by_shared = limits
        .shared_per_multiprocessor
        .checked_div(shared)
        .unwrap_or(u32::MAX);
    let by_registers = card::REGISTERS / (32 * threads);
    let blocks = by_threads
        .min(by_shared)
        .min(by_registers)
        .min(limits.blocks_per_multiprocessor);
    c_int::try_from(blocks).unwrap_or(0)
}

/// Fills `struct cudaFuncAttributes` (144 bytes in both generations).
pub(crate) fn fill_function(out: *mut c_void, device: &Device) {
    abi::zero(out, 144);
    let cc = device.spec.cc;
    let version = cc.code_version();
    let at = |offset: usize| out.wrapping_byte_add(offset).cast::<c_int>();
    if out.is_null() {
        return;
    }
    abi::put(at(24), 1024); // maxThreadsPerBlock
    abi::put(at(28), 32); // numRegs
    abi::put(at(32), version); // ptxVersion
    abi::put(at(36), version); // binaryVersion
    abi::put(at(44), 48 << 10); // maxDynamicSharedSizeBytes
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::config;
    use crate::memory::DeviceMemory;

    fn t4() -> Device {
        let spec = config::parse_devices(config::DEFAULT).unwrap().remove(0);
        Device {
            index: 0,
            uuid: config::uuid(0),
            limits: card::limits(spec.cc).unwrap(),
            board: card::nearest_board(spec.cc, spec.multiprocessors, spec.memory).unwrap(),
            memory: Mutex::new(DeviceMemory::new(0, spec.memory, 0)),
            active: AtomicBool::new(false),
            spec,
        }
    }

    fn int(bytes: &[u8], at: usize) -> i32 {
        i32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn both_layouts_tell_the_same_card() {
        let device = t4();
        let twelve = bytes(&device, Layout::Cuda12);
        let thirteen = bytes(&device, Layout::Cuda13);
        assert_eq!((twelve.len(), thirteen.len()), (SIZE_12, SIZE_13));
        assert!(twelve.starts_with(b"Tesla T4\0") && thirteen.starts_with(b"Tesla T4\0"));
        assert_eq!((int(&twelve, 388), int(&thirteen, 384)), (40, 40));
        assert_eq!((int(&twelve, 624), int(&thirteen, 604)), (1024, 1024));
        assert_eq!((int(&twelve, 696), int(&thirteen, 672)), (65_536, 65_536));
    }

    #[test]
    fn every_field_lies_inside() {
        for (_, thirteen, twelve) in FIELDS_32.iter().chain(FIELDS_64) {
            assert!(*thirteen == NONE || thirteen + 8 <= SIZE_13);
            assert!(*twelve == NONE || twelve + 8 <= SIZE_12);
        }
    }

    #[test]
    fn occupancy_is_bound_by_threads_blocks_and_shared_memory() {
        let device = t4();
        assert_eq!(resident_blocks(&device, 256, 0), 4);
        assert_eq!(resident_blocks(&device, 32, 0), 16);
        assert_eq!(resident_blocks(&device, 128, 48 << 10), 1);
        assert_eq!(resident_blocks(&device, 0, 0), 0);
    }
}
