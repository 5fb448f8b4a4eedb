//! TOML with the line of everything, in the order of the file.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::job::error::{JobError, Mistake};
use crate::job::value::Value;

/// Bytes of a job file at the most: it is written by hand.
pub const MAX_JOB_FILE_BYTES: usize = 1 << 20;

/// The text of a file, for the lines of what is found in it.
pub(super) struct Text {
    line_starts: Vec<usize>,
}

/// A value or a table of the file.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    value: &'a DeValue<'a>,
    pub(super) line: usize,
}

/// A key and what it stands for.
pub(super) struct Entry<'a> {
    pub(super) key: &'a str,
    pub(super) line: usize,
    pub(super) node: Node<'a>,
}

/// Reads TOML of a bounded size.
pub(super) fn parse(text: &str) -> Result<(Text, DeValue<'_>), JobError> {
    if text.len() > MAX_JOB_FILE_BYTES {
        return Err(JobError::nowhere(Mistake::TooLarge));
    }
    let line_starts = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    let lines = Text { line_starts };
    let table = DeTable::parse(text).map_err(|error| {
        let message = error
            .message()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        let line = error.span().map(|span| lines.line(span.start));
        JobError::new(line, Mistake::InvalidToml { message })
    })?;
    Ok((lines, DeValue::Table(table.into_inner())))
}

impl Text {
    fn line(&self, at: usize) -> usize {
        1 + self.line_starts.partition_point(|start| *start <= at)
    }

    fn node<'a>(&self, value: &'a Spanned<DeValue<'a>>) -> Node<'a> {
        Node {
            value: value.get_ref(),
            line: self.line(value.span().start),
        }
    }

    /// The entries of a table in the order in which they are written.
    pub(super) fn entries<'a>(
        &self,
        name: &str,
        node: Node<'a>,
    ) -> Result<Vec<Entry<'a>>, JobError> {
        let Some(table) = node.value.as_table() else {
            return Err(node.unlike(name, "a table"));
        };
        let mut entries: Vec<(usize, Entry<'a>)> = table
            .iter()
            .map(|(key, value)| {
                let start = key.span().start;
                let entry = Entry {
                    key: key.get_ref(),
                    line: self.line(start),
                    node: self.node(value),
                };
                (start, entry)
            })
            .collect();
        entries.sort_by_key(|(start, _)| *start);
        Ok(entries.into_iter().map(|(_, entry)| entry).collect())
    }

    /// The entry of a table, if it is one and has it.
    pub(super) fn get<'a>(&self, node: Node<'a>, key: &str) -> Option<Node<'a>> {
        node.value.get(key).map(|value| self.node(value))
    }

    /// The items of a list; nothing for anything else.
    pub(super) fn items<'a>(&self, node: Node<'a>) -> Option<Vec<Node<'a>>> {
        let items = node.value.as_array()?;
        Some(items.iter().map(|item| self.node(item)).collect())
    }
}

impl<'a> Node<'a> {
    pub(super) fn root(value: &'a DeValue<'a>) -> Node<'a> {
        Node { value, line: 1 }
    }

    pub(super) fn text(self) -> Option<&'a str> {
        self.value.as_str()
    }

    pub(super) fn whole(self) -> Option<i64> {
        let number = self.value.as_integer()?;
        i64::from_str_radix(number.as_str(), number.radix()).ok()
    }

    /// A single value: no list, table or date, no number beyond all bounds, no text that a command line cannot hold.
    pub(super) fn value(self) -> Option<Value> {
        match self.value {
            DeValue::Boolean(flag) => Some(Value::Flag(*flag)),
            DeValue::Integer(_) => self.whole().map(Value::Whole),
            DeValue::Float(number) => {
                let number: f64 = number.as_str().parse().ok()?;
                number.is_finite().then_some(Value::Number(number))
            }
            DeValue::String(text) => (!text.contains('\0')).then(|| Value::Text(text.to_string())),
            DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
        }
    }

    /// How a message names it.
    pub(super) fn described(self) -> String {
        match self.value {
            DeValue::Boolean(flag) => flag.to_string(),
            DeValue::Integer(number) => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::String(text) => format!("\"{text}\""),
            DeValue::Datetime(_) => "a date".into(),
            DeValue::Array(_) => "a list".into(),
            DeValue::Table(_) => "a table".into(),
        }
    }

    pub(super) fn unlike(self, key: &str, expected: &'static str) -> JobError {
        JobError::at(
            self.line,
            Mistake::WrongType {
                key: key.to_owned(),
                expected,
                found: self.described(),
            },
        )
    }
}
