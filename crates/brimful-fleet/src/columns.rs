//! The columns of a file, in one list for writing and reading.

use std::sync::Arc;

use brimful::fleet::{AttemptRow, MAX_TEXT};
use brimful::printable::is_printable;
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};

/// What a column consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Flag,
    Int,
    Long,
    /// Milliseconds since 1970.
    Moment,
    Real,
    Text,
}

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Missing,
    Flag(bool),
    Int(i32),
    Long(i64),
    Real(f64),
    Text(String),
}

/// One column: its name for everybody, and its field in a row.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) get: fn(&AttemptRow) -> Cell,
    pub(crate) set: fn(&mut AttemptRow, Cell),
}

/// The type of a field of a row.
trait Field: Sized {
    const KIND: Kind;
    fn cell(&self) -> Cell;
    /// A value of another kind is as one that is missing.
    fn of(cell: Cell) -> Option<Self>;
}

macro_rules! field {
    ($type:ty, $kind:ident, $cell:ident) => {
        impl Field for $type {
            const KIND: Kind = Kind::$kind;

            fn cell(&self) -> Cell {
                Cell::$cell(self.clone())
            }

            fn of(cell: Cell) -> Option<Self> {
                match cell {
                    Cell::$cell(value) => Some(value),
                    _ => None,
                }
            }
        }
    };
}

field!(bool, Flag, Flag);
field!(i32, Int, Int);
field!(i64, Long, Long);
field!(f64, Real, Real);

impl Field for String {
    const KIND: Kind = Kind::Text;

    fn cell(&self) -> Cell {
        Cell::Text(self.clone())
    }

    fn of(cell: Cell) -> Option<Self> {
        match cell {
            Cell::Text(text) => Some(shortened(text)),
            _ => None,
        }
    }
}

impl<T: Field> Field for Option<T> {
    const KIND: Kind = T::KIND;

    fn cell(&self) -> Cell {
        self.as_ref().map_or(Cell::Missing, Field::cell)
    }

    fn of(cell: Cell) -> Option<Self> {
        Some(T::of(cell))
    }
}

/// As rows of our own have it; a file may come from anybody.
fn shortened(text: String) -> String {
    if text.len() <= MAX_TEXT && text.chars().all(is_printable) {
        return text;
    }
    text.chars()
        .filter(|c| is_printable(*c))
        .take(MAX_TEXT)
        .collect()
}

fn kind_of<T: Field>(_: fn(&AttemptRow) -> &T) -> Kind {
    T::KIND
}

macro_rules! columns {
    ($($name:literal => $field:ident,)*) => {
        /// Every column, in the order of the file.
        pub(crate) fn columns() -> Vec<Column> {
            vec![$(Column {
                name: $name,
                kind: kind_of(|row| &row.$field),
                get: |row| row.$field.cell(),
                set: |row, cell| {
                    if let Some(value) = Field::of(cell) {
                        row.$field = value;
                    }
                },
            },)*]
        }
    };
}

columns! {
    "schema_version" => schema_version,
    "run" => run,
    "job" => job,
    "script" => script,
    "host_name" => host_name,
    "brimful_version" => brimful_version,
    "slurm_job" => slurm_job,
    "started_at" => started_at_unix_ms,
    "attempt" => attempt,
    "is_last" => is_last,
    "seconds" => seconds,
    "is_resumed" => is_resumed,
    "settings" => settings,
    "rungs" => rungs,
    "outcome" => outcome,
    "exit_code" => exit_code,
    "signal" => signal,
    "cause" => cause,
    "confidence" => confidence,
    "is_memory" => is_memory,
    "n_false_alarms" => n_false_alarms,
    "host_limit_bytes" => host_limit_bytes,
    "host_peak_bytes" => host_peak_bytes,
    "host_likely_bytes" => host_likely_bytes,
    "host_safe_bytes" => host_safe_bytes,
    "shm_peak_bytes" => shm_peak_bytes,
    "n_gpus" => n_gpus,
    "gpu" => gpu,
    "gpu_size_bytes" => gpu_size_bytes,
    "gpu_peak_bytes" => gpu_peak_bytes,
    "gpu_likely_bytes" => gpu_likely_bytes,
    "gpu_safe_bytes" => gpu_safe_bytes,
    "wasted_seconds" => wasted_seconds,
    "wasted_gpu_hours" => wasted_gpu_hours,
}

/// The one column whose numbers are a moment.
const MOMENT: &str = "started_at";

/// The names of all columns, in the order of the file.
pub fn column_names() -> Vec<&'static str> {
    columns().iter().map(|column| column.name).collect()
}

/// The schema of a file. Every column may have missing values, so that a later version can leave one out.
pub(crate) fn schema(columns: &[Column]) -> Result<TypePtr, ParquetError> {
    let fields: Result<Vec<TypePtr>, ParquetError> = columns.iter().map(leaf).collect();
    let schema = Type::group_type_builder("brimful_run")
        .with_fields(fields?)
        .build()?;
    Ok(Arc::new(schema))
}

fn leaf(column: &Column) -> Result<TypePtr, ParquetError> {
    let kind = if column.name == MOMENT {
        Kind::Moment
    } else {
        column.kind
    };
    let (physical, logical) = match kind {
        Kind::Flag => (Physical::BOOLEAN, None),
        Kind::Int => (Physical::INT32, None),
        Kind::Long => (Physical::INT64, None),
        Kind::Real => (Physical::DOUBLE, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Moment => {
            let logical = LogicalType::timestamp(true, TimeUnit::MILLIS);
            (Physical::INT64, Some(logical))
        }
    };
    let leaf = Type::primitive_type_builder(column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()?;
    Ok(Arc::new(leaf))
}
