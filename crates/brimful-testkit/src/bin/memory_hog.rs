//! Fills memory in one of three ways, so that a test can hold what the kernel allows against what was said.
//!
//! ```text
//! memory-hog touch           touch pages until the kernel kills; after each step write the sum so far to stdout
//! memory-hog cache FILE MIB  write FILE, flush it, and read it back into the page cache
//! memory-hog file FILE MIB   write FILE (on a tmpfs: shared memory)
//! ```

#![expect(clippy::disallowed_methods, reason = "a program for tests")]

use std::fs::File;
use std::io::{self, Read, Write};

/// Small against the 2 % the tests allow.
const STEP: usize = 256 << 10;
/// One mapping holds this much: the allocator adds a page to each, which 256 KiB mappings would show as 1.6 %.
const MAPPING: usize = 64 << 20;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["touch"] => touch(),
        ["cache", path, mib] => {
            fill(path, mib)?.sync_all()?;
            io::copy(&mut File::open(path)?.take(u64::MAX), &mut io::sink())?;
            Ok(())
        }
        ["file", path, mib] => fill(path, mib).map(drop),
        _ => Err(io::Error::other(
            "expected: touch | cache FILE MIB | file FILE MIB",
        )),
    }
}

fn touch() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut held: Vec<Vec<u8>> = Vec::new();
    let mut total: u64 = 0;
    loop {
        let mut mapping = Vec::with_capacity(MAPPING);
        while mapping.len() < MAPPING {
            mapping.resize(mapping.len() + STEP, 0xA5);
            total += STEP as u64;
            out.write_all(&total.to_le_bytes())?;
            out.flush()?;
        }
        held.push(mapping);
    }
}

fn fill(path: &str, mib: &str) -> io::Result<File> {
    let mib: usize = mib.parse().map_err(io::Error::other)?;
    let mut file = File::create(path)?;
    let block = vec![0x5A_u8; 1 << 20];
    for _ in 0..mib {
        file.write_all(&block)?;
    }
    Ok(file)
}
