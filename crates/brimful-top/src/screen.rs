//! The terminal while the view is up.

use std::fs::File;
use std::io::{self, IsTerminal, Stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The alternate screen of a terminal in raw mode. However it is dropped, also by a panic, the terminal is as before.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Where keys come from, if standard input is no terminal.
    keys: Option<File>,
}

/// What waiting for keys came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// A key, a signal, or nothing for as long.
    Awake,
    /// The terminal was closed.
    Hangup,
}

impl Screen {
    pub(crate) fn enter() -> io::Result<Screen> {
        enable_raw_mode()?;
        // From here on, leaving undoes what was done, whatever fails.
        let undo = Undo;
        execute!(io::stdout(), EnterAlternateScreen)?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        let keys = if io::stdin().is_terminal() {
            None
        } else {
            Some(File::open("/dev/tty")?)
        };
        std::mem::forget(undo);
        Ok(Screen { terminal, keys })
    }

    pub(crate) fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) -> io::Result<()> {
        self.terminal
            .draw(|frame| draw(frame.area(), frame.buffer_mut()))
            .map(|_| ())
    }

    /// Waits for keys. Asked before crossterm is, which would read a closed terminal for ever.
    pub(crate) fn wait(&self, time: Duration) -> io::Result<Waited> {
        let stdin = io::stdin();
        let keys: BorrowedFd<'_> = match &self.keys {
            Some(keys) => keys.as_fd(),
            None => stdin.as_fd(),
        };
        let mut watched = [PollFd::from_borrowed_fd(keys, PollFlags::IN)];
        let time = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        match poll(&mut watched, Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let closed = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        Ok(if watched[0].revents().intersects(closed) {
            Waited::Hangup
        } else {
            Waited::Awake
        })
    }

    pub(crate) fn columns(&self) -> io::Result<usize> {
        Ok(usize::from(self.terminal.size()?.width))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

struct Undo;

impl Drop for Undo {
    fn drop(&mut self) {
        leave();
    }
}

fn leave() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}
