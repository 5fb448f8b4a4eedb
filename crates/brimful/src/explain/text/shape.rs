//! Whether words report an error, or only speak of one.
//!
//! "Out of memory" stands in advice, in lists of possible causes and in guesses of launchers as often as in errors. What
//! happened has the shape of an error: an exception's class before it, a size beside it, or a line that begins with it.

use crate::explain::text::clean::Reading;
use crate::explain::text::exception::exception;
use crate::explain::text::phrases::Hit;
use crate::explain::text::sign::{Rank, Sign};
use crate::explain::text::size::size_at_start;
use crate::explain::{Cause, Detail};

/// Lines over which a message may be wrapped.
const MAX_WRAPPED_LINES: usize = 3;
/// Bytes within which a size belongs to the words.
const NEAR: usize = 80;

/// Words of a line that reports an error.
const REPORTING: &[&str] = &[
    "error",
    "fail",
    "fatal",
    "abort",
    "panic",
    "exception",
    "critical",
    "terminat",
    "crash",
];

/// Whether an exception or a size makes it an error that happened.
pub(super) fn is_raised(reading: &Reading, hit: Hit) -> bool {
    has_size(reading, hit) || follows_exception(reading, hit)
}

/// Whether it is raised, or a line reports it: as its first words, or with a word for an error.
pub(super) fn is_reported(reading: &Reading, hit: Hit) -> bool {
    if is_raised(reading, hit) {
        return true;
    }
    let line = &reading.lines[reading.line_at(hit.at)];
    let small = line.to_lowercase();
    let before = reading.line_before(hit.at).trim_end();
    let begins = before.is_empty() || before.ends_with([':', ']', '>', '|', '"', '\'', '`', '(']);
    begins || REPORTING.iter().any(|word| small.contains(word))
}

/// Words about memory of which nothing shows that they happened.
pub(super) fn weak(hit: Hit) -> Sign {
    hit.sign(Rank::Aftermath, Cause::Ambiguous, Detail::UnknownWords)
}

fn follows_exception(reading: &Reading, hit: Hit) -> bool {
    let own = reading.line_at(hit.at);
    let first = own.saturating_sub(MAX_WRAPPED_LINES - 1);
    reading.lines[first..=own]
        .iter()
        .enumerate()
        .any(|(at, line)| match exception(line) {
            Some((begin, _)) => first + at < own || begin <= reading.line_before(hit.at).len(),
            None => false,
        })
}

/// `allocate 2.00 GiB`, `of size 8000 bytes`; a bare number is none.
fn has_size(reading: &Reading, hit: Hit) -> bool {
    let near = reading.around(hit.at, NEAR, NEAR + (hit.end - hit.at));
    near.match_indices(|c: char| c.is_ascii_digit())
        .filter(|(at, _)| !near[..*at].ends_with(|c: char| c.is_ascii_digit() || c == '.'))
        .any(|(at, _)| {
            let rest = &near[at..];
            let unit =
                rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == ',');
            ["byte", "kib", "mib", "gib", "tib", "kb", "mb", "gb", "tb"]
                .iter()
                .any(|name| unit.starts_with(name))
                && size_at_start(rest).is_some()
        })
}
