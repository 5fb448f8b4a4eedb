//! What a training process holds on the card outside of PyTorch's allocator.
//!
//! Three things are in no figure here. Contexts of releases for CUDA before 11.7, which loaded all kernels at once
//! (721 MiB on a GTX 1080, 1687 on an RTX 3090). What libraries other than PyTorch, cuBLAS, cuDNN and NCCL allocate by
//! themselves, such as cuFFT, cuSOLVER and tiny-cuda-nn (up to 4 GiB were seen). And contexts of other ranks on GPU 0,
//! where a rank touches it before it chooses its own: 519 to 616 MiB each on an H100.

use brimful_allocsim::version::TorchVersion;

use crate::cards::Card;
use crate::machine::ComputeCapability;
use crate::units::Bytes;

/// An amount and how far it may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    pub likely: Bytes,
    pub safe: Bytes,
}

impl Outside {
    const fn from_mib(likely: u64, safe: u64) -> Outside {
        Outside {
            likely: Bytes::from_mib(likely),
            safe: Bytes::from_mib(safe),
        }
    }
}

/// What a process may have loaded into its CUDA context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedLibraries {
    pub torch: TorchVersion,
    pub cudnn: bool,
}

/// The CUDA context with the kernels that a training run loads.
///
/// A bare context holds 2 KiB for each thread that the card can run at a time: within 20 MiB wherever one was seen alone
/// (RTX 3090 256 MiB, A100 414, RTX 6000 Ada 426, RTX 5090 496, H100 520 to 526, RTX PRO 6000 555), whatever the driver
/// and the release. Kernels come on top, loaded when they are first called. Their size, and the margin, were fitted to
/// half of the processes of which PyTorch's out-of-memory messages tell the whole; the other half is on the page of the
/// accuracy (`cargo xtask accuracy --contexts`). The messages do not tell whether cuDNN was loaded, which takes 50 MiB or
/// more: with it the margin is larger.
pub fn context(
    multiprocessors: u32,
    capability: Option<ComputeCapability>,
    loaded: LoadedLibraries,
) -> Outside {
    let likely = likely(multiprocessors, capability);
    let margin = match (loads_all_kernels(loaded.torch), loaded.cudnn) {
        (false, false) => 150,
        (false, true) => 200,
        (true, false) => 1000,
        (true, true) => 1300,
    };
    Outside {
        likely,
        safe: likely.saturating_add(Bytes::from_mib(margin)),
    }
}

/// The likely context of a process on such a card.
pub fn likely_context(card: &Card) -> Bytes {
    likely(card.multiprocessors.value, card.compute_capability)
}

fn likely(multiprocessors: u32, capability: Option<ComputeCapability>) -> Bytes {
    // No context of AMD's was measured: as one of the largest.
    let capability = capability.unwrap_or(ComputeCapability::new(9, 0));
    let threads = u64::from(multiprocessors) * u64::from(capability.threads_per_multiprocessor());
    let kernels = if capability >= ComputeCapability::new(9, 0) {
        130
    } else if capability == ComputeCapability::new(8, 9) {
        80
    } else {
        65
    };
    Bytes::from_kib(2 * threads).saturating_add(Bytes::from_mib(kernels))
}

/// Whether all kernels may be loaded at once, as runs of releases up to 2.2 often show: 352 small networks took 1450 MiB of
/// an A100 each, and 1750 with cuDNN (itu-rad/GPUMemNet, 2024), where their context without them is 500.
fn loads_all_kernels(torch: TorchVersion) -> bool {
    torch <= TorchVersion::new(2, 2)
}

