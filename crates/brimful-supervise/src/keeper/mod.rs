//! A second, tiny process that outlives brimful: it starts the training, holds its streams and records its end.
//!
//! What the training prints goes through a terminal or pipes that brimful holds. If brimful is killed, they would close,
//! and the next line printed would end the training. And only a parent learns how a process ended. So the keeper is the
//! training's parent and holds the streams too. It reports to brimful, which does everything else; if brimful goes away
//! without a word, the keeper gives the terminal back, passes the output on, and writes the exit status beside the record.
//!
//! The training waits at a gate between fork and exec until brimful knows its process number, has moved it into its
//! cgroup and has handed it the terminal. If brimful is killed before that, the gate closes and nothing is started. If
//! the keeper is killed, the training becomes a child of brimful, which continues alone.
//!
//! Read first: this file is brimful's side, `keep.rs` the other process, `messages.rs` what they say to each other.

mod keep;
mod messages;
mod window;

pub use keep::keep;
pub(crate) use messages::{Order, Report};

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};

use crate::descriptors::Inherited;
use crate::keeper::messages::said;
use crate::streams::Route;

/// The hidden first argument under which brimful starts itself as the keeper.
pub const ARGUMENT: &str = "__keep";

/// For the keeper to come up and the training to stand at its gate, also on a machine that swaps.
const COMES_UP_WITHIN: Duration = Duration::from_secs(20);

/// Asks the keeper to close one route, so that the training sees that nobody reads it any more.
pub(crate) fn let_go(line: &File, route_idx: usize) {
    let idx = u8::try_from(route_idx).unwrap_or(u8::MAX);
    let _ = rustix::io::write(line, &[said::LET_GO, idx]);
}

/// The other process, as brimful sees it.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) pid: u32,
    life: UnixStream,
    /// The beginning of a report.
    partial: Vec<u8>,
}

/// A keeper whose training stands at its gate. Dropped, nothing is started.
#[derive(Debug)]
pub(crate) struct Gated {
    keeper: Keeper,
    pub(crate) training: Pid,
}

impl Keeper {
    /// Starts `program` as the keeper of these streams, and the training up to its gate.
    pub(crate) fn start(
        program: &Path,
        routes: &[Route],
        (stdout, stderr): (Stdio, Stdio),
        variables: &[(OsString, OsString)],
        order: &Order<'_>,
    ) -> io::Result<Gated> {
        let (ours, theirs) = UnixStream::pair()?;
        let list: Vec<String> = routes
            .iter()
            .map(|route| {
                format!(
                    "{}:{}",
                    route.source.as_raw_fd(),
                    route.destination.as_raw_fd()
                )
            })
            .collect();
        let theirs = OwnedFd::from(theirs);
        let handed = routes
            .iter()
            .flat_map(|route| [&route.source, &route.destination])
            .chain([&theirs]);
        let handed = Inherited::new(handed.collect())?;
        let mut command = Command::new(program);
        command
            .arg0("brimful")
            .arg(ARGUMENT)
            .arg(theirs.as_raw_fd().to_string())
            .arg(list.join(","))
            .envs(variables.iter().map(|(name, value)| (name, value)))
            // The training has the streams from the keeper, which then lets go of them.
            .stdout(stdout)
            .stderr(stderr);
        // Where the training shares brimful's group the keeper does too: what it gets, everybody has got.
        if order.group.is_none() {
            command.process_group(0);
        }
        let child = command.spawn()?;
        drop(handed);
        drop(theirs);
        let mut keeper = Keeper {
            pid: child.id(),
            life: ours,
            partial: Vec::new(),
        };
        let error = match keeper.up_to_the_gate(order) {
            Ok(Report::AtGate(pid)) => match Pid::from_raw(pid).filter(|pid| !pid.is_init()) {
                Some(training) => return Ok(Gated { keeper, training }),
                None => io::ErrorKind::InvalidData.into(),
            },
            Ok(Report::NotStarted(errno)) => io::Error::from_raw_os_error(errno),
            Ok(_) => io::ErrorKind::InvalidData.into(),
            Err(error) => error,
        };
        keeper.end();
        Err(error)
    }

