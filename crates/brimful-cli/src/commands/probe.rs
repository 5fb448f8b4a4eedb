//! `brimful probe`.

use std::fmt::Write;
use std::path::Path;

use brimful::machine::Machine;
use brimful::{cards, profiles};
use brimful_probe::{PythonHint, Surroundings};
use brimful_report::{json, text};

use crate::args::ProbeArguments;
use crate::error::CommandError;
use crate::output::Output;

pub(crate) fn probe(arguments: &ProbeArguments, output: &Output) -> Result<(), CommandError> {
    if arguments.list {
        return list(arguments.json, output);
    }
    let machine = described_machine(arguments)?;
    if arguments.json {
        let document = json::ProbeDocument::of(&machine);
        return output.print(&json::to_text(&document)?);
    }
    output.print(&text::probe(&machine, &Output::page()))
}

fn described_machine(arguments: &ProbeArguments) -> Result<Machine, CommandError> {
    // Names are checked first: a mistyped card is told before anything is read.
    let card = arguments.gpu.as_deref().map(cards::find).transpose()?;
    let mut machine = match &arguments.as_machine {
        Some(name) => profiles::find(name)?.machine(),
        None => this_machine(arguments)?,
    };
    if let Some(card) = card {
        machine = machine.with_card(card);
    }
    if let Some(limit) = arguments.memory {
        machine = machine.with_memory(limit);
    }
    Ok(machine)
}

fn this_machine(arguments: &ProbeArguments) -> Result<Machine, CommandError> {
    let text = |path: &Path| path.to_str().map(Into::into);
    let executable = match &arguments.python {
        Some(path) if !Path::new(path).is_file() => {
            return Err(CommandError::NoSuchPython { path: path.clone() });
        }
        Some(path) => std::path::absolute(path).ok().and_then(|path| text(&path)),
        None => None,
    };
    let hint = PythonHint {
        executable,
        program_folder: std::env::current_exe()
            .ok()
            .and_then(|program| text(program.parent()?)),
        working_folder: std::env::current_dir()
            .ok()
            .and_then(|folder| text(&folder)),
        ..PythonHint::default()
    };
    Ok(brimful_probe::probe(&Surroundings::live(hint)?))
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
    page.push_str("\nCards (--gpu NAME), with what torch sees of each\n");
    for card in cards::all() {
        let _ = writeln!(
            page,
            "  {:<24}{:<42}{:>12}",
            card.id,
            card.name.trim_start_matches("NVIDIA "),
            card.torch_visible.value.to_string()
        );
    }
    output.print(&page)
}
