//! A comparison of GPUs as a card in a notebook.

use serde::Serialize;

use crate::html::card;
use crate::json::{CompareDocument, ComparedGpu};
use crate::text::{cost_words, hours_words, rate as rounded_rate};

const TEMPLATE: &str = include_str!("compare.html");

/// A self-contained fragment: inline styles, and the plain text.
pub fn compare(document: &CompareDocument, text: &str) -> Result<String, minijinja::Error> {
    let shown = CompareCard {
        title: document.command.join(" "),
        rows: document.candidates.iter().map(row).collect(),
        text: text.to_owned(),
    };
    card(TEMPLATE, &shown)
}

#[derive(Debug, Serialize)]
struct CompareCard {
    title: String,
    rows: Vec<Row>,
    text: String,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    fits: bool,
    verdict: String,
    rate: String,
    time: String,
    cost: String,
    settings: String,
}

fn row(found: &ComparedGpu) -> Row {
    Row {
        name: found.name.clone(),
        fits: found.fits,
        verdict: found.verdict.replace('_', " "),
        rate: found.rate().map_or_else(String::new, |(range, unit)| {
            format!("{} {unit}", rounded_rate(range.likely))
        }),
        time: found.hours.map_or_else(String::new, |range| {
            format!(
                "{} ({} to {})",
                hours_words(range.likely),
                hours_words(range.low),
                hours_words(range.high)
            )
        }),
        cost: found
            .cost
            .map_or_else(String::new, |range| cost_words(range.likely)),
        settings: found.settings_words().unwrap_or_default(),
    }
}
