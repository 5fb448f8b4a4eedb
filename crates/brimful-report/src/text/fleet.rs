//! What many runs teach.

use brimful::calendar::civil;

use crate::json::{FleetDocument, FleetJob, PredictionError, UnusedMemory};
use crate::text::page::{Page, Role, wrap};
use crate::text::table::table;

const MS_PER_DAY: i64 = 86_400_000;

/// One page: runs, causes, jobs that ran out of memory, unused memory, and how good predictions were.
pub fn fleet(document: &FleetDocument, page: &Page) -> String {
    let mut out = String::new();
    for line in wrap(&fleet_headline(document), page.width) {
        out.push_str(&page.paint(Role::Strong, &line));
        out.push('\n');
    }
    for line in notes(document) {
        out.push_str(&page.hang("", 0, &line));
    }
    if !document.causes.is_empty() {
        let rows: Vec<Vec<String>> = document
            .causes
            .iter()
            .map(|cause| {
                vec![
                    cause.cause.clone(),
                    cause.n_attempts.to_string(),
                    share_words(cause.n_attempts, document.n_attempts),
                    hours(cause.wasted_gpu_hours),
                ]
            })
            .collect();
        let heading = ["cause", "attempts", "of all", "GPU hours lost"];
        page.section(&mut out, "Failures", &table(page, &heading, &rows));
    }
    if !document.jobs.is_empty() {
        let rows: Vec<Vec<String>> = document.jobs.iter().map(job_row).collect();
        let heading = ["job", "out of memory", "runs", "finished", "GPU hours lost"];
        let mut body = table(page, &heading, &rows);
        if document.n_jobs_left_out > 0 {
            body.push_str(&page.hang(
                "  ",
                2,
                &format!("and {} more jobs", document.n_jobs_left_out),
            ));
        }
        page.section(&mut out, "Jobs that ran out of memory", &body);
    }
    let mut body = String::new();
    for (name, unused) in [
        ("host memory", &document.host),
        ("GPU memory", &document.gpu),
    ] {
        if let Some(line) = unused_words(unused) {
            body.push_str(&page.hang("  ", 2, &format!("{name}: {line}")));
        }
    }
    if !body.is_empty() {
        page.section(&mut out, "Unused by runs that finished", &body);
    }
    let mut body = String::new();
    let predictions = [
        ("host memory", &document.host_prediction),
        ("GPU memory", &document.gpu_prediction),
    ];
    for (name, error) in predictions {
        if let Some(line) = prediction_words(error) {
            body.push_str(&page.hang("  ", 2, &format!("{name}: {line}")));
        }
    }
    if !body.is_empty() {
        page.section(&mut out, "Predictions", &body);
    }
    out
}

/// `1,204 runs since 2026-10-03: 96 ran out of memory and finished after a restart, 12 ended out of memory`.
pub(crate) fn fleet_headline(document: &FleetDocument) -> String {
    if document.n_runs == 0 {
        return format!("no runs recorded at {}", document.at);
    }
    let since = document
        .first_unix_ms
        .and_then(day)
        .map_or_else(String::new, |day| format!(" since {day}"));
    let runs = if document.n_runs == 1 { "run" } else { "runs" };
    format!(
        "{} {runs}{since}: {} ran out of memory and finished after a restart, {} ended out of memory",
        document.n_runs, document.n_came_back, document.n_died_of_memory
    )
}

/// What was not counted, and what failures have cost.
pub(crate) fn notes(document: &FleetDocument) -> Vec<String> {
    let mut lines = Vec::new();
    if document.gpu_hours > 0.0 {
        lines.push(format!(
            "{} of {} GPU hours were lost to failures ({})",
            hours(document.wasted_gpu_hours),
            hours(document.gpu_hours),
            percent(document.wasted_gpu_hours / document.gpu_hours)
        ));
    } else if document.hours > 0.0 {
        lines.push(format!(
            "{} of {} hours were lost to failures ({})",
            hours(document.wasted_hours),
            hours(document.hours),
            percent(document.wasted_hours / document.hours)
        ));
    }
    if document.n_skipped_files > 0 {
        let first = document.first_skipped_file.as_ref();
        let first = first.map_or_else(String::new, |file| {
            format!(", the first is {}: {}", file.path, file.reason)
        });
        lines.push(format!(
            "{} of {} files are not counted because they are incomplete or not records{first}",
            document.n_skipped_files, document.n_files
        ));
    }
    if document.n_newer_rows > 0 {
        lines.push(format!(
            "{} attempts recorded by a newer brimful are not counted; update brimful to count them",
            document.n_newer_rows
        ));
    }
    if document.n_files_left_out > 0 {
        lines.push(format!(
            "{} more files were not read; name a subdirectory to read them",
            document.n_files_left_out
        ));
    }
    lines
}

fn job_row(job: &FleetJob) -> Vec<String> {
    vec![
        job_name(job),
        job.n_out_of_memory.to_string(),
        job.n_runs.to_string(),
        job.n_finished.to_string(),
        hours(job.wasted_gpu_hours),
    ]
}

