use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::*;
use crate::random::mixed;
use crate::sources::ArrowFile;
use crate::sources::parquet::cache::Key;
use crate::sources::parquet::pages::{Pages, header};
use crate::sources::testing::{
    HEADROOMS, WHOLE, all_bytes, check_access, check_threads, fixture, names, sample,
};

const MIB: u64 = 1 << 20;

fn opened(path: PathBuf, columns: &[&str], cache: u64) -> Result<Parquet, SourceError> {
    Parquet::open(&[path], Some(&names(columns)), Bytes(cache), None)
}

#[test]
fn every_type_is_read_as_from_an_arrow_file() {
    let columns = names(&WHOLE);
    let arrow = ArrowFile::open(&[fixture("table.arrow")], Some(&columns), None).unwrap();
    for headroom in HEADROOMS {
        let path = [fixture("table.parquet")];
        let source = Parquet::open(&path, Some(&columns), CACHE, headroom).unwrap();
        check_access(&source, headroom);
        assert_eq!(source.fields(), arrow.fields());
        assert_eq!(source.groups.len(), 3);
        assert_eq!(all_bytes(&source), all_bytes(&arrow));
        let shapes = |source: &dyn Source| -> Vec<Vec<usize>> {
            let values = sample(source, 5).into_iter();
            values.map(|value| value.shape).collect()
        };
        assert_eq!(shapes(&source), shapes(&arrow));
    }
}

#[test]
fn every_compression_and_version_is_read() {
    let columns = ["id", "even", "box", "ids", "raw", "text"];
    let arrow = ArrowFile::open(&[fixture("table.arrow")], Some(&names(&columns)), None).unwrap();
    for name in ["none", "gzip", "zstd", "lz4", "version_2"] {
        let path = fixture(&format!("{name}.parquet"));
        let source = opened(path, &columns, CACHE.get()).unwrap();
        assert_eq!(all_bytes(&source), all_bytes(&arrow), "{name}");
        check_threads(&source);
    }
    let error = opened(fixture("brotli.parquet"), &columns, CACHE.get()).unwrap_err();
    assert!(matches!(error, SourceError::Unsupported { .. }), "{error}");
}

#[test]
fn a_null_is_an_error_of_its_sample() {
    for (name, nulls) in [("gaps", 1), ("gappy", 2)] {
        let source = opened(fixture("table.parquet"), &[name], CACHE.get()).unwrap();
        let mut values = [Value::default()];
        let failed = (0..source.len()).filter(|&row| source.read(row, &mut values).is_err());
        assert_eq!(failed.count(), nulls, "{name}");
    }
}

#[test]
fn several_files_are_one_dataset() {
    let paths = [fixture("zstd.parquet"), fixture("gzip.parquet")];
    let columns = names(&["text", "id"]);
    let source = Parquet::open(&paths, Some(&columns), CACHE, None).unwrap();
    assert_eq!(source.len(), 14);
    assert_eq!(sample(&source, 9)[1].elements::<i64>(), [2].as_slice());
    assert_eq!(sample(&source, 9)[0].bytes(), "éé".as_bytes());
    assert_eq!(source.place(12), "gzip.parquet, row 1 of row group 1");
    let mixed = [fixture("zstd.parquet"), fixture("table.parquet")];
    assert!(Parquet::open(&mixed, None, CACHE, None).is_err());
}

#[test]
fn a_column_that_is_not_there_is_told_with_those_that_are() {
    let error = opened(fixture("zstd.parquet"), &["txt"], CACHE.get()).unwrap_err();
    let SourceError::NoSuchField { known, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(known, ["id", "even", "box", "ids", "raw", "text"]);
    assert!(opened(fixture("zstd.parquet"), &["id", "id"], CACHE.get()).is_err());
}

/// A file of so many rows, in row groups of so many: a number, and the same long text.
fn written(rows: usize, in_group: usize, text: usize) -> tempfile::NamedTempFile {
    written_with(rows, in_group, text, EnabledStatistics::Chunk)
}

fn written_with(
    rows: usize,
    in_group: usize,
    text: usize,
    statistics: EnabledStatistics,
) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let ids = (0..rows).map(|row| i64::try_from(row).unwrap());
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    let text = "x".repeat(text);
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(|_| &text)));
    let batch = RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(in_group))
        .set_statistics_enabled(statistics)
        .build();
    let mut writer =
        ArrowWriter::try_new(file.reopen().unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    file
}

#[test]
fn a_row_group_that_does_not_fit_is_told_when_the_file_is_opened() {
    let file = written(100_000, 50_000, 1);
    let error = opened(file.path().to_owned(), &["id"], 100_000).unwrap_err();
    let SourceError::Unsupported { what, hint, .. } = error else {
        panic!("{error}");
    };
    assert!(what.contains("row group 0 of 50000 rows"), "{what}");
    assert!(hint.contains("give `cache` at least") && hint.contains("Arrow"));
}

