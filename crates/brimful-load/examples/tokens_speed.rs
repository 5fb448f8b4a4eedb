//! How fast blocks of token ids are gathered into a batch, beside plain copies.
//!
//! ```console
//! $ cargo run --release -p brimful-load --example tokens_speed
//! ```

#![expect(clippy::disallowed_methods, reason = "a measurement")]
#![expect(clippy::print_stdout, reason = "a measurement to be read")]

use std::hint::black_box;
use std::io::{self, BufWriter, Write};
use std::time::Instant;

use brimful_load::sources::{TokenForm, Tokens};
use brimful_load::{Buffer, DType, Source, Value};

/// Tokens of a block, two bytes each.
const BLOCK: usize = 512;
const BLOCK_BYTES: usize = 2 * BLOCK;
/// Blocks of a batch.
const BATCH: usize = 256;
/// Blocks of the file: 512 MiB, more than any cache holds.
const BLOCKS: u64 = 512 << 10;
/// Blocks that each thread gathers.
const GATHERED: u64 = 2 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir_in("/var/tmp")?;
    let path = folder.path().join("tokens.bin");
    write(&path)?;
    let open = |as_i64| {
        let form = TokenForm {
            stored: Some(DType::U16),
            block: BLOCK,
            as_i64,
        };
        Tokens::open(&path, form, None)
    };
    let (kept, widened) = (open(false)?, open(true)?);
    let bytes = std::fs::read(&path)?;
    for n_threads in [1, 2] {
        // Each once before, so that all pages are there.
        for is_measured in [false, true] {
            let figures = [
                ("a plain copy", rate(n_threads, || plain_copies(&bytes))),
                ("Tokens", rate(n_threads, || gather(&kept, BLOCK_BYTES))),
                (
                    "Tokens as int64",
                    rate(n_threads, || gather(&widened, 4 * BLOCK_BYTES)),
                ),
            ];
            for (name, rate) in figures.into_iter().filter(|_| is_measured) {
                println!(
                    "{n_threads} threads, {name:16} {:6.2} million blocks/s, {:6.2} per core",
                    rate.all / 1e6,
                    rate.of_a_core / 1e6
                );
            }
        }
    }
    Ok(())
}

fn write(path: &std::path::Path) -> io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    for block in 0..BLOCKS {
        let id = u16::try_from(block % 50_000).unwrap_or_default();
        file.write_all(&id.to_le_bytes().repeat(BLOCK))?;
    }
    file.flush()
}

/// Blocks per second: of all threads together, and of one core that has nothing else to do.
struct Rate {
    all: f64,
    of_a_core: f64,
}

fn rate(n_threads: u32, gather: impl Fn() + Sync) -> Rate {
    let start = Instant::now();
    let on_cores: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads)
            .map(|_| {
                scope.spawn(|| {
                    let before = seconds_on_a_core();
                    gather();
                    seconds_on_a_core() - before
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread that does not panic"))
            .collect()
    });
    let blocks = f64::from(n_threads) * GATHERED as f64;
    Rate {
        all: blocks / start.elapsed().as_secs_f64(),
        of_a_core: blocks / on_cores.iter().sum::<f64>(),
    }
}

/// What this thread had of a core, as the kernel counts it: so that other work on the machine does not count.
fn seconds_on_a_core() -> f64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok())
        .map_or(f64::NAN, |nanoseconds| nanoseconds / 1e9)
}

/// Numbers of blocks in no order.
fn shuffled() -> impl Iterator<Item = u64> {
    (0..GATHERED).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 & (BLOCKS - 1))
}

fn gather(source: &Tokens, bytes: usize) {
    let mut batch = Buffer::zeroed(BATCH * bytes);
    let mut values = [Value::default()];
    let mut blocks = shuffled();
    loop {
        for slot in batch.bytes_mut().chunks_exact_mut(bytes) {
            let Some(block) = blocks.next() else {
                return;
            };
            source
                .read_into(block, &mut [slot], &mut values)
                .expect("a block of a file that was just written");
        }
        black_box(batch.bytes());
    }
}

fn plain_copies(bytes: &[u8]) {
    let mut batch = Buffer::zeroed(BATCH * BLOCK_BYTES);
    let mut blocks = shuffled();
    loop {
        for slot in batch.bytes_mut().chunks_exact_mut(BLOCK_BYTES) {
            let Some(block) = blocks.next() else {
                return;
            };
            let start = usize::try_from(block).unwrap_or_default() * BLOCK_BYTES;
            slot.copy_from_slice(&bytes[start..start + BLOCK_BYTES]);
        }
        black_box(batch.bytes());
    }
}
