//! What was seen against what was expected. Pure.

use brimful::explain::Verdict;
use serde::{Deserialize, Serialize};

use crate::faults::drive::Ended;
use crate::faults::manifest::Fault;

/// What `brimful explain --json` prints.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Explained {
    pub(crate) verdict: Verdict,
}

/// Everything that was seen of one run under brimful.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) ended: Ended,
    /// Or why there is none.
    pub(crate) verdict: Result<Verdict, String>,
    pub(crate) leftovers: Vec<String>,
    pub(crate) unreadable: Vec<String>,
    /// What the next run in the same place said, where one was started.
    pub(crate) next_run: Option<String>,
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The verdict names another cause, or there is no verdict.
    Cause,
    /// The right cause with another detail or confidence, or without the figure that proves it.
    Proof,
    /// Another exit code, another output, or not in time.
    Ending,
    Leftover,
    Record,
}

/// What is wrong with a run under brimful.
pub(crate) fn judge(fault: &Fault, seen: &Seen) -> Vec<Problem> {
    let mut problems = endings(fault, &seen.ended, fault.exit_code);
    let mut add = |kind, text| problems.push(Problem { kind, text });
    match &seen.verdict {
        Ok(verdict) if verdict.cause != fault.cause => add(
            Kind::Cause,
            format!(
                "expected {}, found {}: {}",
                fault.cause.id(),
                verdict.cause.id(),
                verdict.summary
            ),
        ),
        Ok(verdict) => weaknesses(fault, verdict)
            .into_iter()
            .for_each(|text| add(Kind::Proof, text)),
        Err(reason) => add(Kind::Cause, format!("no verdict: {reason}")),
    }
    if let Ok(verdict) = &seen.verdict
        && fault.is_told_at_once()
        && !in_a_row(&seen.ended.errors).contains(&in_a_row(&verdict.summary))
    {
        add(
            Kind::Ending,
            format!("at its end, brimful did not say {:?}", verdict.summary),
        );
    }
    for text in &seen.leftovers {
        add(Kind::Leftover, format!("left behind: {text}"));
    }
    for text in &seen.unreadable {
        add(Kind::Record, format!("record: {text}"));
    }
    if let (Some(wanted), Some(said)) = (&fault.next_run_says, &seen.next_run)
        && !said.contains(wanted.as_str())
    {
        add(
            Kind::Ending,
            format!("expected the next run to say {wanted:?}, found {said:?}"),
        );
    }
    problems
}

/// What is wrong with the way a program ended.
pub(crate) fn endings(fault: &Fault, ended: &Ended, exit_code: i32) -> Vec<Problem> {
    let mut found = Vec::new();
    if let Some(late) = &ended.late {
        found.push(late.clone());
    } else if ended.code != exit_code {
        found.push(format!(
            "expected exit code {exit_code}, found {}",
            ended.code
        ));
    }
    if let Some(wanted) = &fault.prints
        && !ended.output.contains(wanted.as_str())
        && !ended.errors.contains(wanted.as_str())
    {
        found.push(format!("expected it to print {wanted:?}"));
    }
    found
        .into_iter()
        .map(|text| Problem {
            kind: Kind::Ending,
            text,
        })
        .collect()
}

/// The words, however the lines were broken and sentences begun.
fn in_a_row(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").to_lowercase()
}

