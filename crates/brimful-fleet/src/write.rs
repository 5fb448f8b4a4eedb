//! Writing the rows of one run.

use std::fs::{self, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brimful::fleet::AttemptRow;
use brimful_load::remote::{Bucket, is_remote};
use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;

use crate::columns::{Cell, columns, schema};
use crate::error::FleetError;

/// The ending of a file.
pub(crate) const EXTENSION: &str = "parquet";
/// What a file is read or entered by, for those who may do the same with its directory.
const OF_FILE: u32 = 0o644;
/// Characters of a name of a file that come from the run.
const MAX_NAME: usize = 100;

/// Writes the rows of a run as one file, in place of an older one of the same run. Returns its path.
///
/// The file is there as a whole or not at all. Who may read the directory may read the file.
pub fn write_rows(rows: &[AttemptRow], destination: &Path) -> Result<PathBuf, FleetError> {
    let bytes = encode_rows(rows)?;
    let name = file_name(rows.first().ok_or(FleetError::NoRows)?);
    if is_remote(destination) {
        let path = object(destination, &name);
        let written = Bucket::of(&path).and_then(|bucket| bucket.write(&path, &bytes));
        return match written {
            Ok(()) => Ok(path),
            Err(source) => Err(FleetError::unwritable(&path, source)),
        };
    }
    let path = destination.join(&name);
    write_file(destination, &name, &bytes)
        .map_err(|source| FleetError::unwritable(destination, source))?;
    Ok(path)
}

/// Whether records can be written there, before a run that takes a week.
pub fn check_destination(destination: &Path) -> Result<(), FleetError> {
    let failed = |source| FleetError::unwritable(destination, source);
    if is_remote(destination) {
        let bucket = Bucket::of(destination).map_err(failed)?;
        return bucket.has_any(destination).map(drop).map_err(failed);
    }
    brimful_private::create_missing_directories(destination).map_err(failed)?;
    let name = format!(".{:016x}.part", RandomState::new().hash_one(0));
    let path = destination.join(name);
    brimful_private::create_new(&path).map_err(failed)?;
    fs::remove_file(path).map_err(failed)
}

fn object(destination: &Path, name: &str) -> PathBuf {
    let directory = destination.to_string_lossy();
    PathBuf::from(format!("{}/{name}", directory.trim_end_matches('/')))
}

fn write_file(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    brimful_private::create_missing_directories(directory)?;
    let mode = fs::metadata(directory)?.permissions().mode();
    let part = directory.join(format!(".{:016x}.part", RandomState::new().hash_one(name)));
    let written = brimful_private::create_new(&part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.set_permissions(Permissions::from_mode(0o600 | (mode & OF_FILE)))?;
        file.sync_all()?;
        fs::rename(&part, directory.join(name))
    });
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

/// The run and its machine: IDs are unique on one machine only.
fn file_name(row: &AttemptRow) -> String {
    let plain = |text: &str| -> String {
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        text.chars().filter(is_plain).take(MAX_NAME).collect()
    };
    let (run, host) = (plain(&row.run), plain(&row.host_name));
    format!("{}-{host}.{EXTENSION}", run.trim_start_matches('.'))
}

/// The bytes of a file.
pub fn encode_rows(rows: &[AttemptRow]) -> Result<Vec<u8>, FleetError> {
    Ok(encode(rows)?)
}

fn encode(rows: &[AttemptRow]) -> Result<Vec<u8>, ParquetError> {
    let columns = columns();
    // A file is a few kilobytes, most of them names: neither a dictionary nor statistics would pay.
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_created_by(format!("brimful {}", env!("CARGO_PKG_VERSION")))
        .build();
    let mut writer =
        SerializedFileWriter::new(Vec::new(), schema(&columns)?, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for column in &columns {
        let cells: Vec<Cell> = rows.iter().map(column.get).collect();
        let Some(mut leaf) = group.next_column()? else {
            return Err(ParquetError::General("a column is missing".into()));
        };
        write_column(leaf.untyped(), cells)?;
        leaf.close()?;
    }
    group.close()?;
    writer.into_inner()
}

fn write_column(column: &mut ColumnWriter<'_>, cells: Vec<Cell>) -> Result<(), ParquetError> {
    let levels: Vec<i16> = cells
        .iter()
        .map(|cell| i16::from(*cell != Cell::Missing))
        .collect();
    let levels = Some(levels.as_slice());
    macro_rules! values {
        ($kind:ident) => {
            cells
                .into_iter()
                .filter_map(|cell| match cell {
                    Cell::$kind(value) => Some(value),
                    _ => None,
                })
                .collect::<Vec<_>>()
        };
    }
    match column {
        ColumnWriter::BoolColumnWriter(column) => {
            column.write_batch(&values!(Flag), levels, None)?;
        }
        ColumnWriter::Int32ColumnWriter(column) => {
            column.write_batch(&values!(Int), levels, None)?;
        }
        ColumnWriter::Int64ColumnWriter(column) => {
            column.write_batch(&values!(Long), levels, None)?;
        }
        ColumnWriter::DoubleColumnWriter(column) => {
            column.write_batch(&values!(Real), levels, None)?;
        }
        ColumnWriter::ByteArrayColumnWriter(column) => {
            let texts: Vec<ByteArray> = values!(Text)
                .into_iter()
                .map(|text| ByteArray::from(text.into_bytes()))
                .collect();
            column.write_batch(&texts, levels, None)?;
        }
        _ => return Err(ParquetError::General("a column of another type".into())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{Columns, read_rows};

    fn row() -> AttemptRow {
        AttemptRow {
            schema_version: 1,
            run: "../2026-a".into(),
            host_name: "node/1".into(),
            job: Some("j".into()),
            started_at_unix_ms: 1_700_000_000_123,
            is_last: true,
            seconds: 1.5,
            host_peak_bytes: Some(7),
            ..AttemptRow::default()
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let rows = [
            row(),
            AttemptRow {
                attempt: 2,
                cause: Some("é".into()),
                ..row()
            },
        ];
        let mut found = Vec::new();
        read_rows(
            Path::new("x"),
            encode(&rows).unwrap(),
            Columns::All,
            &mut |row| found.push(row),
        )
        .unwrap();
        assert_eq!(found, rows);
    }

    #[test]
    fn a_name_cannot_lead_elsewhere() {
        assert_eq!(file_name(&row()), "2026-a-node1.parquet");
    }

    #[test]
    fn a_file_is_as_readable_as_its_directory() {
        for (mode, expected) in [
            (0o700, 0o600),
            (0o755, 0o644),
            (0o1777, 0o644),
            (0o2770, 0o640),
        ] {
            let directory = tempfile::tempdir().unwrap();
            fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
            let path = write_rows(&[row()], directory.path()).unwrap();
            // Again, in place of it.
            write_rows(&[row()], directory.path()).unwrap();
            assert_eq!(
                fs::metadata(path).unwrap().permissions().mode() & 0o777,
                expected
            );
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_destination_that_cannot_be_written_is_an_error_before_the_run() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("a/b");
        check_destination(&inside).unwrap();
        assert_eq!(fs::read_dir(&inside).unwrap().count(), 0);
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let error = check_destination(&file.join("x")).unwrap_err();
        assert!(matches!(error, FleetError::Unwritable { .. }), "{error}");
        assert!(matches!(
            write_rows(&[], directory.path()),
            Err(FleetError::NoRows)
        ));
    }
}
