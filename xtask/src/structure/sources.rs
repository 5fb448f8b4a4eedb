//! The Rust files of the workspace, parsed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// One file of a crate, without what only tests compile.
pub(super) struct SourceFile {
    /// From the root of the repository.
    pub(super) path: String,
    /// The module that the file defines; nothing for the root of a crate.
    pub(super) module: Vec<String>,
    pub(super) syntax: syn::File,
}

impl SourceFile {
    #[cfg(test)]
    pub(super) fn parse(path: &str, text: &str) -> SourceFile {
        let below = path.split_once("src/").map_or(path, |(_, below)| below);
        SourceFile {
            path: path.into(),
            module: module(Path::new(below)),
            syntax: syn::parse_file(text).expect("Rust"),
        }
    }
}

/// The files of every crate, by the directory of the crate.
pub(super) fn crates(root: &Path) -> Result<BTreeMap<String, Vec<SourceFile>>> {
    let mut crates = BTreeMap::new();
    let mut directories = vec![root.join("xtask")];
    for entry in fs::read_dir(root.join("crates"))? {
        directories.push(entry?.path());
    }
    for directory in directories {
        let mut files = Vec::new();
        let sources = directory.join("src");
        add_files(root, &sources, &sources, &mut files)?;
        // Files that only tests declare.
        let tests = test_modules(&files);
        files.retain(|file: &SourceFile| !tests.iter().any(|test| file.module.starts_with(test)));
        let name = directory.strip_prefix(root)?.display().to_string();
        crates.insert(name, files);
    }
    Ok(crates)
}

fn add_files(
    root: &Path,
    sources: &Path,
    directory: &Path,
    files: &mut Vec<SourceFile>,
) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(directory)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            add_files(root, sources, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            let syntax =
                syn::parse_file(&text).with_context(|| format!("parsing {}", path.display()))?;
            files.push(SourceFile {
                path: path.strip_prefix(root)?.display().to_string(),
                module: module(path.strip_prefix(sources)?),
                syntax,
            });
        }
    }
    Ok(())
}

/// `plan/mod.rs` and `plan.rs` are `plan`; `lib.rs` and `main.rs` are the root.
fn module(below_sources: &Path) -> Vec<String> {
    let mut parts: Vec<String> = below_sources
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if matches!(
        parts.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        parts.pop();
    }
    parts
}

fn test_modules(files: &[SourceFile]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for file in files {
        for item in &file.syntax.items {
            if let syn::Item::Mod(item) = item
                && item.content.is_none()
                && is_test(&item.attrs)
            {
                let mut module = file.module.clone();
                module.push(item.ident.to_string());
                found.push(module);
            }
        }
    }
    found
}

/// `#[test]`, `#[cfg(test)]`, `#[cfg(all(test, …))]`.
pub(crate) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        if attribute.path().is_ident("test") {
            return true;
        }
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        attribute.path().is_ident("cfg")
            && list
                .tokens
                .to_string()
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == "test")
    })
}
