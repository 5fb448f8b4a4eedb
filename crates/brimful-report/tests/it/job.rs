//! The JSON Schema of job files against our own reader.

use brimful::job::draft::{Accepts, ScriptOption, draft};
use brimful_report::json::{self, JobDocument};
use serde_json::Value;

/// As the reference has it.
fn sketch() -> String {
    let page = include_str!("../../../../docs/reference/job-file.md");
    let block = page.split("```toml\n").nth(1).unwrap();
    block.split("```").next().unwrap().to_owned()
}

fn problems(text: &str) -> Vec<String> {
    let schema = serde_json::to_value(json::job_schema()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let document: Value = toml::from_str(text).unwrap();
    validator
        .iter_errors(&document)
        .map(|error| error.to_string())
        .collect()
}

fn check_valid(text: &str) {
    brimful::job::read(text).unwrap();
    assert_eq!(problems(text), Vec::<String>::new(), "{text}");
    toml::from_str::<JobDocument>(text).unwrap();
}

#[test]
fn what_the_reader_takes_is_valid() {
    check_valid(&sketch());
    check_valid(
        "[job]\ncommand = [\"t\"]\ncheckpoints = [\"a\", \"b\"]\n[knobs]\nworkers = 2\n\"a.b\" = [0.5, \"x\"]",
    );
    check_valid(
        "[job]\ncommand = [\"t\"]\n[modes.debug]\nextra = [\"x\"]\neffective_batch = 2\nsteps = 3\nworkers = [1, 0]",
    );
    let option = |flag: &str| ScriptOption {
        flags: vec![flag.into()],
        ..ScriptOption::default()
    };
    let accepts = Accepts {
        options: ["--workers", "--max-steps", "--resume"]
            .map(option)
            .to_vec(),
        ..Accepts::default()
    };
    check_valid(&draft(&["python".into(), "train.py".into()], &accepts).text);
    // The projects that come with the repository.
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path().join("brimful.toml");
        if path.exists() {
            check_valid(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn what_the_reader_refuses_is_not_valid() {
    for text in [
        "",
        "[job]\ncommand = \"python train.py\"",
        "[job]\ncommand = []",
        "[job]\ncommand = [\"t\"]\nresumes = []",
        "[jobs]\ncommand = [\"t\"]",
        "[job]\ncommand = [\"t\"]\n[keep]\neffective_batch = 0",
        "[job]\ncommand = [\"t\"]\n[knobs]\nsize = []",
        "[job]\ncommand = [\"t\"]\n[knobs]\nsize = {a = 1}",
        "[job]\ncommand = [\"t\"]\n[modes]\ndebug = 3",
    ] {
        assert!(brimful::job::read(text).is_err(), "{text}");
        assert_ne!(problems(text), Vec::<String>::new(), "{text}");
    }
}
