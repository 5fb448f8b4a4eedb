//! What the runs of many people and machines teach: which jobs run out of memory, what that costs, and how much memory
//! nobody uses.
//!
//! A run leaves one [`AttemptRow`] for each of its attempts ([`rows_of`]), in a file that anybody's engine can read.
//! [`Tally`] counts them, in any order and in bounded memory.

mod row;
mod tally;
mod values;

pub use row::{AttemptRow, MAX_TEXT, SCHEMA_VERSION, rows_of};
pub use tally::{CauseTally, Fleet, HeadroomTally, JobTally, PredictionTally, Tally};
