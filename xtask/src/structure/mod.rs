//! `cargo xtask structure`: what the sources look like as a whole, in numbers that should be zero.

mod imports;
mod sources;
mod strings;

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Result, bail};
use syn::visit::Visit;

use crate::shell::root;
pub(crate) use sources::is_test;
use sources::{SourceFile, crates};

/// Lines of a function outside tables and tests.
const MAX_FUNCTION_LINES: usize = 100;

/// Where no kind may be told apart by a string.
const TYPED: [&str; 3] = [
    "crates/brimful/src/explain/",
    "crates/brimful/src/plan/",
    "crates/brimful-rehearse/src/",
];

/// Prints import cycles, vocabulary collisions, reads of the environment, comparisons of kinds and long functions, each
/// with its places; fails where there is one of them.
pub(crate) fn check() -> Result<()> {
    let crates = crates(&root())?;
    let mut cycles = Vec::new();
    for files in crates.values() {
        cycles.extend(imports::cycles(files));
    }
    let files = || crates.values().flatten();
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    let typed = || files().filter(|file| TYPED.iter().any(|below| file.path.starts_with(below)));
    let sections = [
        ("import cycles between files of a crate", cycles),
        (
            "words of the vocabulary that name several types",
            vocabulary_collisions(files(), &vocabulary(&architecture)),
        ),
        (
            "environment variables read by a literal name",
            files().flat_map(strings::raw_environment_reads).collect(),
        ),
        (
            "string comparisons on kinds in explain, plan and rehearse",
            typed().flat_map(strings::kind_comparisons).collect(),
        ),
        (
            "functions over 100 lines outside tables and tests",
            files().flat_map(long_functions).collect(),
        ),
    ];
    for (title, places) in &sections {
        section(title, places);
    }
    if sections.iter().any(|(_, places)| !places.is_empty()) {
        bail!("expected none of these; the places are listed above");
    }
    Ok(())
}

fn section(title: &str, places: &[String]) {
    println!("{title}: {}", places.len());
    for place in places {
        println!("  {place}");
    }
}

/// The words of the table in ARCHITECTURE.md, spelt as types: `| **Run record** |` is `RunRecord`.
fn vocabulary(architecture: &str) -> Vec<String> {
    let words = architecture.lines().filter_map(|line| {
        let (word, _) = line.strip_prefix("| **")?.split_once("** |")?;
        Some(word)
    });
    words
        .map(|word| {
            word.split(' ')
                .map(|part| {
                    let mut letters = part.chars();
                    let first = letters.next().map(char::to_uppercase);
                    first
                        .into_iter()
                        .flatten()
                        .chain(letters)
                        .collect::<String>()
                })
                .collect()
        })
        .collect()
}

fn vocabulary_collisions<'a>(
    files: impl Iterator<Item = &'a SourceFile>,
    vocabulary: &[String],
) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        for item in &file.syntax.items {
            let name = match item {
                syn::Item::Struct(item) => &item.ident,
                syn::Item::Enum(item) => &item.ident,
                syn::Item::Trait(item) => &item.ident,
                syn::Item::Type(item) => &item.ident,
                _ => continue,
            };
            let name = name.to_string();
            if vocabulary.contains(&name) {
                places.entry(name).or_default().push(file.path.clone());
            }
        }
    }
    places.retain(|_, places| places.len() > 1);
    let lines = places.into_iter();
    lines
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect()
}

fn long_functions(file: &SourceFile) -> Vec<String> {
    struct Functions(Vec<(String, usize, usize)>);

    impl Functions {
        fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
            if is_table(block) {
                return;
            }
            let begin = signature.fn_token.span.start().line;
            let end = block.brace_token.span.close().end().line;
            self.0
                .push((signature.ident.to_string(), begin, end + 1 - begin));
        }
    }

    impl<'ast> Visit<'ast> for Functions {
        fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
            if !is_test(&item.attrs) {
                self.add(&item.sig, &item.block);
                syn::visit::visit_item_fn(self, item);
            }
        }

        fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
            self.add(&item.sig, &item.block);
            syn::visit::visit_impl_item_fn(self, item);
        }

        fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
            if !is_test(&item.attrs) {
                syn::visit::visit_item_mod(self, item);
            }
        }
    }

    let mut functions = Functions(Vec::new());
    functions.visit_file(&file.syntax);
    functions
        .0
        .into_iter()
        .filter(|(_, _, lines)| *lines > MAX_FUNCTION_LINES)
        .map(|(name, line, lines)| format!("{}:{line} {name}, {lines} lines", file.path))
        .collect()
}

/// One `match` from values to constants.
fn is_table(block: &syn::Block) -> bool {
    fn is_constant(value: &syn::Expr) -> bool {
        match value {
            syn::Expr::Lit(_) | syn::Expr::Path(_) => true,
            syn::Expr::Reference(inner) => is_constant(&inner.expr),
            syn::Expr::Array(array) => array.elems.iter().all(is_constant),
            syn::Expr::Tuple(tuple) => tuple.elems.iter().all(is_constant),
            _ => false,
        }
    }
    matches!(
        block.stmts.as_slice(),
        [syn::Stmt::Expr(syn::Expr::Match(table), None)]
            if table.arms.iter().all(|arm| is_constant(&arm.body))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_no_long_function() {
        let table: syn::Block =
            syn::parse_str("{ match self { A => &[\"a\", \"b\"], B => NONE } }").expect("Rust");
        assert!(is_table(&table));
        let code: syn::Block =
            syn::parse_str("{ match self { A => make(), B => 2 } }").expect("Rust");
        assert!(!is_table(&code));
    }

    #[test]
    fn words_are_spelt_as_types() {
        let page =
            "| Word | Meaning |\n| **Run record** | What is stored. |\n| **Brim** | A limit. |\n";
        assert_eq!(vocabulary(page), ["RunRecord", "Brim"]);
    }

    #[test]
    fn a_word_that_names_two_types_is_found() {
        let files = [
            SourceFile::parse("a/src/lib.rs", "pub struct Plan; struct Other;"),
            SourceFile::parse("b/src/lib.rs", "enum Plan {} mod x { struct Plan; }"),
        ];
        let found = vocabulary_collisions(files.iter(), &["Plan".into(), "Other".into()]);
        assert_eq!(found, ["Plan: a/src/lib.rs, b/src/lib.rs"]);
    }

    #[test]
    fn long_functions_are_found_outside_tests() {
        let body = "\n".repeat(120);
        let text = format!(
            "fn short() {{}}\nimpl X {{ fn long() {{{body}}} }}\n#[cfg(test)] mod tests {{ fn test() {{{body}}} }}"
        );
        let found = long_functions(&SourceFile::parse("src/lib.rs", &text));
        assert_eq!(found, ["src/lib.rs:2 long, 121 lines"]);
    }
}
