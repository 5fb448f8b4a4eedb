//! Events per second of a release build: `cargo run --release -p brimful-allocsim --example speed [TRACE…]`.
//! Without a file it plays a synthetic training loop of 64 layers.

#![expect(clippy::print_stdout, reason = "a measurement for people")]

use std::time::Instant;

use brimful_allocsim::replay::{Setup, replay};
use brimful_allocsim::settings::AllocatorSettings;
use brimful_allocsim::trace::{Event, Trace};
use brimful_allocsim::version::TorchVersion;

const MIB: u64 = 1 << 20;

/// Activations of every layer are made in the forward pass and freed in the backward pass, in the reverse order,
/// with short-lived workspaces in between: the pattern of every training loop.
fn training_loop(steps: u32) -> Trace {
    let mut trace = Trace::default();
    for _ in 0..steps {
        let mut activations = Vec::new();
        for layer in 0..64_u64 {
            for part in 0..8 {
                let bytes = 1000 + 37 * layer + part * part * MIB;
                let workspace = trace.alloc(bytes / 3 + 1, 0);
                activations.push(trace.alloc(bytes, 0));
                trace.free(workspace);
            }
        }
        while let Some(activation) = activations.pop() {
            let gradient = trace.alloc(700 * 1024, 0);
            trace.free(activation);
            trace.free(gradient);
        }
    }
    trace
}

fn main() {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let traces: Vec<(String, Trace)> = if files.is_empty() {
        vec![("synthetic training loop".to_owned(), training_loop(200))]
    } else {
        let read = |path: String| {
            let bytes = std::fs::read(&path).expect("a readable file");
            (path, Trace::from_bytes(&bytes).expect("a trace"))
        };
        files.into_iter().map(read).collect()
    };
    for (name, trace) in traces {
        let setup = Setup {
            capacity: 1 << 40,
            held: 0,
            settings: AllocatorSettings::default(),
            version: TorchVersion::NEWEST_CHECKED,
        };
        let counted = trace
            .events
            .iter()
            .filter(|event| !matches!(event, Event::Mark(_)))
            .count();
        let rounds = 1 + 2_000_000 / counted.max(1);
        let start = Instant::now();
        for _ in 0..rounds {
            std::hint::black_box(replay(&trace, &setup));
        }
        let rate = (counted * rounds) as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!("{name}: {counted} events, {rate:.1} million events per second");
    }
}
