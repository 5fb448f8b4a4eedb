//! Everything a probe looks at.

use std::path::PathBuf;

use brimful::fact::Fact;
use brimful::machine::Landlock;

use crate::environment::Environment;
use crate::nvml::NvmlSnapshot;
use crate::python::PythonHint;
use crate::shm::FilesystemSpace;

/// Everything a probe looks at, handed in: the machine it runs on, or a recorded one.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The directory below which `proc`, `sys`, `dev` and the rest are found; `/` for the machine itself.
    pub root: PathBuf,
    pub env: Environment,
    pub shm_space: Fact<FilesystemSpace>,
    pub nvml: Fact<NvmlSnapshot>,
    /// What the kernel answers when it is asked for the version of Landlock.
    pub landlock: Fact<Landlock>,
    pub python: PythonHint,
}

impl Surroundings {
    /// A recorded tree of another machine, with nothing but files and variables.
    pub fn recorded(root: impl Into<PathBuf>, env: Environment) -> Surroundings {
        Surroundings {
            root: root.into(),
            env,
            shm_space: Fact::unavailable("the size of /dev/shm was not recorded"),
            nvml: Fact::unavailable("no answer of the NVIDIA driver was recorded"),
            landlock: Fact::unavailable("the version of Landlock was not recorded"),
            python: PythonHint::default(),
        }
    }
}
