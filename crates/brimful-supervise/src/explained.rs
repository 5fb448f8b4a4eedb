//! From a record and what lies beside it to a verdict.

use std::io::Read;
use std::path::{Path, PathBuf};

use brimful::explain::{Verdict, explain, replay_snapshot};
use brimful::record::{Attempt, AttemptLine, EndLine, HookLine, Record};
use brimful_probe::{CgroupCounts, Meter};

use crate::exit_status::{self, Ended};
use crate::recorder::end_line;
use crate::tail;

/// More than any snapshot of an allocator that still holds a training.
const MAX_SNAPSHOT: u64 = 2 << 30;

/// Why the last attempt of a run ended. `directory` is where snapshots lie.
pub fn explain_record(record: &Record, directory: Option<&Path>) -> Verdict {
    let none = Attempt::default();
    let attempt = record.last_attempt().unwrap_or(&none);
    let mut evidence = attempt.evidence();
    evidence.replay = directory
        .and_then(|directory| snapshot_beside(record, directory))
        .and_then(|path| read_bounded(&path))
        .and_then(|bytes| replay_snapshot(&bytes).ok());
    explain(&evidence)
}

/// The allocator's snapshot of the last failure, a file beside the record.
pub fn snapshot_beside(record: &Record, directory: &Path) -> Option<PathBuf> {
    let lines = &record.last_attempt()?.hook;
    let name = lines.iter().rev().find_map(|line| match line {
        HookLine::CudaOom(proof) => proof.snapshot.as_deref(),
        _ => None,
    })?;
    // A record may come from elsewhere: only a plain name beside it is followed.
    let name = Path::new(name).file_name()?;
    let candidates = [
        directory.join(name),
        directory.join("snapshots").join(name),
        directory.join("inside").join("snapshots").join(name),
    ];
    candidates.into_iter().find(|path| path.is_file())
}

/// Puts what a killed brimful left beside its record into the record: the ends of the output, and the end of the training
/// if its keeper saw it.
pub(crate) fn add_what_was_left(record: &mut Record, directory: &Path) {
    let number = u32::try_from(record.attempts.len()).unwrap_or(u32::MAX);
    let run_id = record.run.id.clone();
    if let Some(attempt) = record.attempts.last_mut()
        && attempt.end.is_none()
    {
        if attempt.output.is_empty() {
            attempt.output = tail::left_behind(directory);
        }
        attempt.end = exit_status::read(directory)
            .filter(|kept| kept.attempt == number)
            .and_then(|kept| kept.ended)
            .map(|(ended, at_unix_ms)| end_of(attempt, ended, at_unix_ms));
        if let Some(end) = &mut attempt.end {
            let counts = counts_left(&attempt.start, &run_id);
            end.kernel.oom_kills = counts.oom_kills;
            end.kernel.oom_group_kills = counts.oom_group_kills;
        }
    }
}

/// What the kernel has counted in the job's own group, as long as it is there: nobody was left to remove it.
fn counts_left(start: &AttemptLine, run_id: &str) -> CgroupCounts {
    // A record may come from elsewhere: only a group with the run's own name is looked at.
    let path = start.cgroup.as_deref();
    let path = path.filter(|path| !run_id.is_empty() && path.ends_with(run_id));
    let meter = Meter::live();
    let group = path.and_then(|path| meter.group_at(path));
    group.map(|group| meter.counts(&group)).unwrap_or_default()
}

/// The end that the keeper saw, with what the record knows of the time before.
fn end_of(attempt: &Attempt, ended: Ended, at_unix_ms: u64) -> EndLine {
    let started = Some(attempt.start.started_at_unix_ms).filter(|started| *started > 0);
    let at_ms = started.map_or(0, |started| at_unix_ms.saturating_sub(started));
    let mut end = end_line(at_ms, ended.into());
    for sample in &attempt.samples {
        end.peaks.include(sample);
    }
    end.last = attempt.samples.last().cloned();
    end
}

fn read_bounded(path: &Path) -> Option<Vec<u8>> {
    let file = brimful_private::open_named(path).ok()?;
    if file.metadata().ok()?.len() > MAX_SNAPSHOT {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_SNAPSHOT).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
