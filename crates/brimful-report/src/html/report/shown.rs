//! Text from outside, as a page may show it.

use brimful::printable::is_printable;
use brimful::secrets::{mask_command, mask_text};
use serde::Serialize;

/// Characters of a sentence, a name or a path.
const MAX_TEXT: usize = 500;
/// Characters of a command line.
const MAX_COMMAND: usize = 1000;

/// Text that may come from anybody: without secrets, control characters and more than a page has room for. The template
/// escapes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub(super) struct Shown(String);

impl Shown {
    pub(super) fn of(text: &str) -> Shown {
        Shown::within(text, MAX_TEXT)
    }

    /// A command line.
    pub(super) fn command(words: &[String]) -> Shown {
        Shown::within(&mask_command(words).join(" "), MAX_COMMAND)
    }

    /// Text of several lines.
    pub(super) fn lines(text: &str) -> Shown {
        let start = &text[..text.floor_char_boundary(MAX_TEXT * 8)];
        let shown: Vec<String> = start.split('\n').map(|line| Shown::of(line).0).collect();
        let shown = shown.join("\n");
        let end = shown.char_indices().nth(MAX_TEXT).map(|(end, _)| end);
        Shown(match end {
            Some(end) => format!("{}…", &shown[..end]),
            None => shown,
        })
    }

    fn within(text: &str, max_chars: usize) -> Shown {
        // A secret is masked before it is cut: a part of it would not be found.
        let start = &text[..text.floor_char_boundary(max_chars * 8)];
        let mut shown = String::new();
        for (n_before, c) in mask_text(start).chars().enumerate() {
            if n_before == max_chars {
                shown.push('…');
                break;
            }
            shown.push(if is_printable(c) { c } else { ' ' });
        }
        Shown(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_control_characters_are_gone_and_long_texts_end() {
        let shown =
            Shown::of("a\u{202e}b\n\u{1b}[31m HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzabcdefgh");
        assert_eq!(shown.0, "a b  [31m HF_TOKEN=***");
        assert_eq!(
            Shown::of(&"é".repeat(10_000)).0.chars().count(),
            MAX_TEXT + 1
        );
        assert_eq!(Shown::lines("a\n\tb\u{1b}").0, "a\n b ");
        assert_eq!(
            Shown::lines(&"é\n".repeat(10_000)).0.chars().count(),
            MAX_TEXT + 1
        );
        let words = ["train", "--api-key", "abc"].map(str::to_owned);
        assert_eq!(Shown::command(&words).0, "train --api-key ***");
    }
}
