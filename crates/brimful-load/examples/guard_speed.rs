//! What the guard costs that turns the truncation of a mapped file into an error: warm reads with it and without it, in
//! turns. `cargo run --release -p brimful-load --example guard_speed`

#![expect(clippy::print_stdout, reason = "it is run by hand")]

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use brimful_load::{Access, Piece, Reader};
use memmap2::Mmap;

const FILE: usize = 64 << 20;
const ROUNDS: usize = 41;

fn main() -> std::io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in("/var/tmp")?;
    file.write_all(&vec![7; FILE])?;
    let reader = Reader::open(file.path(), Access::Mapped)?;
    #[expect(unsafe_code, reason = "a memory map to compare with")]
    // SAFETY: nobody else knows the file.
    let map = unsafe { Mmap::map(&File::open(file.path())?)? };
    println!("bytes of a read   plain      guarded    ratio (median of {ROUNDS} pairs)");
    for len in [64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20] {
        let n_reads = ((32 << 20) / len).min(200_000);
        let starts: Vec<usize> = (0..n_reads)
            .map(|read: usize| read.wrapping_mul(2_654_435_761) % (FILE - len - 4096))
            .collect();
        let mut out = vec![0; len];
        let mut spare = Piece::default();
        let mut pairs = Vec::new();
        for _ in 0..ROUNDS {
            let began = Instant::now();
            for &start in &starts {
                out.copy_from_slice(&map[start..start + len]);
                black_box(&mut out);
            }
            let plain = began.elapsed();
            let began = Instant::now();
            for &start in &starts {
                reader.read_to(start as u64, &mut out, &mut spare)?;
                black_box(&mut out);
            }
            let guarded = began.elapsed();
            pairs.push((guarded.as_secs_f64() / plain.as_secs_f64(), plain, guarded));
        }
        pairs.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (ratio, plain, guarded) = pairs[ROUNDS / 2];
        let each = |time: std::time::Duration| time.as_secs_f64() * 1e9 / n_reads as f64;
        println!(
            "{len:>10}   {:>9.1} ns {:>9.1} ns   {ratio:.3}",
            each(plain),
            each(guarded)
        );
    }
    Ok(())
}
