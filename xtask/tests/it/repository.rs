//! Habits of the repository.

use crate::{files_below, read, root};

#[test]
fn files_stay_small_enough_to_have_one_subject() {
    for (folder, ending) in [
        ("crates", ".rs"),
        ("crates", ".py"),
        ("xtask", ".rs"),
        ("python", ".py"),
        ("benches", ".py"),
    ] {
        for path in files_below(&root().join(folder), ending) {
            // Flat tables may run long, and what is generated; logic may not.
            if path.ends_with("table.rs") || path.ends_with("_documents.py") {
                continue;
            }
            let lines = read(&path).lines().count();
            assert!(
                lines <= 800,
                "{} has {lines} lines\n\nway out: ask what the second subject is, and give it a file",
                path.display()
            );
        }
    }
}

#[test]
fn every_crate_says_what_it_is() {
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let path = entry.unwrap().path().join("src/lib.rs");
        let first = read(&path);
        assert!(
            first.starts_with("//! "),
            "{} does not start with its charter\n\nway out: one sentence of what it does, one of what it will not do",
            path.display()
        );
    }
}