/// The script, and enough of the digest to tell it from others of that name.
pub(crate) fn job_name(job: &FleetJob) -> String {
    let digest: String = job.job.chars().take(6).collect();
    match &job.script {
        Some(script) => format!("{} ({digest})", script.chars().take(20).collect::<String>()),
        None => digest,
    }
}

pub(crate) fn unused_words(unused: &UnusedMemory) -> Option<String> {
    let (share, median) = (unused.unused_share?, unused.median_unused_share?);
    Some(format!(
        "{} of the limits, over time, were never used; median of {} {}: {}",
        percent(share),
        unused.n_attempts,
        attempts(unused.n_attempts),
        percent(median)
    ))
}

pub(crate) fn prediction_words(error: &PredictionError) -> Option<String> {
    let (median, p90) = (error.median_error?, error.p90_absolute_error?);
    let direction = if median < 0.0 { "below" } else { "above" };
    Some(format!(
        "median {} {direction} the measured peak, 90 % within {}; {} of {} {} used more than the safe value",
        percent(median.abs()),
        percent(p90),
        error.n_above_safe,
        error.n_attempts,
        attempts(error.n_attempts)
    ))
}

fn attempts(count: u64) -> &'static str {
    if count == 1 { "attempt" } else { "attempts" }
}

pub(crate) fn hours(hours: f64) -> String {
    if hours >= 100.0 || hours == 0.0 {
        format!("{hours:.0}")
    } else if hours >= 1.0 {
        format!("{hours:.1}")
    } else {
        format!("{hours:.2}")
    }
}

pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 10.0 || percent == 0.0 {
        format!("{percent:.0} %")
    } else {
        format!("{percent:.1} %")
    }
}

pub(crate) fn share_words(count: u64, of: u64) -> String {
    if of == 0 {
        return "-".into();
    }
    percent(count as f64 / of as f64)
}

fn day(unix_ms: i64) -> Option<String> {
    let days = u64::try_from(unix_ms / MS_PER_DAY)
        .ok()
        .filter(|days| (1..1_000_000).contains(days))?;
    let (year, month, day) = civil(days);
    Some(format!("{year:04}-{month:02}-{day:02}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use brimful::fleet::{AttemptRow, SCHEMA_VERSION, Tally};

    use super::*;
    use crate::json::FleetFiles;
    use crate::text::page::width_of;

    /// Three runs: one came back, one died, one finished with a prediction.
    pub(crate) fn example() -> FleetDocument {
        let row = AttemptRow {
            schema_version: SCHEMA_VERSION,
            job: Some("0123456789abcdef".into()),
            script: Some("train.py\u{1b}[31m<b>".into()),
            started_at_unix_ms: 1_790_000_000_000,
            is_last: true,
            seconds: 7200.0,
            outcome: "finished".into(),
            n_gpus: 8,
            ..AttemptRow::default()
        };
        let died = AttemptRow {
            outcome: "killed".into(),
            cause: Some("host_oom_kill".into()),
            is_memory: true,
            wasted_seconds: 3600.0,
            wasted_gpu_hours: 8.0,
            ..row.clone()
        };
        let rows = [
            AttemptRow {
                is_last: false,
                ..died.clone()
            },
            AttemptRow {
                rungs: 1,
                ..row.clone()
            },
            died,
            AttemptRow {
                host_limit_bytes: Some(64 << 30),
                host_peak_bytes: Some(16 << 30),
                host_likely_bytes: Some(17 << 30),
                host_safe_bytes: Some(20 << 30),
                ..row
            },
        ];
        let mut tally = Tally::default();
        for row in &rows {
            tally.add(row);
        }
        let files = FleetFiles {
            at: "/shared/records".into(),
            n_files: 4,
            n_skipped: 1,
            first_skipped: Some(("/shared/records/a.parquet".into(), "cut off".into())),
            n_left_out: 0,
        };
        FleetDocument::of(files, tally.finish())
    }

    #[test]
    fn a_page_answers_what_a_fleet_asks() {
        let text = fleet(&example(), &Page::plain(80));
        for part in [
            "3 runs since 2026-09-21: 1 ran out of memory and finished after a restart, 1 ended out of memory",
            "16.0 of 64.0 GPU hours were lost to failures (25 %)",
            "host_oom_kill         2    50 %            16.0",
            "(012345)",
            "host memory: 75 % of the limits",
            "median 6.2 % above the measured peak",
            "1 of 4 files are not counted",
        ] {
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let part = part.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains(&part), "{part}\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
        for line in text.lines() {
            assert!(width_of(line) <= 80, "{line}");
        }
    }

    #[test]
    fn an_empty_directory_says_so() {
        let files = FleetFiles {
            at: "/x".into(),
            ..FleetFiles::default()
        };
        let document = FleetDocument::of(files, Tally::default().finish());
        assert_eq!(
            fleet(&document, &Page::plain(80)),
            "no runs recorded at /x\n"
        );
    }
}
