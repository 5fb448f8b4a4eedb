//! Why did it die: from evidence to a verdict.
//!
//! Evidence in order of weight: what the kernel counted, how the process ended, what was sampled, what PyTorch's
//! allocator held, and last what was printed. A verdict names one cause of a closed list, says how sure it is, shows
//! what it rests on, and what to do about it, cheapest first. It says "cannot tell" rather than guess.

pub mod rules;

mod evidence;
mod replay;
mod text;
mod verdict;

pub use evidence::{Evidence, SnapshotAnswer, SnapshotReplay};
pub use replay::{SnapshotUnreadable, replay_snapshot};
pub use verdict::{Cause, Confidence, Proof, Remedy, Source, Verdict};

/// Why an attempt ended.
pub fn explain(evidence: &Evidence) -> Verdict {
    let signs = text::TextSigns::of(&evidence.text);
    let mut v = Verdict::cannot_tell();
    if let Some(s) = signs.leading() {
        v.cause = s.cause;
        v.detail = s.detail.into();
        v.summary = signs.quote(s);
    }
    v
}
