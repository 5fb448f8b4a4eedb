//! Starting the training.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::Pid;

/// What to start, and how.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) variables: Vec<(OsString, OsString)>,
    pub(crate) stdout: Stdio,
    pub(crate) stderr: Stdio,
    /// In a process group of its own.
    pub(crate) own_group: bool,
    /// The control group to join, by its `cgroup.procs`.
    pub(crate) door: Option<File>,
}

/// Starts it. Its end is reaped by the caller, not through the value that the standard library has for it.
#[expect(
    unsafe_code,
    reason = "joining the control group between fork and exec is the only way in which nothing runs outside of it"
)]
pub(crate) fn launch(launch: Launch<'_>) -> io::Result<Pid> {
    let (program, arguments) = launch
        .command
        .split_first()
        .ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(launch.variables)
        .stdout(launch.stdout)
        .stderr(launch.stderr);
    if launch.own_group {
        command.process_group(0);
    }
    if let Some(door) = launch.door {
        // SAFETY: between fork and exec only a write to an open descriptor is made, which may be done there. A failure
        // leaves the training outside of the group, which the supervisor notices and tells.
        unsafe {
            command.pre_exec(move || {
                let _ = rustix::io::write(&door, b"0");
                Ok(())
            });
        }
    }
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("the kernel gave a process number that is none"))
}
