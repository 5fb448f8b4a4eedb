//! The machine, for `brimful.probe()`.

use brimful::machine::{Machine, PythonVersion};
use brimful::units::Bytes;
use brimful::{cards, profiles};
use brimful_probe::{PythonHint, current_environment};
use brimful_report::{html, json, text};
use brimful_workflow::{MachineRequest, describe_machine};
use pyo3::prelude::*;

use crate::border::{Failure, call};

/// Reads the machine this process runs on, or describes a recorded one.
///
/// Returns it in three forms: the JSON document, the page for a terminal, the HTML for a notebook. Plain text, so that
/// what Python makes of it can be copied, pickled and sent to workers.
#[pyfunction]
#[pyo3(signature = (*, as_machine, gpu, memory, executable, import_folders, version))]
pub(crate) fn probe(
    py: Python<'_>,
    as_machine: Option<String>,
    gpu: Option<String>,
    memory: Option<String>,
    executable: Option<String>,
    import_folders: Vec<String>,
    version: (u32, u32),
) -> PyResult<(String, String, String)> {
    // Read while Python's lock is held: another thread may be setting a variable.
    let environment = current_environment();
    call(py, move || {
        let hint = PythonHint {
            executable,
            import_directories: import_folders,
            version: Some(PythonVersion::new(version.0, version.1)),
            ..PythonHint::default()
        };
        forms(&describe_machine(MachineRequest {
            as_machine,
            gpu,
            memory: memory_size(memory.as_deref())?,
            environment,
            python: hint,
        })?)
    })
}

/// A size as people write it, if there is one.
pub(crate) fn memory_size(text: Option<&str>) -> Result<Option<Bytes>, Failure> {
    Ok(text.map(str::parse).transpose()?)
}

fn forms(machine: &Machine) -> Result<(String, String, String), Failure> {
    Ok((
        json::to_text(&json::ProbeDocument::of(machine)).map_err(Failure::internal)?,
        text::probe(machine, &text::Page::plain(80)),
        html::probe(machine).map_err(Failure::internal)?,
    ))
}

/// The names that `probe(as_machine=…)` takes.
#[pyfunction]
pub(crate) fn machine_names() -> Vec<&'static str> {
    profiles::all().iter().map(|profile| profile.id).collect()
}

/// The names that `probe(gpu=…)` takes.
#[pyfunction]
pub(crate) fn card_names() -> Vec<&'static str> {
    cards::all().iter().map(|card| card.id).collect()
}

/// The bytes of a size as people write it, such as `512MiB`.
#[pyfunction]
pub(crate) fn size_bytes(py: Python<'_>, text: &str) -> PyResult<u64> {
    call(py, || Ok(text.parse::<Bytes>()?.get()))
}

/// A number of bytes as people read it.
#[pyfunction]
pub(crate) fn size_text(size_bytes: u64) -> String {
    Bytes(size_bytes).to_string()
}
