//! The page of `brimful plan`.

use std::fmt::Write;

use brimful::cards::Card;
use brimful::job::Settings;
use brimful::machine::{Machine, SubjectKind};
use brimful::plan::{Answer, Impossible, Plan, PlanBrim, RateSource, Reason, Rung, Throughput};
use brimful::units::Bytes;

use crate::json::PlanContext;
use crate::text::page::{Page, Role, wrap};
use crate::text::side_effects;
use crate::text::table::table;

/// Rungs that are shown; the document holds all.
const SHOWN_RUNGS: usize = 5;

/// One page: the settings, the budget, why not more, what comes below.
pub fn plan(context: &PlanContext, answer: &Answer, page: &Page) -> String {
    match answer {
        Answer::Plan(plan) => fitting(context, plan, page),
        Answer::Impossible(closest) => impossible(context, closest, page),
    }
}

fn fitting(context: &PlanContext, plan: &Plan, page: &Page) -> String {
    let mut out = title(context, page);
    let mut chosen = settings(&plan.settings, page);
    let rate = throughput(&plan.throughput);
    if !rate.is_empty() {
        chosen.push_str(&page.hang("  ", 2, &rate));
    }
    chosen.push_str(&beside_wanted(plan, page));
    page.section(&mut out, "Settings", &chosen);
    page.section(
        &mut out,
        "Budget",
        &budget(&plan.brims, &plan.footprint, page),
    );
    page.section(&mut out, "Why", &reasons(&plan.reasons, page));
    page.section(&mut out, "Lower rungs", &rungs(&plan.rungs, page));
    page.section(&mut out, "Command", &command(context, page));
    page.section(&mut out, "Based on", &rests_on(context, page));
    if let Some(effects) = &context.side_effects {
        side_effects::section(&mut out, effects, page);
    }
    out
}

fn impossible(context: &PlanContext, closest: &Impossible, page: &Page) -> String {
    let mut out = title(context, page);
    page.section(
        &mut out,
        "Nothing fits; closest settings",
        &settings(&closest.settings, page),
    );
    page.section(
        &mut out,
        "Budget",
        &budget(&closest.brims, &closest.footprint, page),
    );
    page.section(&mut out, "Why", &reasons(&closest.reasons, page));
    let help: String = closest
        .help
        .iter()
        .map(|line| page.hang("  - ", 4, line))
        .collect();
    page.section(&mut out, "What would help", &help);
    page.section(&mut out, "Based on", &rests_on(context, page));
    if let Some(effects) = &context.side_effects {
        side_effects::section(&mut out, effects, page);
    }
    out
}

fn title(context: &PlanContext, page: &Page) -> String {
    let mode = context
        .mode
        .as_ref()
        .map_or_else(String::new, |mode| format!("{}mode {mode}", page.dot()));
    let text = format!(
        "{}{}{}{mode}{}{:.1} s",
        context.job,
        page.dot(),
        context.machine,
        page.dot(),
        context.seconds
    );
    let mut out = String::new();
    for line in wrap(&text, page.width) {
        out.push_str(&page.paint(Role::Strong, &line));
        out.push('\n');
    }
    out
}

/// The wanted settings beside the planned ones, where they differ.
fn beside_wanted(plan: &Plan, page: &Page) -> String {
    let wanted = &plan.wanted;
    let changed: Vec<&String> = (plan.settings.0.iter())
        .filter(|(knob, value)| (wanted.settings.0.get(*knob)).is_some_and(|first| first != *value))
        .map(|(knob, _)| knob)
        .collect();
    if changed.is_empty() {
        return String::new();
    }
    let shown = |settings: &Settings, knob: &str| {
        (settings.0.get(knob)).map_or_else(String::new, ToString::to_string)
    };
    let mut rows: Vec<Vec<String>> = (changed.iter())
        .map(|knob| {
            let note = if wanted.result_changes.contains(knob) {
                "changes the result"
            } else {
                ""
            };
            vec![
                (*knob).clone(),
                shown(&wanted.settings, knob),
                shown(&plan.settings, knob),
                note.to_owned(),
            ]
        })
        .collect();
    for before in &wanted.brims {
        let Some(now) = plan.brims.iter().find(|now| now.name == before.name) else {
            continue;
        };
        if (before.safe, now.safe) != (Bytes::ZERO, Bytes::ZERO) {
            let missing = before.safe.saturating_sub(before.limit);
            let note = match missing {
                Bytes::ZERO => String::new(),
                missing => format!("preferred exceeds by {missing}"),
            };
            rows.push(vec![
                format!("{}, safe", before.name),
                before.safe.to_string(),
                now.safe.to_string(),
                note,
            ]);
        }
    }
    if let Some(rate) = wanted
        .throughput
        .filter(|rate| rate.samples_per_second > 0.0)
    {
        rows.push(vec![
            "samples/s".to_owned(),
            figure(rate.samples_per_second),
            figure(plan.throughput.samples_per_second),
            String::new(),
        ]);
    }
    format!(
        "\n{}",
        table(page, &["", "preferred", "planned", ""], &rows)
    )
}

fn settings(settings: &Settings, page: &Page) -> String {
    let words: Vec<String> = settings
        .0
        .iter()
        .map(|(knob, value)| {
            let value = value.to_string();
            let value = if value.is_empty() { "\"\"" } else { &value };
            format!("{knob}\u{a0}=\u{a0}{value}")
        })
        .collect();
    // A knob and its value stay on one line.
    page.hang("  ", 2, &words.join(", ")).replace('\u{a0}', " ")
}

fn throughput(found: &Throughput) -> String {
    if found.samples_per_second <= 0.0 {
        return String::new();
    }
    let from = match found.from {
        RateSource::Measured => "measured in an earlier run",
        RateSource::Calculated => "calculated",
        RateSource::Estimated => "estimated",
    };
    format!(
        "about {} samples/s, {from}",
        figure(found.samples_per_second)
    )
}

