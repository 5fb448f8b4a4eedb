//! The machine this process runs on, where it is Linux.

use std::path::Path;

use brimful::fact::{Fact, Gap};
use brimful::machine::Landlock;
use brimful::units::Bytes;

use crate::environment::Environment;
use crate::nvml;
use crate::python::PythonHint;
use crate::shm::FilesystemSpace;
use crate::surroundings::Surroundings;
use crate::unsupported::PlatformUnsupported;

impl Surroundings {
    /// The machine this process runs on.
    pub fn live(env: Environment, python: PythonHint) -> Result<Surroundings, PlatformUnsupported> {
        Ok(Surroundings {
            root: "/".into(),
            env,
            shm_space: filesystem_space(Path::new("/dev/shm")),
            nvml: nvml::live(),
            landlock: Fact::Known(landlock()),
            python,
        })
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

/// Asks for the version of Landlock's interface, which changes nothing.
fn landlock() -> Landlock {
    const CREATE_RULESET_VERSION: u32 = 1;
    #[expect(
        unsafe_code,
        reason = "no crate of ours asks for the version without making a ruleset"
    )]
    // SAFETY: asked for the version, the kernel takes no pointer and makes no ruleset.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    };
    let error = std::io::Error::last_os_error().raw_os_error();
    match (u32::try_from(version), error) {
        (Ok(abi @ 1..), _) => Landlock::Abi(abi),
        (_, Some(libc::ENOSYS)) => Landlock::Unknown,
        (_, Some(libc::EOPNOTSUPP)) => Landlock::Disabled,
        _ => Landlock::Refused,
    }
}
