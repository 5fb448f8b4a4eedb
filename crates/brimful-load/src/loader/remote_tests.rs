//! Every format from a server: the same samples as from a file, and few requests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use brimful::units::Bytes;

use crate::array::DType;
use crate::error::SourceError;
use crate::indexes::Indexes;
use crate::loader::{Loader, LoaderSettings, Next, OnError};
use crate::opening::Opening;
use crate::pipeline::Pipeline;
use crate::reading::Access;
use crate::remote::server::{Fault, Server};
use crate::source::Source;
use crate::sources::testing::{all_bytes, check_threads, fixture, sample};
use crate::sources::{
    ArrowFile, CACHE, DatasetRequest, Folder, FolderOptions, Hdf5, Lines, Npy, Parquet, TarField,
    Tars, TokenForm, Tokens,
};
use crate::value::Value;

/// Opens a file and the same bytes at a server, and holds the one against the other. Gives the server's source.
fn check<S: Source>(file: &Path, open: impl Fn(PathBuf) -> S) -> (Server, S) {
    let server = Server::start(std::fs::read(file).unwrap());
    let name = file.file_name().unwrap().to_str().unwrap();
    let local = open(file.to_owned());
    let remote = open(server.path(name));
    assert_eq!(remote.choice().access, Access::Remote);
    assert_eq!(remote.fields(), local.fields());
    assert_eq!(all_bytes(&remote), all_bytes(&local));
    assert!(remote.place(0).contains(name));
    (server, remote)
}

/// The same for bytes that are no fixture; and that opening them takes at most so many requests.
fn check_written<S: Source>(
    bytes: &[u8],
    name: &str,
    max_requests: usize,
    open: impl Fn(PathBuf) -> S,
) -> (Server, S) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let (server, source) = check(&path, &open);
    server.asked();
    let _opened = open(server.path(name));
    let asked = server.asked();
    assert!(asked.len() <= max_requests, "{name}: {asked:?}");
    (server, source)
}

#[test]
fn arrays() {
    for name in ["f4.npy", "i8_big_endian.npy"] {
        let (_, source) = check(&fixture(name), |path| {
            Npy::open(&[("x".to_owned(), path)], None).unwrap()
        });
        check_threads(&source);
    }
    let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    check_written(&bytes, "raw.bin", 1, |path| {
        Npy::raw("x", &path, DType::U8, &[1 << 10], None).unwrap()
    });
}

#[test]
fn a_sample_of_an_array_is_one_request_and_small_ones_less() {
    let bytes: Vec<u8> = (0..=255).cycle().take(4 << 20).collect();
    for (side, most) in [(128 << 10, 32), (512, 9)] {
        let (server, source) = check_written(&bytes, "raw.bin", 1, |path| {
            Npy::raw("x", &path, DType::U8, &[side], None).unwrap()
        });
        let mut values = [Value::default()];
        for index in 0..source.len() {
            source.read(index, &mut values).unwrap();
        }
        let asked = server.asked();
        assert!(asked.len() <= most, "samples of {side} bytes: {asked:?}");
    }
}

#[test]
fn tokens() {
    for (name, as_i64) in [("tokens_u2.npy", false), ("tokens_i4_big_endian.npy", true)] {
        check(&fixture(name), |path| {
            let form = TokenForm {
                stored: None,
                block: 5,
                as_i64,
            };
            Tokens::open(&path, form, None).unwrap()
        });
    }
    // A block that is widened comes in one request too.
    let bytes: Vec<u8> = (0..=255).cycle().take(4 << 20).collect();
    let form = TokenForm {
        stored: Some(DType::U16),
        block: 1 << 16,
        as_i64: true,
    };
    let (server, source) = check_written(&bytes, "tokens.bin", 1, |path| {
        Tokens::open(&path, form, None).unwrap()
    });
    sample(&source, 7);
    assert_eq!(server.asked(), [(7 << 17, 8 << 17)]);
}

#[test]
fn lines() {
    check(&fixture("lines.txt"), |path| {
        Lines::open(&[path], None, &Opening::default()).unwrap()
    });
    let text = ["a line", &"of much text".repeat(90), "\n"]
        .concat()
        .repeat(2000);
    check_written(text.as_bytes(), "long.txt", 2, |path| {
        Lines::open(&[path], None, &Opening::default()).unwrap()
    });
}

#[test]
fn hdf5_files() {
    for (name, dataset) in [
        ("contiguous.h5", "int16"),
        ("chunked-latest.h5", ""),
        ("matlab.h5", ""),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hdf5");
        let wanted = if dataset.is_empty() {
            Vec::new()
        } else {
            vec![DatasetRequest::new(dataset)]
        };
        let (server, _) = check(&path.join(name), |path| {
            Hdf5::open(&path, &wanted, None).unwrap()
        });
        server.asked();
        Hdf5::open(&server.path(name), &wanted, None).unwrap();
        // Once for what the file says of itself, once for the samples.
        assert_eq!(server.asked().len(), 2, "{name}");
    }
}

