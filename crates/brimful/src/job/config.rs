//! Values in a YAML or JSON config file that the command names.
//!
//! Only the text of the value itself is replaced, so comments, quotes, anchors and tags of the rest stay as they are:
//! a document that was parsed and written again would not mean the same to every YAML library (`on`, `1e-4`, `0o17`).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde::{Deserialize, Serialize};

use crate::job::value::Value;
use crate::printable::is_printable;
use crate::suggest::closest_owned;

/// Bytes of a config file at most: it is written by hand.
pub const MAX_CONFIG_BYTES: usize = 1 << 20;
const MAX_DEPTH: usize = 64;
/// Longer keys are never looked up, and would cost memory in every key below them.
const MAX_KEY_BYTES: usize = 500;
const MAX_NODES: usize = 100_000;

/// A config file of a job, and what is written into its copy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigOverrides {
    /// As the command names it.
    pub path: String,
    /// Keys with dots, and their values. A text is a template with places, as a word of the command is.
    pub entries: Vec<(String, Value)>,
}

impl ConfigOverrides {
    /// Its values that may have places.
    pub(super) fn templates(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|(_, value)| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }
}

/// A value of a config file.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigKey {
    /// `training.batch_size`; items of a list have their index.
    pub key: String,
    /// Nothing for null.
    pub value: Option<Value>,
}

/// A config file that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigFile {
    /// As the command names it.
    pub path: String,
    pub keys: Vec<ConfigKey>,
}

/// A config file that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    TooLarge,
    TooDeep,
    TooManyValues,
    NotText,
    Syntax {
        message: String,
    },
    SeveralDocuments,
    NoSuchKey {
        key: String,
        close: Vec<String>,
    },
    NotAValue {
        key: String,
        found: &'static str,
    },
    /// The changed text does not read as the same document with another value.
    NotReplaceable {
        key: String,
    },
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::TooLarge => f.write_str("it is larger than 1 MiB"),
            ConfigError::TooDeep => write!(f, "it is nested deeper than {MAX_DEPTH} levels"),
            ConfigError::TooManyValues => write!(f, "it has more than {MAX_NODES} values"),
            ConfigError::NotText => f.write_str("it is not UTF-8 text"),
            ConfigError::Syntax { message } => {
                write!(f, "it is not valid YAML or JSON: {}", printable(message))
            }
            ConfigError::SeveralDocuments => {
                f.write_str("it contains several YAML documents, but only one is supported")
            }
            ConfigError::NoSuchKey { key, .. } => {
                write!(f, "it has no key `{}`", printable(key))
            }
            ConfigError::NotAValue { key, found } => write!(
                f,
                "`{}` is {found}, but a knob needs a single value on one line",
                printable(key)
            ),
            ConfigError::NotReplaceable { key } => write!(
                f,
                "the value of `{}` cannot be replaced in the file",
                printable(key)
            ),
        }
    }
}

impl ConfigError {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            ConfigError::NoSuchKey { close, .. } => match close.first() {
                Some(name) => format!("did you mean `{}`?", printable(name)),
                None => {
                    "add the key with its current value to the file, or remove it from the job file"
                        .into()
                }
            },
            ConfigError::NotReplaceable { .. } => {
                "write it as `key: value` on a line of its own".into()
            }
            ConfigError::SeveralDocuments => "split it into one file per document".into(),
            _ => "fix the file, or remove its table from the job file".into(),
        }
    }
}

/// The single values of a YAML or JSON document, in its order.
pub fn config_keys(text: &str) -> Result<Vec<ConfigKey>, ConfigError> {
    let nodes = nodes(text)?;
    Ok(nodes
        .into_iter()
        .filter_map(|node| {
            let value = match node.content {
                Content::Scalar { text, style } => scalar(&text, style),
                _ => return None,
            };
            Some(ConfigKey {
                key: node.key,
                value,
            })
        })
        .collect())
}

/// The document with other values for some of its keys. Everything else stays as it is written.
pub fn with_values(text: &str, values: &[(String, Value)]) -> Result<String, ConfigError> {
    // The last one wins, as it does for an option that is given twice.
    let values: BTreeMap<&str, &Value> = values
        .iter()
        .map(|(key, value)| (key.as_str(), value))
        .collect();
    let before = nodes(text)?;
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for (key, value) in &values {
        let Some(node) = before.iter().rev().find(|node| node.key == *key) else {
            let known = before.iter().map(|node| node.key.as_str());
            return Err(ConfigError::NoSuchKey {
                key: (*key).to_owned(),
                close: closest_owned(key, known),
            });
        };
        edits.push(edit(text, node, value)?);
    }
    edits.sort_by_key(|(range, _)| range.start);
    let mut changed = String::with_capacity(text.len() + 64);
    let mut at = 0;
    for (range, new) in edits {
        // Two keys cannot share a value.
        changed.push_str(text.get(at..range.start).unwrap_or_default());
        changed.push_str(&new);
        at = range.end;
    }
    changed.push_str(text.get(at..).unwrap_or_default());
    verify(&before, &changed, &values)?;
    Ok(changed)
}

