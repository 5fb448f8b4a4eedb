//! Bounds of a job file.

pub(super) const MAX_KNOBS: usize = 64;
pub(super) const MAX_VALUES: usize = 256;
