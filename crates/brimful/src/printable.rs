//! Characters that must not reach a terminal or a page from a file of anybody's making.

/// Whether a character shows itself and does nothing else.
pub fn is_printable(c: char) -> bool {
    !c.is_control() && !is_bidirectional_control(c)
}

/// Whether a character changes the direction of the text around it: with these a name is shown as another one.
pub fn is_bidirectional_control(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_any_script_is_printable_and_what_steers_it_is_not() {
        for c in "aä中שλ😀 \u{301}".chars() {
            assert!(is_printable(c), "{c:?}");
        }
        for c in "\u{0}\n\u{1b}\u{7f}\u{9b}\u{202e}\u{202a}\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}"
            .chars()
        {
            assert!(!is_printable(c), "{c:?}");
        }
    }
}
