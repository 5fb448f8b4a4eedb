//! Interleaved rounds: other work on the machine slows all cases down alike.

use std::time::{Duration, Instant};

pub(crate) struct Case<'a> {
    pub(crate) name: String,
    pub(crate) work: Box<dyn FnMut() + 'a>,
}

pub(crate) fn case<'a>(name: impl Into<String>, work: impl FnMut() + 'a) -> Case<'a> {
    Case {
        name: name.into(),
        work: Box::new(work),
    }
}

/// Runs the cases in turns and prints the best and the median time of each, with ratios to the first case.
///
/// The order is turned around in every second round, so that no case always follows the same one.
pub(crate) fn compare(title: &str, rounds: usize, mut cases: Vec<Case<'_>>) {
    let mut times = vec![Vec::with_capacity(rounds); cases.len()];
    for case in &mut cases {
        (case.work)();
    }
    for round in 0..rounds {
        for turn in 0..cases.len() {
            let idx = if round % 2 == 0 {
                turn
            } else {
                cases.len() - 1 - turn
            };
            let start = Instant::now();
            (cases[idx].work)();
            times[idx].push(start.elapsed());
        }
    }
    println!("{title} ({rounds} rounds)");
    let mut first = None;
    for (case, times) in cases.iter().zip(&mut times) {
        times.sort_unstable();
        let (best, median) = (times[0], times[times.len() / 2]);
        let (first_best, first_median) = *first.get_or_insert((best, median));
        println!(
            "  {:<34} best {:>10} ({:>5.2}x)   median {:>10} ({:>5.2}x)",
            case.name,
            shown(best),
            ratio(best, first_best),
            shown(median),
            ratio(median, first_median),
        );
    }
}

fn ratio(time: Duration, base: Duration) -> f64 {
    time.as_secs_f64() / base.as_secs_f64()
}

fn shown(time: Duration) -> String {
    let nanoseconds = time.as_nanos() as f64;
    if nanoseconds < 1e4 {
        format!("{nanoseconds:.0} ns")
    } else if nanoseconds < 1e7 {
        format!("{:.1} us", nanoseconds / 1e3)
    } else {
        format!("{:.1} ms", nanoseconds / 1e6)
    }
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