#[test]
fn arrow_files() {
    for name in ["table.arrow", "table_stream.arrow"] {
        let columns = ["id", "grid", "ids", "text"].map(str::to_owned);
        let (_, source) = check(&fixture(name), |path| {
            ArrowFile::open(&[path], Some(&columns), None).unwrap()
        });
        check_threads(&source);
    }
}

/// 40 record batches of 100 KB each.
fn batches() -> Vec<RecordBatch> {
    let batch = |number: i64| {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(number * 10..number * 10 + 10));
        let text = (0..10).map(|at| vec![b'x'; 10_000 + at]);
        let text: ArrayRef = Arc::new(BinaryArray::from_iter_values(text));
        RecordBatch::try_from_iter([("id", ids), ("text", text)]).unwrap()
    };
    (0..40).map(batch).collect()
}

#[test]
fn an_arrow_file_is_opened_in_fewer_requests_than_it_has_batches() {
    let batches = batches();
    let schema = batches[0].schema();
    let mut file = FileWriter::try_new(Vec::new(), &schema).unwrap();
    let mut stream = StreamWriter::try_new(Vec::new(), &schema).unwrap();
    for batch in &batches {
        file.write(batch).unwrap();
        stream.write(batch).unwrap();
    }
    let (file, stream) = (file.into_inner().unwrap(), stream.into_inner().unwrap());
    for (name, bytes) in [("file.arrow", file), ("stream.arrow", stream)] {
        check_written(&bytes, name, 20, |path| {
            ArrowFile::open(&[path], None, None).unwrap()
        });
    }
}

#[test]
fn parquet_files() {
    let columns = ["id", "grid", "ids", "text"].map(str::to_owned);
    let (_, source) = check(&fixture("table.parquet"), |path| {
        Parquet::open(&[path], Some(&columns), CACHE, None).unwrap()
    });
    assert_eq!(source.kept_bytes(), CACHE.get() + crate::remote::KEPT);
    check_threads(&source);
}

#[test]
fn archives() {
    let mut builder = tar::Builder::new(Vec::new());
    for number in 0..300_usize {
        for (extension, len) in [("txt", 20), ("bin", 3000 + number)] {
            let mut header = tar::Header::new_gnu();
            header.set_size(len as u64);
            let bytes = vec![u8::try_from(number % 256).unwrap(); len];
            let name = format!("{number:04}.{extension}");
            builder
                .append_data(&mut header, name, bytes.as_slice())
                .unwrap();
        }
    }
    let bytes = builder.into_inner().unwrap();
    let fields = ["txt", "bin"].map(TarField::named);
    let (server, one) = check_written(&bytes, "shard.tar", 8, |path| {
        Tars::open(&[path], &fields, &Opening::default()).unwrap()
    });
    server.asked();
    let paths: Vec<_> = (0..20).map(|at| server.path(&at.to_string())).collect();
    let many = Tars::open(&paths, &fields, &Opening::default()).unwrap();
    let asked = server.asked().len();
    assert!(asked <= 20 * 10, "{asked}");
    assert_eq!(many.len(), 20 * one.len());
    let expected = vec![all_bytes(&one); 20].concat();
    assert_eq!(all_bytes(&many), expected);
    assert!(many.place(one.len() * 19).contains("/19, 0000"));
}

#[test]
fn a_folder_of_objects_is_refused_with_a_way_out() {
    let error = Folder::open(Path::new("s3://bucket/images"), &FolderOptions::default());
    let Err(SourceError::Unsupported { hint, .. }) = error else {
        panic!("{error:?}");
    };
    assert!(hint.contains("tar"));
}

fn loader(server: &Server, memory: u64, on_error: OnError) -> Loader {
    let path = server.path("raw.bin");
    let source = Npy::raw("x", &path, DType::U8, &[100_000], None).unwrap();
    let settings = LoaderSettings {
        batch_size: 4,
        shuffle_seed: Some(1),
        seed: 1,
        memory: Bytes(memory),
        threads: Some(3),
        prefetch: 2,
        rank: 0,
        world_size: 1,
        drop_last: false,
        on_error,
    };
    Loader::new(Pipeline::new(Arc::new(source)), settings).unwrap()
}

#[test]
fn a_loader_counts_what_is_kept_of_objects() {
    let server = Server::start(vec![7; 4_000_000]);
    let loader = loader(&server, 20 << 20, OnError::Raise);
    assert_eq!(loader.budget().kept, Bytes(crate::remote::KEPT));
    let mut epoch = loader.epoch(0, 0);
    let mut samples = 0;
    while let Next::Batch(batch) = epoch.next(Duration::from_mins(1)).unwrap() {
        samples += batch.samples;
        assert!(loader.held() <= Bytes(20 << 20));
    }
    assert_eq!(samples, 40);
}

