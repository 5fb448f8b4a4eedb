//! `cargo xtask structure`: what the sources look like as a whole, in numbers that should be zero.

mod imports;
mod sources;

use std::collections::BTreeMap;
use std::fs;

use anyhow::Result;
use syn::visit::Visit;

use crate::shell::root;
use sources::{SourceFile, crates, is_test};

/// Lines of a function outside tables and tests.
const MAX_FUNCTION_LINES: usize = 100;

/// Prints import cycles, vocabulary collisions and long functions, each with its places.
pub(crate) fn print() -> Result<()> {
    let crates = crates(&root())?;
    let mut cycles = Vec::new();
    for files in crates.values() {
        cycles.extend(imports::cycles(files));
    }
    section("import cycles between files of a crate", &cycles);
    let files = || crates.values().flatten();
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    let collisions = vocabulary_collisions(files(), &vocabulary(&architecture));
    section(
        "words of the vocabulary that name several types",
        &collisions,
    );
    let long: Vec<String> = files().flat_map(long_functions).collect();
    section(
        &format!("functions over {MAX_FUNCTION_LINES} lines outside tests"),
        &long,
    );
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

#[cfg(test)]
mod tests {
    use super::*;

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