fn figure(number: f64) -> String {
    if number >= 100.0 {
        format!("{number:.0}")
    } else if number >= 10.0 {
        format!("{number:.1}")
    } else {
        format!("{number:.2}")
    }
}

fn budget(brims: &[PlanBrim], need: &brimful::plan::Need, page: &Page) -> String {
    let mut out = String::new();
    let row = |brim: &PlanBrim| {
        let left = if brim.safe <= brim.limit {
            format!("{} left", brim.limit.saturating_sub(brim.safe))
        } else {
            format!("{} over", brim.safe.saturating_sub(brim.limit))
        };
        vec![
            brim.name.clone(),
            brim.likely.to_string(),
            brim.safe.to_string(),
            brim.limit.to_string(),
            page.bar(brim.safe.share_of(brim.limit), 10),
            left,
        ]
    };
    let rows: Vec<Vec<String>> = brims.iter().map(row).collect();
    if !rows.is_empty() {
        out.push_str(&table(
            page,
            &["memory", "likely", "safe", "limit", "", ""],
            &rows,
        ));
    }
    let rows: Vec<Vec<String>> = need
        .host
        .terms
        .iter()
        .filter(|term| term.safe > Bytes::ZERO)
        .map(|term| {
            vec![
                term.id.name().replace('_', " "),
                term.likely.to_string(),
                term.safe.to_string(),
            ]
        })
        .collect();
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&table(page, &["host memory", "likely", "safe"], &rows));
    }
    for reason in need.host.terms.iter().filter_map(|term| {
        let reason = term.reason.as_ref().filter(|_| term.safe > Bytes::ZERO)?;
        Some(format!("{}: {reason}", term.id.name().replace('_', " ")))
    }) {
        out.push_str(&page.hang("    ", 4, &reason));
    }
    out
}

fn reasons(reasons: &[Reason], page: &Page) -> String {
    reasons
        .iter()
        .map(|reason| page.hang("  - ", 4, &reason.text))
        .collect()
}

fn rungs(rungs: &[Rung], page: &Page) -> String {
    let mut out = String::new();
    for (number, rung) in (1..).zip(rungs.iter().take(SHOWN_RUNGS)) {
        let changes: Vec<String> = rung
            .changed
            .iter()
            .map(|change| format!("{} {} to {}", change.knob, change.from, change.to))
            .collect();
        let mut text = changes.join(", ");
        if let Some(host) = rung.brims.iter().find(|brim| brim.name == "host") {
            let _ = write!(text, "; host {}", host.safe);
        }
        if let Some(gpu) = rung.brims.iter().find(|brim| brim.name.starts_with("gpu")) {
            let _ = write!(text, "; gpu {}", gpu.safe);
        }
        if let Some(found) = rung
            .throughput
            .filter(|found| found.samples_per_second > 0.0)
        {
            let _ = write!(text, "; {} samples/s", figure(found.samples_per_second));
        }
        out.push_str(&page.hang(&format!("  {number}. "), 5, &text));
    }
    if rungs.len() > SHOWN_RUNGS {
        let _ = writeln!(out, "     and {} more", rungs.len() - SHOWN_RUNGS);
    }
    out
}

fn command(context: &PlanContext, page: &Page) -> String {
    let mut words: Vec<String> = context
        .variables
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    words.extend(context.command.iter().cloned());
    let mut out = page.hang("  ", 2, &words.join(" "));
    for file in &context.config {
        let values = file.entries.iter();
        let values: Vec<String> = values
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        let line = format!("using a copy of {} with {}", file.path, values.join(", "));
        out.push_str(&page.hang("  ", 2, &line));
    }
    out
}

fn rests_on(context: &PlanContext, page: &Page) -> String {
    let fresh = context.rehearsals.iter().filter(|used| !used.reused);
    let (n_fresh, seconds) =
        fresh.fold((0_usize, 0.0), |(n, sum), used| (n + 1, sum + used.seconds));
    let reused: Vec<f64> = context
        .rehearsals
        .iter()
        .filter(|used| used.reused)
        .map(|used| used.age_seconds)
        .collect();
    let mut words = Vec::new();
    if n_fresh > 0 {
        words.push(format!(
            "{} made now ({seconds:.0} s)",
            count(n_fresh, "rehearsal")
        ));
    }
    if let Some(oldest) = reused.iter().copied().reduce(f64::max) {
        words.push(format!(
            "{} from the cache, the oldest {} old (--fresh to rehearse again)",
            count(reused.len(), "rehearsal"),
            age(oldest)
        ));
    }
    if words.is_empty() {
        return String::new();
    }
    page.hang("  ", 2, &words.join(", "))
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

/// Roughly how long ago.
fn age(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s if s < 130_000.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

/// Settings in few words, for a line of progress.
pub fn short(settings: &Settings) -> String {
    let words: Vec<String> = settings
        .0
        .iter()
        .filter(|(knob, _)| !brimful::job::knobs::COMPUTED.contains(&knob.as_str()))
        .map(|(knob, value)| format!("{knob} {value}"))
        .collect();
    words.join(", ")
}

/// How a machine is called in the title of a plan.
pub fn machine_title(machine: &Machine, card: Option<(&'static Card, usize)>) -> String {
    let name = match &machine.subject.kind {
        SubjectKind::ThisMachine => "this machine".to_owned(),
        SubjectKind::Profile { title, .. } => title.clone(),
    };
    match card {
        Some((card, 1)) => format!("{name} with {}", card.name),
        Some((card, count)) => format!("{name} with {count} x {}", card.name),
        None => format!("{name}, on the CPU"),
    }
}
