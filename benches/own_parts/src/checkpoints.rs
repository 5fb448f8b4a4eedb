//! The list of contents of a `torch.save` archive: the reader of brimful-supervise, from its sources, beside `zip`.

#![allow(dead_code)]

#[path = "../../../crates/brimful-supervise/src/checkpoints/checkpoint.rs"]
mod checkpoint;
#[path = "../../../crates/brimful-supervise/src/checkpoints/region.rs"]
mod region;
#[path = "../../../crates/brimful-supervise/src/checkpoints/torch_zip.rs"]
mod torch_zip;

use std::fs::File;
use std::hint::black_box;
use std::io::{Seek, SeekFrom, Write};
use std::time::Instant;

use zip::ZipArchive;

use crate::memory::peak_of;
use crate::rounds::{case, compare};
use region::Region;

/// As many headers as brimful-supervise looks at.
const MAX_HEADERS: usize = 20_000;

pub(crate) fn run() {
    println!("{:<44} {:<52} {:<60}", "file", "ours", "zip");
    for (name, bytes) in damaged() {
        judge(name, &bytes, None);
    }
    // A file of 64 GiB that holds nothing behind its beginning, as after a crash of the machine.
    judge(
        "64 GiB, all zero behind the first entry",
        &whole(3, true)[..200],
        Some(64 << 30),
    );

    for n_entries in [300, 5000] {
        let file = stored(&whole(n_entries, true), None);
        compare(
            &format!("whole archive of {n_entries} entries"),
            60,
            vec![
                case("ours", || black_box(ours(&file)).expect("it is whole")),
                case("zip", || black_box(theirs(&file)).expect("it is whole")),
            ],
        );
        let (_, own_peak) = peak_of(|| ours(&file));
        let (_, their_peak) = peak_of(|| theirs(&file));
        println!("  memory: ours {own_peak} bytes, zip {their_peak} bytes");
    }
}

fn judge(name: &str, bytes: &[u8], len: Option<u64>) {
    let file = stored(bytes, len);
    let shown = |check: &dyn Fn(&File) -> Result<(), String>| {
        let start = Instant::now();
        let (said, peak) = peak_of(|| check(&file));
        let said = said.map_or_else(|why| why, |()| "whole".to_owned());
        format!(
            "{said} [{} us, {} kB]",
            start.elapsed().as_micros(),
            peak / 1000
        )
    };
    println!("{name:<44} {:<52} {:<60}", shown(&ours), shown(&theirs));
}

fn ours(file: &File) -> Result<(), String> {
    let len = file.metadata().expect("an open file").len();
    torch_zip::check(Region::whole(file, len)).map_err(|why| why.to_string())
}

/// The same questions: can the list be read, does each entry lie before it behind a header of its own, is there a pickle?
fn theirs(file: &File) -> Result<(), String> {
    let mut archive = ZipArchive::new(file).map_err(|why| why.to_string())?;
    let end = archive.central_directory_start();
    for idx in 0..archive.len().min(MAX_HEADERS) {
        let entry = archive.by_index_raw(idx).map_err(|why| why.to_string())?;
        let data = entry.data_start().unwrap_or(u64::MAX);
        if data
            .checked_add(entry.compressed_size())
            .is_none_or(|entry_end| entry_end > end)
        {
            return Err("an entry is not inside (checked by us)".to_owned());
        }
    }
    let is_pickle = |name: &str| name == "data.pkl" || name.ends_with("/data.pkl");
    if archive.file_names().flatten().any(|name| is_pickle(&name)) {
        Ok(())
    } else {
        Err("data.pkl is missing (checked by us)".to_owned())
    }
}

fn stored(bytes: &[u8], len: Option<u64>) -> File {
    let mut file = tempfile::tempfile().expect("a directory for temporary files");
    file.write_all(bytes).expect("room for a small file");
    if let Some(len) = len {
        file.set_len(len).expect("a sparse file");
    }
    file.seek(SeekFrom::Start(0)).expect("a file");
    file
}

/// Where things are in an archive.
struct Layout {
    bytes: Vec<u8>,
    /// Where each entry's own header is.
    headers: Vec<usize>,
    /// Where each entry of the list is.
    listed: Vec<usize>,
    /// Where the wide ending and the ending are.
    wide_end: usize,
    end: usize,
}

fn whole(n_entries: usize, has_pickle: bool) -> Vec<u8> {
    layout(n_entries, has_pickle).bytes
}

