//! Broken files: every truncation of every fixture, and thousands of flipped bytes. Each is an error or is read; no
//! panic, and no memory that the size of the file does not explain.

#![expect(clippy::disallowed_methods, reason = "tests make files of all kinds")]

mod counting;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use brimful::units::Bytes;
use brimful_load::sources::{ArrowFile, Lines, Npy, TarField, Tars, TokenForm, Tokens};
use brimful_load::{Source, SourceError, Value};

use counting::{Counting, PEAK};

/// Most memory that may be held at once, all tests of this file together. The fixtures have a few kilobytes, a scan of
/// lines takes a megabyte.
const MOST: usize = 24 << 20;

/// How often each fixture is broken at random.
const ROUNDS: usize = 2000;

#[global_allocator]
static COUNTING: Counting = Counting {
    taken: |layout| layout.size(),
};

fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/load")).join(name)
}

/// Random numbers by a linear congruence, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % end.max(1)
    }

    fn byte(&mut self) -> u8 {
        // Bytes of lengths and counts that go wrong more often than others.
        const SPECIAL: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];
        match self.below(2) {
            0 => SPECIAL[self.below(SPECIAL.len())],
            _ => u8::try_from(self.below(256)).expect("below 256"),
        }
    }
}

/// Opens and reads broken forms of a fixture.
fn check(
    name: &str,
    open: impl Fn(PathBuf, Option<Bytes>) -> Result<Box<dyn Source>, SourceError>,
) {
    let sound = fs::read(fixture(name)).expect("a fixture");
    assert!(sound.len() < 20_000, "{name} is small");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("broken");
    let file = fs::File::create(&path).expect("a file of ours");
    let attempt = |bytes: &[u8], headroom: Option<Bytes>| {
        // Not made anew each time: file systems write a file to the disk when it replaces another.
        file.write_all_at(bytes, 0).expect("room on the disk");
        file.set_len(bytes.len() as u64).expect("a file of ours");
        if let Ok(source) = open(path.clone(), headroom) {
            read_some(source.as_ref());
        }
        let peak = PEAK.load(Ordering::Relaxed);
        assert!(peak < MOST, "{name}: {peak} bytes were held");
    };
    attempt(&sound, None);
    for len in 0..sound.len() {
        attempt(&sound[..len], (len % 8 == 0).then_some(Bytes(64)));
    }
    let mut dice = Dice(17);
    for round in 0..ROUNDS {
        let mut broken = sound.clone();
        for _ in 0..=dice.below(3) {
            let at = dice.below(broken.len());
            let byte = dice.byte();
            // One byte, or all of a word.
            let len = [1, 1, 4, 8][dice.below(4)].min(broken.len() - at);
            broken[at..at + len].fill(byte);
        }
        attempt(&broken, (round % 8 == 0).then_some(Bytes(64)));
    }
}

fn read_some(source: &dyn Source) {
    let mut values = vec![Value::default(); source.fields().len()];
    let last = source.len().saturating_sub(1);
    for index in (0..source.len().min(12)).chain([last, source.len(), u64::MAX]) {
        let _ = source.read(index, &mut values);
        let _ = source.place(index);
        let lens: Vec<usize> = values.iter().map(|value| value.bytes().len()).collect();
        let mut slots: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0; len]).collect();
        let mut slots: Vec<&mut [u8]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
        let _ = source.read_into(index, &mut slots, &mut values);
    }
    let _ = source.max_sample_bytes();
}

#[test]
fn broken_npy_files_are_errors() {
    for name in [
        "f4.npy",
        "i8_big_endian.npy",
        "bool.npy",
        "u1_fortran_1d.npy",
        "records.npy",
    ] {
        check(name, |path, headroom| {
            let source = Npy::open(&[("x".to_owned(), path)], headroom)?;
            Ok(Box::new(source))
        });
    }
}

#[test]
fn broken_token_files_are_errors() {
    for (name, as_i64) in [("tokens_u2.npy", true), ("tokens_i4_big_endian.npy", false)] {
        let form = TokenForm {
            stored: None,
            block: 16,
            as_i64,
        };
        check(name, |path, headroom| {
            let source = Tokens::open(&path, form, headroom)?;
            Ok(Box::new(source))
        });
    }
}

#[test]
fn broken_arrow_files_are_errors() {
    check_arrow("table.arrow", &["gaps", "gappy"]);
    check_arrow("table.arrow", &[]);
    check_arrow("compressed.arrow", &[]);
    check_arrow("dictionary.arrow", &["id"]);
}

#[test]
fn broken_arrow_streams_are_errors() {
    check_arrow("table_stream.arrow", &[]);
    check_arrow("huggingface/data-00000-of-00002.arrow", &[]);
    check_arrow("huggingface/data-00001-of-00002.arrow", &["image", "cube"]);
}

fn check_arrow(name: &str, columns: &[&str]) {
    let columns: Vec<String> = columns.iter().map(|&name| name.to_owned()).collect();
    let columns = (!columns.is_empty()).then_some(columns);
    check(name, |path, headroom| {
        let source = ArrowFile::open(&[path], columns.as_deref(), headroom)?;
        Ok(Box::new(source))
    });
}

#[test]
fn broken_lines_are_errors() {
    check("lines.txt", |path, headroom| {
        let source = Lines::open(&[path], None, &headroom.into())?;
        Ok(Box::new(source))
    });
    check("lines.jsonl", |path, headroom| {
        let source = Lines::open(&[path], Some("text".to_owned()), &headroom.into())?;
        Ok(Box::new(source))
    });
}

#[test]
fn broken_archives_are_errors() {
    for name in ["shard_gnu.tar", "shard_pax.tar"] {
        let image = TarField {
            name: "image".to_owned(),
            extensions: vec!["jpg".to_owned(), "seg.png".to_owned()],
        };
        let wanted = [image, TarField::named("cls")];
        check(name, |path, headroom| {
            let source = Tars::open(&[path], &wanted, &headroom.into())?;
            Ok(Box::new(source))
        });
    }
}
