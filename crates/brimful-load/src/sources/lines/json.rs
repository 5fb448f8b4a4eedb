//! One field of a JSON object, without building the rest of it.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use crate::error::ReadError;

/// Characters of what the parser says.
const MAX_MESSAGE_LEN: usize = 200;

/// The text of the field `name`; borrowed from the line where nothing in it is escaped.
///
/// Where a name stands twice, the last one counts, as in Python. Other fields are stepped over, which takes no stack
/// however deep they go.
pub(super) fn text_of<'a>(line: &'a [u8], name: &str) -> Result<Cow<'a, str>, ReadError> {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let found = OneField(name)
        .deserialize(&mut deserializer)
        .and_then(|text| deserializer.end().map(|()| text));
    match found {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(malformed(name, "an object without it")),
        Err(error) => Err(malformed(name, error)),
    }
}

fn malformed(name: &str, found: impl fmt::Display) -> ReadError {
    // What the parser says may quote the whole line.
    let mut found = found.to_string();
    if let Some((cut, _)) = found.char_indices().nth(MAX_MESSAGE_LEN) {
        found.truncate(cut);
        found += "...";
    }
    ReadError::Malformed {
        expected: format!("a JSON object with a text {name:?}"),
        found,
    }
}

/// An object of which one field is wanted.
struct OneField<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for OneField<'_> {
    type Value = Option<Cow<'de, str>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for OneField<'_> {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(Text(name)) = map.next_key()? {
            if name == self.0 {
                let Text(text) = map.next_value()?;
                found = Some(text);
            } else {
                let IgnoredAny = map.next_value()?;
            }
        }
        Ok(found)
    }
}

/// A string that is copied only where it has to be.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsText;

        impl<'de> Visitor<'de> for AsText {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(AsText)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<&str>) {
        let found = text_of(line.as_bytes(), "text");
        assert_eq!(found.ok().as_deref(), expected, "{line}");
    }

    #[test]
    fn the_field_is_found_wherever_it_stands() {
        check(r#"{"text": "a"}"#, Some("a"));
        check(r#" {"id": [1, {"text": "no"}], "text": "a"} "#, Some("a"));
        check(r#"{"text": "a \"b\" \u00e9"}"#, Some("a \"b\" é"));
        check(r#"{"text": "a", "text": "b"}"#, Some("b"));
        check(r#"{"te\u0078t": "a"}"#, Some("a"));
    }

    #[test]
    fn other_lines_are_errors() {
        for line in [
            "",
            "[]",
            "1",
            r#""text""#,
            "{}",
            r#"{"text": 1}"#,
            r#"{"text": null}"#,
            r#"{"text": "a""#,
            r#"{"text": "a"} {}"#,
            r#"{"id": tru, "text": "a"}"#,
        ] {
            check(line, None);
        }
    }

    #[test]
    fn a_message_does_not_quote_the_whole_line() {
        let line = format!("{:?}", "é".repeat(100_000));
        let error = text_of(line.as_bytes(), "text").unwrap_err().to_string();
        assert!(error.len() < 1000, "{} bytes", error.len());
        assert!(error.contains("found invalid type: string"), "{error}");
    }

    #[test]
    fn depth_takes_no_stack() {
        let deep = "[".repeat(1 << 20) + &"]".repeat(1 << 20);
        check(&format!(r#"{{"deep": {deep}, "text": "a"}}"#), Some("a"));
        check(&format!(r#"{{"text": {deep}}}"#), None);
    }
}