/// What is written where a value stands.
fn edit(text: &str, node: &Node, value: &Value) -> Result<(Range<usize>, String), ConfigError> {
    let not_a_value = |found| ConfigError::NotAValue {
        key: node.key.clone(),
        found,
    };
    let style = match &node.content {
        Content::Scalar { style, .. } => *style,
        Content::Alias => ScalarStyle::Plain,
        Content::List => return Err(not_a_value("a list")),
        Content::Mapping => return Err(not_a_value("a mapping")),
    };
    if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
        return Err(not_a_value("a text of several lines"));
    }
    let new = written(value);
    let old = text.get(node.range.clone()).unwrap_or_default();
    if node.range.is_empty() {
        // `key:` without a value is placed before its colon.
        let rest = text.get(node.range.start..).unwrap_or_default();
        let colon = rest.find(':').ok_or_else(|| ConfigError::NotReplaceable {
            key: node.key.clone(),
        })?;
        let at = node.range.start + colon + 1;
        return Ok((at..at, format!(" {new}")));
    }
    // Aliases elsewhere refer to the anchor. A tag is that of the old value.
    let anchor = old
        .split_whitespace()
        .take_while(|word| word.starts_with(['&', '!']))
        .find(|word| word.starts_with('&'));
    Ok((
        node.range.clone(),
        match anchor {
            Some(anchor) => format!("{anchor} {new}"),
            None => new,
        },
    ))
}

/// The changed text has the same keys, and the new values at theirs.
fn verify(
    before: &[Node],
    changed: &str,
    values: &BTreeMap<&str, &Value>,
) -> Result<(), ConfigError> {
    let fails = |key: &str| ConfigError::NotReplaceable {
        key: key.to_owned(),
    };
    let first = values.keys().next().copied().unwrap_or_default();
    let after = nodes(changed).map_err(|_| fails(first))?;
    if before.len() != after.len() {
        return Err(fails(first));
    }
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    for (idx, node) in before.iter().enumerate() {
        last.insert(&node.key, idx);
    }
    for (idx, (old, new)) in before.iter().zip(&after).enumerate() {
        let wanted = values
            .get(old.key.as_str())
            .filter(|_| last.get(old.key.as_str()) == Some(&idx));
        let is_right = match (wanted, &new.content) {
            (Some(value), Content::Scalar { text, style }) => {
                scalar(text, *style).as_ref() == Some(*value)
            }
            (Some(_), _) => false,
            (None, content) => *content == old.content,
        };
        if old.key != new.key || !is_right {
            return Err(fails(if wanted.is_some() { &old.key } else { first }));
        }
    }
    Ok(())
}

/// A value as both YAML 1.1, YAML 1.2 and JSON read it.
fn written(value: &Value) -> String {
    match value {
        Value::Flag(flag) => flag.to_string(),
        Value::Whole(number) => number.to_string(),
        Value::Number(number) => {
            let text = number.to_string();
            // A float without a point would be read as an integer.
            if text.contains('.') {
                text
            } else {
                format!("{text}.0")
            }
        }
        Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
    }
}

/// A scalar as the YAML libraries of Python read it; nothing for null.
fn scalar(text: &str, style: ScalarStyle) -> Option<Value> {
    if style != ScalarStyle::Plain {
        return Some(Value::Text(text.to_owned()));
    }
    match text.to_ascii_lowercase().as_str() {
        "" | "~" | "null" => return None,
        "true" | "yes" | "on" => return Some(Value::Flag(true)),
        "false" | "no" | "off" => return Some(Value::Flag(false)),
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return Some(Value::Whole(number));
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Some(Value::Number(number)),
        _ => Some(Value::Text(text.to_owned())),
    }
}

/// A value, list or mapping and where it stands.
struct Node {
    key: String,
    content: Content,
    /// Bytes of the text.
    range: Range<usize>,
}

#[derive(PartialEq)]
enum Content {
    Scalar { text: String, style: ScalarStyle },
    Alias,
    List,
    Mapping,
}

/// What is open around an event. The prefix is nothing below a key that cannot be written with dots.
enum Open {
    List {
        prefix: Option<String>,
        index: usize,
    },
    Mapping {
        prefix: Option<String>,
        key: Key,
    },
}

enum Key {
    /// The next node is a key.
    Expected,
    /// The next node is the value of this key.
    Named(String),
    /// The next node is the value of a key that is no text.
    Unnamed,
}

