//! Files that are made from code, so that they cannot drift from it.

mod generated;
mod outputs;
mod python;
mod reference;
mod stubs;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

pub(crate) use generated::Generated;

use crate::shell::root;

/// Writes every generated file, or only compares.
pub(crate) fn all(check: bool) -> Result<()> {
    write(&from_types()?, check)?;
    // Last, since the extension has to be built for it.
    write(&[stubs::native()?], check)
}

fn write(files: &[Generated], check: bool) -> Result<()> {
    let changed: Vec<&Generated> = files.iter().filter(|file| !is_current(file)).collect();
    if check && !changed.is_empty() {
        let names: Vec<&str> = changed.iter().map(|file| file.path).collect();
        bail!(
            "these files are made from code and no longer match it: {}\n\nhint: run `cargo xtask generate` and commit what it writes",
            names.join(", ")
        );
    }
    for file in changed {
        let path = absolute(file);
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        fs::write(&path, &file.content)?;
        println!("wrote {}", file.path);
    }
    Ok(())
}

/// Everything but the stub, which needs the extension built.
fn from_types() -> Result<Vec<Generated>> {
    let probe = serde_json::to_value(brimful_report::json::probe_schema())?;
    let predict = serde_json::to_value(brimful_report::json::predict_schema())?;
    let compare = serde_json::to_value(brimful_report::json::compare_schema())?;
    let plan = serde_json::to_value(brimful_report::json::plan_schema())?;
    let replay = serde_json::to_value(brimful_report::json::replay_schema())?;
    let explain = serde_json::to_value(brimful_report::json::explain_schema())?;
    let runs = serde_json::to_value(brimful_report::json::runs_schema())?;
    let fleet = serde_json::to_value(brimful_report::json::fleet_schema())?;
    let verify = serde_json::to_value(brimful_report::json::verify_schema())?;
    let job = serde_json::to_value(brimful_report::json::job_schema())?;
    let mut files = Vec::new();
    for (path, schema) in [
        ("schemas/probe.schema.json", &probe),
        ("schemas/predict.schema.json", &predict),
        ("schemas/compare.schema.json", &compare),
        ("schemas/plan.schema.json", &plan),
        ("schemas/replay.schema.json", &replay),
        ("schemas/explain.schema.json", &explain),
        ("schemas/runs.schema.json", &runs),
        ("schemas/fleet.schema.json", &fleet),
        ("schemas/verify.schema.json", &verify),
        ("schemas/job.schema.json", &job),
    ] {
        files.push(Generated {
            path,
            content: format!("{}\n", serde_json::to_string_pretty(schema)?),
        });
    }
    files.push(Generated {
        path: "python/brimful/_documents.py",
        content: python::documents(&[
            ("ProbeDocument", &probe),
            ("PredictDocument", &predict),
            ("CompareDocument", &compare),
            ("PlanDocument", &plan),
            ("ReplayDocument", &replay),
            ("ExplainDocument", &explain),
            ("RunsDocument", &runs),
            ("FleetDocument", &fleet),
        ])?,
    });
    files.extend(reference::pages());
    files.extend(outputs::documents()?);
    Ok(files)
}

fn absolute(file: &Generated) -> PathBuf {
    root().join(file.path)
}

fn is_current(file: &Generated) -> bool {
    fs::read_to_string(absolute(file)).is_ok_and(|found| found == file.content)
}
