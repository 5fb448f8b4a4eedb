use std::sync::Arc;

use arrow_array::builder::{FixedSizeListBuilder, Int32Builder, ListBuilder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, StringViewArray};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use half::f16;

use super::*;
use crate::array::DType;
use crate::sources::arrow::message::Messages;
use crate::sources::testing::{
    HEADROOMS, WHOLE, all_bytes, check_access, check_threads, fixture, names, sample,
};

fn kinds(source: &ArrowFile) -> Vec<String> {
    source
        .fields()
        .iter()
        .map(|field| field.spec.to_string())
        .collect()
}

fn error(source: &ArrowFile, index: u64) -> String {
    let mut values = vec![Value::default(); source.fields().len()];
    source.read(index, &mut values).unwrap_err().to_string()
}

#[test]
fn every_type_is_read_in_both_formats_whatever_the_access() {
    for (name, headroom) in [
        ("table.arrow", 0),
        ("table.arrow", 1),
        ("table_stream.arrow", 0),
        ("table_stream.arrow", 1),
    ] {
        let headroom = HEADROOMS[headroom];
        let source = ArrowFile::open(&[fixture(name)], Some(&names(&WHOLE)), headroom).unwrap();
        check_access(&source, headroom);
        assert_eq!(source.len(), 7);
        for row in 0..7_u8 {
            let at = usize::from(row);
            let values = sample(&source, u64::from(row));
            assert_eq!(*values[0].elements::<i64>(), [i64::from(row)]);
            assert_eq!(*values[1].elements::<f16>(), [f16::from(row)]);
            assert_eq!(values[2].bytes(), [u8::from(row % 2 == 0)]);
            let first = f32::from(row);
            assert_eq!(
                *values[3].elements::<f32>(),
                [first, first + 1.0, first + 2.0, first + 3.0]
            );
            let first = i16::from(row) * 6;
            assert_eq!(
                *values[4].elements::<i16>(),
                (first..first + 6).collect::<Vec<_>>()
            );
            assert_eq!(values[4].shape, [2, 3]);
            let mask: Vec<u8> = (0..5).map(|i| u8::from((row + i) % 3 == 0)).collect();
            assert_eq!((values[5].bytes(), values[5].dtype), (&*mask, DType::Bool));
            assert_eq!(
                (values[6].bytes(), &*values[6].shape),
                (&[row; 4][..], &[4][..])
            );
            assert_eq!(
                *values[7].elements::<i32>(),
                (0..i32::from(row)).collect::<Vec<_>>()
            );
            assert_eq!(values[7].shape, [at]);
            assert_eq!(values[8].bytes(), (0..row).collect::<Vec<_>>());
            assert_eq!(values[9].bytes(), vec![0xff; at]);
            assert_eq!(values[10].bytes(), vec![0xfe; at]);
            assert_eq!(values[11].bytes(), "é".repeat(at).as_bytes());
            assert_eq!(values[12].bytes(), format!("row {row}").as_bytes());
            assert_eq!(
                (values[13].bytes(), &*values[13].shape),
                (&[row, row, 0, 1][..], &[2, 2][..])
            );
            let width = if row == 0 { 0 } else { at % 3 };
            assert_eq!(values[14].shape, [at, width]);
            assert_eq!(
                *values[14].elements::<i32>(),
                vec![i32::from(row); at * width]
            );
        }
        check_threads(&source);
        assert!(source.read(7, &mut vec![Value::default(); 15]).is_err());
    }
}

#[test]
fn the_kinds_of_columns_are_told() {
    let source = ArrowFile::open(&[fixture("table.arrow")], Some(&names(&WHOLE)), None).unwrap();
    let expected = [
        "int64",
        "float16",
        "bool",
        "float32 4",
        "int16 2x3",
        "bool 5",
        "uint8 4",
        "int32 of 1 varying dimensions",
        "uint8 of 1 varying dimensions",
        "bytes",
        "bytes",
        "text",
        "text",
        "int8 2x2",
        "int32 of 2 varying dimensions",
    ];
    assert_eq!(kinds(&source), expected);
    assert_eq!(source.place(6), "table.arrow, row 6");
    assert_eq!(
        source.max_sample_bytes(),
        2 * 4096,
        "a map takes only the bits that are unpacked"
    );
}

