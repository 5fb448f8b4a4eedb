//! What one sample of an HDF5 file costs in processor time, for each way to read, beside a plain copy.
//!
//! ```console
//! $ cargo run --release -p brimful-load --example hdf5_speed -- nyu.h5 images depths
//! ```

#![expect(clippy::print_stdout, reason = "what it measures is its output")]

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use brimful_load::sources::{DatasetRequest, Hdf5};
use brimful_load::{Access, Buffer, Choice, Source, Value};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("expected a file and its datasets")?;
    let wanted: Vec<DatasetRequest> = arguments.map(|name| DatasetRequest::new(&name)).collect();
    for access in [Access::Mapped, Access::Read, Access::Direct] {
        let choice = Choice {
            access,
            reason: "it is measured".to_owned(),
        };
        let source = Hdf5::open_with(Path::new(&path), &wanted, |_| choice)?;
        measure(&source)?;
    }
    Ok(())
}

/// Reads every sample twice, the second time with pages that are as warm as they get.
fn measure(source: &Hdf5) -> Result<(), Box<dyn Error>> {
    let access = source.choice().access;
    let n_samples = source.len() as f64;
    let mut values = vec![Value::default(); source.fields().len()];
    for turn in ["first", "again"] {
        let (mut bytes, mut touched) = (0, 0);
        let (cpu, wall) = (cpu_ms()?, Instant::now());
        for index in 0..source.len() {
            source.read(index, &mut values)?;
            for value in &values {
                bytes += value.bytes().len();
                touched ^= all_bytes(value.bytes());
            }
        }
        black_box(touched);
        let (cpu, wall) = (cpu_ms()? - cpu, wall.elapsed().as_secs_f64() * 1e3);
        println!(
            "{access:?}, {turn}: {:.3} ms of CPU, {:.3} ms, for {:.0} bytes of a sample",
            cpu / n_samples,
            wall / n_samples,
            bytes as f64 / n_samples,
        );
    }
    // The same bytes from memory to memory.
    let mut copies = vec![Buffer::default(); values.len()];
    let cpu = cpu_ms()?;
    for _ in 0..source.len() {
        for (value, copy) in values.iter().zip(&mut copies) {
            copy.set_len(value.bytes().len());
            copy.bytes_mut().copy_from_slice(black_box(value.bytes()));
            black_box(copy.bytes());
        }
    }
    println!("a copy: {:.3} ms of CPU", (cpu_ms()? - cpu) / n_samples);
    Ok(())
}

/// Looks at each byte, eight at a time.
fn all_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words
        .iter()
        .fold(0, |all, word| all ^ u64::from_ne_bytes(*word));
    rest.iter().fold(words, |all, &byte| all ^ u64::from(byte))
}

/// Processor time of this thread, which is the only one.
fn cpu_ms() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanoseconds: f64 = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanoseconds / 1e6)
}
