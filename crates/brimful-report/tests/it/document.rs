//! The JSON document.

use brimful::profiles;
use brimful_probe::probe;
use brimful_report::json::{self, ProbeDocument};
use brimful_testkit::{FakeMachine, machine_names};
use serde_json::Value;

fn document(name: &str) -> Value {
    let machine = probe(&FakeMachine::load(name).surroundings());
    serde_json::to_value(ProbeDocument::of(&machine)).unwrap()
}

#[test]
fn every_document_is_valid_by_its_schema() {
    let schema = serde_json::to_value(json::probe_schema()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for name in machine_names() {
        let document = document(&name);
        let errors: Vec<String> = validator
            .iter_errors(&document)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
    for profile in profiles::all() {
        let document = serde_json::to_value(ProbeDocument::of(&profile.machine())).unwrap();
        assert!(validator.is_valid(&document), "{}", profile.id);
    }
}

/// Every `null` that stands for a missing fact has its reason in `gaps`, and no gap points at a value.
#[test]
fn nulls_and_gaps_belong_together() {
    // Null is a value of its own in these: nothing is set, or nothing applies.
    const MAY_BE_NULL: &[&str] = &[
        "subject.profile",
        "platform.slurm",
        "cgroup_path",
        "hidden_groups",
        "gpu_visible_devices",
        "slurm.memory_request_bytes",
        "slurm.whole_node",
        "cpus.limited_by",
        "commit_limit_bytes",
        "committed_bytes",
        "reclaimable_bytes",
        "unreclaimable_bytes",
        "torch_visible_by",
        "torch_sees_it",
        "torch_index",
        "kernels_for",
        "processes",
        "anon_bytes",
        "shmem_bytes",
        "isolation.reason",
        "apparmor_profile",
        "apparmor_enforced",
        "scratch_directory",
    ];
    for name in machine_names() {
        let document = document(&name);
        let gaps: Vec<&str> = document["gaps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|gap| gap["path"].as_str().unwrap())
            .collect();
        for path in &gaps {
            let at = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
            let value = document.pointer(&at).unwrap_or(&Value::Null);
            let empty_list = value.as_array().is_some_and(Vec::is_empty);
            assert!(
                value.is_null() || empty_list,
                "{name}: the gap {path} points at {value}"
            );
        }
        let mut nulls = Vec::new();
        collect_nulls(&document, String::new(), &mut nulls);
        for path in nulls {
            let may_be = MAY_BE_NULL
                .iter()
                .any(|known| path.ends_with(known) || path.contains(known));
            assert!(
                may_be || gaps.contains(&path.as_str()),
                "{name}: {path} is null without a reason"
            );
        }
    }
}

fn collect_nulls(value: &Value, path: String, out: &mut Vec<String>) {
    match value {
        Value::Null => out.push(path),
        Value::Array(items) => {
            for (idx, item) in items.iter().enumerate() {
                collect_nulls(item, format!("{path}[{idx}]"), out);
            }
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                collect_nulls(item, path, out);
            }
        }
        _ => {}
    }
}

#[test]
fn unknown_is_never_zero() {
    let document = document("nothing-readable");
    let mut numbers = Vec::new();
    collect_numbers(&document, String::new(), &mut numbers);
    assert_eq!(
        numbers,
        ["schema_version"],
        "a machine of which nothing is known has no figures"
    );
}

fn collect_numbers(value: &Value, path: String, out: &mut Vec<String>) {
    match value {
        Value::Number(_) => out.push(path),
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect_numbers(item, path.clone(), out)),
        Value::Object(fields) => {
            for (name, item) in fields {
                collect_numbers(item, name.clone(), out);
            }
        }
        _ => {}
    }
}

#[test]
fn unlimited_is_a_word() {
    let document = document("colab-t4");
    assert_eq!(
        document["process_limits"]["address_space_bytes"],
        "unlimited"
    );
    let document = document_of_profile("k8s-default");
    assert_eq!(document["host"]["cgroups"][0]["max_bytes"], Value::Null);
}

fn document_of_profile(id: &str) -> Value {
    serde_json::to_value(ProbeDocument::of(&profiles::find(id).unwrap().machine())).unwrap()
}

#[test]
fn the_document_of_a_pod() {
    let document = document("k8s-v2");
    let without_version = {
        let mut document = document;
        document["brimful_version"] = "[VERSION]".into();
        serde_json::to_string_pretty(&document).unwrap()
    };
    insta::assert_snapshot!("k8s-v2-json", without_version);
}
