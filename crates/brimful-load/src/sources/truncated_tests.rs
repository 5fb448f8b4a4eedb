//! Every source that maps its files, with a file that is truncated after it was opened.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::array::DType;
use crate::error::ReadError;
use crate::opening::Opening;
use crate::reading::Access;
use crate::source::Source;
use crate::sources::testing::fixture;
use crate::sources::{ArrowFile, Hdf5, Lines, Npy, Parquet, TarField, Tars, TokenForm, Tokens};
use crate::value::Value;
use brimful_mapping::Guard;
use brimful_mapping::Truncated;

type Sample = Vec<Vec<u8>>;

/// One sample by `read`, as the loader reads it.
fn read(source: &dyn Source, index: u64) -> Result<Sample, ReadError> {
    let _guard = Guard::enter();
    let mut values = vec![Value::default(); source.fields().len()];
    let read = source.read(index, &mut values);
    let bytes = values.iter().map(|value| value.bytes().to_vec()).collect();
    for value in &values {
        match read {
            Ok(()) => value.piece.check()?,
            Err(_) => value.piece.check_all()?,
        }
    }
    read.map(|()| bytes)
}

/// The same straight into slots of these bytes.
fn read_into(source: &dyn Source, index: u64, expected: &Sample) -> Result<Sample, ReadError> {
    let _guard = Guard::enter();
    let mut values = vec![Value::default(); source.fields().len()];
    let mut slots: Sample = expected.iter().map(|bytes| vec![1; bytes.len()]).collect();
    let mut slices: Vec<&mut [u8]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
    source.read_into(index, &mut slices, &mut values)?;
    for value in &values {
        value.piece.check()?;
    }
    Ok(slots)
}

/// Opens a source on `file` and truncates that to many lengths: each sample is what it was or an error that names it.
fn check(name: &str, file: &Path, open: impl Fn() -> Box<dyn Source>) {
    let whole = fs::read(file).unwrap();
    let len = whole.len();
    let mut n_errors = 0;
    for cut in [0, 1, 4096, 5000, len / 2, len - len / 8, len - 1] {
        let cut = cut.min(len - 1);
        fs::write(file, &whole).unwrap();
        let source = open();
        assert_eq!(source.choice().access, Access::Mapped, "{name}");
        let untouched = open();
        let expected: Vec<Sample> = (0..source.len())
            .map(|index| read(&*untouched, index).unwrap())
            .collect();
        drop(untouched);
        let shortened = File::options().write(true).open(file).unwrap();
        shortened.set_len(cut as u64).unwrap();
        for (index, expected) in expected.iter().enumerate() {
            for found in [
                read(&*source, index as u64),
                read_into(&*source, index as u64, expected),
            ] {
                match found {
                    Ok(found) => assert_eq!(&found, expected, "{name}, sample {index}, {cut}"),
                    Err(ReadError::Truncated(Truncated {
                        path,
                        expected,
                        found,
                    })) => {
                        assert_eq!((&*path, expected), (file, len as u64), "{name}");
                        assert_eq!(found, Some(cut as u64), "{name}");
                        n_errors += 1;
                    }
                    Err(error) => panic!("{name}, sample {index} of a file cut to {cut}: {error}"),
                }
            }
        }
    }
    fs::write(file, &whole).unwrap();
    assert!(n_errors > 0, "{name}: no sample was lost");
}

fn copied(directory: &Path, from: &Path) -> PathBuf {
    let path = directory.join(from.file_name().unwrap());
    fs::copy(from, &path).unwrap();
    path
}

#[test]
fn arrays() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("numbers.bin");
    let numbers: Vec<u8> = (1..=21_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&path, numbers).unwrap();
    check("raw", &path, || {
        Box::new(Npy::raw("data", &path, DType::U32, &[30], None).unwrap())
    });
    for name in ["f4.npy", "i8_big_endian.npy"] {
        let path = copied(directory.path(), &fixture(name));
        check(name, &path, || {
            Box::new(Npy::open(&[("data".to_owned(), path.clone())], None).unwrap())
        });
    }
}

#[test]
fn tokens() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("tokens.bin");
    let ids: Vec<u8> = (1..20_000_u16).flat_map(u16::to_le_bytes).collect();
    fs::write(&path, &ids).unwrap();
    for as_i64 in [false, true] {
        let form = || TokenForm {
            block: 33,
            stored: Some(DType::U16),
            as_i64,
        };
        check("tokens", &path, || {
            Box::new(Tokens::open(&path, form(), None).unwrap())
        });
    }
    let path = copied(directory.path(), &fixture("tokens_i4_big_endian.npy"));
    check("big-endian tokens", &path, || {
        let form = TokenForm {
            block: 5,
            stored: None,
            as_i64: true,
        };
        Box::new(Tokens::open(&path, form, None).unwrap())
    });
}

#[test]
fn arrow() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    for name in ["table.arrow", "table_stream.arrow"] {
        let path = copied(directory.path(), &fixture(name));
        let columns = crate::sources::testing::names(&crate::sources::testing::WHOLE);
        check(name, &path, || {
            Box::new(ArrowFile::open(std::slice::from_ref(&path), Some(&columns), None).unwrap())
        });
    }
}

#[test]
fn parquet() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    for name in ["table.parquet", "zstd.parquet"] {
        let path = copied(directory.path(), &fixture(name));
        let columns = crate::sources::testing::names(&["id", "text"]);
        check(name, &path, || {
            let cache = brimful::units::Bytes::from_mib(1);
            Box::new(
                Parquet::open(std::slice::from_ref(&path), Some(&columns), cache, None).unwrap(),
            )
        });
    }
}

#[test]
fn hdf5() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let fixtures = fixture("../hdf5");
    for name in [
        "contiguous.h5",
        "chunked-earliest.h5",
        "chunked-latest.h5",
        "indexes.h5",
        "indexes-gzip.h5",
    ] {
        let path = copied(directory.path(), &fixtures.join(name));
        check(name, &path, || {
            Box::new(Hdf5::open(&path, &[], None).unwrap())
        });
    }
}

#[test]
fn tar_files() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("shard.tar");
    let mut tar = tar::Builder::new(File::create(&path).unwrap());
    for number in 0..100_u32 {
        let contents = format!("{number}").repeat(100);
        let mut header = tar::Header::new_gnu();
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        let name = format!("{number:04}.txt");
        tar.append_data(&mut header, name, contents.as_bytes())
            .unwrap();
    }
    tar.into_inner().unwrap();
    check("tar", &path, || {
        let fields = [TarField::named("txt")];
        Box::new(Tars::open(std::slice::from_ref(&path), &fields, &Opening::default()).unwrap())
    });
}

#[test]
fn lines() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("texts.txt");
    let texts: Vec<String> = (0..1000)
        .map(|line| format!("line {line} and on\n"))
        .collect();
    fs::write(&path, texts.concat()).unwrap();
    check("lines", &path, || {
        Box::new(Lines::open(std::slice::from_ref(&path), None, &Opening::default()).unwrap())
    });
    let path = directory.path().join("texts.jsonl");
    let texts: Vec<String> = (0..1000)
        .map(|number| format!("{{\"text\": \"object \\n {number}\", \"other\": 1}}\n"))
        .collect();
    fs::write(&path, texts.concat()).unwrap();
    check("JSON Lines", &path, || {
        let field = Some("text".to_owned());
        Box::new(Lines::open(std::slice::from_ref(&path), field, &Opening::default()).unwrap())
    });
}
