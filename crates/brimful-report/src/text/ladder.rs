//! What is said when a run comes back: why the last attempt died, what is changed, what is kept.

use std::borrow::Cow;
use std::fmt::Write as _;

use brimful::explain::Verdict;
use brimful::job::Settings;
use brimful::plan::Change;

use crate::text::page::Page;
use crate::text::run::duration;
use crate::text::table::table;

/// What every paragraph of ours begins with, between the lines of the script.
const NAME: &str = "brimful: ";
/// Room for the longest name of what is kept.
const LEAD: usize = 17;

/// An attempt that died, and the next one.
#[derive(Clone, Debug)]
pub struct Comeback<'a> {
    /// Of the attempt that died, from 1.
    pub ended: u32,
    /// The most attempts that there can be, where that is known.
    pub of: Option<u32>,
    pub verdict: &'a Verdict,
    pub why: &'a str,
    /// What differs from the attempt that died.
    pub changed: &'a [Change],
    /// Of the next attempt.
    pub settings: Option<&'a Settings>,
    pub effective_batch: Option<u64>,
    pub resumed_from: Option<Cow<'a, str>>,
    pub checkpoint_step: Option<u64>,
    pub checkpoint_age_ms: Option<u64>,
}

/// The checkpoint that a run starts from.
#[derive(Clone, Debug)]
pub struct Resumption<'a> {
    pub path: Cow<'a, str>,
    pub step: Option<u64>,
    pub age_ms: Option<u64>,
    /// One that was written later, at an earlier step.
    pub newer: Option<(Cow<'a, str>, u64)>,
}

/// What a run starts from, and which newer checkpoint it leaves aside.
pub fn resuming(resumption: &Resumption<'_>, page: &Page) -> String {
    let from = checkpoint(&resumption.path, resumption.step, resumption.age_ms);
    let mut out = page.hang(NAME, NAME.len(), &format!("resuming from {from}"));
    if let Some((path, step)) = &resumption.newer {
        let newer = format!("{path} is newer, but only at step {step}; using the higher step");
        out.push_str(&page.hang(NAME, NAME.len(), &newer));
    }
    out
}

/// A checkpoint that is not resumed from, and why.
pub fn refused(path: &str, why: &str) -> String {
    format!("checkpoint `{path}` is not used: {why}")
}

/// Why it died, the table of what changes, and what is kept. Without a line's end at its end.
pub fn coming_back(comeback: &Comeback<'_>, page: &Page) -> String {
    let of = comeback
        .of
        .map_or_else(String::new, |of| format!(" of {of}"));
    let ended = format!(
        "attempt {}{of} failed: {}",
        comeback.ended, comeback.verdict.summary
    );
    let mut out = page.hang(NAME, NAME.len(), &ended);
    let why = match comeback.why {
        "" => String::new(),
        why => format!(": {why}"),
    };
    let next = format!("starting attempt {}{of}{why}", comeback.ended + 1);
    out.push_str(&page.hang(NAME, NAME.len(), &next));
    if !comeback.changed.is_empty() {
        let rows: Vec<Vec<String>> = comeback
            .changed
            .iter()
            .map(|change| {
                vec![
                    short(&change.knob, page),
                    short(&change.from.to_string(), page),
                    short(&change.to.to_string(), page),
                ]
            })
            .collect();
        out.push('\n');
        out.push_str(&table(page, &["changed", "from", "to"], &rows));
    }
    let mut kept = String::new();
    let mut line = |name: &str, text: &str| {
        let lead = format!("    {name:LEAD$}");
        kept.push_str(&page.hang(&lead, lead.len(), text));
    };
    if let Some(batch) = comeback.effective_batch {
        line("effective batch", &batch.to_string());
    }
    line("resumed from", &resumed_from(comeback));
    let others = others(comeback);
    if !others.is_empty() {
        line("other settings", &others);
    }
    out.push_str("\n  kept\n");
    out.push_str(&kept);
    out
}

fn resumed_from(comeback: &Comeback<'_>) -> String {
    match &comeback.resumed_from {
        None => "no checkpoint: starts from the beginning".into(),
        Some(path) => checkpoint(path, comeback.checkpoint_step, comeback.checkpoint_age_ms),
    }
}

fn checkpoint(path: &str, step: Option<u64>, age_ms: Option<u64>) -> String {
    let mut text = path.to_owned();
    if let Some(step) = step {
        let _ = write!(text, ", step {step}");
    }
    if let Some(age) = age_ms {
        let _ = write!(text, ", written {} ago", duration(age));
    }
    text
}