/// NCCL's kernels and buffers; nothing without a communicator.
///
/// Measured on H100s after the first collective, less a context of 612 MiB. PyTorch 2.7 to 2.11: 563 MiB with one rank,
/// 828 with two, 892 to 906 with eight, and 994 in 2 of about 500 runs. Nightly builds of 2.6 and 2.7: 2.8 GiB with eight.
/// PyTorch 2.4 and 2.5: 4.2 to 5.2 GiB with eight, of which up to 1 GiB may be the model's. Other cards than Hopper's hold
/// less with these releases: 0.5 to 1.6 GB (NVIDIA/nccl#964, #864). Further communicators were not measured: each counts
/// with its buffers.
pub(super) fn nccl(
    communicators: &[u32],
    capability: Option<ComputeCapability>,
    torch: TorchVersion,
) -> Outside {
    if communicators.is_empty() {
        return Outside::default();
    }
    let mut total = Outside::from_mib(560, 600);
    let mut several = false;
    for ranks in communicators.iter().filter(|ranks| **ranks > 1) {
        several = true;
        let buffers = if *ranks == 2 { 270 } else { 340 };
        total.likely = total.likely.saturating_add(Bytes::from_mib(buffers));
        total.safe = total.safe.saturating_add(Bytes::from_mib(buffers + 100));
    }
    if several && torch < TorchVersion::new(2, 7) {
        let is_hopper_or_later = capability >= Some(ComputeCapability::new(9, 0));
        let least = match (is_hopper_or_later, torch < TorchVersion::new(2, 6)) {
            (true, true) => Outside::from_mib(3500, 5200),
            (true, false) => Outside::from_mib(2850, 2950),
            (false, _) => Outside::from_mib(830, 1600),
        };
        total.likely = total.likely.max(least.likely);
        total.safe = total.safe.max(least.safe);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: LoadedLibraries = LoadedLibraries {
        torch: TorchVersion::NEWEST_CHECKED,
        cudnn: false,
    };

    #[test]
    fn a_bare_context_grows_with_the_threads_that_a_card_can_run() {
        for (multiprocessors, capability, kernels, bare_mib) in [
            (82, (8, 6), 65, 256),    // RTX 3090
            (108, (8, 0), 65, 414),   // A100
            (132, (9, 0), 130, 526),  // H100
            (170, (12, 0), 130, 496), // RTX 5090
            (142, (8, 9), 80, 426),   // RTX 6000 Ada
            (188, (12, 0), 130, 555), // RTX PRO 6000
            (80, (7, 0), 65, 319),    // Titan V
        ] {
            let capability = ComputeCapability::new(capability.0, capability.1);
            let found = context(multiprocessors, Some(capability), NEW).likely;
            let off = found
                .saturating_sub(Bytes::from_mib(kernels))
                .get()
                .abs_diff(Bytes::from_mib(bare_mib).get());
            assert!(off <= Bytes::from_mib(20).get(), "{capability}: {found}");
        }
    }

    #[test]
    fn releases_that_load_all_kernels_need_more_to_be_safe() {
        let on_a100 = |minor, cudnn| {
            let torch = TorchVersion::new(2, minor);
            let loaded = LoadedLibraries { torch, cudnn };
            context(108, Some(ComputeCapability::new(8, 0)), loaded)
        };
        assert_eq!(on_a100(2, true).likely, on_a100(3, true).likely);
        assert!(on_a100(2, false).safe >= Bytes::from_mib(1450));
        assert!(on_a100(2, true).safe >= Bytes::from_mib(1750));
        assert!(on_a100(3, true).safe <= Bytes::from_mib(700));
    }

    /// MiB with a context of 612 on an H100.
    fn check_nccl(torch: (u16, u16), communicators: &[u32], (least, most): (u64, u64)) {
        let hopper = Some(ComputeCapability::new(9, 0));
        let found = nccl(communicators, hopper, TorchVersion::new(torch.0, torch.1));
        let mib = |bytes: Bytes| bytes.get() / (1 << 20) + 612;
        let (likely, safe) = (mib(found.likely), mib(found.safe));
        assert!(
            likely + 20 >= least && likely <= most + 20,
            "{torch:?}: {likely}"
        );
        assert!(safe >= most, "{torch:?}: {safe}");
    }

    #[test]
    fn nccl_takes_what_was_measured_by_ranks_and_release() {
        check_nccl((2, 10), &[1], (1174, 1184));
        check_nccl((2, 7), &[2], (1440, 1440));
        check_nccl((2, 8), &[8], (1496, 1518));
        check_nccl((2, 8), &[8], (1496, 1606));
        check_nccl((2, 6), &[8], (3394, 3456));
        check_nccl((2, 5), &[8], (3836, 5352));
        check_nccl((2, 4), &[8], (4100, 5774));
        assert_eq!(
            nccl(&[], None, TorchVersion::NEWEST_CHECKED),
            Outside::default()
        );
    }
}