    fn up_to_the_gate(&mut self, order: &Order<'_>) -> io::Result<Report> {
        self.life.set_read_timeout(Some(COMES_UP_WITHIN))?;
        self.life.set_write_timeout(Some(COMES_UP_WITHIN))?;
        self.life.write_all(&order.to_bytes()?)?;
        self.next_report()
    }

    /// Waits for a report.
    fn next_report(&mut self) -> io::Result<Report> {
        let mut bytes = [0; Report::SIZE];
        self.life.read_exact(&mut bytes)?;
        Report::from_bytes(bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Reports that have come since the last call.
    pub(crate) fn reports(&mut self) -> Vec<Report> {
        let mut buffer = [0; 64];
        while let Ok(n_read) = self.life.read(&mut buffer) {
            if n_read == 0 {
                break;
            }
            self.partial.extend_from_slice(&buffer[..n_read]);
        }
        let n_whole = self.partial.len() / Report::SIZE * Report::SIZE;
        let whole: Vec<u8> = self.partial.drain(..n_whole).collect();
        whole
            .chunks_exact(Report::SIZE)
            .filter_map(|bytes| Report::from_bytes(bytes.try_into().ok()?))
            .collect()
    }

    /// brimful knows of the end of the training, and signals it no more.
    pub(crate) fn heard_of_the_end(&self) {
        let _ = rustix::io::write(&self.life, &[said::HEARD, 0]);
    }

    /// Says how many rows the terminal had when the status line was set up, so that it can be taken down.
    pub(crate) fn status_line_is_up(&self, rows: Option<u16>) {
        let rows = u8::try_from(rows.unwrap_or(0)).unwrap_or(0);
        let _ = rustix::io::write(&self.life, &[said::ROWS, rows]);
    }

    /// A handle through which the relay says that nobody reads a route any more.
    pub(crate) fn line(&self) -> io::Result<File> {
        Ok(File::from(OwnedFd::from(self.life.try_clone()?)))
    }

    /// brimful ends by itself; so does the keeper. Waits for it: nothing of ours is left behind.
    pub(crate) fn dismiss(self) {
        let _ = rustix::io::write(&self.life, &[said::DONE, 0]);
        self.wait(Duration::from_secs(1));
    }

    /// Ends a keeper that is of no use. Its training, if there is one, finds the gate closed.
    fn end(self) {
        // Not reaped yet, so the number is its own.
        if let Some(pid) = self.pid() {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        self.wait(Duration::from_secs(1));
    }

    fn wait(self, within: Duration) {
        let pid = self.pid();
        let give_up = std::time::Instant::now() + within;
        while std::time::Instant::now() < give_up {
            match rustix::process::waitpid(pid, WaitOptions::NOHANG) {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                _ => return,
            }
        }
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.pid).ok().and_then(Pid::from_raw)
    }
}

impl Gated {
    pub(crate) fn keeper_pid(&self) -> u32 {
        self.keeper.pid
    }

    /// The keeper's process and the socket to it.
    pub(crate) fn line(&self) -> (u32, RawFd) {
        (self.keeper.pid, self.keeper.life.as_raw_fd())
    }

    /// Lets the training begin, and waits until it has.
    pub(crate) fn go(mut self) -> io::Result<Keeper> {
        // As long as it takes: the program may lie on a slow file system.
        self.keeper.life.set_read_timeout(None)?;
        self.keeper.life.write_all(&[said::GO, 0])?;
        // From here on it has begun, unless the keeper says otherwise.
        // Where the keeper was killed at this moment, the training is a child of brimful.
        if let Ok(Report::NotStarted(errno)) = self.keeper.next_report() {
            self.keeper.end();
            return Err(io::Error::from_raw_os_error(errno));
        }
        let _ = self.keeper.life.set_nonblocking(true);
        Ok(self.keeper)
    }

    /// Nothing is to be started.
    pub(crate) fn call_off(self) {
        self.keeper.end();
    }
}
