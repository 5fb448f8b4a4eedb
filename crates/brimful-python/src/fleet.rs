//! Records of many runs, for `brimful run --records` and `brimful runs --at`.

use std::path::{Path, PathBuf};

use brimful_fleet::{Survey, SurveySettings, check_destination, write_rows};
use brimful_load::remote::shown;
use brimful_report::{html, json, text};
use brimful_workflow::{check_report_path, state_dir, unrecorded_runs, write_report};
use pyo3::prelude::*;

use crate::border::{Failure, call};
use crate::data::quiet_decoder_panics;

/// Writes the rows of runs that were started with this destination and have ended: how many.
#[pyfunction]
#[pyo3(signature = (to, *, ended, state_dir))]
pub(crate) fn record_runs(
    py: Python<'_>,
    to: String,
    ended: Option<String>,
    state_dir: Option<PathBuf>,
) -> PyResult<usize> {
    let state = self::state_dir(state_dir);
    call(py, move || {
        let destination = Path::new(&to);
        check_destination(destination)?;
        let Some(state) = state else { return Ok(0) };
        let found = unrecorded_runs(&state, &to, ended.as_deref())?;
        for unrecorded in &found {
            write_rows(&unrecorded.rows, destination)?;
            unrecorded.run.mark_recorded();
        }
        Ok(found.len())
    })
}

/// Counts the records below a directory or a URL: the JSON document and the page for a terminal. `report` is the path of
/// a page with charts; `progress` gets the numbers of files that were read, and of all.
#[pyfunction]
#[pyo3(signature = (at, *, report, force, width, progress))]
pub(crate) fn survey(
    py: Python<'_>,
    at: PathBuf,
    report: Option<PathBuf>,
    force: bool,
    width: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, String)> {
    quiet_decoder_panics();
    call(py, move || {
        if let Some(report) = &report {
            check_report_path(report, force)?;
        }
        let mut raised = None;
        let found = brimful_fleet::survey(&at, &SurveySettings::default(), &mut |so_far| {
            let called = Python::attach(|py| {
                if let Some(progress) = &progress {
                    progress.call1(py, (so_far.n_read, so_far.n_files))?;
                }
                py.check_signals()
            });
            raised = called.err();
            raised.is_none()
        });
        if let Some(raised) = raised {
            return Err(Failure::Python(raised));
        }
        let document = document_of(&at, found?);
        if let Some(report) = &report {
            let page = html::report::fleet_report(&document).map_err(Failure::internal)?;
            write_report(report, &page, force)?;
        }
        Ok((
            json::to_text(&document).map_err(Failure::internal)?,
            text::fleet(&document, &text::Page::plain(width)),
        ))
    })
}

fn document_of(at: &Path, survey: Survey) -> json::FleetDocument {
    let files = json::FleetFiles {
        at: shown(at).display().to_string(),
        n_files: survey.n_files,
        n_skipped: survey.n_skipped,
        first_skipped: survey
            .first_skipped
            .map(|(path, reason)| (shown(&path).display().to_string(), reason)),
        n_left_out: survey.n_left_out,
    };
    json::FleetDocument::of(files, survey.fleet)
}
