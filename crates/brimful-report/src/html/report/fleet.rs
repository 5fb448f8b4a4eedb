//! The page of many runs.

use serde::Serialize;

use crate::html::report::page::{Frame, Renderer, Tile};
use crate::html::report::shown::Shown;
use crate::json::FleetDocument;
use crate::text::fleet::{
    fleet_headline, hours, job_name, notes, percent, prediction_words, share_words, unused_words,
};

/// Causes that are drawn.
const MAX_CAUSES: usize = 12;
/// Width of the longest bar.
const FULL: f64 = 1000.0;

/// The view.
#[derive(Debug, Serialize)]
struct FleetView {
    causes: Vec<CauseBar>,
    jobs: Vec<JobRow>,
    n_jobs_left_out: u64,
    facts: Vec<Shown>,
    notes: Vec<Shown>,
}

#[derive(Debug, Serialize)]
struct CauseBar {
    name: Shown,
    width: f64,
    color: &'static str,
    count: u64,
    share: String,
    lost: String,
    described: String,
}

#[derive(Debug, Serialize)]
struct JobRow {
    name: Shown,
    cause: Shown,
    n_out_of_memory: u64,
    n_runs: u64,
    n_finished: u64,
    lost: String,
}

/// The page of the runs in a directory or an object store.
pub fn fleet_report(document: &FleetDocument) -> Result<String, minijinja::Error> {
    let mut renderer = Renderer::new();
    renderer.add(include_str!("fleet.html"), &view(document))?;
    let lost = if document.gpu_hours > 0.0 {
        tile(
            "GPU hours lost",
            document.wasted_gpu_hours,
            document.gpu_hours,
        )
    } else {
        tile("Hours lost", document.wasted_hours, document.hours)
    };
    let unused = [
        ("Host memory unused", &document.host),
        ("GPU memory unused", &document.gpu),
    ];
    let unused = unused.into_iter().filter_map(|(name, unused)| {
        let share = unused.unused_share?;
        Some(Tile {
            name: Shown::of(name),
            value: percent(share),
            of: Some(format!("of the limits of {} attempts", unused.n_attempts)),
            percent: Some(share * 100.0),
            color: "host",
            hint: None,
        })
    });
    renderer.page(&Frame {
        subject: "report of many runs",
        headline: Shown::of(&fleet_headline(document)),
        facts: vec![Shown::of(&document.at)],
        tiles: std::iter::once(lost).chain(unused).collect(),
        footer: Shown::of(&format!(
            "Written by brimful {} from {} files. The page loads nothing from the network.",
            env!("CARGO_PKG_VERSION"),
            document.n_files
        )),
        ..Frame::default()
    })
}

fn tile(name: &str, lost: f64, of: f64) -> Tile {
    Tile {
        name: Shown::of(name),
        value: hours(lost),
        of: Some(format!("of {}", hours(of))),
        percent: (of > 0.0).then(|| lost / of * 100.0),
        color: "gpu",
        hint: None,
    }
}

fn view(document: &FleetDocument) -> FleetView {
    let most = document.causes.iter().map(|cause| cause.n_attempts).max();
    let most = most.unwrap_or(1).max(1) as f64;
    let predictions = [
        ("host memory", &document.host_prediction),
        ("GPU memory", &document.gpu_prediction),
    ];
    let unused = [
        ("host memory", &document.host),
        ("GPU memory", &document.gpu),
    ];
    let facts = unused
        .into_iter()
        .filter_map(|(name, unused)| Some(format!("Unused {name}: {}.", unused_words(unused)?)))
        .chain(predictions.into_iter().filter_map(|(name, error)| {
            Some(format!("Predicted {name}: {}.", prediction_words(error)?))
        }));
    FleetView {
        causes: document
            .causes
            .iter()
            .take(MAX_CAUSES)
            .map(|cause| {
                let name = cause.cause.replace('_', " ");
                let share = share_words(cause.n_attempts, document.n_attempts);
                CauseBar {
                    described: format!("{name}: {} attempts", cause.n_attempts),
                    name: Shown::of(&name),
                    width: (cause.n_attempts as f64 / most * FULL).round(),
                    color: if cause.is_memory { "host" } else { "other" },
                    count: cause.n_attempts,
                    share,
                    lost: hours(cause.wasted_gpu_hours),
                }
            })
            .collect(),
        jobs: document
            .jobs
            .iter()
            .map(|job| JobRow {
                name: Shown::of(&job_name(job)),
                cause: Shown::of(&job.last_cause.as_deref().unwrap_or("-").replace('_', " ")),
                n_out_of_memory: job.n_out_of_memory,
                n_runs: job.n_runs,
                n_finished: job.n_finished,
                lost: hours(job.wasted_gpu_hours),
            })
            .collect(),
        n_jobs_left_out: document.n_jobs_left_out,
        facts: facts.map(|line| Shown::of(&line)).collect(),
        notes: notes(document).iter().map(|line| Shown::of(line)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::fleet::tests::example;

    #[test]
    fn a_page_has_causes_and_jobs_and_no_foreign_markup() {
        let page = fleet_report(&example()).unwrap();
        assert!(page.contains("host oom kill"), "{page}");
        assert!(page.contains("GPU hours lost"));
        assert!(!page.contains("<b>(") && !page.contains('\u{1b}'));
        assert!(page.len() < 200_000, "{}", page.len());
    }
}
