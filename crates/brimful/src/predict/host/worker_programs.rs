//! What each worker takes before it has seen the dataset: a fresh interpreter, or the pages that a forked one writes to.

use crate::predict::host::case::{Case, Estimate, per_mille};
use crate::predict::host::{Moment, StartMethod, margins, worker_copies};
use crate::units::Bytes;

pub(crate) fn estimate(case: &Case<'_>, moment: Moment) -> Estimate {
    let workers = case.workers_at(moment);
    if workers == 0 {
        return Estimate::default();
    }
    let all = if case.is_fresh() {
        fresh(case).times(workers).plus(&beside(case))
    } else {
        forked(case, workers)
    };
    all.times(case.ranks())
}

fn forked(case: &Case<'_>, workers: u64) -> Estimate {
    let (likely, safe) = match &case.facts.worker {
        Some(worker) if case.like_rehearsed() => {
            let program = if worker.copied > margins::PROGRAM_PAGES {
                margins::USUAL_PROGRAM_PAGES
            } else {
                worker.copied
            };
            let so_far = worker.private.saturating_add(program);
            let likely = so_far.saturating_add(margins::FORKED_LATER);
            (likely, likely.saturating_add(margins::FORKED_LATER))
        }
        _ => (margins::FORKED_LIKELY, margins::FORKED_SAFE),
    };
    let further = Estimate::new(
        likely.min(margins::FORKED_EACH_LIKELY),
        safe.min(margins::FORKED_EACH_SAFE),
    );
    Estimate::new(likely, safe).plus(&further.times(workers - 1))
}

fn fresh(case: &Case<'_>) -> Estimate {
    let facts = case.facts;
    let (likely, safe) = match &facts.worker {
        Some(worker) if case.like_rehearsed() => {
            let own = worker
                .private
                .saturating_sub(worker_copies::rebuilt(case))
                .saturating_add(facts.libraries);
            (own, own)
        }
        _ => (
            facts.imports.saturating_add(margins::FRESH_LIKELY),
            facts.imports.saturating_add(margins::FRESH_SAFE),
        ),
    };
    Estimate::new(
        likely,
        safe.saturating_add(per_mille(safe, margins::WORKER)),
    )
}

/// The processes that start and clean up.
fn beside(case: &Case<'_>) -> Estimate {
    let tracker = margins::BESIDE_FRESH;
    if case.pipeline.start_method != StartMethod::Forkserver {
        return Estimate::new(tracker, tracker);
    }
    // From Python 3.14 on the server itself imports the script, and its workers share what it has.
    let shares = |all: Bytes, private: Bytes| private.get() < all.get() / 3 * 2;
    let server = match &case.facts.worker {
        Some(worker) if case.like_rehearsed() && shares(worker.all, worker.private) => {
            case.facts.imports
        }
        _ => tracker,
    };
    Estimate::new(
        tracker.saturating_add(server),
        tracker.saturating_add(server),
    )
}
