//! Runs the user's own training script for a few steps on the phantom GPU and brings back what it allocated.
//!
//! Starts processes and writes into a temporary folder, nothing else. What the trace means is decided in `brimful`.
//!
//! Read first: [`predict`], a prediction from end to end; [`rehearse`], one run of the script; [`stage::Stage`], how the
//! phantom stands in for NVIDIA's libraries.

pub mod facts;
pub mod stage;

mod cudnn;
mod prediction;
mod run;
mod workload;

pub use prediction::{FailedCard, Prediction, PredictionError, Question, USUAL_CARDS, predict};
pub use run::{Asked, Event, Progress, Rehearsal, RehearsalError, Rehearsed, Variant, rehearse};
pub use workload::{phantom_devices, workload};
