//! What the guard costs that turns the truncation of a mapped file into an error: warm reads with it and without it, and
//! with `pread`, in turns. `cargo run --release -p brimful-load --example guard_speed`

#![expect(clippy::print_stdout, reason = "it is run by hand")]

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use brimful_load::{Access, Piece, Reader};
use memmap2::Mmap;

const FILE: usize = 32 << 20;
const ROUNDS: usize = 41;

fn main() -> std::io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in("/var/tmp")?;
    file.write_all(&vec![7; FILE])?;
    let reader = Reader::open(file.path(), Access::Mapped)?;
    #[expect(unsafe_code, reason = "a memory map to compare with")]
    // SAFETY: nobody else knows the file.
    let map = unsafe { Mmap::map(&File::open(file.path())?)? };
    let unmapped = Reader::open(file.path(), Access::Read)?;
    println!(
        "bytes of a read, ns plain, guarded and its ratio, pread and its ratio (medians of {ROUNDS})"
    );
    for len in [64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20] {
        let n_reads = ((8 << 20) / len).min(20_000);
        let starts: Vec<usize> = (0..n_reads)
            .map(|read: usize| read.wrapping_mul(2_654_435_761) % (FILE - len - 4096))
            .collect();
        let mut out = vec![0; len];
        let mut spare = Piece::default();
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            let began = Instant::now();
            for &start in &starts {
                out.copy_from_slice(&map[start..start + len]);
                black_box(&mut out);
            }
            times[0].push(began.elapsed().as_secs_f64());
            for (reader, times) in [&reader, &unmapped].into_iter().zip(&mut times[1..]) {
                let began = Instant::now();
                for &start in &starts {
                    reader.read_to(start as u64, &mut out, &mut spare)?;
                    black_box(&mut out);
                }
                times.push(began.elapsed().as_secs_f64());
            }
        }
        let [plain, guarded, pread] = times.each_ref().map(|times| {
            let ns = times.iter().map(|time| time * 1e9 / n_reads as f64);
            median(ns.collect())
        });
        let ratio = |others: &[f64]| {
            let pairs = others.iter().zip(&times[0]);
            median(pairs.map(|(one, plain)| one / plain).collect())
        };
        println!(
            "{len:>10} {plain:>10.1} {guarded:>10.1} {:.3} {pread:>10.1} {:.3}",
            ratio(&times[1]),
            ratio(&times[2]),
        );
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
