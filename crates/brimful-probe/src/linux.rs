//! The machine this process runs on, where it is Linux.

use std::path::Path;

use brimful::fact::{Fact, Gap};
use brimful::units::Bytes;

use crate::nvml;
use crate::python::PythonHint;
use crate::shm::FilesystemSpace;
use crate::{Environment, Surroundings};

pub(crate) fn surroundings(env: Environment, python: PythonHint) -> Surroundings {
    Surroundings {
        root: "/".into(),
        env,
        shm_space: filesystem_space(Path::new("/dev/shm")),
        nvml: nvml::live(),
        python,
    }
}

pub(crate) fn filesystem_space(path: &Path) -> Fact<FilesystemSpace> {
    match rustix::fs::statvfs(path) {
        Ok(stat) => Fact::Known(FilesystemSpace {
            total: Bytes(stat.f_blocks.saturating_mul(stat.f_frsize)),
            free: Bytes(stat.f_bavail.saturating_mul(stat.f_frsize)),
        }),
        Err(error) => Fact::Missing(Gap::FileUnreadable {
            path: path.display().to_string(),
            error: error.to_string(),
        }),
    }
}
