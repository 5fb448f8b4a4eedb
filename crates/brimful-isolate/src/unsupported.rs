//! Other platforms: nothing can be isolated, so nothing is started.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::{Containment, GpuHidden, Isolation, Network, Scratch, SharedDirectory};

pub const ARGUMENT: &str = "__isolate";

pub fn program(_arguments: &[OsString]) -> u8 {
    97
}

#[derive(Clone, Debug)]
pub struct IsolationSettings {
    pub program: PathBuf,
    pub isolation: Option<Isolation>,
    pub network: Network,
    pub uses_gpus: bool,
    pub writable: Vec<PathBuf>,
    pub shared: Vec<SharedDirectory>,
    pub checked: Vec<PathBuf>,
    pub redirect_library: PathBuf,
    pub oom_score_adj: i32,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("scripts cannot be isolated on this platform")]
    NoIsolation { reasons: Vec<(Isolation, String)> },
    #[error("the GPUs of this machine cannot be hidden from the command: {reason}")]
    GpuReached { reason: String },
    #[error("the command cannot be started")]
    NotStarted(#[source] io::Error),
    #[error("the keeper of the command cannot be started")]
    Keeper(#[source] io::Error),
}

#[derive(Debug)]
pub struct Isolated {}

impl Isolated {
    pub fn isolation(&self) -> Isolation {
        Isolation::Off
    }

    pub fn gpu_hidden(&self) -> GpuHidden {
        GpuHidden::NoDriver
    }

    pub fn containment(&self) -> Containment {
        Containment::NONE
    }

    pub fn scratch(&self) -> &Path {
        Path::new("")
    }

    pub fn ancestor(&self) -> u32 {
        0
    }

    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        Ok(None)
    }

    pub fn end(&mut self) {}
}

pub fn start(
    _command: &Command,
    _output: &File,
    _scratch: &Scratch,
    _settings: &IsolationSettings,
) -> Result<Isolated, StartError> {
    Err(StartError::NoIsolation {
        reasons: Vec::new(),
    })
}
