//! The page of `brimful replay`.

use brimful::units::Bytes;

use crate::json::{ReplayDocument, ReplayResult};
use crate::text::page::{Page, Role};
use crate::text::table::table;

/// A table of replays, and which setting is the first that fits.
pub fn replay(document: &ReplayDocument, page: &Page) -> String {
    let mut out = page.hang(
        "",
        0,
        &format!(
            "{}{}torch {}{}{} events on device {}",
            document.file,
            page.dot(),
            document.torch_version,
            page.dot(),
            document.events,
            document.device
        ),
    );
    if let Some(agreement) = &document.agreement {
        let share = agreement.same_address as f64 / (agreement.allocations.max(1)) as f64 * 100.0;
        out.push_str(&page.hang(
            "",
            0,
            &format!(
                "The model puts {} of {} allocations ({share:.1} %) where the record has them.",
                agreement.same_address, agreement.allocations
            ),
        ));
    }
    out.push('\n');
    let rows: Vec<Vec<String>> = document.results.iter().map(row).collect();
    out.push_str(&table(
        page,
        &["settings", "card", "allocated", "reserved", "retries", ""],
        &rows,
    ));
    out.push('\n');
    out.push_str(&verdict(document, page));
    out
}

fn shown(conf: &str) -> &str {
    if conf.is_empty() { "default" } else { conf }
}

fn row(result: &ReplayResult) -> Vec<String> {
    let capacity = Bytes(result.capacity_bytes);
    let end = match result.oom_request_bytes {
        Some(bytes) => format!("dies of {}", Bytes(bytes)),
        None if result.oom => "out of memory".to_owned(),
        None => "fits".to_owned(),
    };
    vec![
        shown(&result.alloc_conf).to_owned(),
        result.gpu.clone().unwrap_or_else(|| capacity.to_string()),
        Bytes(result.peak_allocated_bytes).to_string(),
        Bytes(result.peak_reserved_bytes).to_string(),
        result.retries.to_string(),
        end,
    ]
}

fn verdict(document: &ReplayDocument, page: &Page) -> String {
    let mut out = String::new();
    let mut seen = Vec::new();
    for result in &document.results {
        let card = result
            .gpu
            .clone()
            .unwrap_or_else(|| Bytes(result.capacity_bytes).to_string());
        if seen.contains(&card) {
            continue;
        }
        let same = |other: &&ReplayResult| {
            other.gpu == result.gpu && other.capacity_bytes == result.capacity_bytes
        };
        let fitting = document
            .results
            .iter()
            .filter(same)
            .find(|other| !other.oom);
        let line = match fitting {
            Some(fitting) => format!(
                "{card}: the first setting that fits is {}.",
                shown(&fitting.alloc_conf)
            ),
            None => format!("{card}: no setting fits; the training itself must become smaller."),
        };
        let role = if fitting.is_some() {
            Role::Strong
        } else {
            Role::Fatal
        };
        for wrapped in page.hang("", 0, &line).lines() {
            out.push_str(&page.paint(role, wrapped));
            out.push('\n');
        }
        seen.push(card);
    }
    out
}
