//! Why did it die: from evidence to a verdict.
//!
//! Evidence in order of weight: what the kernel counted, how the process ended, what was sampled, what PyTorch's
//! allocator held, and last what was printed. A verdict names one cause of a closed list, says how sure it is, shows
//! what it rests on, and what to do about it, cheapest first. It says "cannot tell" rather than guess.
//!
//! ```
//! use brimful::explain::{Cause, Evidence, explain};
//!
//! let text = "RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error.";
//! let verdict = explain(&Evidence { text: text.into(), ..Evidence::default() });
//! assert_eq!(verdict.cause, Cause::ShmExhausted);
//! ```

pub mod rules;

mod detail;
mod error_file;
mod evidence;
mod replay;
mod series;
mod signs;
mod text;
mod verdict;

pub use detail::Detail;
pub use error_file::ErrorFile;
pub use evidence::{Evidence, SnapshotAnswer, SnapshotReplay};
pub use replay::{SnapshotUnreadable, replay_snapshot};
pub use verdict::{Cause, Confidence, EvidenceSource, Proof, Remedy, RemedyMemory, Verdict};

use crate::explain::signs::Signs;

/// Why an attempt ended.
pub fn explain(evidence: &Evidence) -> Verdict {
    let signs = Signs::of(evidence);
    let mut verdict = rules::first_verdict(evidence, &signs).unwrap_or_else(Verdict::cannot_tell);
    verdict.evidence.sort_by_key(|proof| proof.source);
    if evidence.attempt.is_some() {
        // It was run so.
        verdict
            .would_settle
            .retain(|line| !line.contains("under `brimful run`"));
    }
    verdict
}
