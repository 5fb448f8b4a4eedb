//! One small memory-mapped page per training process, written by the hook and read by the supervisor.

use std::path::Path;

use brimful::watch::Gauge;

/// Reads every gauge of a run's folder. A page that is being written or is not ours is left out.
pub fn read_all(_gauges: &Path) -> Vec<Gauge> {
    Vec::new()
}
