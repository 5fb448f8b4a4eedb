//! Starting the training without a keeper, as a child of brimful.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::Pid;

use crate::fault;
use crate::terminal::Offer;

/// What to start, and how.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) variables: &'a [(OsString, OsString)],
    pub(crate) stdout: Stdio,
    pub(crate) stderr: Stdio,
    /// In a process group of its own.
    pub(crate) own_group: bool,
    /// The control group to join, by its `cgroup.procs`.
    pub(crate) door: Option<File>,
    /// The terminal to take.
    pub(crate) terminal: Option<Offer>,
}

/// Starts it. Its end is reaped by the caller, not through the value that the standard library has for it.
#[expect(
    unsafe_code,
    reason = "joining the control group between fork and exec is the only way in which nothing runs outside of it; the \
              same for the terminal"
)]
pub(crate) fn launch(launch: Launch<'_>) -> io::Result<Pid> {
    let (program, arguments) = launch
        .command
        .split_first()
        .ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(launch.variables.iter().map(|(name, value)| (name, value)))
        .env_remove(fault::VARIABLE)
        .stdout(launch.stdout)
        .stderr(launch.stderr);
    if launch.own_group {
        command.process_group(0);
    }
    let (door, terminal) = (launch.door, launch.terminal);
    if door.is_some() || terminal.is_some() {
        // SAFETY: between fork and exec only system calls are made that may be made there: a write to an open
        // descriptor, and what the terminal needs. A failure leaves the training outside of the group, which the
        // supervisor notices and tells, or without the terminal, which it is then handed from outside.
        unsafe {
            command.pre_exec(move || {
                if let Some(door) = &door {
                    let _ = rustix::io::write(door, b"0");
                }
                if let Some(terminal) = &terminal {
                    terminal.take();
                }
                Ok(())
            });
        }
    }
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("the kernel gave a process number that is none"))
}
