//! The run record: everything about one run, as lines of JSON that are only ever added to.
//!
//! A record is readable after its writer was killed at any byte: what the last, broken line would have said is lost,
//! nothing else. The first line names the run; a run without an [`EndLine`] was not there to write it.
//!
//! ```
//! use brimful::record::{Line, Record, RunLine};
//!
//! let mut file = Line::Run(RunLine { id: "a".into(), ..RunLine::default() }).to_json();
//! file.push_str("{\"line\":\"sam");          // killed here
//! let record = Record::read(file.as_bytes()).unwrap();
//! assert_eq!(record.run.id, "a");
//! assert!(record.last_attempt().is_none());
//! assert_eq!(record.n_broken_lines, 1);
//! ```

mod bounds;
mod curves;
mod line;
mod merge;
mod read;

pub use curves::{AttemptSpan, Curve, Extent, Measured, TimeAxis, curves};
pub use line::{
    ActionLine, AttemptLine, CheckpointLine, EndLine, GapLine, GpuModel, GpuProof, HookLine,
    KernelCounts, Line, LoaderLine, Outcome, OutputLine, OwnCost, Peaks, RunLine, Stream,
    VerdictLine,
};
pub use merge::{Merger, merged};
pub use read::{Attempt, MAX_BYTES, MAX_LINE_BYTES, Record, RecordUnreadable};

/// Raised when a line changes its meaning or goes away; new lines and fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;
