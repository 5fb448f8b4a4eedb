//! What a person sees of a run: notices between the training's lines, and the status line.

use std::time::{Duration, Instant};

use brimful::record::OutputLine;
use brimful::watch::{Sample, WatchState};
use rustix::termios::tcgetwinsize;

use crate::fault;
use crate::keeper::Keeper;
use crate::notice::{Audience, Notice};
use crate::relay::Relay;
use crate::start_step::StartStep;

const STATUS_INTERVAL: Duration = Duration::from_millis(900);
/// A command that ends sooner shows no status line.
const STATUS_AFTER: Duration = Duration::from_millis(900);
/// For what is still on its way through the streams once every process has ended.
const DRAIN: Duration = Duration::from_secs(2);

/// Shows notices and the status line.
pub(crate) struct Display<'a> {
    audience: &'a mut dyn Audience,
    relay: Option<Relay>,
    /// Whether brimful's own lines go through the relay, which puts them between those of the training.
    through_relay: bool,
    status_line: bool,
    started: Instant,
    status_at: Option<Instant>,
    /// The rows of the terminal, as the keeper knows them.
    keeper_rows: Option<u16>,
    /// Rows and columns of the real terminal at the last look.
    window: Option<(u16, u16)>,
}

impl<'a> Display<'a> {
    pub(crate) fn new(
        audience: &'a mut dyn Audience,
        relay: Option<Relay>,
        through_relay: bool,
        status_line: bool,
        started: Instant,
    ) -> Display<'a> {
        Display {
            audience,
            relay,
            through_relay,
            status_line,
            started,
            status_at: None,
            keeper_rows: None,
            window: None,
        }
    }

    /// Shows a notice while the training runs.
    pub(crate) fn notice(&mut self, notice: &Notice<'_>) {
        let Some(line) = self.audience.line(notice) else {
            return;
        };
        match &self.relay {
            Some(relay) if self.through_relay => relay.say(line),
            _ => self.audience.print(&line),
        }
    }

    /// Shows a notice after the relay has ended.
    pub(crate) fn last_notice(&mut self, notice: &Notice<'_>) {
        self.audience.print_notice(notice);
    }

    /// Updates the status line if it is due. The keeper has to know its row to remove it.
    pub(crate) fn status(&mut self, sample: &Sample, state: &WatchState, keeper: Option<&Keeper>) {
        let Some(relay) = &self.relay else { return };
        let is_due = self
            .status_at
            .is_none_or(|at| at.elapsed() >= STATUS_INTERVAL);
        if !self.status_line || !is_due || self.started.elapsed() < STATUS_AFTER {
            return;
        }
        if self.status_at.is_none() && fault::inject(StartStep::StatusLine).is_err() {
            self.status_line = false;
            return;
        }
        self.status_at = Some(Instant::now());
        relay.show(self.audience.status(sample, state));
        let rows = relay.rows_in_use();
        if rows != self.keeper_rows {
            self.keeper_rows = rows;
            if let Some(keeper) = keeper {
                keeper.status_line_is_up(rows);
            }
        }
    }

    /// Looks for another size of the terminal. Nobody tells about it while another process group has the terminal.
    pub(crate) fn look_at_window(&mut self) {
        let size = tcgetwinsize(rustix::stdio::stderr())
            .or_else(|_| tcgetwinsize(rustix::stdio::stdout()));
        let Ok(size) = size else { return };
        let before = self.window.replace((size.ws_row, size.ws_col));
        if before.is_some_and(|before| before != (size.ws_row, size.ws_col)) {
            self.resized();
        }
    }

    /// The terminal has another size.
    pub(crate) fn resized(&self) {
        if let Some(relay) = &self.relay {
            relay.resized();
        }
    }

    /// Removes the status line: somebody else uses the terminal.
    pub(crate) fn remove_status_line(&self) {
        if let Some(relay) = &self.relay {
            relay.take_down();
        }
    }

    /// The terminal is the training's again: the status line is due.
    pub(crate) fn status_line_is_due(&mut self) {
        self.status_at = None;
    }

    /// Passes on what is still on its way, and ends the relay.
    pub(crate) fn drain(&mut self) {
        if let Some(relay) = &mut self.relay {
            relay.finish(DRAIN);
        }
    }

    /// The end of each stream so far.
    pub(crate) fn tails(&self, at_ms: u64) -> Vec<OutputLine> {
        self.relay
            .as_ref()
            .map_or_else(Vec::new, |relay| relay.tails(at_ms))
    }

    pub(crate) fn remove_tail_files(&self) {
        if let Some(relay) = &self.relay {
            relay.remove_tail_files();
        }
    }
}
