//! The checkpoint to resume from, by hand: `checkpoints DIRECTORY PATTERN…` shows which one is chosen, and which are
//! refused and why.

#![expect(clippy::print_stdout, reason = "an example for the terminal")]

use std::path::PathBuf;
use std::time::SystemTime;

use brimful_supervise::checkpoints::{Criteria, choose};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().unwrap_or_else(|| ".".into()));
    let patterns: Vec<String> = arguments.collect();
    let found = choose(&directory, &patterns, &Criteria::now());
    for (path, why) in &found.refused {
        println!("refused  {}: {why}", path.display());
    }
    match found.chosen {
        Some(chosen) => println!(
            "chosen   {} ({:?}, step {:?}, {:?} old)",
            chosen.path.display(),
            chosen.kind,
            chosen.step,
            chosen.age(SystemTime::now()).unwrap_or_default()
        ),
        None => println!("none"),
    }
}