/// Everything with a key, in the order of the document.
fn nodes(text: &str) -> Result<Vec<Node>, ConfigError> {
    if text.len() > MAX_CONFIG_BYTES {
        return Err(ConfigError::TooLarge);
    }
    let readable = without_surrogates(text);
    let bytes = ByteOffsets::new(text);
    let mut open: Vec<Open> = Vec::new();
    let mut found = Vec::new();
    let mut documents = 0;
    for (n_events, event) in Parser::new_from_str(&readable).enumerate() {
        let (event, span) = event.map_err(|error| ConfigError::Syntax {
            message: error.to_string(),
        })?;
        if n_events > 3 * MAX_NODES {
            return Err(ConfigError::TooManyValues);
        }
        let content = match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return Err(ConfigError::SeveralDocuments);
                }
                continue;
            }
            Event::MappingEnd | Event::SequenceEnd => {
                open.pop();
                continue;
            }
            Event::Scalar(text, style, ..) => Content::Scalar {
                text: text.into_owned(),
                style,
            },
            Event::Alias(_) => Content::Alias,
            Event::SequenceStart(..) => Content::List,
            Event::MappingStart(..) => Content::Mapping,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => continue,
        };
        let path = match open.last_mut() {
            None => Some(String::new()),
            Some(Open::List { prefix, index }) => {
                let path = joined(prefix.as_deref(), &index.to_string());
                *index += 1;
                path
            }
            Some(Open::Mapping { prefix, key }) => match std::mem::replace(key, Key::Expected) {
                Key::Expected => {
                    *key = match &content {
                        Content::Scalar { text, .. } => Key::Named(text.clone()),
                        _ => Key::Unnamed,
                    };
                    if matches!(content, Content::Scalar { .. } | Content::Alias) {
                        continue;
                    }
                    None
                }
                Key::Named(name) => joined(prefix.as_deref(), &name),
                Key::Unnamed => None,
            },
        };
        match content {
            Content::List => open.push(Open::List {
                prefix: path.clone(),
                index: 0,
            }),
            Content::Mapping => open.push(Open::Mapping {
                prefix: path.clone(),
                key: Key::Expected,
            }),
            _ => {}
        }
        if open.len() > MAX_DEPTH {
            return Err(ConfigError::TooDeep);
        }
        if let Some(key) = path.filter(|path| !path.is_empty()) {
            if found.len() == MAX_NODES {
                return Err(ConfigError::TooManyValues);
            }
            found.push(Node {
                key,
                content,
                range: bytes.range(&span),
            });
        }
    }
    Ok(found)
}

fn joined(prefix: Option<&str>, name: &str) -> Option<String> {
    let prefix = prefix?;
    if name.is_empty() || prefix.len() + name.len() >= MAX_KEY_BYTES {
        return None;
    }
    Some(if prefix.is_empty() {
        name.to_owned()
    } else {
        format!("{prefix}.{name}")
    })
}