/// An archive as `torch.save` writes it: nothing compressed, a wide ending and an ending.
fn layout(n_entries: usize, has_pickle: bool) -> Layout {
    let mut bytes = Vec::new();
    let (mut headers, mut listed) = (Vec::new(), Vec::new());
    let mut list = Vec::new();
    for idx in 0..n_entries {
        let name = match idx {
            0 if has_pickle => "archive/data.pkl".to_owned(),
            _ => format!("archive/data/{idx}"),
        };
        let data = vec![idx as u8; 256];
        headers.push(bytes.len());
        listed.push(list.len());
        let mut common = Vec::new();
        common.extend([0; 2 + 2 + 2 + 2 + 4]);
        common.extend((data.len() as u32).to_le_bytes());
        common.extend((data.len() as u32).to_le_bytes());
        common.extend((name.len() as u16).to_le_bytes());
        common.extend(0_u16.to_le_bytes());
        list.extend(b"PK\x01\x02\0\0\0\0");
        list.extend(&common);
        list.extend([0; 2 + 2 + 2 + 4]);
        list.extend((bytes.len() as u32).to_le_bytes());
        list.extend(name.as_bytes());
        bytes.extend(b"PK\x03\x04\0\0");
        bytes.extend(&common);
        bytes.extend(name.as_bytes());
        bytes.extend(data);
    }
    let start = bytes.len();
    bytes.extend(&list);
    for at in &mut listed {
        *at += start;
    }
    let wide_end = bytes.len();
    bytes.extend(b"PK\x06\x06");
    bytes.extend(44_u64.to_le_bytes());
    bytes.extend([0; 2 + 2 + 4 + 4]);
    bytes.extend((n_entries as u64).to_le_bytes());
    bytes.extend((n_entries as u64).to_le_bytes());
    bytes.extend((list.len() as u64).to_le_bytes());
    bytes.extend((start as u64).to_le_bytes());
    bytes.extend(b"PK\x06\x07");
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend((wide_end as u64).to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    let end = bytes.len();
    bytes.extend(b"PK\x05\x06");
    bytes.extend([0; 4]);
    bytes.extend((n_entries as u16).to_le_bytes());
    bytes.extend((n_entries as u16).to_le_bytes());
    bytes.extend((list.len() as u32).to_le_bytes());
    bytes.extend((start as u32).to_le_bytes());
    bytes.extend(0_u16.to_le_bytes());
    Layout {
        bytes,
        headers,
        listed,
        wide_end,
        end,
    }
}

fn damaged() -> Vec<(&'static str, Vec<u8>)> {
    let changed = |change: &dyn Fn(&mut Layout)| {
        let mut archive = layout(3, true);
        change(&mut archive);
        archive.bytes
    };
    let put = |archive: &mut Layout, at: usize, value: &[u8]| {
        archive.bytes[at..at + value.len()].copy_from_slice(value);
    };
    let n_entries = |count: u64| {
        changed(&|archive| {
            for offset in [24, 32] {
                put(archive, archive.wide_end + offset, &count.to_le_bytes());
            }
            for offset in [8, 10] {
                let count = u16::try_from(count).unwrap_or(u16::MAX);
                put(archive, archive.end + offset, &count.to_le_bytes());
            }
        })
    };
    vec![
        ("whole", changed(&|_| {})),
        (
            "one byte is missing at the end",
            changed(&|archive| archive.bytes.truncate(archive.bytes.len() - 1)),
        ),
        (
            "the second half is missing",
            changed(&|archive| archive.bytes.truncate(archive.bytes.len() / 2)),
        ),
        (
            "100 bytes of something behind it",
            changed(&|archive| archive.bytes.extend([7; 100])),
        ),
        (
            "1000 bytes of something before it",
            changed(&|archive| drop(archive.bytes.splice(0..0, [7; 1000]))),
        ),
        (
            "an entry's header is zero",
            changed(&|archive| put(archive, archive.headers[1], &[0; 30])),
        ),
        (
            "an entry lies beyond the file",
            changed(&|archive| {
                put(
                    archive,
                    archive.listed[1] + 42,
                    &0x7fff_0000_u32.to_le_bytes(),
                );
            }),
        ),
        (
            "an entry is longer than the file",
            changed(&|archive| {
                put(
                    archive,
                    archive.listed[1] + 20,
                    &0x7fff_0000_u32.to_le_bytes(),
                );
                put(
                    archive,
                    archive.listed[1] + 24,
                    &0x7fff_0000_u32.to_le_bytes(),
                );
            }),
        ),
        ("the list has an entry more than counted", n_entries(2)),
        ("the list has an entry less than counted", n_entries(4)),
        ("2^40 entries are counted", n_entries(1 << 40)),
        (
            "the list is said to have 2^40 bytes",
            changed(&|archive| {
                put(archive, archive.wide_end + 40, &(1_u64 << 40).to_le_bytes());
            }),
        ),
        (
            "the wide ending is elsewhere",
            changed(&|archive| {
                put(archive, archive.wide_end + 56 + 8, &7_u64.to_le_bytes());
            }),
        ),
        ("there is no pickle", layout(3, false).bytes),
        (
            "64 KiB of endings behind it",
            changed(&|archive| {
                let ending = archive.bytes[archive.end..].to_vec();
                for _ in 0..(64 << 10) / ending.len() {
                    archive.bytes.extend(&ending);
                }
            }),
        ),
        (
            "a comment that holds another ending",
            changed(&|archive| {
                let ending = archive.bytes[archive.end..].to_vec();
                put(archive, archive.end + 20, &22_u16.to_le_bytes());
                archive.bytes.extend(&ending);
                let last = archive.bytes.len() - 22;
                archive.bytes[last + 8..last + 20].fill(0);
            }),
        ),
    ]
}
