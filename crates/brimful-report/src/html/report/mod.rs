//! Reports: one HTML file that shows charts, without any outside resource.
//!
//! Every chart is inline SVG and a function of values, so the page is the same without its script; the script adds a
//! cursor and zooming. The answer is the headline, each chart has a table beside it, and each view is a file here.
//!
//! Whatever comes in, a page stays below half a megabyte: curves are reduced to columns that keep the lowest and the
//! highest value, lists are cut, and texts are shortened, masked and escaped.

mod by_line;
mod chart;
mod compare;
mod first_samples;
mod fleet;
mod fragmentation;
mod host_need;
mod how_fast;
mod how_full;
mod kinds;
mod markup;
mod memory_against_speed;
mod one_step;
mod page;
mod predict;
mod prepare;
mod replay;
mod run;
mod shown;
mod side_by_side;
mod time;
mod why_it_died;
mod will_it_fit;

pub use compare::compare_report;
pub use fleet::fleet_report;
pub use memory_against_speed::plan_report;
pub use page::is_report;
pub use predict::predict_report;
pub use prepare::{PrepareReport, PrepareStage, prepare_report};
pub use replay::replay_report;
pub use run::{RunReport, run_report};
pub use side_by_side::{RunOverview, runs_report};
