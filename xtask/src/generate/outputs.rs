//! Output of the program that documents show, rendered from recorded machines and runs.
//!
//! A comment before a block names what it shows, and everything in the block but its command is written from code:
//!
//! - `<!-- output: probe NAME -->`: a machine of the catalogue, without the sections for those who run it.
//! - `<!-- output: explain NAME -->`: the verdict on the run in `fixtures/runs/NAME`.
//! - `<!-- output: explain NAME, N lines of evidence -->`: the same with the first N of them.

use std::fmt::Write;
use std::fs::{self, File};

use anyhow::{Context, Result, bail};
use brimful::profiles;
use brimful::record::Record;
use brimful_report::text::{self, Page};
use brimful_supervise::explain_record;

use crate::generate::Generated;
use crate::shell::root;

const DOCUMENTS: &[&str] = &[
    "README.md",
    "docs/guides/before-a-run.md",
    "docs/guides/why-did-it-die.md",
];
const MARK: &str = "<!-- output: ";

/// Every document with its blocks as the program prints them today.
pub(super) fn documents() -> Result<Vec<Generated>> {
    DOCUMENTS
        .iter()
        .map(|path| {
            let current = fs::read_to_string(root().join(path)).context(*path)?;
            let content = with_outputs(&current).context(*path)?;
            Ok(Generated { path, content })
        })
        .collect()
}

fn with_outputs(current: &str) -> Result<String> {
    let mut parts = current.split(MARK);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (what, rest) = part
            .split_once(" -->\n")
            .context("a mark without its end")?;
        let rest = rest.trim_start_matches('\n');
        let fence = rest.lines().next().unwrap_or_default();
        let (old, after) = rest[fence.len()..]
            .split_once("\n```")
            .with_context(|| format!("no block after the mark of {what:?}"))?;
        let command = old.lines().nth(1).filter(|line| line.starts_with("$ "));
        let _ = writeln!(out, "{MARK}{what} -->\n{fence}");
        if let Some(command) = command {
            let _ = writeln!(out, "{command}");
        }
        let _ = write!(out, "{}\n```{after}", output(what)?.trim_end());
    }
    Ok(out)
}

fn output(what: &str) -> Result<String> {
    let page = Page::plain(80);
    match what.split_once(' ') {
        Some(("probe", name)) => {
            let machine = profiles::find(name)?.machine();
            let shown = text::probe(&machine, &page);
            Ok(shown
                .split("\nNot known")
                .next()
                .unwrap_or_default()
                .to_owned())
        }
        Some(("explain", run)) => {
            let (run, n_lines) = match run.split_once(", ") {
                Some((run, lines)) => (run, lines.split(' ').next().unwrap_or_default().parse()?),
                None => (run, usize::MAX),
            };
            let folder = root().join("fixtures/runs").join(run);
            let record = Record::read(
                File::open(folder.join("record.jsonl")).context(folder.display().to_string())?,
            )?;
            let mut verdict = explain_record(&record, Some(&folder));
            verdict.evidence.truncate(n_lines);
            Ok(text::explain(&verdict, &page))
        }
        _ => bail!("unknown output {what:?}: expected `probe NAME` or `explain NAME`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_keeps_its_command_and_what_stands_around_it() {
        let page = "before\n<!-- output: probe colab-t4 -->\n```console\n$ brimful probe\nold\n```\nafter\n";
        let written = with_outputs(page).unwrap();
        assert!(written.starts_with(
            "before\n<!-- output: probe colab-t4 -->\n```console\n$ brimful probe\nGoogle Colab"
        ));
        assert!(written.ends_with("\n```\nafter\n"));
        assert!(!written.contains("old"));
        assert_eq!(with_outputs(&written).unwrap(), written);
    }
}
