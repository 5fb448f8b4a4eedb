//! How long a resize takes, beside a plain copy of what it reads: `cargo run --release --example resize_speed`.
//!
//! The case is a sample of NYU Depth V2 as its labeled file holds it, to 224 x 224. Samples are taken in turn, so that
//! the second cache does not hold them from the round before. Rounds are interleaved and the best counts: other work on
//! the machine only makes things slower.

#![expect(clippy::print_stdout, reason = "an example that shows figures")]
#![expect(clippy::cast_possible_truncation, reason = "below 256")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use brimful_load::kernels::filter::{Axis, Filter};
use brimful_load::kernels::resize::Resize;

const HIGH: usize = 640;
const WIDE: usize = 480;
const SIDE: usize = 224;
const SAMPLES: usize = 12;
const ROUNDS: usize = 400;

fn main() {
    let all_bytes: Vec<Vec<u8>> = (0..SAMPLES)
        .map(|sample| {
            (0..3 * HIGH * WIDE)
                .map(|at| ((at * 31 + at / 7 + sample) % 251) as u8)
                .collect()
        })
        .collect();
    let all_floats: Vec<Vec<u8>> = (0..SAMPLES)
        .map(|sample| {
            (0..HIGH * WIDE)
                .flat_map(|at| (((at + sample) % 1000) as f32 / 100.0).to_ne_bytes())
                .collect()
        })
        .collect();
    let mut bytes_to = vec![0_u8; 3 * SIDE * SIDE];
    let mut floats_to = vec![0_u8; 4 * SIDE * SIDE];
    let mut copy = vec![0_u8; 4 * HIGH * WIDE];
    let (mut words, mut more_words, mut floats_room, mut more_floats) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());

    for filter in [Filter::Bilinear, Filter::Bicubic] {
        let rows = Axis::new(filter, HIGH, SIDE).expect("sides in range");
        let columns = Axis::new(filter, WIDE, SIDE).expect("sides in range");
        let resize = Resize {
            rows: &rows,
            columns: &columns,
            channels: 1,
        };
        let mut best = [Duration::MAX; 4];
        for round in 0..ROUNDS {
            let bytes = &all_bytes[round % SAMPLES];
            let floats = &all_floats[round % SAMPLES];
            let start = Instant::now();
            resize.bytes(bytes, &mut bytes_to, [&mut words, &mut more_words]);
            black_box(&mut bytes_to);
            let resized_bytes = start.elapsed();
            let start = Instant::now();
            resize.floats(floats, &mut floats_to, [&mut floats_room, &mut more_floats]);
            black_box(&mut floats_to);
            let resized_floats = start.elapsed();
            // Samples that were not read in this round, or they would come out of the cache.
            let other = (round + SAMPLES / 2) % SAMPLES;
            let start = Instant::now();
            copy[..bytes.len()].copy_from_slice(black_box(&all_bytes[other]));
            black_box(&mut copy);
            let copied_bytes = start.elapsed();
            let start = Instant::now();
            copy.copy_from_slice(black_box(&all_floats[other]));
            black_box(&mut copy);
            let copied_floats = start.elapsed();
            for (best, now) in
                best.iter_mut()
                    .zip([resized_bytes, resized_floats, copied_bytes, copied_floats])
            {
                *best = (*best).min(now);
            }
        }
        let [resized_bytes, resized_floats, copied_bytes, copied_floats] =
            best.map(|time| time.as_secs_f64() * 1e3);
        println!(
            "{}: bytes {resized_bytes:.3} ms (copy {copied_bytes:.3}), floats {resized_floats:.3} ms (copy {copied_floats:.3}), \
             together {:.3} ms (copy {:.3})",
            filter.name(),
            resized_bytes + resized_floats,
            copied_bytes + copied_floats,
        );
    }
}
