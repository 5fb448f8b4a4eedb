//! A run under brimful beside a bare one: what differs, and whether that is promised.

use std::collections::BTreeSet;

use crate::never_worse::observe::Observation;
use crate::never_worse::programs::{Program, Surroundings};

/// How much longer a run may take under brimful, which is not optimized here, on a machine that is busy with others.
const MAX_MORE_SECONDS: f64 = 4.0;
/// What brimful says about the end of a run begins with this, and nothing follows that is not brimful's.
const LAST_WORD: &[u8] = b"brimful: the run ";
/// What it says before begins with this, on a line of its own.
const OWN_LINE: &[u8] = b"brimful: ";

/// Something that is not as in a bare run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// Documented under this name.
    Promised(&'static str),
    Undocumented(String),
}

use Difference::{Promised, Undocumented};

/// Everything that differs.
pub(crate) fn differences(
    program: &Program,
    surroundings: Surroundings,
    bare: &Observation,
    under: &Observation,
) -> Vec<Difference> {
    let mut found = Vec::new();
    let has = |promise: &str| program.differs.iter().any(|differs| differs == promise);
    for (whose, seen) in [("bare", bare), ("under brimful", under)] {
        if let Some(problem) = &seen.problem {
            found.push(Undocumented(format!("{whose}: {problem}")));
        }
        if seen.late {
            found.push(Undocumented(format!("{whose}: it does not end")));
        }
    }
    if !found.is_empty() {
        return found;
    }
    if bare.status != under.status {
        found.push(Undocumented(format!(
            "ends with {}, bare with {}",
            ending(under.status),
            ending(bare.status)
        )));
    }
    for (stream, bare, under) in [
        ("stdout", &bare.out, &under.out),
        ("stderr", &bare.err, &under.err),
    ] {
        found.extend(stream_difference(
            stream,
            &bytes(bare),
            &bytes(under),
            has("not_started"),
        ));
    }
    found.extend(state_differences(surroundings, bare, under));
    if bare.terminal != under.terminal {
        found.push(if has("brimful_is_killed") {
            Promised("brimful_is_killed")
        } else {
            Undocumented(format!(
                "leaves the terminal with {}, bare with {}",
                under.terminal, bare.terminal
            ))
        });
    }
    if bare.left != under.left {
        found.push(if has("brimful_is_killed") {
            Promised("brimful_is_killed")
        } else if under.left.is_empty() && has("nothing_left_running") {
            Promised("nothing_left_running")
        } else {
            Undocumented(format!(
                "leaves {:?} running, bare {:?}",
                under.left, bare.left
            ))
        });
    }
    if under.seconds > bare.seconds + MAX_MORE_SECONDS {
        found.push(Undocumented(format!(
            "takes {:.1} s, bare {:.1} s",
            under.seconds, bare.seconds
        )));
    }
    found
}

fn state_differences(
    surroundings: Surroundings,
    bare: &Observation,
    under: &Observation,
) -> Vec<Difference> {
    let names: BTreeSet<&String> = bare.state.keys().chain(under.state.keys()).collect();
    let mut found = Vec::new();
    for name in names {
        let (was, is) = (bare.state.get(name), under.state.get(name));
        if was == is {
            continue;
        }
        found.push(match name.strip_prefix("variable ") {
            Some(variable) if is_of_hook(variable) => Promised("hook_variables"),
            // These name the directory of the run, which has another name each time.
            Some("HOME" | "PWD" | "OLDPWD" | "NEVER_WORSE") => continue,
            _ if name == "leads its session" && surroundings == Surroundings::Cron => {
                Promised("session")
            }
            _ => Undocumented(format!("{name}: {is:?}, bare {was:?}")),
        });
    }
    found
}

/// Whether the hook of a run sets this variable.
fn is_of_hook(variable: &str) -> bool {
    variable == "PYTHONPATH"
        || variable == "TORCHELASTIC_ERROR_FILE"
        || variable.starts_with("BRIMFUL_")
}

