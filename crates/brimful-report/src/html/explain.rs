//! The HTML that a notebook shows for `brimful.explain()` and below a run.

use brimful::explain::Confidence;
use serde::Serialize;

use crate::html::card;
use crate::json::{ExplainedAttempt, ExplainedProof, ExplainedRemedy, ExplainedVerdict};
use crate::text::{Page, attempt_words, capitalized, confidence, explain_attempts, source_name};

const TEMPLATE: &str = include_str!("explain.html");

/// A self-contained fragment: inline styles, and the plain text for readers without them.
///
/// `subject` is what was explained, such as the command of a run.
pub fn explain(
    subject: &str,
    verdict: &brimful::explain::Verdict,
    attempts: &[ExplainedAttempt],
) -> Result<String, minijinja::Error> {
    let document = ExplainedVerdict::of(verdict);
    let evidence = (verdict.evidence.iter())
        .map(|proof| ExplainedProof {
            source: source_name(proof.source).to_owned(),
            text: proof.text.clone(),
        })
        .collect();
    let shown = ExplainCard {
        summary: capitalized(&document.summary),
        subject: if subject.is_empty() {
            String::new()
        } else {
            format!("{subject} · ")
        },
        cause: document.cause,
        confidence: confidence(verdict.confidence),
        color: match verdict.confidence {
            Confidence::Proved => "#d33",
            Confidence::Likely => "#b70",
            Confidence::CannotTell => "#38a",
        },
        attempts: (attempts.iter())
            .map(|attempt| AttemptRow {
                number: attempt.number,
                words: attempt_words(attempt),
            })
            .collect(),
        remedies: document.remedies,
        evidence,
        would_settle: document.would_settle,
        text: explain_attempts(verdict, attempts, &Page::plain(80)),
    };
    card(TEMPLATE, &shown)
}

#[derive(Debug, Serialize)]
struct ExplainCard {
    summary: String,
    subject: String,
    cause: String,
    confidence: &'static str,
    color: &'static str,
    attempts: Vec<AttemptRow>,
    remedies: Vec<ExplainedRemedy>,
    evidence: Vec<ExplainedProof>,
    would_settle: Vec<String>,
    text: String,
}

#[derive(Debug, Serialize)]
struct AttemptRow {
    number: u32,
    words: String,
}

#[cfg(test)]
mod tests {
    use brimful::explain::{Evidence, explain as decide};

    use super::*;

    #[test]
    fn text_from_a_log_cannot_become_markup() {
        let verdict = decide(&Evidence {
            text: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. \
                   <script>alert(1)</script>"
                .into(),
            ..Evidence::default()
        });
        let page = explain("<img src=x onerror=1>", &verdict, &[]).unwrap();
        assert!(!page.contains("<script"));
        assert!(!page.contains("<img"));
        assert!(page.contains("What to do, cheapest first"));
    }
}