#[test]
fn a_sample_that_cannot_be_had_can_be_left_out() {
    let server = Server::start(vec![7; 4_000_000]);
    let loader = loader(&server, 20 << 20, OnError::Skip);
    server.fail(Fault::SendsLess, 3);
    let mut epoch = loader.epoch(0, 0);
    while let Next::Batch(_) = epoch.next(Duration::from_mins(1)).unwrap() {}
    assert_eq!(loader.statistics().skipped, 3);
}

/// Opens bytes at a server again and again with one folder of indexes: the second time takes one request, gives the same
/// and leaves nothing half written; another version is looked through again, and so is what has a damaged index.
fn check_kept<S: Source>(bytes: &[u8], name: &str, open: impl Fn(PathBuf, &Opening) -> S) {
    let server = Server::start(bytes.to_vec());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("indexes");
    let opening = || Opening {
        indexes: Some(Indexes::in_folder(folder.clone())),
        ..Opening::default()
    };
    let requests = |name: &str| {
        server.asked();
        let opening = opening();
        let source = open(server.path(name), &opening);
        let passed = opening.progress.snapshot();
        assert_eq!((passed.n_files, passed.n_files_done), (1, 1));
        assert_eq!(passed.bytes, passed.bytes_done);
        let asked = server.asked().len();
        (asked, all_bytes(&source), source.max_sample_bytes())
    };
    let indexes = || {
        let entries = std::fs::read_dir(&folder).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .collect::<Vec<_>>()
    };

    let (first, expected, largest) = requests(name);
    assert!(first > 1, "{first}");
    assert_eq!(indexes().len(), 1);
    let again = (1, expected.clone(), largest);
    assert_eq!(requests(name), again);

    // Another object, and another one of which the same is shown.
    assert_eq!(requests("other").0, first);
    assert_eq!(requests(&format!("{name}?id=2")).0, first);
    assert_eq!(indexes().len(), 3);

    let paths = indexes();
    let whole: Vec<_> = paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    let damage = |change: &dyn Fn(&mut Vec<u8>)| {
        for (path, whole) in paths.iter().zip(&whole) {
            let mut bytes = whole.clone();
            change(&mut bytes);
            std::fs::write(path, bytes).unwrap();
        }
    };
    damage(&|bytes| bytes.truncate(bytes.len() / 2));
    assert_eq!(requests(name), (first, expected.clone(), largest));
    assert_eq!(requests(name), again);
    damage(&|bytes| bytes.truncate(bytes.len() - 1));
    assert_eq!(requests(name), (first, expected.clone(), largest));
    damage(&|bytes| {
        let last = bytes.len() - 5;
        bytes[last] ^= 1;
    });
    assert_eq!(requests(name), (first, expected.clone(), largest));
    damage(&Vec::clear);
    assert_eq!(requests(name), (first, expected, largest));

    server.replace(bytes.to_vec(), "\"2\"");
    assert_eq!(requests(name).0, first);
    // A version that is only similar cannot be asked for.
    server.replace(bytes.to_vec(), "W/\"2\"");
    assert_eq!(requests(name).0, first);
    assert_eq!(requests(name).0, first);
    assert_eq!(indexes().len(), 4);

    // Where nothing can be kept, all goes on.
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "a file").unwrap();
    server.replace(bytes.to_vec(), "\"3\"");
    assert_eq!(requests(name).0, first);
    assert_eq!(requests(name).0, first);
}

#[test]
fn the_members_of_an_archive_are_looked_for_once() {
    let mut builder = tar::Builder::new(Vec::new());
    for number in 0..500_usize {
        let bytes = vec![b'x'; 3000 + number];
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        let name = format!("folder/{number:04}.bin");
        let bytes = bytes.as_slice();
        builder.append_data(&mut header, name, bytes).unwrap();
    }
    let fields = [TarField::named("bin")];
    check_kept(
        &builder.into_inner().unwrap(),
        "shard.tar",
        |path, opening| Tars::open(&[path], &fields, opening).unwrap(),
    );
}

#[test]
fn the_starts_of_lines_are_looked_for_once() {
    let mut text = String::new();
    for number in 0..40_000_usize {
        text += &"{\"text\": \"long enough\"}".repeat(number % 30);
        text += if number % 7 == 0 { "\r\n" } else { "\n" };
    }
    text += "the last one";
    check_kept(text.as_bytes(), "lines.txt", |path, opening| {
        Lines::open(&[path], None, opening).unwrap()
    });

    // With and without empty lines are two indexes.
    let server = Server::start("\n{\"text\": \"a\"}\n\n".repeat(100_000).into_bytes());
    let folder = tempfile::tempdir().unwrap();
    let opening = Opening {
        indexes: Some(Indexes::in_folder(folder.path().to_owned())),
        ..Opening::default()
    };
    for _ in 0..2 {
        let open = |field| Lines::open(&[server.path("x")], field, &opening).unwrap();
        assert_eq!(open(None).len(), 300_000);
        assert_eq!(open(Some("text".to_owned())).len(), 100_000);
    }
}