#[test]
fn shards_of_hugging_face_are_one_dataset() {
    let shards = [
        "huggingface/data-00000-of-00002.arrow",
        "huggingface/data-00001-of-00002.arrow",
    ]
    .map(fixture);
    for headroom in HEADROOMS {
        let source = ArrowFile::open(&shards, None, headroom).unwrap();
        let expected = [
            "an image file",
            "bytes",
            "int64",
            "uint8 2x3",
            "float32 of 3 varying dimensions",
            "int64 of 1 varying dimensions",
            "text",
        ];
        assert_eq!(kinds(&source), expected);
        assert_eq!(source.len(), 7);
        for row in 0..7_u8 {
            let at = usize::from(row);
            let values = sample(&source, u64::from(row));
            assert_eq!(values[0].bytes(), format!("image {row}").as_bytes());
            assert_eq!(values[1].bytes(), format!("sound {row}").as_bytes());
            assert_eq!(*values[2].elements::<i64>(), [i64::from(row % 2)]);
            assert_eq!(
                (values[3].bytes(), &*values[3].shape),
                (&*(row..row + 6).collect::<Vec<_>>(), &[2, 3][..])
            );
            assert_eq!(
                *values[4].elements::<f32>(),
                vec![f32::from(row); 4 * (at + 1)]
            );
            assert_eq!(values[4].shape, [at + 1, 2, 2]);
            assert_eq!(
                *values[5].elements::<i64>(),
                (0..i64::from(row)).collect::<Vec<_>>()
            );
            assert_eq!(values[6].bytes(), format!("text {row}").as_bytes());
        }
        check_threads(&source);
        assert_eq!(source.place(4), "data-00001-of-00002.arrow, row 0");
    }
}

#[test]
fn a_null_is_an_error_of_its_sample() {
    let columns = names(&["gaps", "gappy"]);
    let source = ArrowFile::open(&[fixture("table.arrow")], Some(&columns), None).unwrap();
    sample(&source, 2);
    assert_eq!(
        error(&source, 3),
        "expected a value in the column \"gaps\", found null"
    );
    let source = ArrowFile::open(&[fixture("table.arrow")], Some(&columns[1..]), None).unwrap();
    assert_eq!(
        error(&source, 3),
        "expected a value in the column \"gappy\", found null"
    );
    assert_eq!(
        error(&source, 4),
        "expected a value in the column \"gappy\", found null"
    );
    assert_eq!(*sample(&source, 5)[0].elements::<i32>(), [5]);
}

#[test]
fn columns_are_chosen_by_name_and_in_that_order() {
    let open =
        |columns: &[&str]| ArrowFile::open(&[fixture("table.arrow")], Some(&names(columns)), None);
    assert_eq!(kinds(&open(&["text", "id"]).unwrap()), ["text", "int64"]);
    let error = open(&["id", "ident"]).unwrap_err().to_string();
    assert!(
        error.contains("no field \"ident\"; available fields are id, half, even"),
        "{error}"
    );
    assert!(open(&["id", "id"]).is_err());
}

#[test]
fn what_cannot_be_read_is_refused_with_a_hint() {
    let refused = |name: &str, columns: Option<&[String]>| match ArrowFile::open(
        &[fixture(name)],
        columns,
        None,
    )
    .unwrap_err()
    {
        SourceError::Unsupported { what, hint, .. } => format!("{what}: {hint}"),
        other => other.to_string(),
    };
    assert!(refused("compressed.arrow", None).contains("without compression"));
    assert!(refused("dictionary.arrow", None).contains("dictionary_decode"));
    assert!(refused("f4.npy", None).contains("an Arrow file or stream"));
    assert!(refused("absent.arrow", None).starts_with("failed to read"));
    assert!(ArrowFile::open(&[], None, None).is_err());
    // What is not chosen may be of any type that can be passed over.
    let source =
        ArrowFile::open(&[fixture("dictionary.arrow")], Some(&names(&["id"])), None).unwrap();
    assert_eq!(*sample(&source, 2)[0].elements::<i64>(), [3]);
}