fn others(comeback: &Comeback<'_>) -> String {
    let kept = comeback.settings.into_iter().flat_map(|settings| {
        settings.0.iter().filter(|(knob, _)| {
            let is_changed = |change: &Change| change.knob == **knob;
            !comeback.changed.iter().any(is_changed)
        })
    });
    kept.map(|(knob, value)| format!("{knob} {value}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A cell of a table of three columns.
fn short(text: &str, page: &Page) -> String {
    let room = page.width.saturating_sub(8) / 3;
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let mark = if page.unicode { "…" } else { "~" };
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    format!("{kept}{mark}")
}

#[cfg(test)]
mod tests {
    use brimful::explain::{Cause, Confidence};

    use super::*;
    use crate::text::page::width_of;

    fn verdict() -> Verdict {
        Verdict {
            cause: Cause::DataloaderWorkerKilledOom,
            confidence: Confidence::Proved,
            summary: "a DataLoader worker was killed because host memory ran out: \
                      peak 12.6 GiB of 12.67 GiB"
                .into(),
            ..Verdict::cannot_tell()
        }
    }

    fn settings() -> Settings {
        let mut settings = Settings::default();
        settings.set("micro_batch", 8);
        settings.set("workers", 2);
        settings.set("pin_memory", true);
        settings
    }

    fn change(knob: &str, from: u64, to: u64) -> Change {
        Change {
            knob: knob.into(),
            from: from.into(),
            to: to.into(),
        }
    }

    #[test]
    fn what_changed_and_what_was_kept_is_said() {
        let (verdict, settings) = (verdict(), settings());
        let text = coming_back(
            &Comeback {
                ended: 1,
                of: Some(5),
                verdict: &verdict,
                why: "a worker was killed, so use fewer workers",
                changed: &[change("workers", 4, 2)],
                settings: Some(&settings),
                effective_batch: Some(128),
                resumed_from: Some("outputs/run/last.pt".into()),
                checkpoint_step: Some(500),
                checkpoint_age_ms: Some(41_000),
            },
            &Page::plain(80),
        );
        assert_eq!(
            text,
            "\
brimful: attempt 1 of 5 failed: a DataLoader worker was killed because host
         memory ran out: peak 12.6 GiB of 12.67 GiB
brimful: starting attempt 2 of 5: a worker was killed, so use fewer workers

  changed  from  to
  workers     4   2

  kept
    effective batch  128
    resumed from     outputs/run/last.pt, step 500, written 41 s ago
    other settings   micro_batch 8, pin_memory true
"
        );
    }

    #[test]
    fn without_a_checkpoint_or_knobs_it_says_so() {
        let verdict = verdict();
        let text = coming_back(
            &Comeback {
                ended: 2,
                of: None,
                verdict: &verdict,
                why: "",
                changed: &[],
                settings: None,
                effective_batch: None,
                resumed_from: None,
                checkpoint_step: None,
                checkpoint_age_ms: None,
            },
            &Page::plain(80),
        );
        assert!(text.contains("brimful: starting attempt 3\n"), "{text}");
        assert!(
            text.contains("resumed from     no checkpoint: starts from the beginning"),
            "{text}"
        );
        assert!(!text.contains("changed"), "{text}");
    }

    #[test]
    fn long_and_hostile_values_fit() {
        let verdict = verdict();
        let long = Change {
            knob: "x".repeat(200),
            from: "\u{1b}[31m".repeat(50).as_str().into(),
            to: "y".repeat(200).as_str().into(),
        };
        let path = format!("outputs/{}/last.pt\u{1b}[2J", "z".repeat(300));
        let text = coming_back(
            &Comeback {
                ended: 1,
                of: Some(2),
                verdict: &verdict,
                why: "one less",
                changed: &[long],
                settings: None,
                effective_batch: None,
                resumed_from: Some(path.into()),
                checkpoint_step: None,
                checkpoint_age_ms: None,
            },
            &Page::plain(80),
        );
        assert!(!text.contains('\u{1b}'));
        for line in text.lines() {
            assert!(width_of(line) <= 80, "{line}");
        }
    }

    #[test]
    fn a_run_that_resumes_says_from_what_and_what_is_newer() {
        let mut resumption = Resumption {
            path: "out/last.pt".into(),
            step: Some(40),
            age_ms: Some(120_000),
            newer: None,
        };
        assert_eq!(
            resuming(&resumption, &Page::plain(80)),
            "brimful: resuming from out/last.pt, step 40, written 2 min ago\n"
        );
        resumption.newer = Some(("out/new\u{1b}[2J.pt".into(), 2));
        let text = resuming(&resumption, &Page::plain(80));
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(
            text.ends_with(".pt is newer, but only at step 2; using the higher step\n"),
            "{text}"
        );
    }
}
