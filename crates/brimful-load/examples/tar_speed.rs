//! Members of tar archives: the index of brimful-load beside the seeking entries of the crate `tar`:
//! `cargo run --release -p brimful-load --example tar_speed`.
//!
//! First what both make of damaged archives, with the time and the growth of resident memory; then the time to index
//! 40,000 members, in turns.

#![expect(clippy::print_stdout, reason = "an example that shows figures")]
#![expect(
    clippy::disallowed_methods,
    reason = "archives in a directory for temporary files"
)]

use std::fs::File;
use std::hint::black_box;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brimful_load::sources::{TarField, Tars};
use brimful_load::{Opening, Source};
use tar::{Archive, Builder, EntryType, Header};

const ROUNDS: usize = 15;

fn main() {
    let folder = tempfile::tempdir().expect("a directory for temporary files");
    println!("{:<44} {:<75} tar", "file", "ours");
    for (name, path) in damaged(folder.path()) {
        let shown = |open: &dyn Fn(&Path) -> Result<usize, String>| {
            let before = peak_kib();
            let start = Instant::now();
            let found = open(&path);
            let elapsed = start.elapsed();
            let grown = peak_kib() - before;
            let found = found.map_or_else(|why| why, |n_samples| format!("{n_samples} samples"));
            let found = found.replace(&format!("{}: ", path.display()), "");
            format!("{found} [{} us, {grown} KiB]", elapsed.as_micros())
        };
        println!("{name:<44} {:<75} {}", shown(&ours), shown(&theirs));
    }

    for (title, is_long) in [("short names", false), ("long names", true)] {
        let path = folder.path().join("large.tar");
        let members: Vec<(String, usize)> = (0..20_000)
            .flat_map(|number| {
                let directory = if is_long {
                    "a-long-directory/".repeat(8)
                } else {
                    "train/".to_owned()
                };
                [
                    (format!("{directory}{number:08}.cls"), 2),
                    (format!("{directory}{number:08}.jpg"), 6000),
                ]
            })
            .collect();
        write(&path, &members, &[]);
        let mut best = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            for (best, open) in best.iter_mut().zip([ours, theirs]) {
                let start = Instant::now();
                assert_eq!(open(&path), Ok(20_000));
                *best = (*best).min(start.elapsed());
            }
        }
        let [own_ms, their_ms] = best.map(|time| time.as_secs_f64() * 1e3);
        println!(
            "index 40,000 members, {title}: ours {own_ms:.1} ms, tar {their_ms:.1} ms ({:.2}x)",
            their_ms / own_ms
        );
    }
}

/// The most memory that was ever resident.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let digits = line.map(|line| line.trim().trim_end_matches(" kB"));
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn ours(path: &Path) -> Result<usize, String> {
    let fields = [TarField::named("jpg"), TarField::named("cls")];
    let tars = Tars::open(&[path.to_owned()], &fields, &Opening::default());
    tars.map(|tars| usize::try_from(tars.len()).expect("a few"))
        .map_err(|error| error.to_string())
}

/// The same index: where the two members of each key lie.
fn theirs(path: &Path) -> Result<usize, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut archive = Archive::new(file);
    let entries = archive
        .entries_with_seek()
        .map_err(|error| error.to_string())?;
    let (mut keys, mut places) = (Vec::<u8>::new(), Vec::new());
    let mut last = Vec::new();
    let mut n_samples = 0;
    for entry in entries {
        let entry = entry.map_err(|error| error.to_string())?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = entry.path_bytes();
        let dot = name
            .iter()
            .rposition(|byte| *byte == b'.')
            .unwrap_or(name.len());
        if name[..dot] != last[..] {
            last = name[..dot].to_vec();
            keys.extend(&last);
            n_samples += 1;
        }
        places.push((entry.raw_file_position(), entry.size()));
    }
    black_box((keys, places));
    Ok(n_samples)
}

fn write(path: &Path, members: &[(String, usize)], pax: &[(&str, &[u8])]) {
    let mut builder = Builder::new(File::create(path).expect("a directory of ours"));
    let data = vec![7; 10_000];
    for (name, len) in members {
        if !pax.is_empty() {
            builder
                .append_pax_extensions(pax.iter().copied())
                .expect("room for a file");
        }
        let mut header = Header::new_gnu();
        header.set_size(*len as u64);
        builder
            .append_data(&mut header, name, &data[..*len])
            .expect("room for a file");
    }
    builder.finish().expect("room for a file");
}

fn damaged(folder: &Path) -> Vec<(&'static str, PathBuf)> {
    // A sample is two headers, two blocks of 600 bytes and one of 1 byte.
    const SAMPLE: u64 = 5 * 512;
    let members = |n_samples: usize| -> Vec<(String, usize)> {
        (0..n_samples)
            .flat_map(|number| [(format!("{number}.jpg"), 600), (format!("{number}.cls"), 1)])
            .collect()
    };
    let mut files = Vec::new();
    let mut add = |name: &'static str, change: &dyn Fn(&Path)| {
        let path = folder.join(format!("{}.tar", files.len()));
        write(&path, &members(3), &[]);
        change(&path);
        files.push((name, path));
    };
    let cut = |path: &Path, len: u64| {
        File::options()
            .write(true)
            .open(path)
            .expect("our file")
            .set_len(len)
            .expect("our file");
    };
    add("whole", &|_| {});
    add("cut between two samples", &|path| cut(path, 2 * SAMPLE));
    add("cut inside a member", &|path| {
        cut(path, 2 * SAMPLE + 512 + 100);
    });
    add("cut inside a header", &|path| cut(path, 2 * SAMPLE + 100));
    add("a long name of 1 GiB", &|path| {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(1 << 30);
        header.set_cksum();
        let mut file = File::options().write(true).open(path).expect("our file");
        file.write_all(header.as_bytes()).expect("our file");
        file.seek(SeekFrom::Start(0)).expect("our file");
        cut(path, (1 << 30) + 4096);
    });
    add("pax says another size", &|path| {
        write(path, &members(3), &[("size", b"1")]);
    });
    add("GNU sparse members (pax)", &|path| {
        write(
            path,
            &members(3),
            &[("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0")],
        );
    });
    add("a wrong checksum", &|path| {
        let mut file = File::options().write(true).open(path).expect("our file");
        file.seek(SeekFrom::Start(SAMPLE + 5)).expect("our file");
        file.write_all(b"x").expect("our file");
    });
    add("names that lead out (/etc, ..)", &|path| {
        let mut bytes = Vec::new();
        for name in ["/etc/0.jpg", "/etc/0.cls"] {
            let mut header = Header::new_gnu();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(0);
            header.set_cksum();
            bytes.extend(header.as_bytes());
        }
        bytes.resize(bytes.len() + 1024, 0);
        std::fs::write(path, bytes).expect("our file");
    });
    files
}
