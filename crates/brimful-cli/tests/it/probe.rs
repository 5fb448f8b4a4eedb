//! `brimful probe` on this machine and on recorded ones.

use brimful_testkit::TestGroup;
use serde_json::Value;

use crate::context::{brimful, checked_in_schema, program, told};

fn json(arguments: &[&str]) -> Value {
    let output = brimful(arguments);
    assert!(output.status.success(), "{}", told(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn this_machine_validates_against_the_checked_in_schema() {
    let document = json(&["probe", "--json"]);
    let validator = jsonschema::validator_for(&checked_in_schema()).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn the_promised_fields_are_there() {
    let document = json(&["probe", "--as", "colab-t4", "--json"]);
    for pointer in [
        "/schema_version",
        "/host/brim/limit_bytes",
        "/host/brim/set_by",
        "/host/headroom_bytes",
        "/shm/total_bytes",
        "/cpus/usable",
        "/gpus/0/name",
        "/gpus/0/total_bytes",
        "/gpus/0/torch_visible_bytes",
        "/platform/name",
        "/findings/0/id",
        "/gaps/0/reason",
    ] {
        let value = document.pointer(pointer);
        assert!(
            value.is_some_and(|value| !value.is_null()),
            "{pointer}: {value:?}"
        );
    }
}

#[test]
fn the_free_notebook_of_everybody() {
    let output = brimful(&["probe", "--as", "colab-t4"]);
    insta::assert_snapshot!("probe-as-colab-t4", told(&output));
}

#[test]
fn a_machine_and_a_card_that_are_not_here() {
    let output = brimful(&[
        "probe",
        "--as",
        "k8s-default",
        "--memory",
        "16GiB",
        "--gpu",
        "a100-40gb",
    ]);
    insta::assert_snapshot!("probe-as-k8s-with-card", told(&output));
}

#[test]
fn a_comma_separates_alternatives() {
    let pages = told(&brimful(&[
        "probe",
        "--as",
        "k8s-default",
        "--gpu",
        "t4, l4",
    ]));
    assert!(
        pages.contains("Tesla T4") && pages.contains("NVIDIA L4"),
        "{pages}"
    );
    let together = told(&brimful(&[
        "probe",
        "--as",
        "k8s-default",
        "--gpu",
        "t4 + l4",
    ]));
    assert!(
        together.contains("Tesla T4") && together.contains("NVIDIA L4"),
        "{together}"
    );
    assert!(together.lines().count() < pages.lines().count());
    for command in ["probe", "plan", "compare"] {
        let refused = told(&brimful(&[command, "--gpu", " ,"]));
        assert!(refused.contains("unknown GPU"), "{command}: {refused}");
    }
    let refused = brimful(&["probe", "--gpu", "t4,l4", "--json"]);
    insta::assert_snapshot!(told(&refused), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: expected the GPUs of one machine, found alternatives: `t4,l4`

    hint: name one GPU model, or several of one machine, for example `2x t4`
    hint: `compare` takes alternatives
    ");
}

#[test]
fn another_card_in_this_machine() {
    let document = json(&["probe", "--gpu", "T4", "--json"]);
    assert_eq!(document["gpus"][0]["name"], "Tesla T4");
    assert_eq!(document["gpus"][0]["torch_visible_by"], "measured");
    assert_eq!(document["subject"]["kind"], "this_machine");
    assert_eq!(
        document["subject"]["replaced"][0],
        "Tesla T4 instead of its own GPUs"
    );
}

#[test]
fn several_cards_at_once() {
    let document = json(&[
        "probe",
        "--as",
        "k8s-default",
        "--gpu",
        "2x t4 + rtx 4090",
        "--json",
    ]);
    let names: Vec<&str> = document["gpus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gpu| gpu["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["Tesla T4", "Tesla T4", "NVIDIA GeForce RTX 4090"]);
}

#[test]
fn the_list_names_machines_and_cards() {
    let output = brimful(&["probe", "--list"]);
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(page.contains("colab-t4") && page.contains("rtx-4090"));
    for line in page.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let document = json(&["probe", "--list", "--json"]);
    assert!(document["cards"].as_array().unwrap().len() >= 100);
}

#[test]
fn a_group_of_512_mib_is_named_as_the_brim() {
    let group = match TestGroup::new() {
        Ok(group) => group,
        Err(reason) => return eprintln!("skipped: {}", reason.0),
    };
    group.limit(512 << 20).unwrap();
    let output = group
        .command(&program())
        .args(["probe", "--json"])
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["host"]["brim"]["limit_bytes"], 512 << 20);
    assert_eq!(document["host"]["brim"]["cgroup_path"], group.path());
}
