//! What the documents say about the code stays true.

use brimful::findings::CATALOGUE;

use crate::{files_below, read, root};

#[test]
fn every_finding_is_a_file_in_the_catalogue() {
    let folder = root().join("crates/brimful/src/findings");
    for rule in CATALOGUE {
        assert!(
            folder.join(format!("{}.rs", rule.id)).exists(),
            "the finding {} has no file of its name\n\nway out: one finding, one file, one name",
            rule.id
        );
    }
    // Beside the rules: `mod.rs`, `finding.rs` and `testing.rs`.
    let files = files_below(&folder, ".rs").len();
    assert_eq!(
        files,
        CATALOGUE.len() + 3,
        "a file in findings/ is not in CATALOGUE\n\nway out: add it to the list in findings/mod.rs"
    );
}

#[test]
fn every_crate_is_in_the_architecture() {
    let text = read(&root().join("ARCHITECTURE.md"));
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            text.contains(&format!("`{name}`")),
            "ARCHITECTURE.md does not name the crate {name}\n\nway out: give it a line in the code map"
        );
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    for path in files_below(&root().join("docs"), ".md").into_iter().chain(
        [
            "README.md",
            "ARCHITECTURE.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
        ]
        .map(|name| root().join(name)),
    ) {
        let text = read(&path);
        for target in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let target = target.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let file = path.parent().unwrap().join(target);
            assert!(
                file.exists(),
                "{} links to {target}, which is not there\n\nway out: mend the link",
                path.display()
            );
        }
    }
}
