//! The host memory of a prediction, by use.

use brimful::units::Bytes;
use serde::Serialize;

use crate::html::report::shown::Shown;
use crate::html::report::time::percent;
use crate::json::PredictedHost;
use crate::text::host_term_name;

const MAX_ROWS: usize = 32;

/// The view.
#[derive(Debug, Serialize)]
pub(super) struct HostNeedView {
    about: Shown,
    terms: Vec<HostTermBar>,
    by_workers: Vec<WorkersRow>,
}

#[derive(Debug, Serialize)]
struct HostTermBar {
    name: Shown,
    percent: f64,
    words: Shown,
}

#[derive(Debug, Serialize)]
struct WorkersRow {
    start_method: Shown,
    workers: u64,
    likely: String,
    safe: String,
    shm: String,
}

impl HostNeedView {
    pub(super) fn of(host: &PredictedHost) -> HostNeedView {
        HostNeedView {
            about: Shown::of(&format!(
                "All processes together need {}, {} to be safe; up to {} of it in /dev/shm. As rehearsed: {} workers ({}), batches of {}.",
                Bytes(host.bytes.likely),
                Bytes(host.bytes.safe),
                Bytes(host.shm_bytes.safe),
                host.workers,
                host.start_method,
                host.micro_batch
            )),
            terms: host
                .terms
                .iter()
                .filter(|term| term.safe_bytes > 0)
                .take(MAX_ROWS)
                .map(|term| HostTermBar {
                    name: Shown::of(host_term_name(&term.name)),
                    percent: percent(term.likely_bytes, host.bytes.safe),
                    words: Shown::of(&format!(
                        "{}, {} to be safe",
                        Bytes(term.likely_bytes),
                        Bytes(term.safe_bytes)
                    )),
                })
                .collect(),
            by_workers: host
                .by_workers
                .iter()
                .take(MAX_ROWS)
                .map(|row| WorkersRow {
                    start_method: Shown::of(&row.start_method),
                    workers: row.workers,
                    likely: Bytes(row.bytes.likely).to_string(),
                    safe: Bytes(row.bytes.safe).to_string(),
                    shm: Bytes(row.shm_bytes.safe).to_string(),
                })
                .collect(),
        }
    }
}