#[test]
fn files_go_together_where_the_chosen_columns_do() {
    let shard = fixture("huggingface/data-00000-of-00002.arrow");
    let open =
        |columns: &[&str], paths: &[PathBuf]| ArrowFile::open(paths, Some(&names(columns)), None);
    let source = open(&["text"], &[fixture("table.arrow"), shard.clone()]).unwrap();
    assert_eq!(source.len(), 11);
    assert_eq!(sample(&source, 7)[0].bytes(), b"text 0");
    let dictionary = fixture("dictionary.arrow");
    assert!(open(&["id"], &[fixture("table.arrow"), dictionary]).is_ok());
    let error = open(&["text", "id"], &[fixture("table.arrow"), shard]).unwrap_err();
    assert!(matches!(error, SourceError::NoSuchField { .. }), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.arrow");
    write(
        &path,
        vec![("text", Arc::new(Int64Array::from(vec![1])))],
        true,
    );
    let error = open(&["text"], &[fixture("table.arrow"), path]).unwrap_err();
    let expected =
        "expected the column \"text\" of text as in the first file, found \"text\" of int64";
    assert!(error.to_string().contains(expected), "{error}");
}

fn write(path: &Path, columns: Vec<(&str, ArrayRef)>, streamed: bool) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = std::fs::File::create(path).unwrap();
    if streamed {
        let mut writer = StreamWriter::try_new(file, &batch.schema()).unwrap();
        for start in (0..batch.num_rows()).step_by(100) {
            let rows = (batch.num_rows() - start).min(100);
            writer.write(&batch.slice(start, rows)).unwrap();
        }
        writer.finish().unwrap();
    } else {
        let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
        for start in (0..batch.num_rows()).step_by(100) {
            let rows = (batch.num_rows() - start).min(100);
            writer.write(&batch.slice(start, rows)).unwrap();
        }
        writer.finish().unwrap();
    }
}

#[test]
fn files_of_the_rust_writer_are_read() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("data.arrow");
    for streamed in [false, true] {
        let mut lists = ListBuilder::new(Int32Builder::new());
        let mut pairs = FixedSizeListBuilder::new(Int32Builder::new(), 2);
        for row in 0..1000_u16 {
            let len = usize::from(row % 50);
            let row = i32::from(row);
            lists.values().append_slice(&vec![row; len]);
            lists.append(true);
            pairs.values().append_slice(&[row, -row]);
            pairs.append(true);
        }
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("lists", Arc::new(lists.finish())),
            ("pairs", Arc::new(pairs.finish())),
            (
                "text",
                Arc::new(StringArray::from_iter_values(
                    (0..1000).map(|row| "x".repeat(row)),
                )),
            ),
        ];
        write(&path, columns, streamed);
        for headroom in HEADROOMS {
            let source = ArrowFile::open(std::slice::from_ref(&path), None, headroom).unwrap();
            assert_eq!(source.len(), 1000);
            for row in 0..1000_u16 {
                let values = sample(&source, u64::from(row));
                assert_eq!(values[2].bytes().len(), usize::from(row));
                let len = usize::from(row % 50);
                let row = i32::from(row);
                assert_eq!(*values[0].elements::<i32>(), vec![row; len]);
                assert_eq!(*values[1].elements::<i32>(), [row, -row]);
            }
            all_bytes(&source);
            // The longest list of 49, a pair, and the longest text of 999, each with what direct reads add.
            let expected = match headroom {
                None => 0,
                Some(_) => 49 * 4 + 8 + 999 + 3 * 2 * 4096,
            };
            assert_eq!(source.max_sample_bytes(), expected);
        }
    }
}

#[test]
fn lists_of_one_sample_must_be_of_one_length() {
    let mut outer = ListBuilder::new(ListBuilder::new(Int32Builder::new()));
    for lens in [[2, 2], [1, 2]] {
        for len in lens {
            outer.values().values().append_slice(&vec![7; len]);
            outer.values().append(true);
        }
        outer.append(true);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    write(file.path(), vec![("x", Arc::new(outer.finish()))], true);
    let source = ArrowFile::open(&[file.path().to_owned()], None, None).unwrap();
    assert_eq!(sample(&source, 0)[0].shape, [2, 2]);
    assert_eq!(
        error(&source, 1),
        "expected lists of 1 in the column \"x\", found one of 2"
    );
}

#[test]
fn a_view_is_refused_even_beside_what_is_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "view",
            Arc::new(StringViewArray::from_iter_values(["a", "b"])),
        ),
        ("id", Arc::new(Int64Array::from(vec![1, 2]))),
    ];
    write(file.path(), columns, false);
    let error =
        ArrowFile::open(&[file.path().to_owned()], Some(&names(&["id"])), None).unwrap_err();
    assert!(error.to_string().contains("the column \"view\""), "{error}");
}

