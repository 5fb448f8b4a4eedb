//! The page of `brimful explain`.

use brimful::explain::{Cause, Confidence, Detail, EvidenceSource, Verdict};

use crate::json::ExplainedAttempt;
use crate::text::page::{Page, Role};

/// Room for the longest name of a source.
const LEAD: usize = 14;

/// The whole verdict: the cause, the evidence, the remedies.
pub fn explain(verdict: &Verdict, page: &Page) -> String {
    explain_attempts(verdict, &[], page)
}

/// The same of a run that came back, with what happened in each attempt.
pub fn explain_attempts(verdict: &Verdict, attempts: &[ExplainedAttempt], page: &Page) -> String {
    let mut out = headline(verdict, page);
    let mut told = String::new();
    for attempt in attempts {
        let lead = format!("  {}. ", attempt.number);
        told.push_str(&page.hang(&lead, lead.len(), &attempt_words(attempt)));
    }
    page.section(&mut out, "Attempts", &told);
    let mut evidence = String::new();
    for proof in &verdict.evidence {
        let name = source_name(proof.source);
        let lead = format!("  {}", page.paint_padded(Role::Label, name, LEAD));
        evidence.push_str(&page.hang(&lead, LEAD + 2, &proof.text));
    }
    page.section(&mut out, "Evidence", &evidence);
    let mut remedies = String::new();
    for (idx, remedy) in verdict.remedies.iter().enumerate() {
        let lead = format!("  {}. ", idx + 1);
        remedies.push_str(&page.commands(&page.hang(&lead, lead.len(), &remedy.text)));
        if let Some(effect) = &remedy.effect {
            let arrow = if page.unicode { "→ " } else { "> " };
            let lead = format!("     {}", page.paint(Role::Strong, arrow));
            remedies.push_str(&page.hang(&lead, 7, effect));
        }
    }
    page.section(&mut out, "What to do, cheapest first", &remedies);
    let mut settle = String::new();
    for line in &verdict.would_settle {
        settle.push_str(&page.commands(&page.hang("  - ", 4, line)));
    }
    page.section(&mut out, "What would confirm it", &settle);
    out
}

/// A verdict in a few lines, for the termination message of a container: the sentence, how sure it is, what to do first,
/// and where there is more.
pub fn termination_message(verdict: &Verdict, run: Option<&str>) -> String {
    let mut lines = vec![
        format!("brimful: {}", verdict.summary),
        format!(
            "{} ({}), {}",
            verdict.cause.id(),
            verdict.detail,
            confidence(verdict.confidence)
        ),
    ];
    let remedies = verdict.remedies.iter().take(3);
    lines.extend(remedies.map(|remedy| format!("- {}", remedy.text)));
    lines.extend(run.map(|run| format!("Run `brimful explain {run}` for details")));
    lines.join("\n") + "\n"
}

/// `workers 4 to 2, from out/last.pt: the kernel killed a worker (proved)`
pub(crate) fn attempt_words(attempt: &ExplainedAttempt) -> String {
    let mut how = attempt.changed.clone();
    how.extend(
        attempt
            .resumed_from
            .iter()
            .map(|path| format!("from {path}")),
    );
    let end = match (&attempt.summary, &attempt.confidence) {
        (Some(summary), Some(confidence)) => {
            format!("{summary} ({})", confidence.replace('_', " "))
        }
        _ => "its exit was not observed".to_owned(),
    };
    if how.is_empty() {
        end
    } else {
        format!("{}: {end}", how.join(", "))
    }
}

/// The sentence, and how sure it is.
fn headline(verdict: &Verdict, page: &Page) -> String {
    let role = match (verdict.cause, verdict.confidence) {
        (Cause::NotMemory, _) => Role::Note,
        (_, Confidence::Proved) => Role::Fatal,
        _ => Role::Risk,
    };
    let mut out = String::new();
    for line in page.hang("", 0, &capitalized(&verdict.summary)).lines() {
        out.push_str(&page.paint(role, line));
        out.push('\n');
    }
    let detail = if verdict.detail == Detail::Unspecified {
        String::new()
    } else {
        format!(" ({})", verdict.detail)
    };
    out.push_str(&page.paint(
        Role::Label,
        &format!(
            "{}{detail}{}{}",
            verdict.cause.id(),
            page.dot(),
            confidence(verdict.confidence)
        ),
    ));
    out.push('\n');
    out
}

pub(crate) fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Proved => "proved",
        Confidence::Likely => "likely",
        Confidence::CannotTell => "cannot tell",
    }
}

pub(crate) fn source_name(source: EvidenceSource) -> &'static str {
    match source {
        EvidenceSource::Kernel => "kernel",
        EvidenceSource::KernelLog => "kernel log",
        EvidenceSource::WaitStatus => "exit status",
        EvidenceSource::Samples => "samples",
        EvidenceSource::Hook => "hook",
        EvidenceSource::Snapshot => "snapshot",
        EvidenceSource::Output => "output",
    }
}

pub(crate) fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
