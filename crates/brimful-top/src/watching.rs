//! The loop: lines of the record and keys in, frames out.

use std::io;
use std::time::{Duration, Instant};

use brimful::explain::Verdict;
use brimful::live::LiveRun;
use brimful_supervise::{AttachedRun, Followed, RecordFollower, explain_record};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::style::force_color_output;

use crate::controls::{Command, Controls, FullPage};
use crate::draw::{draw, n_scrollable};
use crate::error::TopError;
use crate::look::Look;
use crate::screen::{Screen, Waited};
use crate::shown::{RunState, Shown};

/// New lines are drawn at most this often.
const INTERVAL: Duration = Duration::from_millis(500);
/// The same once the run has ended: nothing is expected any more.
const INTERVAL_ENDED: Duration = Duration::from_secs(2);
/// Keys are answered at once, but not drawn more often than this.
const KEY_INTERVAL: Duration = Duration::from_millis(50);
/// A record without a new line for this long may have lost its writer.
const QUIET: Duration = Duration::from_secs(3);
/// Seconds without a line from which on the header shows them, in steps of as many.
const QUIET_SHOWN: u64 = 10;

/// Shows a run on the terminal until the user quits or `is_interrupted`.
pub fn watch(
    attached: &AttachedRun,
    look: Look,
    mut is_interrupted: impl FnMut() -> bool,
) -> Result<(), TopError> {
    let mut view = View::new(attached, look);
    // Errors of the record come before the screen is changed.
    view.read().map_err(TopError::Read)?;
    TopError::check(attached, &view.live)?;
    view.look_for_the_end();
    force_color_output(look.color);
    let mut screen = Screen::enter().map_err(TopError::Terminal)?;
    loop {
        if view.is_changed {
            screen
                .draw(|area, buffer| draw(&view.shown(), area, buffer))
                .map_err(TopError::Terminal)?;
            view.is_changed = false;
            view.drawn_at = Instant::now();
        }
        let columns = screen.columns().map_err(TopError::Terminal)?;
        // No longer than that, so that a signal is answered soon.
        let wait = view.interval().min(INTERVAL);
        let waited = screen.wait(wait).map_err(TopError::Terminal)?;
        if waited == Waited::Hangup
            || view.handle_keys(columns).map_err(TopError::Terminal)?
            || is_interrupted()
        {
            return Ok(());
        }
        view.refresh().map_err(TopError::Read)?;
    }
}

/// What is shown, and where it comes from.
struct View<'a> {
    attached: &'a AttachedRun,
    follower: RecordFollower,
    live: LiveRun,
    is_running: bool,
    verdict: Option<Verdict>,
    controls: Controls,
    look: Look,
    /// When the record last had a new line.
    changed_at: Instant,
    refreshed_at: Instant,
    quiet_seconds: Option<u64>,
    /// Something is not drawn yet.
    is_changed: bool,
    drawn_at: Instant,
}

impl<'a> View<'a> {
    fn new(attached: &'a AttachedRun, look: Look) -> View<'a> {
        View {
            attached,
            follower: attached.follow(),
            live: LiveRun::default(),
            is_running: true,
            verdict: None,
            controls: Controls::default(),
            look,
            changed_at: Instant::now(),
            refreshed_at: Instant::now(),
            quiet_seconds: None,
            is_changed: true,
            drawn_at: Instant::now(),
        }
    }

    /// Follows all keys that have arrived. Whether to quit.
    fn handle_keys(&mut self, columns: usize) -> io::Result<bool> {
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) => {
                    if let Some(command) = Command::of(key) {
                        if self.follow(command, columns) {
                            return Ok(true);
                        }
                        self.is_changed = true;
                    }
                }
                Event::Resize(..) => self.is_changed = true,
                _ => {}
            }
        }
        // A key that is held down is not drawn more often than this.
        if self.is_changed {
            std::thread::sleep(KEY_INTERVAL.saturating_sub(self.drawn_at.elapsed()));
        }
        Ok(false)
    }

    fn state(&self) -> RunState {
        RunState::of(&self.live, self.is_running)
    }

    fn shown(&self) -> Shown<'_> {
        Shown {
            live: &self.live,
            state: self.state(),
            quiet_seconds: self.quiet_seconds,
            verdict: self.verdict.as_ref(),
            controls: self.controls,
            is_interactive: true,
            look: self.look,
        }
    }

    fn interval(&self) -> Duration {
        let interval = if self.is_running {
            INTERVAL
        } else {
            INTERVAL_ENDED
        };
        interval.saturating_sub(self.refreshed_at.elapsed())
    }

    /// Reads new lines if it is time to.
    fn refresh(&mut self) -> io::Result<()> {
        if !self.interval().is_zero() {
            return Ok(());
        }
        self.refreshed_at = Instant::now();
        if self.read()? {
            self.changed_at = Instant::now();
            self.is_changed = true;
            self.is_running = true;
        }
        if self.live.end().is_some() || self.changed_at.elapsed() >= QUIET {
            self.look_for_the_end();
        }
        let quiet = self.changed_at.elapsed().as_secs() / QUIET_SHOWN * QUIET_SHOWN;
        let quiet = Some(quiet).filter(|seconds| *seconds > 0 && self.is_running);
        self.is_changed |= quiet != self.quiet_seconds;
        self.quiet_seconds = quiet;
        Ok(())
    }

    fn read(&mut self) -> io::Result<bool> {
        let (live, verdict) = (&mut self.live, &mut self.verdict);
        self.follower.poll(|followed| {
            // What was explained is about an earlier state.
            *verdict = None;
            match followed {
                Followed::Restarted => *live = LiveRun::default(),
                Followed::Line(next) => live.take(*next),
            }
        })
    }

    fn look_for_the_end(&mut self) {
        let is_running = self.attached.is_running();
        self.is_changed |= is_running != self.is_running;
        self.is_running = is_running;
    }

    /// Follows a key; whether to quit.
    fn follow(&mut self, command: Command, columns: usize) -> bool {
        let n_rows = n_scrollable(&self.shown(), columns);
        let quit = self.controls.follow(command, n_rows);
        if self.controls.page == Some(FullPage::Explain) {
            self.explain();
        }
        quit
    }

    /// Explains an attempt whose verdict is not in the record. Only this reads the record as a whole.
    fn explain(&mut self) {
        let is_recorded = self.live.end().is_some_and(|end| end.verdict.is_some());
        let is_over = matches!(self.state(), RunState::Ended | RunState::CutOff);
        if is_recorded || !is_over || self.verdict.is_some() {
            return;
        }
        if let Ok(record) = self.attached.read() {
            self.verdict = Some(explain_record(&record, self.attached.directory()));
        }
    }
}
