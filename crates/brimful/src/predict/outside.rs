//! What a training process holds on the card outside of PyTorch's allocator.

use crate::units::Bytes;

/// An amount and how far it may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    pub likely: Bytes,
    pub safe: Bytes,
}

/// The CUDA context with the kernels that a training run loads.
///
/// The bare context grows with the number of multiprocessors. Public measurements with lazy loading (CUDA 11.7 and
/// later): RTX 3090 with 82 has 256 MiB, RTX 6000 Ada with 142 has 426 MiB (unslothai/unsloth-zoo#1053), RTX PRO 6000
/// with 188 has 555 MiB; the line through them is 24 MiB + 2.83 MiB each, within 1 MiB. Kernels loaded on the way to
/// the third step add 50 to 250 MiB (an A100 with 108: about 510 MiB in all without cuDNN, 560 MiB with it, where the
/// line alone gives 330).
pub fn context(multiprocessors: u32, cudnn: bool) -> Outside {
    let bare = 24 + u64::from(multiprocessors) * 283 / 100;
    let kernels = if cudnn { 230 } else { 180 };
    Outside {
        likely: Bytes::from_mib(bare + kernels),
        safe: Bytes::from_mib(bare + kernels + 150),
    }
}

/// NCCL's buffers, per communicator of more than one rank.
///
/// Public reports say 0.5 to 1.6 GB (NVIDIA/nccl#964, #864); two ranks in one machine are at the lower end.
pub fn nccl(communicators: &[u32]) -> Outside {
    let mut total = Outside::default();
    for _ in communicators.iter().filter(|ranks| **ranks > 1) {
        total.likely = total.likely.saturating_add(Bytes::from_mib(512));
        total.safe = total.safe.saturating_add(Bytes::from_mib(1600));
    }
    total
}
