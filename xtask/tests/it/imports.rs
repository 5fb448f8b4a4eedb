//! The import law: which crate may use which.

use std::collections::BTreeMap;

use crate::{read, root};

/// What each crate may import of ours, besides tests. ARCHITECTURE.md says why.
const LAW: &[(&str, &[&str])] = &[
    ("brimful-allocsim", &[]),
    ("brimful-phantom", &[]),
    ("brimful-redirect", &[]),
    ("brimful-private", &[]),
    ("brimful", &["brimful-allocsim"]),
    ("brimful-probe", &["brimful"]),
    ("brimful-isolate", &["brimful", "brimful-private"]),
    ("brimful-mapping", &[]),
    ("brimful-share", &["brimful-mapping", "brimful-private"]),
    (
        "brimful-load",
        &["brimful", "brimful-mapping", "brimful-private"],
    ),
    (
        "brimful-prepare",
        &["brimful", "brimful-load", "brimful-private"],
    ),
    (
        "brimful-fleet",
        &["brimful", "brimful-load", "brimful-private"],
    ),
    (
        "brimful-rehearse",
        &[
            "brimful",
            "brimful-allocsim",
            "brimful-isolate",
            "brimful-private",
        ],
    ),
    ("brimful-otlp", &["brimful"]),
    ("brimful-report", &["brimful"]),
    (
        "brimful-supervise",
        // The unpickler that builds nothing of a class, for the steps in checkpoints.
        &[
            "brimful",
            "brimful-allocsim",
            "brimful-private",
            "brimful-probe",
        ],
    ),
    (
        "brimful-top",
        &["brimful", "brimful-report", "brimful-supervise"],
    ),
    (
        "brimful-workflow",
        &[
            "brimful",
            "brimful-allocsim",
            "brimful-isolate",
            "brimful-private",
            "brimful-probe",
            "brimful-rehearse",
            "brimful-report",
            "brimful-supervise",
        ],
    ),
    (
        "brimful-cli",
        &[
            "brimful",
            "brimful-isolate",
            "brimful-private",
            "brimful-probe",
            "brimful-rehearse",
            "brimful-report",
            "brimful-share",
            "brimful-supervise",
            "brimful-top",
            "brimful-workflow",
        ],
    ),
    (
        "brimful-python",
        &[
            "brimful",
            "brimful-fleet",
            "brimful-isolate",
            "brimful-load",
            "brimful-otlp",
            "brimful-prepare",
            "brimful-probe",
            "brimful-report",
            "brimful-share",
            "brimful-workflow",
        ],
    ),
    ("brimful-testkit", &["brimful", "brimful-probe"]),
    (
        "xtask",
        &[
            "brimful",
            "brimful-allocsim",
            "brimful-cli",
            "brimful-rehearse",
            "brimful-report",
            "brimful-supervise",
            "brimful-testkit",
        ],
    ),
];

/// Everything the pure crate may use of others. It decides; a library that reads or waits has no place there.
const ALLOWED_IN_BRIMFUL: &[&str] = &[
    // Text and phrases in, places out.
    "aho-corasick",
    "brimful-allocsim",
    "saphyr-parser",
    "serde",
    "serde_json",
    "strsim",
    "thiserror",
    // Text in, value out: job files.
    "toml",
];

fn manifests() -> BTreeMap<String, toml::Table> {
    let mut folders: Vec<_> = std::fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    folders.push(root().join("xtask"));
    folders
        .into_iter()
        .map(|folder| {
            let table: toml::Table = read(&folder.join("Cargo.toml")).parse().unwrap();
            let name = table["package"]["name"].as_str().unwrap().to_owned();
            assert_eq!(
                folder
                    .canonicalize()
                    .unwrap()
                    .file_name()
                    .unwrap()
                    .to_str()
                    .unwrap(),
                name
            );
            (name, table)
        })
        .collect()
}

fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let mut names = Vec::new();
    let mut add = |table: Option<&toml::Value>| {
        names.extend(
            table
                .and_then(toml::Value::as_table)
                .into_iter()
                .flat_map(|t| t.keys().cloned()),
        );
    };
    add(manifest.get("dependencies"));
    add(manifest.get("build-dependencies"));
    for target in manifest
        .get("target")
        .and_then(toml::Value::as_table)
        .into_iter()
        .flat_map(|t| t.values())
    {
        add(target.get("dependencies"));
    }
    names
}

#[test]
fn crates_import_what_the_law_allows() {
    let manifests = manifests();
    let known: Vec<&str> = LAW.iter().map(|(name, _)| *name).collect();
    for name in manifests.keys() {
        assert!(
            known.contains(&name.as_str()),
            "the crate {name} has no line in the import law\n\n\
             way out: a crate earns its wall by a law, a heavy dependency or a second consumer; if it does, add it to \
             LAW in xtask/tests/it/imports.rs and to the table in ARCHITECTURE.md; if not, make it a module"
        );
    }
    for (name, allowed) in LAW {
        let manifest = &manifests[*name];
        for dependency in dependencies(manifest) {
            let is_ours = manifests.contains_key(&dependency);
            assert!(
                !is_ours || allowed.contains(&dependency.as_str()),
                "{name} imports {dependency}, which the import law does not allow\n\n\
                 way out: hand the value in from a crate that may import both (brimful-cli, brimful-python), or move \
                 what is shared down into brimful; changing the law is an architecture change and starts in \
                 ARCHITECTURE.md"
            );
        }
    }
}

#[test]
fn the_pure_crate_has_few_dependencies() {
    for dependency in dependencies(&manifests()["brimful"]) {
        assert!(
            ALLOWED_IN_BRIMFUL.contains(&dependency.as_str()),
            "brimful depends on {dependency}\n\n\
             way out: what reads, waits or talks belongs into a crate at the edge; if the library is pure and earns \
             its place, add it to ALLOWED_IN_BRIMFUL with the reason in the commit"
        );
    }
}

#[test]
fn versions_are_declared_once() {
    for (name, manifest) in manifests() {
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (dependency, value) in manifest
                .get(table)
                .and_then(toml::Value::as_table)
                .into_iter()
                .flatten()
            {
                assert!(
                    value.get("workspace").is_some(),
                    "{name} declares its own version of {dependency}\n\n\
                     way out: declare it in [workspace.dependencies] of the root and write `{dependency}.workspace = true`"
                );
            }
        }
        assert_eq!(
            manifest["lints"]["workspace"].as_bool(),
            Some(true),
            "{name} does not use the workspace's lints\n\nway out: add `[lints]` with `workspace = true`"
        );
    }
}
