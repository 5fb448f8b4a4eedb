//! Files of `brimful verify`: predictions that were compared with a real GPU where it stands.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use brimful::cards;
use brimful_report::json::VerifyDocument;
use serde::Serialize;

use super::score::{Errors, errors};

/// The directory of the files, in that of the ground truth.
const DIRECTORY: &str = "verify";
/// More than any file, and than all that anybody will send.
const MAX_BYTES: u64 = 1 << 20;
const MAX_FILES: usize = 100_000;

/// What the files say together.
#[derive(Debug, Default, Serialize)]
pub(super) struct Verified {
    /// Runs that were measured to their end.
    pub(super) runs: usize,
    /// IDs of the GPU models.
    pub(super) gpus: Vec<String>,
    /// Errors of each value, with its name.
    pub(super) values: Vec<(&'static str, Errors)>,
    /// Runs whose measured total is above the safe value, of those that have both.
    pub(super) unsafe_runs: usize,
    pub(super) runs_with_safe: usize,
    /// Runs that ran out of memory, and those of them that were predicted to fit, by the safe value.
    pub(super) out_of_memory: usize,
    pub(super) out_of_memory_but_fits: usize,
}

/// Whether there is nothing else in the directory.
pub(super) fn is_alone(truth: &Path) -> bool {
    let entries = fs::read_dir(truth).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    names.retain(|name| !name.to_string_lossy().starts_with('.'));
    names.len() == 1 && names[0] == DIRECTORY
}

/// Reads all files; nothing if there are none. Those that cannot be read are named in `absent`.
pub(super) fn read(truth: &Path, absent: &mut Vec<String>) -> Option<Verified> {
    let entries = fs::read_dir(truth.join(DIRECTORY)).ok()?.flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).take(MAX_FILES).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    paths.sort();
    let mut documents = Vec::new();
    for path in paths {
        match document(&path) {
            Ok(document) => documents.push(document),
            Err(error) => {
                let name = path.file_name().unwrap_or_default().display().to_string();
                absent.push(format!("{DIRECTORY}/{name}: {error:#}"));
            }
        }
    }
    (!documents.is_empty()).then(|| Verified::of(&documents))
}

fn document(path: &Path) -> Result<VerifyDocument> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let document: VerifyDocument =
        serde_json::from_slice(&bytes).context("not a file of `brimful verify`")?;
    if document.schema_version != VerifyDocument::SCHEMA_VERSION {
        bail!("schema version {} is not known", document.schema_version);
    }
    Ok(document)
}

impl Verified {
    fn of(documents: &[VerifyDocument]) -> Verified {
        let finished = || {
            let all = documents.iter();
            all.filter(|document| document.outcome == VerifyDocument::FINISHED)
        };
        let of = |error: fn(&VerifyDocument) -> Option<f64>| {
            let known = finished().filter_map(|found| Some((model(found), error(found)?)));
            errors(known.filter(|(_, error)| error.is_finite()))
        };
        let values = [
            ("allocated", of(|found| found.allocated.error)),
            ("reserved", of(|found| found.reserved.error)),
            ("context", of(|found| found.context.error)),
            ("total", of(|found| found.total.error)),
            ("steps/s", of(|found| found.steps_per_second.error)),
        ];
        let out_of_memory = documents
            .iter()
            .filter(|found| found.outcome == VerifyDocument::OUT_OF_MEMORY);
        let gpus: BTreeSet<&str> = documents.iter().map(model).collect();
        let safe: Vec<bool> = finished().filter_map(VerifyDocument::is_safe).collect();
        Verified {
            runs: finished().count(),
            gpus: gpus.into_iter().map(str::to_owned).collect(),
            values: values
                .into_iter()
                .filter_map(|(name, errors)| Some((name, errors?)))
                .collect(),
            unsafe_runs: safe.iter().filter(|is_safe| !**is_safe).count(),
            runs_with_safe: safe.len(),
            out_of_memory: out_of_memory.clone().count(),
            out_of_memory_but_fits: out_of_memory.filter(|found| was_to_fit(found)).count(),
        }
    }

    /// The part of the page, with its heading.
    pub(super) fn section(&self) -> String {
        let mut out = String::from("\n## Measured by `brimful verify`\n\n");
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{} runs on {}, compared by their users with the GPU in their own machine. Here the scripts are not known, so \
             nothing was rebuilt and nothing chosen: each error is that of the prediction before the run.\n\n\
             | Value | Runs | Median error | 90 % below | Worst | Bias |\n|---|---|---|---|---|---|",
            self.runs,
            self.gpus.join(", ")
        );
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        for (name, errors) in &self.values {
            let _ = writeln!(
                out,
                "| {name} | {} | {} | {} | {} | {} |",
                errors.rows,
                percent(errors.median),
                percent(errors.p90),
                percent(errors.worst),
                percent(errors.bias)
            );
        }
        let _ = writeln!(
            out,
            "\nThe measured total exceeded the safe value in {} of {} runs. {} runs ran out of memory, {} of them although \
             the safe value was below the memory of the GPU.",
            self.unsafe_runs, self.runs_with_safe, self.out_of_memory, self.out_of_memory_but_fits
        );
        out
    }
}

