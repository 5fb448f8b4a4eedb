//! Where the training writes, and where that goes.
//!
//! A stream that is a terminal becomes a terminal of our own in between, so progress bars live. A regular file is handed
//! down as it is and read at the end. Everything else is a pipe.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;

use brimful::record::Stream;
use rustix::fs::{FileType, fstat};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{
    OptionalActions, OutputModes, Winsize, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize,
};

/// One route from the training to where brimful's own output goes.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) stream: Stream,
    /// What the training writes comes out here.
    pub(crate) source: OwnedFd,
    /// And goes here.
    pub(crate) destination: OwnedFd,
    pub(crate) is_terminal: bool,
}

/// A regular file that the training writes by itself.
#[derive(Debug)]
pub(crate) struct DirectFile {
    pub(crate) stream: Stream,
    pub(crate) file: File,
    /// Where its part of the file begins.
    pub(crate) from: u64,
}

/// Both output streams of the training.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) routes: Vec<Route>,
    /// One of the routes leads to a terminal.
    pub(crate) relays_terminal: bool,
    /// One of the routes carries standard error.
    pub(crate) relays_stderr: bool,
    pub(crate) direct: Vec<DirectFile>,
    /// What the training writes to; `None` for what brimful has itself.
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamKind {
    Terminal,
    File,
    Other,
}

impl Streams {
    pub(crate) fn open() -> io::Result<Streams> {
        let (stdout, stderr) = (rustix::stdio::stdout(), rustix::stdio::stderr());
        let (out_kind, err_kind) = (kind(stdout), kind(stderr));
        // Two streams into one place keep their order only if they travel together.
        let together = out_kind == err_kind && same(stdout, stderr);
        let mut streams = Streams::inherited();
        if together {
            let (out, err) = streams.add(Stream::Both, stdout, out_kind, true)?;
            streams.stdout = out;
            streams.stderr = err;
        } else {
            streams.stdout = streams.add(Stream::Stdout, stdout, out_kind, false)?.0;
            streams.stderr = streams.add(Stream::Stderr, stderr, err_kind, false)?.0;
        }
        Ok(streams)
    }

    /// Everything as brimful has it itself.
    pub(crate) fn inherited() -> Streams {
        Streams {
            routes: Vec::new(),
            relays_terminal: false,
            relays_stderr: false,
            direct: Vec::new(),
            stdout: None,
            stderr: None,
        }
    }

    /// Both ends for one process that is started now.
    pub(crate) fn for_process(&self) -> io::Result<(Stdio, Stdio)> {
        let stdio = |end: &Option<OwnedFd>| match end {
            Some(end) => Ok::<_, io::Error>(Stdio::from(end.try_clone()?)),
            None => Ok(Stdio::inherit()),
        };
        Ok((stdio(&self.stdout)?, stdio(&self.stderr)?))
    }

    fn add(
        &mut self,
        stream: Stream,
        destination: BorrowedFd<'_>,
        kind: StreamKind,
        twice: bool,
    ) -> io::Result<(Option<OwnedFd>, Option<OwnedFd>)> {
        if kind == StreamKind::File {
            // Opened again for reading: the one we have may be for writing only.
            let raw = std::os::fd::AsRawFd::as_raw_fd(&destination);
            if let Ok(file) = File::open(format!("/proc/self/fd/{raw}")) {
                let from = file.metadata().map_or(0, |facts| facts.len());
                self.direct.push(DirectFile { stream, file, from });
            }
            return Ok((None, None));
        }
        let (source, end) = if kind == StreamKind::Terminal {
            terminal_like(destination)?
        } else {
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?
        };
        let second = if twice { Some(end.try_clone()?) } else { None };
        self.relays_terminal |= kind == StreamKind::Terminal;
        self.relays_stderr |= stream != Stream::Stdout;
        self.routes.push(Route {
            stream,
            source,
            destination: destination.try_clone_to_owned()?,
            is_terminal: kind == StreamKind::Terminal,
        });
        Ok((Some(end), second))
    }
}

/// A terminal of our own, as large as the one that it stands for.
fn terminal_like(real: BorrowedFd<'_>) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    // The real terminal turns newlines into what it needs; ours hands everything on as it is.
    let mut modes = tcgetattr(real).or_else(|_| tcgetattr(&theirs))?;
    modes.output_modes &= !OutputModes::OPOST;
    tcsetattr(&theirs, OptionalActions::Now, &modes)?;
    if let Ok(size) = tcgetwinsize(real) {
        let _ = tcsetwinsize(&ours, size);
    }
    Ok((ours, theirs))
}

/// Gives our terminal the size of the real one, less the rows that we keep.
pub(crate) fn follow_size(route: &Route, rows_kept: u16) -> Option<Winsize> {
    let size = tcgetwinsize(&route.destination).ok()?;
    let shown = Winsize {
        ws_row: size.ws_row.saturating_sub(rows_kept).max(1),
        ..size
    };
    let _ = tcsetwinsize(&route.source, shown);
    Some(size)
}

fn kind(stream: BorrowedFd<'_>) -> StreamKind {
    if isatty(stream) {
        return StreamKind::Terminal;
    }
    match fstat(stream) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            StreamKind::File
        }
        _ => StreamKind::Other,
    }
}

fn same(a: impl AsFd, b: impl AsFd) -> bool {
    match (fstat(a), fstat(b)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

/// Whether a stream of ours is one end of a pipe: then others of the same job wait on it.
pub(crate) fn any_pipe() -> bool {
    [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
    ]
    .into_iter()
    .any(|stream| {
        fstat(stream).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
    })
}
