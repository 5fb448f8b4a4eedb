//! A kept index of anyone's making: one that is torn changes nothing, and one that lies leads nowhere outside of the file.
//!
//! A tar file and a text are opened with an index in which the input changes bytes, or whose entries are the input's.
//! What the index of a file is called and where it lies is what was written for it the first time.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use brimful_load::sources::{Lines, TarField, Tars};
use brimful_load::{Indexes, Opening, Source, SourceError, Value};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::{directory, input};

/// Indexes are kept of files that nobody has changed for this long.
const SETTLED: Duration = Duration::from_millis(3100);

const TEXT: &str = "one\n\n{\"text\": \"two\"}\r\n\nthree and more\nlast";

type Open = fn(&Path, Option<Indexes>) -> std::result::Result<Box<dyn Source>, SourceError>;

/// A file, how it is opened, and the index that is kept of it.
struct Case {
    path: PathBuf,
    open: Open,
    index: PathBuf,
    /// The index as it was written, before it is compressed: the name of a version, and the entries behind it.
    whole: Vec<u8>,
    name_len: usize,
    samples: Vec<Vec<u8>>,
}

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let tar = directory::path().join("a.tar");
    fs::write(
        &tar,
        archive(&[
            ("a.txt", b"first"),
            ("a.cls", b"1"),
            ("b.txt", b"second"),
            ("b.cls", b"2"),
        ]),
    )
    .expect("it can be written");
    let text = directory::path().join("a.txt");
    fs::write(&text, TEXT).expect("it can be written");
    std::thread::sleep(SETTLED);
    vec![
        Case::new(&tar, open_tar),
        Case::new(&text, open_text),
        Case::new(&text, open_json),
    ]
});

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let _ = run(&mut input);
}

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let case = input.choose(&CASES)?;
    let (bytes, is_torn) = case.index(input)?;
    fs::write(&case.index, &bytes).expect("a file of ours");
    let mut samples = Vec::new();
    input::read(|| {
        let source = (case.open)(&case.path, Some(indexes()))?;
        samples = samples_of(source.as_ref());
        Ok(source)
    });
    if is_torn {
        assert_eq!(
            samples, case.samples,
            "an index that is torn changes nothing"
        );
    }
    Ok(())
}

impl Case {
    fn new(path: &Path, open: Open) -> Case {
        let known: Vec<PathBuf> = listed();
        let source = open(path, Some(indexes())).expect("the file is whole");
        let index = listed().into_iter().find(|found| !known.contains(found));
        let index = index.expect("an index was kept");
        let mut whole = Vec::new();
        GzDecoder::new(File::open(&index).expect("it was written"))
            .read_to_end(&mut whole)
            .expect("an index is compressed");
        // The length of the name has one or two bytes, of which the first of two has its highest bit set.
        let (low, high) = (usize::from(whole[0] & 0x7f), usize::from(whole[1]));
        let name_len = if whole[0] & 0x80 == 0 {
            1 + low
        } else {
            2 + low + (high << 7)
        };
        let samples = samples_of(source.as_ref());
        let without = open(path, None).expect("the file is whole");
        assert_eq!(samples, samples_of(without.as_ref()));
        Case {
            path: path.to_owned(),
            open,
            index,
            whole,
            name_len,
            samples,
        }
    }

    /// The bytes of an index, and whether there is certainly something wrong with them.
    fn index(&self, input: &mut Unstructured<'_>) -> Result<(Vec<u8>, bool)> {
        Ok(match input.int_in_range(0..=4)? {
            // Whatever is there in place of an index.
            0 => (input.bytes(input.len())?.to_vec(), false),
            // An index that was cut.
            1 => {
                let mut cut = compressed(&self.whole);
                cut.truncate(input.int_in_range(0..=cut.len() - 1)?);
                (cut, true)
            }
            // One of another version.
            2 => {
                let mut other = self.whole.clone();
                let at = input.int_in_range(2..=self.name_len - 1)?;
                other[at] ^= 1 << input.int_in_range(0..=7)?;
                (compressed(&other), true)
            }
            // Entries of ours in which bytes are changed.
            3 => {
                let mut entries = self.whole[self.name_len..].to_vec();
                for _ in 0..input.int_in_range(1..=6)? {
                    let at = input.choose_index(entries.len())?;
                    entries[at] = input.arbitrary()?;
                }
                (self.with_entries(&entries), false)
            }
            // Any entries.
            _ => (self.with_entries(input.bytes(input.len())?), false),
        })
    }

    fn with_entries(&self, entries: &[u8]) -> Vec<u8> {
        compressed(&[&self.whole[..self.name_len], entries].concat())
    }
}

fn open_tar(
    path: &Path,
    indexes: Option<Indexes>,
) -> std::result::Result<Box<dyn Source>, SourceError> {
    let fields = [TarField::named("txt"), TarField::named("cls")];
    Ok(Box::new(Tars::open(
        &[path.to_owned()],
        &fields,
        &opening(indexes),
    )?))
}

fn open_text(
    path: &Path,
    indexes: Option<Indexes>,
) -> std::result::Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Lines::open(
        &[path.to_owned()],
        None,
        &opening(indexes),
    )?))
}

fn open_json(
    path: &Path,
    indexes: Option<Indexes>,
) -> std::result::Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Lines::open(
        &[path.to_owned()],
        Some("text".to_owned()),
        &opening(indexes),
    )?))
}

fn opening(indexes: Option<Indexes>) -> Opening {
    Opening {
        indexes,
        ..Opening::default()
    }
}

fn indexes() -> Indexes {
    Indexes::in_folder(directory::path().join("indexes")).of_any_size()
}

fn listed() -> Vec<PathBuf> {
    let entries = fs::read_dir(directory::path().join("indexes"))
        .into_iter()
        .flatten();
    entries
        .map(|entry| entry.expect("a directory of ours").path())
        .collect()
}

fn samples_of(source: &dyn Source) -> Vec<Vec<u8>> {
    let mut values = vec![Value::default(); source.fields().len()];
    let mut samples = Vec::new();
    for index in 0..source.len().min(100) {
        samples.push(match source.read(index, &mut values) {
            Ok(()) => values
                .iter()
                .flat_map(|value| value.bytes().to_vec())
                .collect(),
            Err(error) => error.to_string().into_bytes(),
        });
    }
    samples
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("into memory");
    encoder.finish().expect("into memory")
}

fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, data) in members {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
        header[148..156].fill(b' ');
        header[156] = b'0';
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        out.extend(header);
        out.extend(*data);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}
