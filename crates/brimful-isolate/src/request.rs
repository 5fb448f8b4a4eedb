//! What brimful asks of the keeper, and what the keeper answers: JSON in a private file, JSON lines on a socket.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How the user's files are protected, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Overlay file systems in a mount namespace: writes go to a private upper layer.
    Overlay,
    /// Landlock and seccomp deny writes; a preloaded library redirects them.
    Redirect,
    /// Writes reach the user's files.
    Off,
}

impl Isolation {
    /// As in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::Overlay => "overlay",
            Isolation::Redirect => "redirect",
            Isolation::Off => "off",
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// How the machine's GPUs are kept from the command, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuHidden {
    /// The machine has neither a device node of a GPU nor a driver.
    NoDriver,
    /// The command has a `/dev` without their nodes.
    Devices,
    /// Landlock denies opening their nodes.
    Landlock,
    /// They are not hidden: the command is to use them.
    Used,
}

impl GpuHidden {
    /// As in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            GpuHidden::NoDriver => "no_driver",
            GpuHidden::Devices => "devices",
            GpuHidden::Landlock => "landlock",
            GpuHidden::Used => "used",
        }
    }
}

/// How one kind of thing that other programs have is kept from the command, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contained {
    /// The command has its own, in a namespace of the kernel.
    Namespace,
    /// A preloaded library redirects the command to its own, and the kernel denies the rest.
    Redirected,
    /// The kernel denies it.
    Denied,
    /// The kernel denies signals to other processes. Their priorities and limits can be changed.
    SignalsDenied,
    /// The command can reach it.
    Open,
}

impl Contained {
    /// As in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Contained::Namespace => "namespace",
            Contained::Redirected => "redirected",
            Contained::Denied => "denied",
            Contained::SignalsDenied => "signals_denied",
            Contained::Open => "open",
        }
    }
}

/// How what other programs have besides files is kept from the command: what was set up, and proved before it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Containment {
    /// Shared memory and semaphores by name.
    pub shared_memory: Contained,
    /// Memory, semaphores and queues of System V, and POSIX message queues.
    pub ipc: Contained,
    /// Signals, priorities and limits.
    pub processes: Contained,
}

impl Containment {
    /// Of a command that may change everything.
    pub const NONE: Containment = Containment {
        shared_memory: Contained::Open,
        ipc: Contained::Open,
        processes: Contained::Open,
    };

    /// The weaker one of each kind.
    #[must_use]
    pub fn and(self, other: Containment) -> Containment {
        Containment {
            shared_memory: self.shared_memory.max(other.shared_memory),
            ipc: self.ipc.max(other.ipc),
            processes: self.processes.max(other.processes),
        }
    }
}

/// What the command can reach besides this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    #[default]
    Full,
    /// A network namespace with a loopback device only.
    None,
}

/// A directory whose writes are kept for all commands that are started with the same layer, such as downloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedDirectory {
    #[serde(with = "os_path")]
    pub path: PathBuf,
    #[serde(with = "os_path")]
    pub layer: PathBuf,
}

/// What the keeper is asked to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) isolation: Isolation,
    /// Whether the command gets a PID namespace of its own.
    pub(crate) pid_namespace: bool,
    pub(crate) network: Network,
    /// Whether the command may use the GPUs of this machine.
    pub(crate) uses_gpus: bool,
    pub(crate) command: Vec<OsString>,
    /// Set where there is a value, removed where there is none.
    pub(crate) environment: Vec<(OsString, Option<OsString>)>,
    #[serde(with = "os_path")]
    pub(crate) current_dir: PathBuf,
    /// The private directory that takes the writes.
    #[serde(with = "os_path")]
    pub(crate) scratch: PathBuf,
    pub(crate) shared: Vec<SharedDirectory>,
    /// Where writes go through: brimful's own results.
    #[serde(with = "os_paths")]
    pub(crate) writable: Vec<PathBuf>,
    /// The library that redirects writes, and the command's preloads in front of it.
    #[serde(with = "os_path")]
    pub(crate) redirect_library: PathBuf,
    /// Directories in which the canary has to be caught, besides every mount.
    #[serde(with = "os_paths")]
    pub(crate) checked: Vec<PathBuf>,
    /// How early the kernel kills the command when memory runs out.
    pub(crate) oom_score_adj: i32,
}

/// What the keeper answers, one line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The isolation is proved and the command was started.
    Ready {
        gpu_hidden: GpuHidden,
        containment: Containment,
    },
    /// The isolation cannot be had; the command was not started.
    Unavailable { reason: String },
    /// A GPU could be reached; the command was not started.
    GpuReached { reason: String },
    /// The command does not exist or cannot be executed.
    NotStarted { errno: i32 },
    /// The command ended with this wait status.
    Ended { status: i32 },
}

/// Paths are bytes: serde refuses those that are not UTF-8.
mod os_path {
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        OsString::deserialize(from).map(PathBuf::from)
    }
}

mod os_paths {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| path.as_os_str()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let paths = Vec::<OsString>::deserialize(from)?;
        Ok(paths.into_iter().map(PathBuf::from).collect())
    }
}
