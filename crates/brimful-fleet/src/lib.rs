//! Records of many runs: one Parquet file for each run, in a directory or an object store, and what they teach together.
//!
//! Each run writes its own file in one step, so writers never meet and no server is needed. A file has one row group with
//! one row for each attempt, and any engine can read it. Nothing here decides what a row says
//! ([`brimful::fleet::rows_of`]) or counts rows ([`brimful::fleet::Tally`]); no file is removed or changed.
//!
//! Read first: [`write_rows()`] and [`survey()`].
//!
//! ```
//! use brimful::fleet::{AttemptRow, SCHEMA_VERSION};
//! use brimful_fleet::{SurveySettings, survey, write_rows};
//!
//! let directory = tempfile::tempdir().unwrap();
//! let row = AttemptRow {
//!     schema_version: SCHEMA_VERSION,
//!     run: "2026-11-18T20-00-00-abcd".into(),
//!     is_last: true,
//!     outcome: "finished".into(),
//!     ..AttemptRow::default()
//! };
//! write_rows(&[row], directory.path()).unwrap();
//! let survey = survey(directory.path(), &SurveySettings::default(), &mut |_| true).unwrap();
//! assert_eq!((survey.fleet.n_runs, survey.n_files), (1, 1));
//! ```

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests create ordinary files")
)]

mod columns;
mod error;
mod read;
mod survey;
mod write;

pub use columns::column_names;
pub use error::FleetError;
pub use survey::{Survey, SurveyProgress, SurveySettings, survey};
pub use write::{check_destination, encode_rows, write_rows};
