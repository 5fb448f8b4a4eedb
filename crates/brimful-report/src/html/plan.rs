//! The HTML that a notebook shows for `brimful.plan()`.

use brimful::units::Bytes;
use serde::Serialize;

use crate::html::card;
use crate::json::{PlanDocument, PlannedBrim};

const TEMPLATE: &str = include_str!("plan.html");
const BAR: f64 = 200.0;

/// A self-contained fragment: inline styles and SVG, and the plain text for readers without either.
pub fn plan(document: &PlanDocument, text: &str) -> Result<String, minijinja::Error> {
    let title = if document.fits {
        format!("{} on {}", document.job, document.machine)
    } else {
        format!("nothing fits: {} on {}", document.job, document.machine)
    };
    let shown = PlanCard {
        title,
        brims: document.brims.iter().map(brim).collect(),
        settings: document
            .settings
            .iter()
            .map(|(knob, value)| (knob.clone(), value.words()))
            .collect(),
        reasons: document
            .reasons
            .iter()
            .map(|reason| reason.text.clone())
            .collect(),
        text: text.to_owned(),
    };
    card(TEMPLATE, &shown)
}

#[derive(Debug, Serialize)]
struct PlanCard {
    title: String,
    brims: Vec<Bar>,
    settings: Vec<(String, String)>,
    reasons: Vec<String>,
    text: String,
}

#[derive(Debug, Serialize)]
struct Bar {
    name: String,
    color: &'static str,
    words: String,
    likely_width: f64,
    safe_width: f64,
}

fn brim(brim: &PlannedBrim) -> Bar {
    let limit = Bytes(brim.limit_bytes);
    let width = |bytes: u64| ((Bytes(bytes).share_of(limit) * BAR).min(BAR) * 10.0).round() / 10.0;
    let color = if brim.safe_bytes <= brim.limit_bytes {
        "#2a8"
    } else {
        "#d33"
    };
    Bar {
        name: brim.name.clone(),
        color,
        words: format!(
            "{} likely, {} safe, of {limit}",
            Bytes(brim.likely_bytes),
            Bytes(brim.safe_bytes)
        ),
        likely_width: width(brim.likely_bytes),
        safe_width: width(brim.safe_bytes),
    }
}
