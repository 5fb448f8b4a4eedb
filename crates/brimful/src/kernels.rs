//! For which GPUs the official PyTorch builds carry kernels.
//!
//! A card without kernels fails at the first operation ("no kernel image is available"). The lists were read out of
//! the published Linux x86-64 wheels (builds on the default index) or taken from PyTorch's own build scripts and
//! release notes (the others); custom builds may differ.

use crate::machine::{Accelerator, ComputeCapability, Torch, TorchVersion};

/// One run of releases that were built for the same cards.
struct Build {
    from: (u32, u32),
    to: (u32, u32),
    cuda: (u32, u32),
    kernels: &'static [(u32, u32)],
}

const KEPLER_TO_HOPPER: &[(u32, u32)] = &[
    (3, 7),
    (5, 0),
    (6, 0),
    (7, 0),
    (7, 5),
    (8, 0),
    (8, 6),
    (9, 0),
];
const KEPLER_TO_AMPERE: &[(u32, u32)] = &[(3, 7), (5, 0), (6, 0), (7, 0), (7, 5), (8, 0), (8, 6)];
const MAXWELL_TO_HOPPER: &[(u32, u32)] = &[(5, 0), (6, 0), (7, 0), (7, 5), (8, 0), (8, 6), (9, 0)];
const VOLTA_TO_BLACKWELL: &[(u32, u32)] =
    &[(7, 0), (7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0)];
const TURING_TO_BLACKWELL: &[(u32, u32)] = &[(7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0)];

/// The newest release that was looked at: what is newer is not answered for.
pub const NEWEST_KNOWN: TorchVersion = TorchVersion::new(2, 15, u32::MAX);

#[rustfmt::skip]
const BUILDS: &[Build] = &[
    Build { from: (2, 0), to: (2, 0), cuda: (11, 7), kernels: KEPLER_TO_AMPERE },
    Build { from: (2, 0), to: (2, 7), cuda: (11, 8), kernels: KEPLER_TO_HOPPER },
    Build { from: (2, 1), to: (2, 5), cuda: (12, 1), kernels: MAXWELL_TO_HOPPER },
    Build { from: (2, 4), to: (2, 6), cuda: (12, 4), kernels: MAXWELL_TO_HOPPER },
    Build { from: (2, 6), to: (2, 15), cuda: (12, 6), kernels: MAXWELL_TO_HOPPER },
    Build { from: (2, 7), to: (2, 7), cuda: (12, 8), kernels: TURING_TO_BLACKWELL },
    Build { from: (2, 8), to: (2, 10), cuda: (12, 8), kernels: VOLTA_TO_BLACKWELL },
    Build { from: (2, 11), to: (2, 11), cuda: (12, 8), kernels: TURING_TO_BLACKWELL },
    Build { from: (2, 8), to: (2, 8), cuda: (12, 9), kernels: VOLTA_TO_BLACKWELL },
    Build { from: (2, 12), to: (2, 13), cuda: (12, 9), kernels: TURING_TO_BLACKWELL },
    Build { from: (2, 9), to: (2, 15), cuda: (13, 0), kernels: TURING_TO_BLACKWELL },
    Build { from: (2, 12), to: (2, 15), cuda: (13, 2), kernels: TURING_TO_BLACKWELL },
];

/// The compute capabilities that the official build of this torch has kernels for, or `None` where unknown.
pub fn built_for(torch: &Torch) -> Option<Vec<ComputeCapability>> {
    let Some(Accelerator::Cuda { major, minor }) = torch.accelerator.known() else {
        return None;
    };
    // Only PyTorch's own builds name themselves so; conda-forge, NVIDIA and nightly builds have other lists.
    if torch.version_text != format!("{}+cu{major}{minor}", torch.version) {
        return None;
    }
    let release = (torch.version.major, torch.version.minor);
    let build = BUILDS.iter().find(|build| {
        build.cuda == (*major, *minor) && (build.from..=build.to).contains(&release)
    })?;
    Some(
        build
            .kernels
            .iter()
            .map(|(major, minor)| ComputeCapability::new(*major, *minor))
            .collect(),
    )
}

/// Whether kernels of a build run on a card: same generation, and not newer than the card.
pub fn runs_on(kernels: &[ComputeCapability], card: ComputeCapability) -> bool {
    kernels
        .iter()
        .any(|built| built.major == card.major && built.minor <= card.minor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::Fact;

    fn check(torch: (u32, u32), cuda: (u32, u32), card: (u32, u32), expected: Option<bool>) {
        let torch = Torch {
            version: TorchVersion::new(torch.0, torch.1, 0),
            version_text: format!("{}.{}.0+cu{}{}", torch.0, torch.1, cuda.0, cuda.1),
            accelerator: Fact::Known(Accelerator::Cuda {
                major: cuda.0,
                minor: cuda.1,
            }),
        };
        let card = ComputeCapability::new(card.0, card.1);
        assert_eq!(
            built_for(&torch).map(|kernels| runs_on(&kernels, card)),
            expected
        );
    }

    #[test]
    fn cards_that_lost_their_kernels() {
        check((2, 9), (12, 8), (6, 0), Some(false)); // Kaggle's P100 (kaggle-cli#1151)
        check((2, 7), (12, 6), (6, 0), Some(true));
        check((2, 10), (12, 8), (7, 0), Some(true)); // V100
        check((2, 11), (13, 0), (7, 0), Some(false));
        check((2, 6), (12, 4), (12, 0), Some(false)); // RTX 5090 with an older build
        check((2, 15), (13, 2), (8, 9), Some(true)); // RTX 4090 runs kernels for 8.6
        check((2, 16), (13, 2), (8, 9), None);
    }
}