/// A name from the catalogue: whatever else a file names is not shown.
fn model(document: &VerifyDocument) -> &'static str {
    cards::find(&document.gpu.model).map_or("other GPUs", |card| card.id)
}

fn was_to_fit(document: &VerifyDocument) -> bool {
    let visible = cards::find(&document.gpu.model).map(|card| card.torch_visible.value.get());
    let safe = document.total.safe_bytes;
    visible.is_ok_and(|visible| safe.is_some_and(|safe| safe <= visible))
}

#[cfg(test)]
mod tests {
    use brimful::units::Bytes;
    use brimful_report::json::{VerifiedBytes, VerifiedGpu, VerifiedRate};

    use super::*;

    fn run(predicted_mib: u64, measured_mib: u64) -> VerifyDocument {
        let mib = Bytes::from_mib;
        let same = VerifiedBytes::of(mib(predicted_mib), None, Some(mib(measured_mib)));
        VerifyDocument {
            schema_version: VerifyDocument::SCHEMA_VERSION,
            brimful_version: "0.1.0".into(),
            gpu: VerifiedGpu {
                name: "Tesla T4".into(),
                model: "t4".into(),
                total_bytes: Some(Bytes::from_gib(15).get()),
                driver_version: None,
                used_before_bytes: Some(0),
                used_after_bytes: None,
            },
            world_size: 1,
            torch_version: "2.13.0".into(),
            cuda_version: None,
            cudnn_version: None,
            alloc_conf: String::new(),
            outcome: VerifyDocument::FINISHED.into(),
            requested_steps: 10,
            steps: 10,
            timed_steps: 7,
            isolation: "overlay".into(),
            allocated: same,
            reserved: same,
            context: VerifiedBytes::default(),
            total: VerifiedBytes {
                safe_bytes: Some(mib(1050).get()),
                ..same
            },
            steps_per_second: VerifiedRate::of(None, Some(2.0)),
            retries: 0,
            caveats: Vec::new(),
        }
    }

    fn write(directory: &Path, name: &str, text: &str) {
        fs::create_dir_all(directory.join(DIRECTORY)).expect("a disk");
        fs::write(directory.join(DIRECTORY).join(name), text).expect("a disk");
    }

    #[test]
    fn the_files_of_users_are_taken_and_others_are_named() {
        let truth = tempfile::tempdir().expect("a directory");
        let mut absent = Vec::new();
        assert!(read(truth.path(), &mut absent).is_none());
        let mut died = run(1000, 1000);
        died.outcome = VerifyDocument::OUT_OF_MEMORY.into();
        died.gpu.model = "| a | \u{1b}[1m".into();
        for (name, document) in [
            ("a.json", run(1000, 1000)),
            ("b.json", run(1000, 1100)),
            ("c.json", died),
        ] {
            let text = brimful_report::json::to_text(&document).expect("JSON");
            write(truth.path(), name, &text);
        }
        write(truth.path(), "d.json", "{}");
        write(truth.path(), "README.md", "no measurement");
        assert!(is_alone(truth.path()));
        let found = read(truth.path(), &mut absent).expect("three files");
        assert_eq!((found.runs, found.out_of_memory), (2, 1));
        assert_eq!(found.gpus, ["other GPUs", "t4"]);
        assert_eq!((found.unsafe_runs, found.runs_with_safe), (1, 2));
        let names: Vec<&str> = found.values.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["allocated", "reserved", "total"]);
        assert_eq!(absent.len(), 1);
        assert!(absent[0].starts_with("verify/d.json: not a file of"));
        let page = found.section();
        assert!(page.contains("| total | 2 | 4.5 % |"), "{page}");
        assert!(!page.contains('\u{1b}'));
    }

    #[test]
    fn a_file_that_verify_wrote_is_taken() {
        let mut absent = Vec::new();
        let found = read(&crate::shell::root().join("fixtures"), &mut absent);
        let found = found.expect("fixtures/verify");
        assert_eq!(absent, Vec::<String>::new());
        let names: Vec<&str> = found.values.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            ["allocated", "reserved", "context", "total", "steps/s"]
        );
    }

    #[test]
    fn other_ground_truth_beside_it_is_compared_too() {
        let truth = tempfile::tempdir().expect("a directory");
        write(truth.path(), "a.json", "{}");
        fs::write(truth.path().join("timm.csv"), "").expect("a disk");
        assert!(!is_alone(truth.path()));
    }
}
