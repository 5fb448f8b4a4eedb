//! Once through the messages of a file: its columns, and where each record batch lies.

use std::collections::HashSet;

use arrow_ipc::{Block, Endianness, MetadataVersion, Schema};

use crate::problem::Problem;
use crate::reading::Reader;
use crate::sources::arrow::batch::{ArrayOffsets, locate};
use crate::sources::arrow::extension::Features;
use crate::sources::arrow::layout::{Column, Count, name};
use crate::sources::arrow::message::Messages;

/// Most columns that are read, and the bytes of all their names together. Descriptions may name one thing many times, so
/// that their own length is no bound.
const MAX_COLUMNS: usize = 200_000;
const MAX_NAMES_LEN: usize = 16 << 20;

/// Why a file cannot be opened.
pub(super) enum Refused {
    Problem(Problem),
    NoSuchColumn { wanted: String, known: Vec<String> },
}

impl<P: Into<Problem>> From<P> for Refused {
    fn from(problem: P) -> Refused {
        Refused::Problem(problem.into())
    }
}

/// What is gathered on the way through the messages of a file.
#[derive(Default)]
pub(super) struct Scan {
    pub(super) columns: Vec<Column>,
    pub(super) rows: u64,
    /// The first row of each record batch.
    pub(super) batches: Vec<u64>,
    /// The spots of each record batch, column after column.
    pub(super) spots: Vec<ArrayOffsets>,
}

impl Scan {
    pub(super) fn through(
        &mut self,
        reader: &Reader,
        columns: Option<&[String]>,
    ) -> Result<(), Refused> {
        let mut messages = Messages::new(reader);
        if !messages.has_footer()? {
            let Some((message, frame)) = messages.message(0, reader.len())? else {
                return Err(Problem::malformed("an Arrow stream", "an empty one").into());
            };
            check_version(message.version())?;
            let schema = message.header_as_schema().ok_or_else(|| {
                Problem::malformed("a schema", format!("{:?}", message.header_type()))
            })?;
            self.columns = chosen(&schema, columns)?;
            let mut at = frame.end();
            while let Some(end) = self.batch(&mut messages, at, reader.len())? {
                at = end;
            }
            return Ok(());
        }
        let (footer, limit) = messages.footer()?;
        check_version(footer.version())?;
        let schema = footer
            .schema()
            .ok_or_else(|| Problem::malformed("a schema in the footer", "none"))?;
        self.columns = chosen(&schema, columns)?;
        let blocks: Vec<i64> = footer
            .recordBatches()
            .into_iter()
            .flatten()
            .map(Block::offset)
            .collect();
        let mut at = 0;
        for block in blocks {
            // In the order in which they were written: so none is counted twice.
            let start = u64::try_from(block)
                .ok()
                .filter(|&start| start >= at && start < limit)
                .ok_or_else(|| {
                    let expected = format!("a record batch between {at} and {limit}");
                    Problem::malformed(expected, format!("one at {block}"))
                })?;
            at = self
                .batch(&mut messages, start, limit)?
                .ok_or_else(|| Problem::malformed(format!("a message at {start}"), "none"))?;
        }
        Ok(())
    }

    /// Takes in the message at `at` where it is a record batch, and gives the end of it.
    fn batch(
        &mut self,
        messages: &mut Messages<'_>,
        at: u64,
        limit: u64,
    ) -> Result<Option<u64>, Problem> {
        let Some((message, frame)) = messages.message(at, limit)? else {
            return Ok(None);
        };
        if let Some(batch) = message.header_as_record_batch() {
            let first_spot = self.spots.len();
            let rows = locate(&batch, frame, &self.columns, &mut self.spots)?;
            if rows == 0 {
                self.spots.truncate(first_spot);
            } else {
                self.batches.push(self.rows);
                self.rows = self
                    .rows
                    .checked_add(rows)
                    .ok_or_else(|| Problem::malformed("rows that can be counted", "more"))?;
            }
        }
        Ok(Some(frame.end()))
    }
}

/// The columns that are wanted, in the order in which they are.
fn chosen(schema: &Schema<'_>, wanted: Option<&[String]>) -> Result<Vec<Column>, Refused> {
    if schema.endianness() != Endianness::Little {
        return Err(Problem::unsupported(
            "a big-endian Arrow file",
            "write it on a little-endian machine",
        )
        .into());
    }
    let features = Features::of(schema);
    let fields = || schema.fields().into_iter().flatten();
    let mut columns: Vec<Column> = Vec::new();
    let mut names = HashSet::new();
    let mut count = Count::default();
    let mut names_bytes = 0_usize;
    for field in fields() {
        let name = name(&field);
        names_bytes = names_bytes.saturating_add(name.len());
        if names.len() == MAX_COLUMNS || names_bytes > MAX_NAMES_LEN {
            return Err(Problem::malformed(
                format!("at most {MAX_COLUMNS} columns, with names of at most {MAX_NAMES_LEN} bytes together"),
                "more",
            )
            .into());
        }
        if wanted.is_none_or(|wanted| wanted.iter().any(|wanted| wanted == name)) {
            if !names.insert(name) {
                let found = format!("{name:?} twice");
                return Err(Problem::malformed("columns of different names", found).into());
            }
            columns.push(Column::new(&field, count, features.is_image(name))?);
        }
        count.skip(&field, 0)?;
    }
    let Some(wanted) = wanted else {
        return Ok(columns);
    };
    let mut ordered: Vec<Column> = Vec::new();
    for wanted in wanted {
        let column = columns.iter().find(|column| column.field.name == *wanted);
        let Some(column) = column else {
            return Err(Refused::NoSuchColumn {
                wanted: wanted.clone(),
                known: fields()
                    .take(100)
                    .map(|field| name(&field).to_owned())
                    .collect(),
            });
        };
        if ordered.iter().any(|column| column.field.name == *wanted) {
            return Err(Problem::malformed("each column once", format!("{wanted:?} twice")).into());
        }
        ordered.push(column.clone());
    }
    Ok(ordered)
}

fn check_version(version: MetadataVersion) -> Result<(), Problem> {
    match version {
        MetadataVersion::V4 | MetadataVersion::V5 => Ok(()),
        other => Err(Problem::unsupported(
            format!("an Arrow file of metadata version {other:?}"),
            "versions 4 and 5 are, as all writers since 2017 make them",
        )),
    }
}
