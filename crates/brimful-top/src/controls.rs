//! Keys, and what they change.

use brimful::live::TimeRange;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::frame::PanelKind;

/// Rows of one page up or down.
const PAGE: usize = 10;

/// What the user has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Controls {
    pub(crate) range: TimeRange,
    pub(crate) focus: Option<PanelKind>,
    /// Rows by which the panel or page in focus is scrolled.
    pub(crate) scroll: usize,
    pub(crate) page: Option<FullPage>,
}

/// A page over the whole screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FullPage {
    Explain,
    Help,
}

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Quit,
    /// Close the page, or quit.
    Back,
    LongerRange,
    ShorterRange,
    NextPanel,
    PreviousPanel,
    Up(usize),
    Down(usize),
    Explain,
    Help,
}

impl Command {
    pub(crate) fn of(key: KeyEvent) -> Option<Command> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        Some(match key.code {
            KeyCode::Char('c') if is_control => Command::Quit,
            KeyCode::Char('q' | 'Q') => Command::Quit,
            KeyCode::Esc => Command::Back,
            KeyCode::Right => Command::LongerRange,
            KeyCode::Left => Command::ShorterRange,
            KeyCode::Tab => Command::NextPanel,
            KeyCode::BackTab => Command::PreviousPanel,
            KeyCode::Up | KeyCode::Char('k') => Command::Up(1),
            KeyCode::Down | KeyCode::Char('j') => Command::Down(1),
            KeyCode::PageUp => Command::Up(PAGE),
            KeyCode::PageDown => Command::Down(PAGE),
            KeyCode::Char('e') => Command::Explain,
            KeyCode::Char('?' | 'h') => Command::Help,
            _ => return None,
        })
    }
}

impl Controls {
    /// Follows a command. Returns whether to quit. `n_rows` are the rows that can be scrolled through at present.
    pub(crate) fn follow(&mut self, command: Command, n_rows: usize) -> bool {
        match command {
            Command::Quit => return true,
            Command::Back if self.page.is_none() => return true,
            Command::Back => self.show(None),
            Command::LongerRange => self.range = self.range.longer(),
            Command::ShorterRange => self.range = self.range.shorter(),
            Command::NextPanel => {
                self.set_focus([None, Some(PanelKind::Processes), Some(PanelKind::Alarms)]);
            }
            Command::PreviousPanel => {
                self.set_focus([None, Some(PanelKind::Alarms), Some(PanelKind::Processes)]);
            }
            Command::Up(rows) => self.scroll = self.scroll.saturating_sub(rows),
            Command::Down(rows) => {
                self.scroll = self
                    .scroll
                    .saturating_add(rows)
                    .min(n_rows.saturating_sub(1));
            }
            Command::Explain => self.toggle(FullPage::Explain),
            Command::Help => self.toggle(FullPage::Help),
        }
        false
    }

    /// The panel after the present one in this order.
    fn set_focus(&mut self, order: [Option<PanelKind>; 3]) {
        let at = order.iter().position(|kind| *kind == self.focus);
        self.focus = order[at.map_or(0, |at| (at + 1) % order.len())];
        self.scroll = 0;
    }

    fn toggle(&mut self, page: FullPage) {
        self.show(Some(page).filter(|page| self.page != Some(*page)));
    }

    fn show(&mut self, page: Option<FullPage>) {
        self.page = page;
        self.scroll = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(controls: &mut Controls, code: KeyCode) -> bool {
        let command = Command::of(KeyEvent::new(code, KeyModifiers::NONE)).unwrap();
        controls.follow(command, 5)
    }

    #[test]
    fn arrows_change_the_time_range_within_its_bounds() {
        let mut controls = Controls::default();
        for _ in 0..5 {
            press(&mut controls, KeyCode::Right);
        }
        assert_eq!(controls.range, TimeRange::All);
        for _ in 0..5 {
            press(&mut controls, KeyCode::Left);
        }
        assert_eq!(controls.range, TimeRange::Minute);
    }

    #[test]
    fn escape_closes_a_page_and_then_quits() {
        let mut controls = Controls::default();
        press(&mut controls, KeyCode::Char('?'));
        assert_eq!(controls.page, Some(FullPage::Help));
        press(&mut controls, KeyCode::Char('e'));
        assert_eq!(controls.page, Some(FullPage::Explain));
        assert!(!press(&mut controls, KeyCode::Esc));
        assert_eq!(controls.page, None);
        assert!(press(&mut controls, KeyCode::Esc));
        assert!(press(&mut controls, KeyCode::Char('q')));
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(Command::of(control_c), Some(Command::Quit));
        assert_eq!(
            Command::of(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE)),
            None
        );
    }

    #[test]
    fn tab_goes_around_and_scrolling_stays_inside() {
        let mut controls = Controls::default();
        press(&mut controls, KeyCode::Tab);
        assert_eq!(controls.focus, Some(PanelKind::Processes));
        for _ in 0..9 {
            press(&mut controls, KeyCode::Down);
        }
        assert_eq!(controls.scroll, 4);
        press(&mut controls, KeyCode::Tab);
        assert_eq!(
            (controls.focus, controls.scroll),
            (Some(PanelKind::Alarms), 0)
        );
        press(&mut controls, KeyCode::Up);
        press(&mut controls, KeyCode::Tab);
        assert_eq!(controls.focus, None);
        press(&mut controls, KeyCode::BackTab);
        assert_eq!(controls.focus, Some(PanelKind::Alarms));
    }
}
