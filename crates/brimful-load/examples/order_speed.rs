//! How fast the order of an epoch is computed: `cargo run --release -p brimful-load --example order_speed`.
#![expect(clippy::print_stdout, reason = "a program that prints")]

use std::time::Instant;

use brimful_load::order::Order;

fn main() {
    for len in [1_449_u64, 1_000_000, 1_000_000_000_000] {
        let order = Order::shuffled(len, 0, 0);
        let count = 20_000_000;
        let mut best = f64::MAX;
        for _ in 0..5 {
            let began = Instant::now();
            let sum = (0..count).fold(0_u64, |sum, position| {
                sum.wrapping_add(order.at(position % len))
            });
            std::hint::black_box(sum);
            best = best.min(began.elapsed().as_secs_f64());
        }
        println!(
            "{len:>16} samples: {:.1} M indexes/s",
            count as f64 / best / 1e6
        );
    }
}
