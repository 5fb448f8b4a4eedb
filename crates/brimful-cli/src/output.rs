//! The only module that prints.

#![expect(
    clippy::print_stderr,
    reason = "this is the file whose job it is to print"
)]

use std::any::Any;
use std::error::Error;
use std::io::{self, IsTerminal, Write};

use anstream::AutoStream;
use brimful::printable::is_printable;
use brimful::user_error::UserError;
use brimful_report::text::Page;
use brimful_top::{FrameSize, Look};
use clap::ColorChoice;

use crate::error::CommandError;
use crate::hints;

/// Lines longer than this are hard to read, however wide the terminal.
const MAX_WIDTH: usize = 80;

/// Lines of a script's output that a message shows.
const MAX_SCRIPT_LINES: usize = 15;

/// Standard output and error of one command.
#[derive(Debug)]
pub(crate) struct Output {
    color: ColorChoice,
}

impl Output {
    pub(crate) fn new(color: ColorChoice) -> Output {
        Output { color }
    }

    /// How a page for standard output may look.
    pub(crate) fn page() -> Page {
        let columns =
            terminal_size::terminal_size().map_or(MAX_WIDTH, |(width, _)| usize::from(width.0));
        Page {
            width: columns.clamp(40, MAX_WIDTH),
            // `AutoStream` takes the color out again where it is not wanted.
            color: true,
            unicode: supports_utf8(),
        }
    }

    /// Shows one line about the progress in place of the last one, if standard error is a terminal.
    #[expect(
        clippy::unused_self,
        reason = "a channel of the output, like the others"
    )]
    pub(crate) fn status(&self, text: &str) {
        if io::stderr().is_terminal() {
            let line: String = text
                .chars()
                .filter(|c| is_printable(*c))
                .take(MAX_WIDTH - 1)
                .collect();
            eprint!("\r\x1b[K{line}");
        }
    }

    /// Prints a note and a hint to standard error.
    pub(crate) fn notice(&self, text: &str, hint: &str) {
        self.clear_status();
        eprintln!("note: {}", without_control_characters(text));
        eprintln!("hint: {}", without_control_characters(hint));
    }

    /// Prints a line of brimful's own to standard error.
    pub(crate) fn note(&self, text: &str) {
        self.clear_status();
        self.print_to_stderr(&format!("brimful: {text}\n"));
    }

    #[expect(
        clippy::unused_self,
        reason = "a channel of the output, like the others"
    )]
    pub(crate) fn clear_status(&self) {
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    }

    /// A page as wide as the terminal.
    pub(crate) fn full_width() -> Page {
        let columns =
            terminal_size::terminal_size().map_or(MAX_WIDTH, |(width, _)| usize::from(width.0));
        Page {
            width: columns.max(20) - 1,
            color: false,
            unicode: supports_utf8(),
        }
    }

    /// How the live view may look, on standard output.
    pub(crate) fn look(&self) -> Look {
        let choice = match self.color {
            ColorChoice::Auto => AutoStream::choice(&io::stdout()),
            ColorChoice::Always => anstream::ColorChoice::AlwaysAnsi,
            ColorChoice::Never => anstream::ColorChoice::Never,
        };
        Look {
            color: choice != anstream::ColorChoice::Never,
            unicode: supports_utf8(),
        }
    }

    /// The size of a frame that is printed once.
    pub(crate) fn frame_size() -> FrameSize {
        let (columns, rows) =
            terminal_size::terminal_size().map_or((80, 24), |(width, height)| (width.0, height.0));
        FrameSize {
            columns: columns.clamp(20, 500),
            // It scrolls; what a short terminal has no room for is not left out.
            rows: rows.clamp(24, 200),
        }
    }

    /// Writes messages to standard error.
    pub(crate) fn print_to_stderr(&self, text: &str) {
        let choice = match self.color {
            ColorChoice::Auto => AutoStream::choice(&io::stderr()),
            ColorChoice::Always => anstream::ColorChoice::AlwaysAnsi,
            ColorChoice::Never => anstream::ColorChoice::Never,
        };
        let mut stream = AutoStream::new(io::stderr().lock(), choice);
        let _ = stream
            .write_all(text.as_bytes())
            .and_then(|()| stream.flush());
    }

    /// Writes results to standard output. A closed pipe is not an error.
    pub(crate) fn print(&self, text: &str) -> Result<(), CommandError> {
        let choice = match self.color {
            ColorChoice::Auto => AutoStream::choice(&io::stdout()),
            ColorChoice::Always => anstream::ColorChoice::AlwaysAnsi,
            ColorChoice::Never => anstream::ColorChoice::Never,
        };
        let mut stream = AutoStream::new(io::stdout().lock(), choice);
        match stream
            .write_all(text.as_bytes())
            .and_then(|()| stream.flush())
        {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(CommandError::Output(error))
            }
            _ => Ok(()),
        }
    }
}

/// Prints an error, its causes and its hints to standard error.
pub(crate) fn print_error(error: &CommandError) {
    if let Some(text) = error
        .script_output()
        .map(str::trim_end)
        .filter(|text| !text.is_empty())
    {
        eprintln!("last lines of the script's output:");
        let lines: Vec<&str> = text.lines().collect();
        for line in lines
            .iter()
            .skip(lines.len().saturating_sub(MAX_SCRIPT_LINES))
        {
            eprintln!("  | {}", without_control_characters(line));
        }
        eprintln!();
    }
    eprintln!("error: {}", without_control_characters(&error.to_string()));
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!(
            "  caused by: {}",
            without_control_characters(&error.to_string())
        );
        cause = error.source();
    }
    let hints = error.hints();
    if !hints.is_empty() {
        eprintln!();
    }
    for hint in hints {
        eprintln!("hint: {}", without_control_characters(&hints::text(&hint)));
    }
}

/// A message may quote an untrusted file, so control characters, which could steer the terminal, are removed.
fn without_control_characters(text: &str) -> String {
    text.chars()
        .filter(|c| is_printable(*c) || matches!(c, '\t' | '\n'))
        .collect()
}

/// Prints one line to standard error.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", without_control_characters(line));
}

/// Whether standard error is a terminal that can keep a line at its bottom.
pub(crate) fn can_show_status_line() -> bool {
    io::stderr().is_terminal() && !is_dumb()
}

/// Whether standard output is a terminal on which a cursor can be moved.
pub(crate) fn can_show_screen() -> bool {
    io::stdout().is_terminal() && !is_dumb()
}

fn is_dumb() -> bool {
    std::env::var_os(brimful::env_vars::TERM).is_none_or(|term| term == "dumb" || term.is_empty())
}

/// Reports a bug in brimful.
pub(crate) fn print_internal_error(what: &str) {
    eprintln!(
        "error: internal error in brimful {}: {what}",
        env!("CARGO_PKG_VERSION")
    );
    eprintln!();
    eprintln!(
        "hint: this is a bug; please report it with this message and the output of `brimful probe --json`"
    );
}

/// A closed standard error must not turn a report into a second panic, so the default hook is silenced.
pub(crate) fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".into())
}

/// Pipes get block characters too: what reads them is a file or a program that shows UTF-8.
fn supports_utf8() -> bool {
    if !io::stdout().is_terminal() {
        return true;
    }
    let locale = [
        brimful::env_vars::LC_ALL,
        brimful::env_vars::LC_CTYPE,
        brimful::env_vars::LANG,
    ]
    .into_iter()
    .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    .unwrap_or_default()
    .to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
