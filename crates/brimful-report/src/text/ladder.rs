//! What is said when a run comes back: why the last attempt died, what is changed, what is kept.

use std::borrow::Cow;
use std::fmt::Write as _;

use brimful::explain::Verdict;
use brimful::job::Settings;
use brimful::plan::Change;

use crate::text::page::Page;
use crate::text::run::duration;
use crate::text::table::table;

/// What every paragraph of ours begins with, between the training's own lines.
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

/// Why it died, the table of what changes, and what is kept. Without a line's end at its end.
pub fn coming_back(comeback: &Comeback<'_>, page: &Page) -> String {
    let of = comeback
        .of
        .map_or_else(String::new, |of| format!(" of {of}"));
    let ended = format!(
        "attempt {}{of} died: {}",
        comeback.ended, comeback.verdict.summary
    );
    let mut out = page.hang(NAME, NAME.len(), &ended);
    let why = match comeback.why {
        "" => String::new(),
        why => format!(": {why}"),
    };
    let next = format!("attempt {}{of} begins{why}", comeback.ended + 1);
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
    let Some(path) = &comeback.resumed_from else {
        return "the beginning: there is no complete checkpoint".into();
    };
    let mut text = path.clone().into_owned();
    if let Some(step) = comeback.checkpoint_step {
        let _ = write!(text, ", step {step}");
    }
    if let Some(age) = comeback.checkpoint_age_ms {
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
            summary: "the kernel killed a DataLoader worker for want of host memory, \
                      at 12.6 GiB of 12.67 GiB"
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
                why: "a worker was killed, so fewer of them",
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
brimful: attempt 1 of 5 died: the kernel killed a DataLoader worker for want of
         host memory, at 12.6 GiB of 12.67 GiB
brimful: attempt 2 of 5 begins: a worker was killed, so fewer of them

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
        assert!(text.contains("brimful: attempt 3 begins\n"), "{text}");
        assert!(
            text.contains("resumed from     the beginning: there is no complete checkpoint"),
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
}
