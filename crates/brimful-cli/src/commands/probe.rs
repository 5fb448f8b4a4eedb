//! `brimful probe`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use brimful::findings::{self, Severity};
use brimful::machine::Machine;
use brimful::{cards, profiles};
use brimful_probe::current_environment;
use brimful_report::{json, text};
use brimful_workflow::{MachineRequest, WorkflowError, describe_machine};

use crate::args::{FailOn, ProbeArguments};
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::output::Output;
use crate::requests;

pub(crate) fn probe(
    arguments: &ProbeArguments,
    output: &Output,
) -> Result<ExitStatus, CommandError> {
    if arguments.list {
        list(arguments.json, output)?;
        return Ok(ExitStatus::Success);
    }
    let executable = match &arguments.python {
        Some(named) => Some(executable(named)?),
        None => None,
    };
    let request = MachineRequest {
        as_machine: arguments.as_machine.clone(),
        gpu: arguments.gpu.clone(),
        memory: arguments.memory,
        environment: current_environment(),
        python: requests::python(executable),
    };
    if arguments.json {
        let machine = describe_machine(request)?;
        output.print(&json::to_text(&json::ProbeDocument::of(&machine))?)?;
        return Ok(status(arguments.fail_on, &machine));
    }
    // One page for each alternative.
    let mut worst = ExitStatus::Success;
    for (at, gpu) in alternatives(arguments.gpu.as_deref())?
        .into_iter()
        .enumerate()
    {
        let machine = describe_machine(MachineRequest {
            gpu,
            ..request.clone()
        })?;
        let gap = if at > 0 { "\n" } else { "" };
        output.print(&format!("{gap}{}", text::probe(&machine, &Output::page())))?;
        if let found @ ExitStatus::ProblemFound = status(arguments.fail_on, &machine) {
            worst = found;
        }
    }
    Ok(worst)
}

/// The GPUs of a list with commas, one after the other; nothing once where none are named. Names are checked first.
pub(crate) fn alternatives(list: Option<&str>) -> Result<Vec<Option<String>>, CommandError> {
    let Some(list) = list.filter(|list| list.contains(',')) else {
        return Ok(vec![list.map(str::to_owned)]);
    };
    let checked = |name: &str| match cards::find_all(name) {
        Ok(_) => Ok(Some(name.to_owned())),
        Err(unknown) => Err(WorkflowError::from(unknown).into()),
    };
    let names = cards::alternatives(list).map_err(WorkflowError::from)?;
    names.into_iter().map(checked).collect()
}

fn status(fail_on: Option<FailOn>, machine: &Machine) -> ExitStatus {
    let threshold = match fail_on {
        None => return ExitStatus::Success,
        Some(FailOn::Fatal) => Severity::Fatal,
        Some(FailOn::Risk) => Severity::Risk,
        Some(FailOn::Note) => Severity::Note,
    };
    // Worst first, and worse is smaller.
    let is_found = findings::of(machine)
        .first()
        .is_some_and(|finding| finding.severity <= threshold);
    if is_found {
        ExitStatus::ProblemFound
    } else {
        ExitStatus::Success
    }
}

/// The absolute path of a Python that was named by path or, without a slash, as on PATH.
fn executable(named: &str) -> Result<String, CommandError> {
    let not_one = || CommandError::NoSuchPython { path: named.into() };
    let candidates: Vec<PathBuf> = if named.contains('/') {
        vec![named.into()]
    } else {
        let path = std::env::var_os(brimful::env_vars::PATH).unwrap_or_default();
        std::env::split_paths(&path)
            .map(|directory| directory.join(named))
            .collect()
    };
    let found = candidates
        .into_iter()
        .find(|path| is_executable(path))
        .ok_or_else(not_one)?;
    let absolute = std::path::absolute(found).map_err(|_| not_one())?;
    absolute.to_str().map(Into::into).ok_or_else(not_one)
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

fn list(as_json: bool, output: &Output) -> Result<(), CommandError> {
    if as_json {
        let document = serde_json::json!({
            "schema_version": json::SCHEMA_VERSION,
            "machines": profiles::all()
                .iter()
                .map(|profile| serde_json::json!({ "name": profile.id, "title": profile.title }))
                .collect::<Vec<_>>(),
            "cards": cards::all()
                .iter()
                .map(|card| serde_json::json!({
                    "name": card.id,
                    "product_name": card.name,
                    "total_bytes": card.total.value.get(),
                    "torch_visible_bytes": card.torch_visible.value.get(),
                }))
                .collect::<Vec<_>>(),
        });
        return output.print(&json::to_text(&document)?);
    }
    let mut page = String::from("Machines (--as NAME)\n");
    for profile in profiles::all() {
        let _ = writeln!(page, "  {:<21}{}", profile.id, profile.title);
    }
    page.push_str("\nGPU models (--gpu NAME) and the memory that torch reports\n");
    for card in cards::all() {
        let _ = writeln!(
            page,
            "  {:<24}{:<42}{:>12}",
            card.id,
            // The longest names end in "Edition"; without it they fit in 80 columns.
            card.name
                .trim_start_matches("NVIDIA ")
                .trim_end_matches(" Edition"),
            card.torch_visible.value.to_string()
        );
    }
    output.print(&page)
}
