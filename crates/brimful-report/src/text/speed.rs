//! The speed of a training, in words.

use brimful::predict::Footprint;
use brimful::speed::{RateRange, SecondsByPart};

use crate::json::Rehearsed;
use crate::text::page::Page;
use crate::text::run::duration;
use crate::text::table::table;

/// Parts of a step below this share are not named.
const LEAST_SHARE: f64 = 0.05;

/// How fast the run is on each GPU, and what its time consists of; nothing where no speed is known.
pub(super) fn section(
    rehearsed: &Rehearsed,
    footprints: &[Footprint],
    page: &Page,
) -> Option<String> {
    let known: Vec<_> = footprints
        .iter()
        .enumerate()
        .filter_map(|(at, footprint)| Some((footprint, rehearsed.speed(at)?)))
        .collect();
    let (first, first_speed) = known.first()?;
    let has_samples = first_speed.samples_per_second.is_some();
    let rows: Vec<Vec<String>> = known
        .iter()
        .map(|(footprint, speed)| {
            let range = speed.samples_per_second.unwrap_or(speed.steps_per_second);
            let epoch = speed
                .epoch_seconds
                .map_or_else(|| "-".to_owned(), |range| seconds_words(range.likely));
            vec![
                footprint.gpu.clone(),
                rate(range.likely),
                range_words(range),
                epoch,
            ]
        })
        .collect();
    let unit = if has_samples { "samples/s" } else { "steps/s" };
    let mut out = table(page, &["GPU", unit, "range", "one epoch"], &rows);
    let parts = parts_words(&first_speed.seconds_by_part);
    out.push_str(&page.hang("  ", 2, &format!("A step on {}: {parts}.", first.gpu)));
    let mut notes: Vec<&String> = Vec::new();
    for note in known.iter().flat_map(|(_, speed)| &speed.notes) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    if !has_samples {
        out.push_str(&page.hang(
            "  ",
            2,
            "Samples per second and the time of an epoch are not known: the script uses no DataLoader.",
        ));
    }
    for note in notes {
        out.push_str(&page.hang("  ", 2, &format!("Note: {note}.")));
    }
    out.push_str(&page.hang(
        "  ",
        2,
        "Calculated from the operators of one step, not measured; data loading and evaluation are not included.",
    ));
    Some(out)
}

/// Three digits are more than is known.
pub(crate) fn rate(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

pub(crate) fn range_words(range: RateRange) -> String {
    format!("{} to {}", rate(range.low), rate(range.high))
}

/// A time in words: "40 s", "4 min".
pub(crate) fn seconds_words(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time in milliseconds, not negative; a cast from f64 saturates"
    )]
    let ms = (seconds.max(0.0) * 1000.0) as u64;
    duration(ms)
}

fn parts_words(parts: &SecondsByPart) -> String {
    let total = parts.total();
    let mut named: Vec<(&str, f64)> = vec![
        ("matrix products", parts.matmul),
        ("convolutions", parts.convolution),
        ("attention", parts.attention),
        ("memory-bound operators", parts.memory_bound),
        ("optimizer", parts.optimizer),
        ("gaps between kernels", parts.launches),
    ];
    named.sort_by(|a, b| b.1.total_cmp(&a.1));
    let words: Vec<String> = named
        .iter()
        .filter(|(_, seconds)| *seconds > LEAST_SHARE * total)
        .map(|(name, seconds)| format!("{:.0} % {name}", 100.0 * seconds / total))
        .collect();
    words.join(", ")
}