/// The text with other characters in place of `\ud83d` and the like, at the same offsets: JSON writes characters beyond
/// 16 bits as two of them, which YAML does not know.
fn without_surrogates(text: &str) -> String {
    if !text.contains("\\u") {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let is_surrogate = rest.as_bytes().get(1) == Some(&b'u')
            && matches!(rest.as_bytes().get(2), Some(b'd' | b'D'))
            && matches!(
                rest.as_bytes().get(3),
                Some(b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F')
            )
            && rest.is_char_boundary(6);
        if is_surrogate {
            out.push_str("\\u0020");
            rest = &rest[6..];
            continue;
        }
        // A backslash and what it escapes.
        let mut both = rest.chars();
        out.extend(both.by_ref().take(2));
        rest = both.as_str();
    }
    out.push_str(rest);
    out
}

/// From the parser's characters to bytes.
struct ByteOffsets {
    /// Nothing where every character is one byte.
    of_chars: Option<Vec<usize>>,
    len: usize,
}

impl ByteOffsets {
    fn new(text: &str) -> ByteOffsets {
        ByteOffsets {
            of_chars: (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect()),
            len: text.len(),
        }
    }

    fn range(&self, span: &Span) -> Range<usize> {
        let byte = |index: usize| match &self.of_chars {
            Some(offsets) => offsets.get(index).copied().unwrap_or(self.len),
            None => index.min(self.len),
        };
        let start = byte(span.start.index());
        start..byte(span.end.index()).max(start)
    }
}

fn printable(text: &str) -> String {
    text.chars()
        .take(120)
        .map(|c| if is_printable(c) { c } else { ' ' })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const YAML: &str = "\
# what the training reads
training: &t
  batch_size: 32   # per GPU
  lr: 1e-4
  workers: &n 4
  name: 'größe: x'
  resume:
  flags: [on, \"on\", ~]
data: {path: a.bin, workers: *n, size: !!int 224}
text: |
  batch_size: 3
other:
  <<: *t
steps:
- max: 10
- max: 20
";

    fn check(text: &str, values: &[(&str, Value)], expected: &str) {
        let values: Vec<(String, Value)> = values
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect();
        assert_eq!(with_values(text, &values).as_deref(), Ok(expected));
    }

    fn error(text: &str, key: &str) -> ConfigError {
        with_values(text, &[(key.to_owned(), Value::Whole(1))]).unwrap_err()
    }

    #[test]
    fn only_the_values_are_replaced() {
        let expected = YAML
            .replace("32   #", "8   #")
            .replace("&n 4", "&n 0")
            .replace("resume:", "resume: \"a: b.pt\"")
            .replace("!!int 224", "192")
            .replace("max: 20", "max: 2.0")
            .replace("*n,", "true,");
        check(
            YAML,
            &[
                ("training.batch_size", Value::Whole(8)),
                ("training.workers", Value::Whole(0)),
                ("training.resume", "a: b.pt".into()),
                ("data.size", Value::Whole(192)),
                ("data.workers", true.into()),
                ("steps.1.max", Value::Number(2.0)),
            ],
            &expected,
        );
        check(YAML, &[], YAML);
        check(
            "{\n\t\"a\": \"\\ud83d\\ude00\\\\\",\n\t\"b\": {\"c\": false, \"d\": null}\n}",
            &[("b.c", true.into()), ("b.d", "bf16".into())],
            "{\n\t\"a\": \"\\ud83d\\ude00\\\\\",\n\t\"b\": {\"c\": true, \"d\": \"bf16\"}\n}",
        );
        // The value that a reader keeps of a key that is written twice.
        check("a: 1\na: 2\n", &[("a", Value::Whole(3))], "a: 1\na: 3\n");
    }

    #[test]
    fn keys_are_listed_with_their_values() {
        let keys = config_keys(YAML).unwrap();
        let found: Vec<String> = keys
            .iter()
            .map(|key| match &key.value {
                Some(Value::Text(text)) => format!("{}={text:?}", key.key),
                Some(value) => format!("{}={value}", key.key),
                None => key.key.clone(),
            })
            .collect();
        assert_eq!(
            found,
            [
                "training.batch_size=32",
                "training.lr=0.0001",
                "training.workers=4",
                "training.name=\"größe: x\"",
                "training.resume",
                "training.flags.0=true",
                "training.flags.1=\"on\"",
                "training.flags.2",
                "data.path=\"a.bin\"",
                "data.size=224",
                "text=\"batch_size: 3\\n\"",
                "steps.0.max=10",
                "steps.1.max=20",
            ]
        );
    }

    #[test]
    fn what_cannot_be_followed_is_an_error() {
        let missing = error(YAML, "training.batchsize");
        assert_eq!(missing.to_string(), "it has no key `training.batchsize`");
        assert_eq!(missing.hint(), "did you mean `training.batch_size`?");
        assert_eq!(
            error(YAML, "training.flags").to_string(),
            "`training.flags` is a list, but a knob needs a single value on one line"
        );
        assert!(matches!(error(YAML, "text"), ConfigError::NotAValue { .. }));
        assert!(matches!(error(YAML, "data"), ConfigError::NotAValue { .. }));
        assert!(matches!(error("a: [", "a"), ConfigError::Syntax { .. }));
        assert_eq!(error("a: 1\n---\na: 2", "a"), ConfigError::SeveralDocuments);
        assert_eq!(error(&"- ".repeat(200), "a"), ConfigError::TooDeep);
        assert_eq!(
            error(&" ".repeat(MAX_CONFIG_BYTES + 1), "a"),
            ConfigError::TooLarge
        );
        assert!(matches!(
            error("{a, b: 1}", "a"),
            ConfigError::NotReplaceable { .. }
        ));
    }

    proptest! {
        #[test]
        fn no_text_is_a_surprise(text in "([ab:\\[\\]{},\"'#&*!|>\\\\\n \té-]|\\\\ud8|: ){0,40}", number in any::<i64>()) {
            for key in config_keys(&text).unwrap_or_default() {
                let values = [(key.key.clone(), Value::Whole(number))];
                if let Ok(changed) = with_values(&text, &values) {
                    let keys = config_keys(&changed).unwrap();
                    let found = keys.iter().rev().find(|found| found.key == key.key);
                    prop_assert_eq!(found.and_then(|found| found.value.clone()), Some(Value::Whole(number)));
                }
            }
        }

        #[test]
        fn any_text_is_written_as_itself(value in "[^\0]{0,20}") {
            let values = [("a".to_owned(), Value::Text(value.clone()))];
            let changed = with_values("{\"a\": 1}", &values).unwrap();
            let json: serde_json::Value = serde_json::from_str(&changed).unwrap();
            prop_assert_eq!(json["a"].as_str(), Some(value.as_str()));
        }
    }
}
