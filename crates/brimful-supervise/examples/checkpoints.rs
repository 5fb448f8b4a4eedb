//! The newest whole checkpoint, by hand: `checkpoints FOLDER PATTERN…` says which would be gone on from, and which not.

#![expect(clippy::print_stdout, reason = "an example for the terminal")]

use std::path::PathBuf;
use std::time::SystemTime;

use brimful_supervise::checkpoints::newest_complete;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| ".".into()));
    let patterns: Vec<String> = arguments.collect();
    let found = newest_complete(&folder, &patterns);
    for (path, why) in &found.skipped {
        println!("skipped  {}: {why}", path.display());
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
