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
//! Read first: this file is brimful's side, `keep.rs` the other process.

mod keep;

pub use keep::keep;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::exit_status::Ended;
use crate::streams::Way;

/// The hidden first argument under which brimful starts itself as the keeper.
pub const ARGUMENT: &str = "__keep";

/// For the keeper to come up and the training to stand at its gate, also on a machine that swaps.
const COMES_UP_WITHIN: Duration = Duration::from_secs(20);
/// Longer than any command line that the kernel takes.
const MAX_ORDER_BYTES: u32 = 16 << 20;

/// What brimful says, two bytes each.
mod said {
    /// All is well: brimful ends by itself.
    pub(super) const DONE: u8 = b'x';
    /// The training may begin.
    pub(super) const GO: u8 = b'g';
    /// brimful knows of the training's end.
    pub(super) const HEARD: u8 = b'a';
    /// Nobody reads this way any more.
    pub(super) const LET_GO: u8 = b'c';
    /// A status line is up, on a terminal of so many rows.
    pub(super) const ROWS: u8 = b'r';
}

/// Tells the keeper to let go of one way, so that the training hears that nobody reads it any more.
pub(crate) fn let_go(line: &File, way_idx: usize) {
    let idx = u8::try_from(way_idx).unwrap_or(u8::MAX);
    let _ = rustix::io::write(line, &[said::LET_GO, idx]);
}

/// What the keeper starts.
#[derive(Debug, Default)]
pub(crate) struct Order<'a> {
    pub(crate) command: &'a [OsString],
    /// The process group of the training; `None` for a new one.
    pub(crate) group: Option<i32>,
    /// The run's directory, for the exit status.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) attempt: u32,
}

/// What the keeper reports, five bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The training stands at its gate, as this process.
    AtGate(i32),
    Started,
    /// It could not be started, with this error of the system.
    NotStarted(i32),
    Ended(Ended),
    /// It was stopped from its terminal.
    Stopped,
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
        ways: &[Way],
        (stdout, stderr): (Stdio, Stdio),
        variables: &[(OsString, OsString)],
        order: &Order<'_>,
    ) -> io::Result<Gated> {
        let (ours, theirs) = UnixStream::pair()?;
        let list: Vec<String> = ways
            .iter()
            .map(|way| format!("{}:{}", way.source.as_raw_fd(), way.destination.as_raw_fd()))
            .collect();
        let theirs = OwnedFd::from(theirs);
        let handed = ways
            .iter()
            .flat_map(|way| [&way.source, &way.destination])
            .chain([&theirs]);
        let handed = Handed::down(handed.collect())?;
        let child = Command::new(program)
            .arg0("brimful")
            .arg(ARGUMENT)
            .arg(theirs.as_raw_fd().to_string())
            .arg(list.join(","))
            .envs(variables.iter().map(|(name, value)| (name, value)))
            // The training has the streams from the keeper, which then lets go of them.
            .stdout(stdout)
            .stderr(stderr)
            // Out of the way of Ctrl-C.
            .process_group(0)
            .spawn()?;
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

    /// A handle through which the relay says that nobody reads a way any more.
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

impl Report {
    const SIZE: usize = 5;

    fn to_bytes(self) -> [u8; Report::SIZE] {
        let (tag, number) = match self {
            Report::AtGate(pid) => (b'p', pid),
            Report::Started => (b'o', 0),
            Report::NotStarted(errno) => (b'e', errno),
            Report::Ended(Ended::Exited(code)) => (b'x', code),
            Report::Ended(Ended::Signaled(signal)) => (b'k', signal),
            Report::Ended(Ended::Unknown) => (b'u', 0),
            Report::Stopped => (b't', 0),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [tag, a, b, c, d]
    }

    fn from_bytes([tag, a, b, c, d]: [u8; Report::SIZE]) -> Option<Report> {
        let number = i32::from_le_bytes([a, b, c, d]);
        Some(match tag {
            b'p' => Report::AtGate(number),
            b'o' => Report::Started,
            b'e' => Report::NotStarted(number),
            b'x' => Report::Ended(Ended::Exited(number)),
            b'k' => Report::Ended(Ended::Signaled(number)),
            b'u' => Report::Ended(Ended::Unknown),
            b't' => Report::Stopped,
            _ => return None,
        })
    }
}

impl Order<'_> {
    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.attempt.to_le_bytes());
        body.extend_from_slice(&self.group.unwrap_or(0).to_le_bytes());
        let directory = self.directory.as_deref().unwrap_or(Path::new(""));
        let words = self.command.iter().map(|word| word.as_bytes());
        for word in std::iter::once(directory.as_os_str().as_bytes()).chain(words) {
            let length = u32::try_from(word.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
            body.extend_from_slice(&length.to_le_bytes());
            body.extend_from_slice(word);
        }
        let length = u32::try_from(body.len())
            .ok()
            .filter(|length| *length <= MAX_ORDER_BYTES)
            .ok_or(io::ErrorKind::InvalidInput)?;
        Ok([&length.to_le_bytes(), body.as_slice()].concat())
    }
}

