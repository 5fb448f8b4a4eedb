//! Environment variables are read through the constants of `brimful::env_vars`, so that the reference page lists all.

use std::collections::BTreeSet;
use std::path::Path;

use brimful::env_vars;

use crate::{files_below, read, root};

/// C libraries, which import nothing and name their variables in constants of their own.
const C_LIBRARIES: &[&str] = &["brimful-phantom", "brimful-redirect"];

/// Calls that read a variable whose name follows.
const READS: &[&str] = &["env::var(", "env::var_os(", "environment("];

/// Calls that set or remove a variable for another process.
const SETS: &[&str] = &[".env(", ".env_remove("];

/// A line of code, as it is shown in a message.
struct CodeLine {
    place: String,
    text: String,
}

/// The Rust code below `directory`, without comments and tests.
fn code_below(directory: &Path) -> Vec<CodeLine> {
    let mut lines = Vec::new();
    for path in files_below(directory, ".rs") {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_test =
            name.ends_with("tests.rs") || path.components().any(|p| p.as_os_str() == "tests");
        let text = read(&path);
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        if is_test {
            continue;
        }
        for (idx, line) in code.lines().enumerate() {
            if !line.trim_start().starts_with("//") {
                lines.push(CodeLine {
                    place: format!("{}:{}", path.display(), idx + 1),
                    text: line.to_owned(),
                });
            }
        }
    }
    lines
}

/// The crates, by name, with their sources.
fn crates() -> Vec<(String, Vec<CodeLine>)> {
    let directory = root().join("crates");
    let mut names: Vec<String> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
        .into_iter()
        .map(|name| {
            let code = code_below(&directory.join(&name).join("src"));
            (name, code)
        })
        .collect()
}

/// The string literals of a line.
fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

fn looks_like_a_variable(literal: &str) -> bool {
    literal.contains('_')
        && literal.starts_with(|first: char| first.is_ascii_uppercase())
        && literal
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

fn listed() -> BTreeSet<&'static str> {
    env_vars::ALL.iter().map(|variable| variable.name).collect()
}

#[test]
fn variables_are_read_through_constants() {
    for (name, code) in crates() {
        for line in code {
            for read in READS {
                let is_raw = line
                    .text
                    .split(read)
                    .skip(1)
                    .any(|argument| argument.starts_with('"'));
                assert!(
                    !is_raw,
                    "{}: {name} reads a variable by a literal name\n\n\
                     way out: add it to `variables!` in crates/brimful/src/env_vars.rs and read \
                     `brimful::env_vars::NAME`, then run `cargo xtask generate`",
                    line.place
                );
            }
        }
    }
}

#[test]
fn a_listed_variable_is_named_by_its_constant() {
    let listed = listed();
    for (name, code) in crates() {
        let is_exempt = C_LIBRARIES.contains(&name.as_str())
            // Models PyTorch and imports nothing of ours.
            || name == "brimful-allocsim";
        if is_exempt {
            continue;
        }
        for line in code {
            let is_list = line.place.contains("brimful/src/env_vars.rs");
            if is_list || SETS.iter().any(|set| line.text.contains(set)) {
                continue;
            }
            for literal in literals(&line.text) {
                assert!(
                    !(looks_like_a_variable(literal) && listed.contains(literal)),
                    "{}: `{literal}` is written out\n\nway out: use `brimful::env_vars::{literal}`",
                    line.place
                );
            }
        }
    }
}

#[test]
fn every_variable_of_ours_is_listed() {
    let listed = listed();
    for (name, code) in crates() {
        for line in code {
            for literal in literals(&line.text) {
                assert!(
                    !literal.starts_with("BRIMFUL_")
                        || !looks_like_a_variable(literal)
                        || listed.contains(literal),
                    "{}: {name} names `{literal}`, which the reference page does not list\n\n\
                     way out: add it to `variables!` in crates/brimful/src/env_vars.rs",
                    line.place
                );
            }
        }
    }
    let hooks = [
        "crates/brimful-rehearse/src/hook",
        "crates/brimful-supervise/src/hook",
        "python/brimful",
    ];
    for path in hooks
        .iter()
        .flat_map(|hook| files_below(&root().join(hook), ".py"))
    {
        for line in read(&path).lines().filter(|line| line.contains("environ")) {
            for literal in literals(line) {
                assert!(
                    !literal.starts_with("BRIMFUL_") || listed.contains(literal),
                    "{}: `{literal}` is not listed\n\n\
                     way out: add it to `variables!` in crates/brimful/src/env_vars.rs",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn the_variables_of_the_c_libraries_are_listed() {
    let listed = listed();
    for library in C_LIBRARIES {
        let code = code_below(&root().join("crates").join(library).join("src"));
        let constants: Vec<&CodeLine> = code
            .iter()
            .filter(|line| line.text.contains("const ") && line.text.contains(": &str = \""))
            .filter(|line| literals(&line.text).any(looks_like_a_variable))
            .collect();
        assert!(!constants.is_empty(), "{library} reads variables");
        for line in constants {
            for literal in literals(&line.text).filter(|literal| looks_like_a_variable(literal)) {
                assert!(
                    listed.contains(literal),
                    "{}: `{literal}` is not listed\n\n\
                     way out: add it to `variables!` in crates/brimful/src/env_vars.rs",
                    line.place
                );
            }
        }
    }
}