#[test]
fn values_that_repeat_take_what_they_take_or_are_told() {
    // 30 MB of text in a few kilobytes, with and without a word of the writer about it.
    for statistics in [EnabledStatistics::Chunk, EnabledStatistics::None] {
        let file = written_with(30_000, 30_000, 1000, statistics);
        assert!(file.as_file().metadata().unwrap().len() < MIB);
        let source = opened(file.path().to_owned(), &["text"], 200 * MIB).unwrap();
        assert_eq!(sample(&source, 29_999)[0].bytes(), [b'x'; 1000]);
        assert!((28 * MIB..34 * MIB).contains(&source.cache.held()));
        match opened(file.path().to_owned(), &["text"], 20 * MIB) {
            Ok(source) => {
                assert_eq!(statistics, EnabledStatistics::None);
                let error = source.read(0, &mut [Value::default()]).unwrap_err();
                assert!(error.to_string().contains("convert to Arrow"), "{error}");
                assert_eq!(source.cache.held(), 0);
            }
            Err(error) => assert_eq!(statistics, EnabledStatistics::Chunk, "{error}"),
        }
    }
}

#[test]
fn in_order_each_row_group_is_decoded_once_and_the_cache_keeps_its_bound() {
    let file = written(100_000, 10_000, 1);
    let columns = ["id", "text"];
    let source = opened(file.path().to_owned(), &columns, MIB).unwrap();
    let mut values = vec![Value::default(); 2];
    let mut decoded = 0;
    for row in 0..source.len() {
        let before = source.cache.keys();
        source.read(row, &mut values).unwrap();
        assert_eq!(values[0].elements::<i64>()[0].cast_unsigned(), row);
        decoded += usize::from(source.cache.keys().last() != before.last());
        assert!(source.cache.held() <= MIB);
    }
    assert_eq!(decoded, 10);
    assert!(source.choice().reason.contains("convert to Arrow for that"));
    let all = opened(file.path().to_owned(), &columns, CACHE.get()).unwrap();
    assert!(
        all.choice()
            .reason
            .ends_with("all fit into the cache of 256 MiB")
    );
}

#[test]
fn threads_share_a_small_cache() {
    let file = written(20_000, 2_000, 10);
    let source = opened(file.path().to_owned(), &["id", "text"], MIB).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6_u64 {
            let source = &source;
            scope.spawn(move || {
                let mut values = vec![Value::default(); 2];
                for turn in 0..300 {
                    let row = mixed(thread * 1000 + turn) % source.len();
                    source.read(row, &mut values).unwrap();
                    assert_eq!(values[0].elements::<i64>()[0].cast_unsigned(), row);
                    assert!(source.cache.held() <= MIB);
                }
            });
        }
    });
}

#[test]
fn a_row_group_is_made_once_and_others_do_not_wait_for_it() {
    let cache = Cache::new(99);
    let made = AtomicUsize::new(0);
    let get = |key: Key, pause: u64| {
        let group = cache.get(key, 40, || {
            made.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(pause));
            Ok(Group {
                columns: Vec::new(),
                bytes: 30,
            })
        });
        assert!(group.group().unwrap().is_some());
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| get((0, 0), 500));
        }
        std::thread::sleep(Duration::from_millis(100));
        get((0, 1), 0);
        assert!(began.elapsed() < Duration::from_millis(450));
    });
    assert_eq!(made.load(Ordering::Relaxed), 2);
    assert_eq!(cache.held(), 60);
    // No room for a third one beside both: the least used one goes.
    get((0, 2), 0);
    assert_eq!(cache.keys(), [(0, 1), (0, 2)]);
}

#[test]
fn pages_that_are_more_than_the_footer_says_are_refused() {
    let reader = Reader::open(&fixture("none.parquet"), Access::Read).unwrap();
    let footer = Footer::read(&reader).unwrap();
    for chunk in &footer.groups[0].chunks {
        Pages::check(&reader, chunk, chunk.decoded()).unwrap();
        assert!(Pages::check(&reader, chunk, 3).is_err());
    }
}

/// Where the bytes of pages are in a file, without their headers.
fn page_ranges(name: &str) -> Vec<Range<usize>> {
    let reader = Reader::open(&fixture(name), Access::Read).unwrap();
    let footer = Footer::read(&reader).unwrap();
    let mut ranges = Vec::new();
    for chunk in footer.groups.iter().flat_map(|group| &group.chunks) {
        let (mut at, end) = (chunk.start, chunk.start + chunk.compressed);
        while at < end {
            let (header, len) = header(&reader, at, end).unwrap();
            let start = usize::try_from(at + len).unwrap();
            let page = start..start + usize::try_from(header.compressed).unwrap();
            at = page.end as u64;
            ranges.push(page);
        }
    }
    ranges
}

