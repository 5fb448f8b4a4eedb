//! The terminal while the view is up.

use std::io::{self, Stdout};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;

/// The alternate screen of a terminal in raw mode. However it is dropped, also by a panic, the terminal is as before.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub(crate) fn enter() -> io::Result<Screen> {
        enable_raw_mode()?;
        // From here on, leaving undoes what was done, whatever fails.
        let undo = Undo;
        execute!(io::stdout(), EnterAlternateScreen)?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        std::mem::forget(undo);
        Ok(Screen { terminal })
    }

    pub(crate) fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) -> io::Result<()> {
        self.terminal
            .draw(|frame| draw(frame.area(), frame.buffer_mut()))
            .map(|_| ())
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
