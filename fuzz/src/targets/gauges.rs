//! Gauges of anyone's making: read or left out, and what is read goes through the watch and into a run record.
//!
//! The input is a series of pages that one process writes over each other. Its first byte says what is put right in each
//! of them, so that checksums and names are not what stops the fuzzer.

use std::fs;

use brimful::record::{Line, Merger};
use brimful::watch::{OnPressure, Sample, Watch, WatchRules, next_action};
use brimful_supervise::gauge::read_with_workers;
use brimful_supervise::roles::{Process, roles};

use crate::directory;

const SIZE: usize = 4096;
const PID: u64 = 4711;
const FIRST_WORKER: usize = 16;
const MAX_WORKERS: usize = SIZE / 8 - FIRST_WORKER;

/// Bytes of the input that one page is made of: 16 words, and some workers.
const PAGE_INPUT: usize = 200;
const MAX_PAGES: usize = 8;

const RULES: WatchRules = WatchRules {
    on_pressure: OnPressure::Stop,
    grace_ms: 2000,
    stop_grace_ms: 1000,
};

/// What is put right.
const NAME: u8 = 1;
const SEQUENCE: u8 = 2;
const CHECKSUM: u8 = 4;
/// The page keeps the length of its input.
const SHORT: u8 = 8;

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let Some((&mended, data)) = data.split_first() else {
        return;
    };
    let path = directory::path().join(format!("{PID}.gauge"));
    let mut watch = Watch::default();
    let mut merger = Merger::new(1 << 20, 0);
    for (number, input) in data.chunks(PAGE_INPUT).take(MAX_PAGES).enumerate() {
        let page = page(input, mended);
        fs::write(&path, &page).expect("it can be written");
        let readings = read_with_workers(directory::path());
        assert!(readings.len() <= 1, "there is one file");
        if page.len() == SIZE && mended & 7 == 7 {
            let words = words(&page);
            let is_plausible = words[8..12].iter().all(|bytes| *bytes <= 1 << 60)
                && words[7] <= u64::from(u32::MAX) + 1;
            assert_eq!(readings.len() == 1, is_plausible, "a whole page is read");
        }
        for reading in &readings {
            let words = words(&page);
            assert_eq!(u64::from(reading.gauge.pid), PID);
            assert_eq!(reading.gauge.steps, words[4]);
            assert_eq!(reading.gauge.reserved.get(), words[9]);
            assert_eq!(reading.workers.len() as u64, words[14]);
            let processes: Vec<Process> = (reading.workers.iter().take(20))
                .map(|worker| Process {
                    pid: worker.pid,
                    parent: reading.gauge.pid,
                    ..Process::default()
                })
                .collect();
            let roles = roles(reading.gauge.pid, &processes, &reading.workers, &[]);
            assert!(roles.len() <= processes.len());
        }
        let sample = Sample {
            at_ms: number as u64 * 1000,
            gauges: readings.into_iter().map(|reading| reading.gauge).collect(),
            ..Sample::default()
        };
        for alarm in watch.observe(&sample) {
            assert!(alarm.message.len() < 2000, "a message, not a page");
        }
        next_action(&RULES, watch.state());
        merger.push(Line::Sample(sample), |_| {});
    }
    merger.finish();
    let _ = fs::remove_file(&path);
}

fn page(input: &[u8], mended: u8) -> Vec<u8> {
    let mut page = input.to_vec();
    if mended & SHORT == 0 {
        page.resize(SIZE, 0);
    } else {
        page.resize(page.len().max(FIRST_WORKER * 8), 0);
    }
    if mended & NAME != 0 {
        put(&mut page, 0, u64::from_le_bytes(*b"brimgaug"));
        put(&mut page, 1, 1);
        put(&mut page, 3, PID);
    }
    if mended & SEQUENCE != 0 {
        let words = words(&page);
        put(&mut page, 2, words[2] & !1);
        put(&mut page, 14, words[14] % (MAX_WORKERS as u64 + 1));
    }
    if mended & CHECKSUM != 0 {
        let words = words(&page);
        let n_workers = usize::try_from(words[14]).unwrap_or(usize::MAX);
        let workers = words[FIRST_WORKER..].iter().take(n_workers);
        let sum =
            (words[6..15].iter().chain(workers)).fold(0, |sum: u64, word| sum.wrapping_add(*word));
        put(&mut page, 5, sum ^ words[2]);
    }
    page
}

fn words(page: &[u8]) -> Vec<u64> {
    let words = page.as_chunks::<8>().0.iter();
    words.map(|word| u64::from_le_bytes(*word)).collect()
}

fn put(page: &mut [u8], word: usize, value: u64) {
    page[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
}
