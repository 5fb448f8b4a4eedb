//! Which samples are kept: those that a Parquet file names. Deduplication and filters are left to the user's own engine.
//!
//! The file has one column. `index` holds the numbers of samples; a column of another name holds ids, which are compared
//! with the field of that name of JSON lines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brimful::units::Bytes;
use brimful_load::pipeline::{SampleCause, SampleError};
use brimful_load::sources::{Lines, Parquet};
use brimful_load::{DType, Encoding, FieldSpec, Source, SourceError, Value};
use twox_hash::XxHash3_64;

use crate::error::PrepareError;
use crate::recipe::OnSampleError;
use crate::run_file::RunFooter;

/// The name of a column with the numbers of samples.
const INDEX: &str = "index";
/// Bytes for a decoded row group while the file is read: pyarrow writes a million rows into each.
const CACHE: Bytes = Bytes::from_mib(256);
/// Bytes of memory for each row.
const ROW: u64 = size_of::<u64>() as u64;

/// The samples that are kept.
#[derive(Debug)]
pub(crate) struct KeepSet {
    /// Of ids, the field that they are compared with.
    field: Option<String>,
    /// Numbers of samples, or hashes of ids, sorted and without duplicates. With n ids, another sample is kept by mistake
    /// with a probability of n / 2^64.
    rows: Vec<u64>,
}

/// The Parquet file, as far as it is known before it is read.
#[derive(Debug)]
pub(crate) struct KeepFile {
    path: PathBuf,
    n_rows: u64,
    column: String,
    dtype: Option<DType>,
}

impl KeepFile {
    pub(crate) fn open(path: &Path) -> Result<KeepFile, PrepareError> {
        let rows = open_rows(path)?;
        let wrong = |found: String| PrepareError::Setting {
            name: "keep",
            expected: "a Parquet file with one column of integers or strings".to_owned(),
            found,
        };
        let [field] = rows.fields() else {
            let names: BTreeSet<&str> = rows.fields().iter().map(|field| &*field.name).collect();
            return Err(wrong(format!(
                "the columns {names:?} in {}",
                path.display()
            )));
        };
        let dtype = match &field.spec {
            FieldSpec::Array(form) if form.shape().is_empty() && is_integer(form.dtype()) => {
                Some(form.dtype())
            }
            FieldSpec::Encoded(Encoding::Text) if field.name != INDEX => None,
            other => {
                return Err(wrong(format!(
                    "{} of {other} in {}",
                    field.name,
                    path.display()
                )));
            }
        };
        Ok(KeepFile {
            path: path.to_owned(),
            column: field.name.clone(),
            dtype,
            n_rows: rows.len(),
        })
    }

    /// Whether it has the numbers of samples, and not ids.
    pub(crate) fn has_numbers(&self) -> bool {
        self.column == INDEX
    }

    /// Bytes of memory that its rows will take.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.n_rows.saturating_mul(ROW)
    }

    pub(crate) fn read(&self) -> Result<KeepSet, PrepareError> {
        // What is decoded is gone when all is read.
        let file = open_rows(&self.path)?;
        let n_rows = file.len().min(self.n_rows);
        let mut rows = Vec::with_capacity(usize::try_from(n_rows).unwrap_or(0));
        let mut values = vec![Value::default()];
        for row in 0..n_rows {
            file.read(row, &mut values).map_err(|cause| {
                PrepareError::Source(SourceError::Unreadable {
                    path: self.path.clone(),
                    cause: std::io::Error::other(cause.to_string()),
                })
            })?;
            let number = self.dtype.map(|dtype| number_of(dtype, values[0].bytes()));
            rows.push(match number {
                Some(number) if self.has_numbers() => u64::try_from(number).unwrap_or(u64::MAX),
                Some(number) => hash(number.to_string().as_bytes()),
                None => hash(values[0].bytes()),
            });
        }
        rows.sort_unstable();
        rows.dedup();
        Ok(KeepSet {
            field: (!self.has_numbers()).then(|| self.column.clone()),
            rows,
        })
    }
}

fn open_rows(path: &Path) -> Result<Parquet, PrepareError> {
    Parquet::open(&[path.to_owned()], None, CACHE, None).map_err(|error| match error {
        SourceError::Unsupported { path, what, .. } => {
            PrepareError::Source(SourceError::Unsupported {
                path,
                what,
                hint: "write the ids with smaller row groups, for example 100,000 rows each"
                    .to_owned(),
            })
        }
        other => other.into(),
    })
}

impl KeepSet {
    fn has(&self, row: u64) -> bool {
        self.rows.binary_search(&row).is_ok()
    }
}

/// Which samples of a split are kept.
#[derive(Debug, Default)]
pub(crate) struct Keep {
    set: Option<Arc<KeepSet>>,
    /// What ids are read from.
    lines: Option<Arc<Lines>>,
    value: Value,
}

impl Keep {
    /// All of them, where there is no set.
    pub(crate) fn new(set: Option<Arc<KeepSet>>, lines: Option<Arc<Lines>>) -> Keep {
        Keep {
            set,
            lines,
            value: Value::default(),
        }
    }

    /// Whether a sample is kept. Others are counted in the footer of the run, and so are those whose id cannot be read
    /// and that are to be skipped.
    pub(crate) fn takes(
        &mut self,
        index: u64,
        on_error: OnSampleError,
        footer: &mut RunFooter,
    ) -> Result<bool, PrepareError> {
        match self.has(index) {
            Ok(true) => Ok(true),
            Ok(false) => {
                footer.left_out += 1;
                Ok(false)
            }
            Err(error) if on_error == OnSampleError::Skip => {
                footer.skipped.add(&error);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn has(&mut self, index: u64) -> Result<bool, SampleError> {
        let Some(set) = &self.set else {
            return Ok(true);
        };
        let Some(field) = &set.field else {
            return Ok(set.has(index));
        };
        let Some(lines) = &self.lines else {
            // Refused when the preparation began.
            return Ok(false);
        };
        match lines.id(index, field, &mut self.value) {
            Ok(id) => Ok(set.has(hash(id.as_bytes()))),
            Err(cause) => Err(SampleError {
                place: lines.place(index),
                index,
                field: Some(field.clone()),
                cause: Box::new(SampleCause::Read(cause)),
            }),
        }
    }
}

fn hash(id: &[u8]) -> u64 {
    XxHash3_64::oneshot(id)
}

fn is_integer(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64
    )
}

fn number_of(dtype: DType, bytes: &[u8]) -> i128 {
    let mut word = [0; 16];
    let used = bytes.len().min(dtype.size()).min(word.len());
    word[..used].copy_from_slice(&bytes[..used]);
    let is_signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    if is_signed && used > 0 && word[used - 1] & 0x80 != 0 {
        word[used..].fill(0xFF);
    }
    i128::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_all_sizes_keep_their_sign() {
        assert_eq!(number_of(DType::I8, &[0xFE]), -2);
        assert_eq!(number_of(DType::U8, &[0xFE]), 254);
        assert_eq!(number_of(DType::I64, &(-9_i64).to_le_bytes()), -9);
        assert_eq!(
            number_of(DType::U64, &u64::MAX.to_le_bytes()),
            i128::from(u64::MAX)
        );
    }
}
