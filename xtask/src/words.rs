//! `cargo xtask words`: phrases of ours that nobody else uses, in the texts that people read.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use syn::visit::Visit;

use crate::shell::root;
use crate::structure::is_test;

/// What not to write, in lower case, and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    ("will bite", "problem, or say what happens"),
    ("your turn", "invalid input"),
    ("in the way", "say what fails"),
    ("at the most", "at most"),
    ("at the least", "at least"),
    ("inside of", "inside"),
    ("outside of", "outside"),
    ("so many", "the number, or N"),
    ("as many as", "up to, or the number"),
    ("for want of", "out of"),
    ("want of memory", "out of memory"),
    ("in one piece", "contiguous, or fragmented"),
    ("anew", "again"),
    ("hangs on", "depends on"),
    ("hang on", "depend on"),
    ("control group", "cgroup"),
    ("control groups", "cgroups"),
    ("processors", "CPUs"),
    // `folder` itself is a function of `brimful.data`.
    ("a folder", "a directory"),
    ("the folder", "the directory"),
    ("temporary folder", "temporary directory"),
    ("folders", "directories"),
    ("is told", "is reported, or is printed"),
    ("are told", "are reported, or are printed"),
    ("was told", "was reported, or was printed"),
    ("told from", "derived from"),
    ("tells apart", "distinguishes"),
    ("by itself", "on its own, or automatically"),
    ("came to no end", "did not converge"),
    ("passes by unseen", "is not captured"),
    ("of anyone's making", "untrusted"),
    ("of anybody's making", "untrusted"),
    ("dies of", "fails on, or runs out of"),
    ("died of", "ran out of"),
    ("this card", "this GPU"),
    ("the card has", "the GPU has"),
    ("on the card", "on the GPU"),
    ("of the card", "of the GPU"),
    ("said again", "run `brimful explain ID`"),
    ("goes on", "continues"),
    ("went on", "continued"),
    ("to no avail", "without effect"),
    ("other science", "changes the result"),
    ("same science", "keeps the result"),
    ("heaviest", "most important, or largest"),
    ("as it stands", "unchanged"),
];

/// Files whose every line is for people.
const DOCUMENTS: &[&str] = &[
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/guides",
    "docs/concepts",
    "docs/reference",
    "docs/accuracy.md",
    "python/brimful",
];

/// Prints each phrase with its place and its replacement; fails where there is one.
pub(crate) fn check() -> Result<()> {
    let root = root();
    let mut found = Vec::new();
    for document in DOCUMENTS {
        for path in files_below(&root.join(document), &["md", "py"])? {
            let text = fs::read_to_string(&path)?;
            let shown = path.strip_prefix(&root)?.display().to_string();
            for (at, line) in text.lines().enumerate() {
                add(&mut found, &shown, at + 1, line);
            }
        }
    }
    for entry in fs::read_dir(root.join("crates"))? {
        for path in files_below(&entry?.path().join("src"), &["rs"])? {
            let text = fs::read_to_string(&path)?;
            let shown = path.strip_prefix(&root)?.display().to_string();
            if is_test_file(&path) {
                continue;
            }
            let file = syn::parse_file(&text).with_context(|| format!("parsing {shown}"))?;
            for (line, literal) in literals(&file) {
                add(&mut found, &shown, line, &literal);
            }
        }
    }
    for line in &found {
        println!("{line}");
    }
    if !found.is_empty() {
        bail!(
            "{} phrases that readers stumble over; expected plain technical English",
            found.len()
        );
    }
    Ok(())
}

fn add(found: &mut Vec<String>, path: &str, line: usize, text: &str) {
    for (phrase, instead) in phrases_in(text) {
        found.push(format!("{path}:{line}: \"{phrase}\": write {instead}"));
    }
}

/// The phrases that a text contains as whole words.
fn phrases_in(text: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let text = text.to_lowercase();
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    PHRASES.iter().copied().filter(move |(phrase, _)| {
        text.match_indices(phrase).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = text[at + phrase.len()..].chars().next();
            !is_word(before) && !is_word(after)
        })
    })
}

fn is_test_file(path: &Path) -> bool {
    path.iter()
        .any(|part| part == "tests" || part == "tests.rs" || part == "testing.rs")
        || path.to_string_lossy().ends_with("_tests.rs")
}

/// The literal strings of a file with their lines, without those of tests, attributes and panics.
fn literals(file: &syn::File) -> Vec<(usize, String)> {
    struct Literals(Vec<(usize, String)>);

    impl Literals {
        fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
            for token in tokens {
                match token {
                    proc_macro2::TokenTree::Group(group) => self.tokens(group.stream()),
                    proc_macro2::TokenTree::Literal(literal) => {
                        if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                            self.0.push((literal.span().start().line, text.value()));
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    impl<'ast> Visit<'ast> for Literals {
        fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
            self.0.push((text.span().start().line, text.value()));
        }

        fn visit_macro(&mut self, made: &'ast syn::Macro) {
            let name = made.path.segments.last().map(|part| part.ident.to_string());
            // A bug's message is for developers.
            if !name.is_some_and(|name| name.starts_with("assert") || name.contains("panic")) {
                self.tokens(made.tokens.clone());
            }
        }

        fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
            // Texts of errors and of the command line's help; other attributes and comments are for developers.
            if attribute.path().is_ident("error")
                && let syn::Meta::List(list) = &attribute.meta
            {
                self.tokens(list.tokens.clone());
            }
        }

        fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
            if call.method != "expect" {
                syn::visit::visit_expr_method_call(self, call);
            }
        }

        fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
            if !is_test(&item.attrs) {
                syn::visit::visit_item_mod(self, item);
            }
        }

        fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
            if !is_test(&item.attrs) {
                syn::visit::visit_item_fn(self, item);
            }
        }
    }

    let mut literals = Literals(Vec::new());
    literals.visit_file(file);
    literals.0
}

fn files_below(path: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let entries = fs::read_dir(path).with_context(|| format!("listing {}", path.display()))?;
    for entry in entries {
        let path = entry?.path();
        let is_listed = path
            .extension()
            .is_some_and(|extension| extensions.iter().any(|one| extension == *one));
        if path.is_dir() {
            found.extend(files_below(&path, extensions)?);
        } else if is_listed {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phrases(text: &str) -> Vec<&'static str> {
        phrases_in(text).map(|(phrase, _)| phrase).collect()
    }

    #[test]
    fn phrases_are_found_as_whole_words() {
        assert_eq!(
            phrases("Start it so many times at the most."),
            ["at the most", "so many"]
        );
        assert_eq!(
            phrases("not `folder_index` nor subfolder"),
            Vec::<&str>::new()
        );
        assert_eq!(phrases("A Folder."), ["a folder"]);
    }

    #[test]
    fn literals_are_those_that_people_read() {
        let file = syn::parse_file(
            "#[error(\"one {x}\")] struct E;\n/// comment\nfn f() { format!(\"two\"); g(\"three\"); h().expect(\"four\"); \
             assert!(x, \"five\"); }\n#[cfg(test)] mod tests { fn t() { f(\"six\"); } }",
        )
        .expect("Rust");
        let texts: Vec<String> = literals(&file).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["one {x}", "two", "three"]);
    }
}