fn stream_difference(
    stream: &str,
    bare: &[u8],
    under: &[u8],
    is_not_started: bool,
) -> Option<Difference> {
    if bare == under {
        return None;
    }
    if is_not_started && bare.is_empty() && under.starts_with(b"error: failed to start ") {
        return Some(Promised("not_started"));
    }
    if is_same_but_for_own_lines(bare, under) {
        return Some(Promised("own_lines"));
    }
    let shown = |bytes: &[u8]| {
        let text: String = String::from_utf8_lossy(bytes).chars().take(400).collect();
        format!("{} bytes {text:?}", bytes.len())
    };
    Some(Undocumented(format!(
        "{stream}: {}, bare {}",
        shown(under),
        shown(bare)
    )))
}

/// Whether the output is that of a bare run once brimful's own lines are taken out.
fn is_same_but_for_own_lines(bare: &[u8], under: &[u8]) -> bool {
    let last_word = under
        .windows(LAST_WORD.len())
        .rposition(|window| window == LAST_WORD);
    let (before, has_last_word) = match last_word {
        Some(at) => (&under[..at], true),
        None => (under, false),
    };
    let kept: Vec<u8> = before
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| !is_own(line))
        .flatten()
        .copied()
        .collect();
    // What it says about a run that has died begins with an empty line.
    let without_empty_line = kept
        .strip_suffix(b"\r\n")
        .or_else(|| kept.strip_suffix(b"\n"));
    kept == bare || (has_last_word && without_empty_line == Some(bare))
}

/// On a terminal it clears what stands on the line, such as a progress bar.
fn is_own(line: &[u8]) -> bool {
    let line = line.strip_prefix(b"\r\x1b[K").unwrap_or(line);
    line.starts_with(OWN_LINE)
}

fn ending(status: i32) -> String {
    let signal = status & 0x7f;
    if signal == 0 {
        format!("exit code {}", status >> 8 & 0xff)
    } else {
        format!("signal {signal}")
    }
}

/// Decodes base64, which is all of the alphabet that the observer writes.
fn bytes(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| *byte != b'=')
        .map(value)
        .collect();
    let mut decoded = Vec::new();
    for group in digits.chunks(4) {
        let whole = group
            .iter()
            .fold(0_u32, |whole, digit| whole << 6 | u32::from(*digit))
            << (6 * (4 - group.len()));
        decoded.extend_from_slice(&whole.to_be_bytes()[1..group.len()]);
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_lines_are_not_the_programs() {
        let same =
            |bare: &str, under: &str| is_same_but_for_own_lines(bare.as_bytes(), under.as_bytes());
        assert!(same("a\n", "a\nbrimful: the run finished\n"));
        assert!(same("a", "abrimful: the run finished\n"));
        assert!(same("a\r\n", "\r\x1b[Kbrimful: no cgroup\r\na\r\n"));
        assert!(same(
            "a\n",
            "brimful: no cgroup\na\nbrimful: the run finished\n"
        ));
        assert!(same(
            "a\n",
            "a\n\nbrimful: the run failed\n\nWhy\nEvidence\n"
        ));
        assert!(same("a\r\n", "a\r\n\r\nbrimful: the run failed\r\n"));
        assert!(!same("a\n", "brimful: the run finished\n"));
        assert!(!same("a\n", "a\nb\nbrimful: the run finished\n"));
        assert!(!same("a\n", "a\n\n"));
    }

    #[test]
    fn base64_is_decoded() {
        assert_eq!(bytes("aGVsbG8="), b"hello");
        assert_eq!(bytes("/+8A"), [0xff, 0xef, 0]);
        assert_eq!(bytes(""), b"");
    }

    #[test]
    fn statuses_are_as_a_shell_sees_them() {
        assert_eq!(ending(0x300), "exit code 3");
        assert_eq!(ending(9), "signal 9");
    }
}