/// An order as the keeper has read it.
#[derive(Debug, PartialEq, Eq)]
struct ReadOrder {
    attempt: u32,
    group: Option<i32>,
    directory: Option<PathBuf>,
    command: Vec<OsString>,
}

impl ReadOrder {
    fn read(mut from: impl Read) -> io::Result<ReadOrder> {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        if length > MAX_ORDER_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = Vec::new();
        from.take(u64::from(length)).read_to_end(&mut body)?;
        ReadOrder::parse(&body).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(body: &[u8]) -> Option<ReadOrder> {
        let (attempt, rest) = body.split_first_chunk()?;
        let (group, mut rest) = rest.split_first_chunk()?;
        let mut words = Vec::new();
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let (word, after) = after.split_at_checked(length)?;
            words.push(OsString::from_vec(word.to_vec()));
            rest = after;
        }
        let mut words = words.into_iter();
        Some(ReadOrder {
            attempt: u32::from_le_bytes(*attempt),
            group: Some(i32::from_le_bytes(*group)).filter(|group| *group != 0),
            directory: words
                .next()
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            command: words.collect(),
        })
    }
}

/// Descriptors that a program started now inherits.
struct Handed<'a>(Vec<&'a OwnedFd>);

impl Handed<'_> {
    fn down(descriptors: Vec<&OwnedFd>) -> io::Result<Handed<'_>> {
        let handed = Handed(descriptors);
        for descriptor in &handed.0 {
            set_inherited(descriptor, true)?;
        }
        Ok(handed)
    }
}

impl Drop for Handed<'_> {
    fn drop(&mut self) {
        for descriptor in &self.0 {
            let _ = set_inherited(descriptor, false);
        }
    }
}

fn set_inherited(descriptor: impl AsFd, inherited: bool) -> io::Result<()> {
    let mut flags = fcntl_getfd(&descriptor)?;
    flags.set(FdFlags::CLOEXEC, !inherited);
    Ok(fcntl_setfd(&descriptor, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_arrives_as_it_was_given() {
        let command: Vec<OsString> =
            vec!["python".into(), "".into(), OsString::from_vec(vec![0xff])];
        let order = Order {
            command: &command,
            group: Some(77),
            directory: Some("/runs/a b".into()),
            attempt: 3,
        };
        let bytes = order.to_bytes().unwrap();
        let read = ReadOrder::read(bytes.as_slice()).unwrap();
        assert_eq!(read.command, command);
        assert_eq!((read.attempt, read.group), (3, Some(77)));
        assert_eq!(read.directory, order.directory);
        for end in 0..bytes.len() - 1 {
            let cut = ReadOrder::read(&bytes[..end]);
            assert!(cut.is_err() || cut.unwrap().command != command);
        }
        assert!(ReadOrder::read([0xff; 64].as_slice()).is_err());
    }

    #[test]
    fn reports_arrive_as_they_were_made() {
        for report in [
            Report::AtGate(4711),
            Report::Started,
            Report::NotStarted(2),
            Report::Ended(Ended::Exited(255)),
            Report::Ended(Ended::Signaled(9)),
            Report::Ended(Ended::Unknown),
            Report::Stopped,
        ] {
            assert_eq!(Report::from_bytes(report.to_bytes()), Some(report));
        }
        assert_eq!(Report::from_bytes([0; 5]), None);
    }
}
