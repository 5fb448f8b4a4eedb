//! Batches of training data in native threads, inside a byte budget that is handed in.
//!
//! It never looks up how much memory there is, never prints, and starts no process. What it reads is hostile: a file
//! that lies is an error with the file's name, never a panic and never unbounded memory.
//!
//! ```text
//!   Source ──read──▶ Value ──Op──▶ Value ──Op──▶ slot of a batch ──▶ Loader::next
//!   (a format)      (a field)     (a kernel)     (collated in place)
//! ```
//!
//! Read first: [`Source`] and [`Op`], then [`Loader`].

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests make files of all kinds")
)]

pub mod array;
pub mod buffer;
mod catch_panics;
pub mod error;
pub mod expression;
mod indexes;
pub mod kernels;
pub mod loader;
mod location;
mod network;
mod opening;
pub mod ops;
pub mod order;
pub mod pack;
pub mod pipeline;
mod problem;
mod random;
pub mod reading;
pub mod remote;
mod sample_maker;
pub mod source;
pub mod sources;
pub mod text;
pub mod value;

pub use array::{DType, Encoding, Field, FieldSpec, TensorSpec};
pub use brimful_mapping::Truncated;
pub use buffer::Buffer;
pub use catch_panics::{PanicHook, catch_panics, quiet_hook};
pub use error::{OpError, ReadError, SourceError};
pub use indexes::Indexes;
pub use loader::{Batch, Epoch, Loader, LoaderSettings, Next};
pub use opening::{Opening, Progress, ProgressSnapshot};
pub use ops::{Op, Out, SampleKey, Scratch};
pub use pipeline::Pipeline;
pub use reading::{Access, Choice, Reader, choose, choose_among};
pub use sample_maker::SampleMaker;
pub use source::Source;
pub use value::{Piece, Value};

/// Processors that a control group or a mask leaves to this process.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
