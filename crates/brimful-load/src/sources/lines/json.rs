//! One field of a JSON object, without building the rest of it.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

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
    let seed = OneField::<Text<'a>> {
        name,
        kind: PhantomData,
    };
    let found = seed
        .deserialize(&mut deserializer)
        .and_then(|text| deserializer.end().map(|()| text));
    match found {
        Ok(Some(Text(text))) => Ok(text),
        Ok(None) => Err(malformed(name, "an object without it")),
        Err(error) => Err(malformed(name, error)),
    }
}

/// The field `name` as text: a string, or the digits of an integer.
pub(super) fn id_of(line: &[u8], name: &str) -> Result<String, ReadError> {
    let expected = |found: &dyn fmt::Display| ReadError::Malformed {
        expected: format!("a JSON object with a string or an integer {name:?}"),
        found: shortened(found.to_string()),
    };
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let seed = OneField::<Id> {
        name,
        kind: PhantomData,
    };
    let found = seed
        .deserialize(&mut deserializer)
        .and_then(|id| deserializer.end().map(|()| id));
    match found {
        Ok(Some(Id(id))) => Ok(id),
        Ok(None) => Err(expected(&"an object without it")),
        Err(error) => Err(expected(&error)),
    }
}

fn malformed(name: &str, found: impl fmt::Display) -> ReadError {
    ReadError::Malformed {
        expected: format!("a JSON object with a text {name:?}"),
        found: shortened(found.to_string()),
    }
}

/// What the parser says may quote the whole line.
fn shortened(mut text: String) -> String {
    if let Some((cut, _)) = text.char_indices().nth(MAX_MESSAGE_LEN) {
        text.truncate(cut);
        text += "...";
    }
    text
}

/// An object of which one field is wanted.
struct OneField<'n, T> {
    name: &'n str,
    kind: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for OneField<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneField<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(Text(name)) = map.next_key()? {
            if name == self.name {
                found = Some(map.next_value()?);
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

/// The id of a document: a string or an integer.
struct Id(String);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsId;

        impl Visitor<'_> for AsId {
            type Value = Id;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an integer")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Id, E> {
                Ok(Id(text.to_owned()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Id, E> {
                Ok(Id(number.to_string()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Id, E> {
                Ok(Id(number.to_string()))
            }
        }

        deserializer.deserialize_any(AsId)
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
    fn an_id_is_a_string_or_an_integer() {
        for (line, expected) in [
            (r#"{"id": 7, "text": "a"}"#, Some("7")),
            (r#"{"id": -7}"#, Some("-7")),
            (r#"{"id": "a\u0062"}"#, Some("ab")),
            (r#"{"id": 7.5}"#, None),
            (r#"{"id": [7]}"#, None),
            (r#"{"text": "a"}"#, None),
        ] {
            assert_eq!(
                id_of(line.as_bytes(), "id").ok().as_deref(),
                expected,
                "{line}"
            );
        }
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
