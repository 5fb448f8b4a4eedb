//! Keeps the streams of a training open when brimful itself is killed.
//!
//! What the training prints goes through a terminal or pipes that brimful holds. If brimful is killed, they would close,
//! and the next line printed would end the training. So a second, tiny process holds them too: it waits for one byte
//! that says "all is well" and, if the pipe closes without it, gives the terminal back and hands on what comes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};

use crate::relay::write_all;
use crate::status_line;
use crate::streams::Way;

/// The hidden first argument under which brimful starts itself as the keeper.
pub const ARGUMENT: &str = "__keep";

/// Everything is well: brimful ends by itself.
const DONE: u8 = b'x';

/// Tells the keeper to let go of one way, so that the training hears that nobody reads it any more.
pub(crate) fn let_go(line: &File, way_idx: usize) {
    let _ = rustix::io::write(line, &[b'c', u8::try_from(way_idx).unwrap_or(u8::MAX)]);
}

/// The other process, as brimful sees it.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) pid: u32,
    life: File,
}

impl Keeper {
    /// Starts `program` as the keeper of these streams.
    pub(crate) fn start(program: &Path, ways: &[Way]) -> io::Result<Keeper> {
        let (theirs, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let list: Vec<String> = ways
            .iter()
            .map(|way| format!("{}:{}", way.source.as_raw_fd(), way.destination.as_raw_fd()))
            .collect();
        let _open = Handed::down(ways)?;
        let child = Command::new(program)
            .arg0("brimful")
            .arg(ARGUMENT)
            .arg(list.join(","))
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Out of the way of Ctrl-C.
            .process_group(0)
            .spawn()?;
        Ok(Keeper {
            pid: child.id(),
            life: File::from(ours),
        })
    }

    /// Says how many rows the terminal had when the status line was set up, so that it can be taken down.
    pub(crate) fn status_line_is_up(&self, rows: Option<u16>) {
        let rows = u8::try_from(rows.unwrap_or(0)).unwrap_or(0);
        let _ = rustix::io::write(&self.life, &[b'r', rows]);
    }

    /// A handle through which the relay says that nobody reads a way any more.
    pub(crate) fn line(&self) -> io::Result<File> {
        self.life.try_clone()
    }

    /// brimful ends by itself; so does the keeper.
    pub(crate) fn dismiss(self) {
        let _ = rustix::io::write(&self.life, &[DONE, 0]);
    }
}

/// Descriptors that a program started now inherits.
struct Handed<'a>(&'a [Way]);

impl Handed<'_> {
    fn down(ways: &[Way]) -> io::Result<Handed<'_>> {
        let handed = Handed(ways);
        for way in ways {
            set_inherited(&way.source, true)?;
            set_inherited(&way.destination, true)?;
        }
        Ok(handed)
    }
}

impl Drop for Handed<'_> {
    fn drop(&mut self) {
        for way in self.0 {
            let _ = set_inherited(&way.source, false);
            let _ = set_inherited(&way.destination, false);
        }
    }
}

fn set_inherited(descriptor: &OwnedFd, inherited: bool) -> io::Result<()> {
    let mut flags = fcntl_getfd(descriptor)?;
    flags.set(FdFlags::CLOEXEC, !inherited);
    Ok(fcntl_setfd(descriptor, flags)?)
}

/// What the keeper does, from its arguments on; returns when there is nothing more to keep.
pub fn keep(arguments: &[OsString]) {
    let mut ways: Vec<Option<(File, File)>> = arguments
        .first()
        .and_then(|list| list.to_str())
        .unwrap_or_default()
        .split(',')
        .map(|pair| {
            let (source, destination) = pair.split_once(':')?;
            Some((inherited(source)?, inherited(destination)?))
        })
        .collect();
    let mut rows = 0;
    let mut told = [0; 2];
    let mut life = io::stdin().lock();
    while life.read_exact(&mut told).is_ok() {
        match told {
            [DONE, _] => return,
            [b'c', idx] => {
                if let Some(way) = ways.get_mut(usize::from(idx)) {
                    *way = None;
                }
            }
            [_, up] => rows = u16::from(up),
        }
    }
    if rows > 0
        && let Some((_, destination)) = ways.iter().flatten().next_back()
    {
        write_all(destination, status_line::reset(rows).as_bytes());
    }
    hand_on(ways.into_iter().flatten().collect());
}

/// A descriptor that was handed down under this number.
#[expect(
    unsafe_code,
    reason = "a number on the command line is the only way to hand a descriptor through exec"
)]
fn inherited(number: &str) -> Option<File> {
    let number: i32 = number.parse().ok().filter(|number| *number > 2)?;
    // SAFETY: brimful starts the keeper with exactly these descriptors open and names each once; nothing else in this
    // process knows of them. One that is not open makes every call on it fail, and the way is given up.
    Some(unsafe { File::from_raw_fd(number) })
}

fn hand_on(mut ways: Vec<(File, File)>) {
    let mut buffer = vec![0; 64 << 10];
    while !ways.is_empty() {
        let mut waiting: Vec<PollFd<'_>> = ways
            .iter()
            .map(|(source, _)| PollFd::new(source, PollFlags::IN))
            .collect();
        if poll(&mut waiting, None).is_err() {
            continue;
        }
        let ready: Vec<bool> = waiting
            .iter()
            .map(|found| !found.revents().is_empty())
            .collect();
        let mut ready = ready.into_iter();
        ways.retain(|(source, destination)| {
            if !ready.next().unwrap_or(false) {
                return true;
            }
            match rustix::io::read(source.as_fd(), &mut buffer) {
                Ok(0) => false,
                // Where nobody reads any more, the training still goes on.
                Ok(n_read) => {
                    write_all(destination, &buffer[..n_read]);
                    true
                }
                Err(Errno::INTR | Errno::AGAIN) => true,
                Err(_) => false,
            }
        });
    }
}
