//! Predict: what a rehearsed training run needs on any card, term by term.
//!
//! A rehearsal brings a [`Workload`]: the trace of one process and what is known about it. [`footprint()`] replays it
//! for a card and adds what lies outside of PyTorch's allocator. Everything here is a function of values.

mod caveats;
mod footprint;
pub mod host;
mod kind;
mod kinds;
mod measured;
mod outside;
mod story;
#[cfg(test)]
mod tests;
mod timeline;
mod workload;
mod worst_case;

pub use caveats::{Caveat, CaveatKind, caveats};
pub use footprint::{
    Alternative, CurvePoint, DeviceBytes, FitVerdict, Footprint, LargestAllocation, PhasePeak,
    Target, Term, footprint,
};
pub use kind::Kind;
pub use measured::MeasuredContext;
pub use outside::{LoadedLibraries, Outside, context, likely_context};
pub use story::{Phase, Story};
pub use timeline::{ModuleMemory, PhaseBand, StepTimeline, TimelineColumn};
pub use workload::{AssumedCase, NamedTensor, Occurrences, Workload};