#[test]
fn record_batches_that_are_listed_twice_are_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    write(
        file.path(),
        vec![("id", Arc::new(Int64Array::from_iter_values(0..200)))],
        false,
    );
    let mut bytes = std::fs::read(file.path()).unwrap();
    // The two blocks of the footer: offset, length of the description, length of the body.
    let second = bytes
        .windows(8)
        .rposition(|window| window == 808_u64.to_le_bytes());
    let body = 800_u64.next_multiple_of(64).to_le_bytes();
    let blocks: Vec<usize> = (0..bytes.len() - 24)
        .rev()
        .filter(|&at| bytes[at + 16..at + 24] == body)
        .take(2)
        .collect();
    assert!(
        second.is_none() && blocks[0] == blocks[1] + 24,
        "{blocks:?}"
    );
    bytes.copy_within(blocks[1]..blocks[1] + 24, blocks[0]);
    std::fs::write(file.path(), &bytes).unwrap();
    let error = ArrowFile::open(&[file.path().to_owned()], None, None).unwrap_err();
    assert!(
        error.to_string().contains("a record batch between"),
        "{error}"
    );
}

/// A stream of so many columns of empty texts, all of which have the offsets of the first.
fn of_shared_offsets(columns: usize, rows: usize) -> Vec<u8> {
    let texts: ArrayRef = Arc::new(StringArray::from(vec![""; rows]));
    let columns = (0..columns).map(|at| (at.to_string(), Arc::clone(&texts)));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    let mut bytes = writer.into_inner().unwrap();
    let reader_of = |bytes: &[u8]| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        Reader::open(file.path(), Access::Read).unwrap()
    };
    let reader = reader_of(&bytes);
    let mut messages = Messages::new(&reader);
    let (_, schema) = messages.message(0, reader.len()).unwrap().unwrap();
    let (message, body) = messages
        .message(schema.end(), reader.len())
        .unwrap()
        .unwrap();
    let batch = message.header_as_record_batch().unwrap();
    let buffers: Vec<_> = batch.buffers().unwrap().iter().copied().collect();
    let wanted = 4 * (i64::try_from(rows).unwrap() + 1);
    let first = buffers.iter().find(|buffer| buffer.length() == wanted);
    let first = *first.unwrap();

    // All numbers of 64 bits in the description: the buffers, and the length of the body.
    let new_len = first.offset() + first.length();
    let replace = |bytes: &mut [u8], from: &[u8], to: &[u8]| {
        let head =
            usize::try_from(schema.end()).unwrap()..usize::try_from(body.body_start).unwrap();
        let found: Vec<usize> = head
            .clone()
            .filter(|&at| bytes.get(at..at + from.len()) == Some(from))
            .collect();
        // Some are the same, and were found before.
        for at in found {
            bytes[at..at + to.len()].copy_from_slice(to);
        }
    };
    let pair = |offset: i64, length: i64| [offset.to_le_bytes(), length.to_le_bytes()].concat();
    for buffer in &buffers {
        let to = if buffer.length() == wanted {
            pair(first.offset(), wanted)
        } else {
            pair(0, 0)
        };
        replace(&mut bytes, &pair(buffer.offset(), buffer.length()), &to);
    }
    let old_len = i64::try_from(body.body_len).unwrap();
    replace(&mut bytes, &old_len.to_le_bytes(), &new_len.to_le_bytes());
    bytes.truncate(usize::try_from(body.body_start).unwrap() + usize::try_from(new_len).unwrap());
    bytes
}

#[test]
fn offsets_of_many_columns_in_one_place_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared.arrow");
    std::fs::write(&path, of_shared_offsets(200, 2000)).unwrap();
    let error = ArrowFile::open(&[path], None, Some(Bytes(0))).unwrap_err();
    assert!(
        error.to_string().contains("offsets that lie side by side"),
        "{error}"
    );
}

#[test]
fn more_columns_than_anybody_has_are_refused() {
    let column: ArrayRef = Arc::new(Int64Array::from(Vec::<i64>::new()));
    let columns = (0..=200_000).map(|at| (at.to_string(), Arc::clone(&column)));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.arrow");
    std::fs::write(&path, writer.into_inner().unwrap()).unwrap();
    let error = ArrowFile::open(&[path], None, None).unwrap_err();
    assert!(
        error.to_string().contains("at most 200000 columns"),
        "{error}"
    );
}