/// Where a verdict with the right cause falls short.
fn weaknesses(fault: &Fault, verdict: &Verdict) -> Vec<String> {
    let mut found = Vec::new();
    if !fault.detail.is_empty() && !fault.detail.iter().any(|word| *word == verdict.detail.id()) {
        found.push(format!(
            "expected the detail {}, found {}",
            fault.detail.join(" or "),
            verdict.detail
        ));
    }
    if !fault.confidence.is_empty() && !fault.confidence.contains(&verdict.confidence) {
        found.push(format!(
            "expected the confidence {:?}, found {:?}",
            fault.confidence, verdict.confidence
        ));
    }
    let said: Vec<&str> = std::iter::once(verdict.summary.as_str())
        .chain(verdict.evidence.iter().map(|proof| proof.text.as_str()))
        .collect();
    for wanted in &fault.evidence {
        if !said.iter().any(|text| text.contains(wanted.as_str())) {
            found.push(format!("no evidence says {wanted:?}: {}", said.join(" | ")));
        }
    }
    let offered: Vec<String> = verdict
        .remedies
        .iter()
        .map(|remedy| format!("{} {}", remedy.text, remedy.effect.as_deref().unwrap_or("")))
        .collect();
    for wanted in &fault.remedies {
        if !offered.iter().any(|text| text.contains(wanted.as_str())) {
            found.push(format!(
                "no remedy says {wanted:?}: {}",
                offered.join(" | ")
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use brimful::explain::{Cause, Confidence, Detail, EvidenceSource, Proof, Remedy};

    use super::*;

    const FAULT: &str = r#"
        name = "a"
        program = "a.py"
        exit_code = 137
        prints = "saving"
        cause = "host_oom_kill"
        confidence = ["proved"]
        detail = ["burst", "leak"]
        evidence = ["200 MiB"]
        remedies = ["fewer workers"]
    "#;

    fn good() -> Seen {
        Seen {
            ended: Ended {
                code: 137,
                output: "step 1\nsaving\n".into(),
                errors: "No evidence of a cause\n    was found\n".into(),
                ..Ended::default()
            },
            verdict: Ok(Verdict {
                cause: Cause::HostOomKill,
                confidence: Confidence::Proved,
                detail: Detail::Leak,
                evidence: vec![Proof {
                    source: EvidenceSource::Kernel,
                    text: "killed at 200 MiB".into(),
                }],
                remedies: vec![Remedy {
                    text: "Use fewer workers".into(),
                    effect: None,
                    memory: None,
                }],
                ..Verdict::cannot_tell()
            }),
            leftovers: Vec::new(),
            unreadable: Vec::new(),
            next_run: None,
        }
    }

    fn check(change: impl FnOnce(&mut Seen), expected: &[(Kind, &str)]) {
        let mut seen = good();
        change(&mut seen);
        let found = judge(&toml::from_str(FAULT).unwrap(), &seen);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (problem, (kind, text)) in found.iter().zip(expected) {
            assert_eq!(problem.kind, *kind);
            assert!(problem.text.contains(text), "{problem:?}");
        }
    }

    fn verdict(seen: &mut Seen) -> &mut Verdict {
        seen.verdict.as_mut().unwrap()
    }

    #[test]
    fn what_was_expected_is_no_problem() {
        check(|_| {}, &[]);
    }

    #[test]
    fn another_cause_is_told_with_its_summary() {
        check(
            |seen| verdict(seen).cause = Cause::ShmExhausted,
            &[(Kind::Cause, "found shm_exhausted: no evidence of a cause")],
        );
        check(
            |seen| seen.verdict = Err("exit 97".into()),
            &[(Kind::Cause, "no verdict: exit 97")],
        );
    }

    #[test]
    fn the_right_cause_needs_its_proof() {
        check(
            |seen| verdict(seen).evidence.clear(),
            &[(Kind::Proof, "200 MiB")],
        );
        check(
            |seen| verdict(seen).remedies.clear(),
            &[(Kind::Proof, "fewer workers")],
        );
        check(
            |seen| verdict(seen).confidence = Confidence::Likely,
            &[(Kind::Proof, "found Likely")],
        );
        check(
            |seen| verdict(seen).detail = Detail::Kernel,
            &[(Kind::Proof, "burst or leak, found kernel")],
        );
    }

    #[test]
    fn endings_are_compared() {
        check(|seen| seen.ended.code = 1, &[(Kind::Ending, "found 1")]);
        check(
            |seen| seen.ended.errors.clear(),
            &[(Kind::Ending, "brimful did not say")],
        );
        check(
            |seen| seen.ended.output.clear(),
            &[(Kind::Ending, "print \"saving\"")],
        );
        // A run that was cut off has no exit code of its own.
        check(
            |seen| {
                seen.ended.code = 0;
                seen.ended.late = Some("not over".into());
            },
            &[(Kind::Ending, "not over")],
        );
    }

    #[test]
    fn leftovers_and_records_count() {
        check(
            |seen| {
                seen.leftovers.push("process 7".into());
                seen.unreadable.push("line 3".into());
            },
            &[(Kind::Leftover, "process 7"), (Kind::Record, "line 3")],
        );
    }
}
