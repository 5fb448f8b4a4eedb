//! The only place that prints.

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
use clap::ColorChoice;

use crate::error::CommandError;
use crate::hints;

/// Lines longer than this are hard to read, however wide the terminal.
const WIDEST: usize = 80;

/// Lines of a script's output that a message shows.
const SHOWN_LINES: usize = 15;

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
            terminal_size::terminal_size().map_or(WIDEST, |(width, _)| usize::from(width.0));
        Page {
            width: columns.clamp(40, WIDEST),
            // `AutoStream` takes the color out again where it is not wanted.
            color: true,
            unicode: speaks_utf8(),
        }
    }

    /// One line about what is going on, in place of the last one; only where somebody watches.
    #[expect(
        clippy::unused_self,
        reason = "a channel of the output, like the others"
    )]
    pub(crate) fn status(&self, text: &str) {
        if io::stderr().is_terminal() {
            let line: String = text
                .chars()
                .filter(|c| is_printable(*c))
                .take(WIDEST - 1)
                .collect();
            eprint!("\r\x1b[K{line}");
        }
    }

    /// Something to know about what follows, on standard error.
    pub(crate) fn notice(&self, text: &str, hint: &str) {
        self.clear_status();
        eprintln!("note: {}", harmless(text));
        eprintln!("hint: {}", harmless(hint));
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
            terminal_size::terminal_size().map_or(WIDEST, |(width, _)| usize::from(width.0));
        Page {
            width: columns.max(20) - 1,
            color: false,
            unicode: speaks_utf8(),
        }
    }

    /// Writes talk to standard error.
    pub(crate) fn talk(&self, text: &str) {
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

    /// Writes data to standard output. A reader that has gone away is not an error.
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

/// Tells what went wrong and what to do next, on standard error.
pub(crate) fn complain(error: &CommandError) {
    if let Some(text) = error
        .script_output()
        .map(str::trim_end)
        .filter(|text| !text.is_empty())
    {
        eprintln!("last lines of the script's output:");
        let lines: Vec<&str> = text.lines().collect();
        for line in lines.iter().skip(lines.len().saturating_sub(SHOWN_LINES)) {
            eprintln!("  | {}", harmless(line));
        }
        eprintln!();
    }
    eprintln!("error: {}", harmless(&error.to_string()));
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!("  caused by: {}", harmless(&error.to_string()));
        cause = error.source();
    }
    let hints = error.hints();
    if !hints.is_empty() {
        eprintln!();
    }
    for hint in hints {
        eprintln!("hint: {}", harmless(&hints::text(&hint)));
    }
}

/// What a message quotes may come from a hostile file: nothing in it may steer the terminal.
fn harmless(text: &str) -> String {
    text.chars()
        .filter(|c| is_printable(*c) || matches!(c, '\t' | '\n'))
        .collect()
}

/// One line of talk on standard error.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", harmless(line));
}

/// Whether a line at the bottom of the terminal would be shown and not printed.
pub(crate) fn status_line_makes_sense() -> bool {
    let dumb = std::env::var_os(brimful::env_vars::TERM)
        .is_none_or(|term| term == "dumb" || term.is_empty());
    io::stderr().is_terminal() && !dumb
}

/// Owns up to a bug.
pub(crate) fn confess(what: &str) {
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
fn speaks_utf8() -> bool {
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
