//! The places in a command: `{workers}`, `{compile?--compile}`, and `{{` for a brace.

/// One part of a command, cut at its places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// `{name}`.
    Place(String),
    /// `{name?text}` or `{name?text|other}`.
    Switch {
        name: String,
        on: String,
        off: String,
    },
}

/// What is wrong with the braces of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BraceProblem {
    /// `{` without `}`.
    NotClosed,
    /// `}` without `{`.
    NotOpened,
    /// Not a name between the braces.
    NoName,
}

/// What became of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    Word(String),
    /// Switched off: nothing is left of it.
    Empty,
    /// A place has no value.
    Unknown,
}

impl Template {
    pub(crate) fn parse(part: &str) -> Result<Template, BraceProblem> {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = part;
        while let Some(at) = rest.find(['{', '}']) {
            text.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                text.push_str(brace);
                rest = after;
            } else if brace == "}" {
                return Err(BraceProblem::NotOpened);
            } else {
                let end = rest.find('}').ok_or(BraceProblem::NotClosed)?;
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(piece(&rest[..end])?);
                rest = &rest[end + 1..];
            }
        }
        text.push_str(rest);
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        Ok(Template { pieces })
    }

    /// The names of its places.
    pub(crate) fn places(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Place(name) | Piece::Switch { name, .. } => Some(name.as_str()),
        })
    }

    /// Whether it is one place and nothing else, such as the value of the option before it.
    pub(crate) fn is_only_a_place(&self) -> bool {
        matches!(self.pieces.as_slice(), [Piece::Place(_)])
    }

    /// The word, where it has no place.
    pub(crate) fn literal(&self) -> Option<String> {
        match self.pieces.as_slice() {
            [] => Some(String::new()),
            [Piece::Text(text)] => Some(text.clone()),
            _ => None,
        }
    }

    /// Puts values in. `value` gives the text of a name, and whether it counts as true.
    pub(crate) fn fill(&self, value: impl Fn(&str) -> Option<(String, bool)>) -> Filled {
        let mut word = String::new();
        let mut switched = false;
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => word.push_str(text),
                Piece::Place(name) => match value(name) {
                    Some((text, _)) => word.push_str(&text),
                    None => return Filled::Unknown,
                },
                Piece::Switch { name, on, off } => {
                    switched = true;
                    match value(name) {
                        Some((_, true)) => word.push_str(on),
                        Some((_, false)) => word.push_str(off),
                        None => {}
                    }
                }
            }
        }
        if word.is_empty() && switched {
            Filled::Empty
        } else {
            Filled::Word(word)
        }
    }
}

/// What stands between two braces.
fn piece(inside: &str) -> Result<Piece, BraceProblem> {
    let (name, text) = match inside.split_once('?') {
        Some((name, text)) => (name, Some(text)),
        None => (inside, None),
    };
    if !is_name(name) {
        return Err(BraceProblem::NoName);
    }
    let name = name.to_owned();
    Ok(match text {
        None => Piece::Place(name),
        Some(text) if text.contains('{') => return Err(BraceProblem::NotClosed),
        Some(text) => {
            let (on, off) = text.split_once('|').unwrap_or((text, ""));
            Piece::Switch {
                name,
                on: on.to_owned(),
                off: off.to_owned(),
            }
        }
    })
}

/// Letters, digits, `_`, `-` and `.`, beginning with a letter or `_`; at most 100 of them.
pub(crate) fn is_name(name: &str) -> bool {
    let first = name
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first
        && name.len() <= 100
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// The text with its braces doubled, so that it is taken as it is.
pub(crate) fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(part: &str, expected: &Filled) {
        let filled = Template::parse(part).unwrap().fill(|name| match name {
            "workers" => Some(("2".into(), true)),
            "yes" => Some(("true".into(), true)),
            "no" => Some(("false".into(), false)),
            _ => None,
        });
        assert_eq!(&filled, expected, "{part}");
    }

    fn word(text: &str) -> Filled {
        Filled::Word(text.into())
    }

    #[test]
    fn places_are_filled() {
        check("{workers}", &word("2"));
        check("--workers={workers}", &word("--workers=2"));
        check("a{workers}b{workers}c", &word("a2b2c"));
        check("{yes?--compile}", &word("--compile"));
        check("{workers?some}", &word("some"));
        check("{no?--compile}", &Filled::Empty);
        check("{no?--pin|--no-pin}", &word("--no-pin"));
        check("{yes?--pin|--no-pin}", &word("--pin"));
        check("x{no?--compile}", &word("x"));
        check("{other}", &Filled::Unknown);
        check("{other?text}", &Filled::Empty);
        check("", &word(""));
        check("{{workers}}", &word("{workers}"));
        check("{{\"a\": {workers}}}", &word("{\"a\": 2}"));
    }

    #[test]
    fn odd_braces_are_told() {
        let problem = |part: &str| Template::parse(part).unwrap_err();
        assert_eq!(problem("{workers"), BraceProblem::NotClosed);
        assert_eq!(problem("workers}"), BraceProblem::NotOpened);
        assert_eq!(problem("{}"), BraceProblem::NoName);
        assert_eq!(problem("{\"lr\": 1}"), BraceProblem::NoName);
        assert_eq!(problem("{a?{b}}"), BraceProblem::NotClosed);
    }

    proptest! {
        #[test]
        fn any_text_can_be_taken_as_it_is(text in ".{0,40}") {
            let filled = Template::parse(&literal(&text)).unwrap().fill(|_| None);
            prop_assert_eq!(filled, Filled::Word(text));
        }

        #[test]
        fn no_text_is_a_surprise(text in "[{}?|a1. ]{0,30}") {
            if let Ok(template) = Template::parse(&text) {
                template.fill(|_| Some(("x".into(), true)));
            }
        }
    }
}
