//! The table itself. What nobody published stays `None`.

use crate::machine::PlatformName;
use crate::profiles::{GroupFact, Profile};
use crate::units::Bytes;

/// Nothing known; the base of the entries below.
const UNKNOWN: Profile = Profile {
    id: "",
    title: "",
    platform: PlatformName::Plain,
    memory: None,
    used_at_start: None,
    swap: None,
    shm: None,
    cpus: None,
    gpus: None,
    group: None,
    sources: &[],
};

pub(super) const PROFILES: &[Profile] = &[
    Profile {
        id: "colab-t4",
        title: "Google Colab, free T4 runtime",
        platform: PlatformName::Colab,
        memory: Some(Bytes::from_centi_gib(1267)),
        // 0.9 to 1.4 GB at the start of a notebook; the larger one, since an overestimated headroom kills.
        used_at_start: Some(Bytes(1_400_000_000)),
        swap: Some(Bytes::ZERO),
        shm: Some(Bytes::from_centi_gib(580)),
        cpus: Some(2),
        gpus: Some(&["t4"]),
        group: Some(GroupFact::OutOfSight),
        sources: &[
            "memory, CPUs: run metadata published by Colab users",
            "/dev/shm 5.8G: googlecolab/colabtools#4254",
            "0.9 to 1.4 GB in use at the start: published notebooks",
            "no swap: /proc/meminfo printed in public notebooks",
            "notebooks run in a group outside /sys/fs/cgroup: dotnet/runtime#130092; one was killed there at \
             11.1 GiB of private memory",
        ],
    },
    Profile {
        id: "colab-t4-highram",
        title: "Google Colab, T4 runtime with high RAM",
        platform: PlatformName::Colab,
        memory: Some(Bytes::from_gib(51)),
        used_at_start: Some(Bytes(1_400_000_000)),
        cpus: Some(8),
        gpus: Some(&["t4"]),
        sources: &[
            "memory, CPUs: run metadata published by Colab users",
            "in use at the start: same as the T4 runtime",
        ],
        ..UNKNOWN
    },
    Profile {
        id: "colab-l4",
        title: "Google Colab, L4 runtime",
        platform: PlatformName::Colab,
        memory: Some(Bytes::from_gib(53)),
        used_at_start: Some(Bytes(1_400_000_000)),
        cpus: Some(12),
        gpus: Some(&["l4"]),
        sources: &[
            "memory, CPUs: run metadata published by Colab users",
            "in use at the start: same as the T4 runtime",
        ],
        ..UNKNOWN
    },
    Profile {
        id: "colab-a100",
        title: "Google Colab, A100 40 GB runtime",
        platform: PlatformName::Colab,
        memory: Some(Bytes::from_centi_gib(8348)),
        used_at_start: Some(Bytes(1_400_000_000)),
        cpus: Some(12),
        gpus: Some(&["a100-40gb"]),
        sources: &[
            "memory, CPUs: run metadata published by Colab users",
            "in use at the start: same as the T4 runtime",
        ],
        ..UNKNOWN
    },
    Profile {
        id: "colab-a100-80gb",
        title: "Google Colab, A100 80 GB runtime",
        platform: PlatformName::Colab,
        memory: Some(Bytes::from_centi_gib(16710)),
        used_at_start: Some(Bytes(1_400_000_000)),
        cpus: Some(12),
        gpus: Some(&["a100-80gb"]),
        sources: &[
            "memory, CPUs: run metadata published by Colab users",
            "in use at the start: same as the T4 runtime",
        ],
        ..UNKNOWN
    },
    Profile {
        id: "colab-custom-vm",
        title: "Google Colab on a custom Google Cloud machine",
        platform: PlatformName::Colab,
        shm: Some(Bytes::from_mib(64)),
        sources: &[
            "/dev/shm 64M: googlecolab/colabtools#4254; everything else depends on the machine",
        ],
        ..UNKNOWN
    },
    Profile {
        id: "kaggle-t4x2",
        title: "Kaggle notebook, two T4",
        platform: PlatformName::Kaggle,
        memory: Some(Bytes::from_centi_gib(3136)),
        swap: Some(Bytes::ZERO),
        cpus: Some(4),
        gpus: Some(&["t4", "t4"]),
        sources: &[
            "memory, CPUs, GPUs: run metadata published by Kaggle users",
            "no swap: printed in public notebooks",
        ],
        ..UNKNOWN
    },
    Profile {
        id: "kaggle-p100",
        title: "Kaggle notebook, P100 (historical)",
        platform: PlatformName::Kaggle,
        memory: Some(Bytes::from_centi_gib(3136)),
        cpus: Some(4),
        gpus: Some(&["p100-16gb"]),
        sources: &[
            "memory, CPUs, GPU: run metadata published by Kaggle users",
            "no kernels for this GPU in current wheels: Kaggle/kaggle-cli#1151",
            "no longer listed by kaggle-cli (September 2026)",
        ],
        ..UNKNOWN
    },
    Profile {
        id: "k8s-default",
        title: "Kubernetes pod with default settings",
        platform: PlatformName::Kubernetes,
        shm: Some(Bytes::from_mib(64)),
        group: Some(GroupFact::KilledTogether),
        sources: &[
            "/dev/shm 64 MiB: Kubernetes enhancement proposal 1967",
            "an OOM kill ends the whole container on cgroup v2: Kubernetes 1.28 and later",
            "the memory limit depends on the pod: set it with --memory",
        ],
        ..UNKNOWN
    },
    Profile {
        id: "docker-default",
        title: "Docker container with default settings",
        platform: PlatformName::Docker,
        shm: Some(Bytes::from_mib(64)),
        sources: &[
            "/dev/shm 64 MiB: `docker run --shm-size` in the Docker reference",
            "no memory limit by default: set one with --memory",
        ],
        ..UNKNOWN
    },
    Profile {
        id: "rtx3060-16gb",
        title: "Desktop with an RTX 3060 12 GB and 16 GiB of memory",
        memory: Some(Bytes::from_gib(16)),
        gpus: Some(&["rtx-3060-12gb"]),
        sources: &["nominal sizes; one of the most common GPUs in a public hardware survey"],
        ..UNKNOWN
    },
    Profile {
        id: "rtx3060-laptop-16gb",
        title: "Laptop with an RTX 3060 6 GB and 16 GiB of memory",
        memory: Some(Bytes::from_gib(16)),
        gpus: Some(&["rtx-3060-laptop-6gb"]),
        sources: &["nominal sizes; GPU memory: JiehongLin/SAM-6D#13"],
        ..UNKNOWN
    },
    Profile {
        id: "rtx3090-64gb",
        title: "Workstation with an RTX 3090 and 64 GiB of memory",
        memory: Some(Bytes::from_gib(64)),
        gpus: Some(&["rtx-3090"]),
        sources: &["nominal sizes"],
        ..UNKNOWN
    },
    Profile {
        id: "rtx4090-64gb",
        title: "Workstation with an RTX 4090 and 64 GiB of memory",
        memory: Some(Bytes::from_gib(64)),
        gpus: Some(&["rtx-4090"]),
        sources: &["nominal sizes"],
        ..UNKNOWN
    },
    Profile {
        id: "rtx5090-64gb",
        title: "Workstation with an RTX 5090 and 64 GiB of memory",
        memory: Some(Bytes::from_gib(64)),
        gpus: Some(&["rtx-5090"]),
        sources: &["nominal sizes"],
        ..UNKNOWN
    },
    Profile {
        id: "lambda-8xa100",
        title: "Lambda cloud, eight A100 40 GB",
        memory: Some(Bytes::from_gib(1800)),
        cpus: Some(124),
        gpus: Some(&["a100-40gb"; 8]),
        sources: &["memory, CPUs, GPUs: the provider's page"],
        ..UNKNOWN
    },
    Profile {
        id: "lambda-8xh100",
        title: "Lambda cloud, eight H100 80 GB",
        memory: Some(Bytes::from_gib(1800)),
        cpus: Some(208),
        gpus: Some(&["h100-80gb"; 8]),
        sources: &["memory, CPUs, GPUs: the provider's page"],
        ..UNKNOWN
    },
];
