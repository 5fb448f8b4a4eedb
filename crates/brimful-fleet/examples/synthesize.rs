//! Writes made-up records of many runs, some of them torn or of a newer version: `synthesize DIRECTORY RUNS`.
//!
//! The records are the same each time. Every 100th file is cut off, every 500th is of a newer version. They are not
//! flushed to the disk, unlike real ones.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark makes ordinary files"
)]

use std::error::Error;
use std::fs;
use std::path::Path;

use brimful::fleet::{AttemptRow, SCHEMA_VERSION};
use brimful_fleet::encode_rows;

const GIB: i64 = 1 << 30;
const CAUSES: [&str; 4] = [
    "host_oom_kill",
    "cuda_oom_exhausted",
    "dataloader_worker_killed_oom",
    "shm_exhausted",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("expected a directory")?;
    let n_runs: usize = arguments
        .next()
        .ok_or("expected a number of runs")?
        .parse()?;
    let directory = Path::new(&directory);
    let mut random = Random(7);
    for run in 0..n_runs {
        let day = directory.join(format!("{:03}", run % 200));
        if run < 200 {
            fs::create_dir_all(&day)?;
        }
        let mut bytes = encode_rows(&rows(run, &mut random))?;
        if run % 100 == 99 {
            bytes.truncate(bytes.len() / 3 * 2);
        }
        fs::write(day.join(format!("run-{run:07}.parquet")), bytes)?;
    }
    Ok(())
}

fn rows(run: usize, random: &mut Random) -> Vec<AttemptRow> {
    let newer = i32::from(run % 500 == 250);
    // About 9 % of the attempts end out of memory, as in arXiv 2504.03887.
    let n_deaths = usize::from(random.below(100) < 9) + usize::from(random.below(100) < 2);
    let comes_back = n_deaths > 0 && random.below(3) > 0;
    let n_attempts = if comes_back {
        n_deaths + 1
    } else {
        n_deaths.max(1)
    };
    let n_gpus = [0, 1, 4, 8][random.below(4)];
    (0..n_attempts)
        .map(|attempt| {
            let is_memory = attempt < n_deaths;
            let limit = GIB << (3 + random.below(5));
            let peak = limit / 1000 * (100 + as_i64(random.below(900)));
            let seconds = (60 + random.below(100_000)) as f64;
            let wasted = if is_memory { seconds / 4.0 } else { 0.0 };
            let gpu_peak = (n_gpus > 0).then(|| 8 * GIB + as_i64(random.below(72)) * GIB);
            AttemptRow {
                schema_version: SCHEMA_VERSION + newer,
                run: format!("run-{run}"),
                job: Some(format!("{:016x}", run % 997)),
                script: Some(format!("train_{}.py", run % 13)),
                host_name: format!("node{}", run % 256),
                brimful_version: "0.1.0".into(),
                started_at_unix_ms: 1_790_000_000_000 + as_i64(run) * 1000,
                attempt: i32::try_from(attempt + 1).unwrap_or(0),
                is_last: attempt + 1 == n_attempts,
                seconds,
                rungs: i32::try_from(attempt.min(n_deaths)).unwrap_or(0),
                outcome: if is_memory { "killed" } else { "finished" }.into(),
                cause: is_memory.then(|| CAUSES[random.below(4)].to_owned()),
                confidence: is_memory.then(|| "proved".to_owned()),
                is_memory,
                host_limit_bytes: Some(limit),
                host_peak_bytes: Some(peak),
                host_likely_bytes: Some(peak / 100 * (90 + as_i64(random.below(25)))),
                host_safe_bytes: Some(peak / 100 * (98 + as_i64(random.below(40)))),
                n_gpus,
                gpu: (n_gpus > 0).then(|| "NVIDIA A100-SXM4-80GB".to_owned()),
                gpu_size_bytes: gpu_peak.map(|_| 80 * GIB),
                gpu_peak_bytes: gpu_peak,
                gpu_likely_bytes: gpu_peak.map(|peak| peak / 100 * (95 + as_i64(random.below(10)))),
                gpu_safe_bytes: gpu_peak.map(|peak| peak / 100 * (99 + as_i64(random.below(15)))),
                wasted_seconds: wasted,
                wasted_gpu_hours: wasted / 3600.0 * f64::from(n_gpus),
                ..AttemptRow::default()
            }
        })
        .collect()
}

fn as_i64(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(0)
}

/// A linear congruential generator: the same numbers each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound
    }
}
