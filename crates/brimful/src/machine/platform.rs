//! Where we are: a notebook service, a scheduler's job, a container, or a plain machine.

use crate::fact::Fact;
use crate::units::Bytes;

/// The platform as its users call it, and every layer that was recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Recognized layers, the most specific first; empty on a plain machine.
    pub layers: Vec<Layer>,
    pub system: Fact<String>,
    pub slurm: Option<SlurmJob>,
}

/// One recognized layer and what gave it away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    pub name: PlatformName,
    pub evidence: String,
}

/// In the order in which a layer names the whole: a Colab notebook is Colab, although it is a container too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlatformName {
    Kaggle,
    Colab,
    SageMaker,
    Slurm,
    Kubernetes,
    Podman,
    Docker,
    Apptainer,
    Lxc,
    Wsl,
    Plain,
}

/// What the scheduler was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmJob {
    pub job_id: String,
    /// Memory requested for this node. `Known(None)` is "all of it" (`--mem=0`).
    pub memory_request: Fact<Option<Bytes>>,
    pub cpus_on_node: Fact<u32>,
}

impl Platform {
    pub fn name(&self) -> PlatformName {
        self.layers
            .first()
            .map_or(PlatformName::Plain, |layer| layer.name)
    }

    pub fn is(&self, name: PlatformName) -> bool {
        self.layers.iter().any(|layer| layer.name == name)
    }

    /// Whether the memory figures of `/proc/meminfo` may belong to somebody else.
    pub fn is_container(&self) -> bool {
        self.layers.iter().any(|layer| {
            matches!(
                layer.name,
                PlatformName::Kubernetes | PlatformName::Podman | PlatformName::Docker
            )
        })
    }
}

impl PlatformName {
    /// One word for programs.
    pub fn id(self) -> &'static str {
        match self {
            PlatformName::Colab => "colab",
            PlatformName::Kaggle => "kaggle",
            PlatformName::SageMaker => "sagemaker",
            PlatformName::Slurm => "slurm",
            PlatformName::Kubernetes => "kubernetes",
            PlatformName::Podman => "podman",
            PlatformName::Docker => "docker",
            PlatformName::Apptainer => "apptainer",
            PlatformName::Lxc => "lxc",
            PlatformName::Wsl => "wsl",
            PlatformName::Plain => "plain",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            PlatformName::Colab => "Google Colab",
            PlatformName::Kaggle => "Kaggle notebook",
            PlatformName::SageMaker => "Amazon SageMaker",
            PlatformName::Slurm => "Slurm job",
            PlatformName::Kubernetes => "Kubernetes pod",
            PlatformName::Podman => "Podman container",
            PlatformName::Docker => "Docker container",
            PlatformName::Apptainer => "Apptainer container",
            PlatformName::Lxc => "LXC container",
            PlatformName::Wsl => "WSL 2",
            PlatformName::Plain => "plain machine",
        }
    }
}