/// All samples of a file, or the first error.
fn read_all(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let source = Parquet::open(&[path.to_owned()], None, CACHE, None);
    let source = source.map_err(|error| error.to_string())?;
    let mut values = vec![Value::default(); source.fields().len()];
    let mut samples = Vec::new();
    for row in 0..source.len() {
        source
            .read(row, &mut values)
            .map_err(|error| error.to_string())?;
        samples.extend(values.iter().map(|value| value.bytes().to_vec()));
    }
    Ok(samples)
}

#[test]
fn every_flipped_bit_of_a_page_with_a_checksum_is_told_with_its_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flipped.parquet");
    let columns = ["id", "even", "box", "ids", "raw", "text"];
    for name in ["checksums.parquet", "checksums_2.parquet"] {
        let whole = std::fs::read(fixture(name)).unwrap();
        assert_eq!(read_all(&fixture(name)), read_all(&fixture("none.parquet")));
        let ranges = page_ranges(name);
        assert!(ranges.len() >= columns.len());
        for at in ranges.into_iter().flatten() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bytes).unwrap();
            let error = read_all(&path).unwrap_err();
            let is_named = columns.iter().any(|column| {
                error.starts_with(&format!(
                    "expected pages of column {column:?} that match their checksums, found"
                ))
            });
            assert!(is_named, "{name}, byte {at}: {error}");
        }
    }
}

#[test]
fn parts_that_contradict_each_other_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flipped.parquet");
    let whole = std::fs::read(fixture("checksums.parquet")).unwrap();
    // In the schema: the type, repetition and name of `id`, as Thrift writes them.
    let schema = whole
        .windows(8)
        .position(|window| window == [0x15, 4, 0x25, 2, 0x18, 2, b'i', b'd'])
        .unwrap();
    // Of the page behind its dictionary: the encoding.
    let encoding = page_ranges("checksums.parquet")[0].end + 16;
    assert_eq!(whole[encoding], 8 << 1);
    // Of a page of `ids`: how many values it has.
    let n_values = 351;
    assert_eq!(whole[n_values - 2..=n_values], [0x1c, 0x15, 7 << 1]);
    for (at, bit, message) in [
        (
            schema + 1,
            2,
            "row group 0 with columns of the types in the schema",
        ),
        (
            schema + 3,
            1,
            "column 0 of row group 0 with the levels of its schema",
        ),
        (encoding, 1, "an encoding that the file's footer lists"),
        (n_values, 2, "7 values in the pages of a column, found 5"),
    ] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        std::fs::write(&path, &bytes).unwrap();
        let error = read_all(&path).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn every_flipped_bit_of_a_gzip_page_is_an_error_or_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flipped.parquet");
    let whole = std::fs::read(fixture("gzip.parquet")).unwrap();
    let sound = read_all(&fixture("gzip.parquet")).unwrap();
    for at in page_ranges("gzip.parquet").into_iter().flatten() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bytes).unwrap();
        // The header of gzip has a time and a system, which nobody reads.
        if let Ok(found) = read_all(&path) {
            assert_eq!(found, sound, "byte {at}");
        }
    }
}

#[test]
fn a_table_of_no_rows_is_empty() {
    let file = written(0, 10, 1);
    let source = opened(file.path().to_owned(), &["id"], MIB).unwrap();
    assert!(source.is_empty());
    assert!(source.read(0, &mut [Value::default()]).is_err());
}

/// Opens what may be no Parquet file, and reads what can be read of it.
fn try_all(path: &Path) {
    let began = Instant::now();
    if let Ok(source) = Parquet::open(&[path.to_owned()], None, Bytes(64 * MIB), None) {
        let mut values = vec![Value::default(); source.fields().len()];
        for row in 0..source.len().min(10) {
            let _ = source.read(row, &mut values);
            assert!(source.cache.held() <= 64 * MIB);
        }
    }
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn files_that_are_cut_off_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.parquet");
    for name in ["version_2.parquet", "zstd.parquet"] {
        let whole = std::fs::read(fixture(name)).unwrap();
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(Parquet::open(std::slice::from_ref(&path), None, CACHE, None).is_err());
        }
    }
}

#[test]
fn files_that_lie_are_no_panic_and_never_much_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.parquet");
    for name in ["table", "none", "zstd", "lz4", "version_2", "checksums_2"] {
        let whole = std::fs::read(fixture(&format!("{name}.parquet"))).unwrap();
        for turn in 0..600_u64 {
            let mut bytes = whole.clone();
            for change in 0..=turn % 4 {
                let draw = mixed(turn * 10 + change);
                let len = bytes.len() as u64;
                // Half of them within the last quarter, where the footer is.
                let at = match draw & 1 {
                    0 => (draw >> 8) % len,
                    _ => len - 1 - (draw >> 8) % (len / 4),
                };
                let byte = u8::try_from(draw >> 56).unwrap();
                bytes[usize::try_from(at).unwrap()] = byte;
            }
            std::fs::write(&path, &bytes).unwrap();
            try_all(&path);
        }
    }
}
