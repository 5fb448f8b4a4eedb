//! Metrics of a run in progress, for `brimful run --otlp`.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use brimful_otlp::Exporter;
use brimful_workflow::state_dir;
use pyo3::prelude::*;

use crate::border::{Failure, call};

/// Follows the run that a process of brimful supervises, and sends its metrics to a collector.
#[pyclass(frozen, name = "OtlpExporter", module = "brimful._native")]
pub(crate) struct OtlpExporter {
    url: Option<String>,
    attributes: Vec<(&'static str, String)>,
    /// `None` without a state directory.
    follower: Option<Mutex<brimful_workflow::RunFollower>>,
    /// Made when the run is known, which it is described by.
    exporter: Mutex<Option<Exporter>>,
}

#[pymethods]
impl OtlpExporter {
    #[new]
    #[pyo3(signature = (*, url, supervisor_pid, since_unix_ms, host_name, state_dir))]
    fn new(
        url: Option<String>,
        supervisor_pid: u32,
        since_unix_ms: u64,
        host_name: String,
        state_dir: Option<PathBuf>,
    ) -> OtlpExporter {
        let follower = self::state_dir(state_dir)
            .map(|state| brimful_workflow::RunFollower::new(state, supervisor_pid, since_unix_ms));
        OtlpExporter {
            url,
            attributes: vec![
                ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
                ("host.name", host_name),
            ],
            follower: follower.map(Mutex::new),
            exporter: Mutex::new(None),
        }
    }

    /// Takes what is new in the record. Returns why the last values did not reach the collector.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let Some(follower) = &self.follower else {
            return Ok(None);
        };
        call(py, || {
            let mut follower = follower.lock().unwrap_or_else(PoisonError::into_inner);
            let mut exporter = self.exporter.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(run) = follower.poll()
                && run.has_begun()
            {
                if exporter.is_none() {
                    let mut attributes = self.attributes.clone();
                    attributes.push(("brimful.run.id", run.id().to_owned()));
                    let made = Exporter::new(self.url.as_deref(), &attributes);
                    *exporter = Some(made.map_err(|error| Failure::Input {
                        message: error.to_string(),
                        hints: Vec::new(),
                    })?);
                }
                if let Some(exporter) = exporter.as_ref() {
                    exporter.update(run);
                }
            }
            Ok(exporter.as_ref().and_then(Exporter::last_error))
        })
    }

    /// Sends the last values. Returns why they did not reach the collector.
    fn shut_down(&self, py: Python<'_>) -> PyResult<Option<String>> {
        call(py, || {
            let exporter = self.exporter.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(exporter) = exporter.as_ref() else {
                return Ok(None);
            };
            exporter.shut_down();
            Ok(exporter.last_error())
        })
    }
}
