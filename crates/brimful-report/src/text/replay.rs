//! The page of `brimful replay`.

use brimful::units::Bytes;

use crate::json::{LineMemory, MemoryByLine, ReplayDocument, ReplayResult};
use crate::text::page::{Page, Role};
use crate::text::table::table;

/// A table of replays, and which setting is the first that fits.
pub fn replay(document: &ReplayDocument, page: &Page) -> String {
    let assumed = if document.torch_version_assumed {
        " (assumed; override with `--torch`)"
    } else {
        ""
    };
    let title = format!(
        "{}{dot}torch {}{assumed}{dot}{} events on device {}",
        document.file,
        document.torch_version,
        document.events,
        document.device,
        dot = page.dot(),
    );
    let mut out = page.commands(&page.hang("", 0, &title));
    if let Some(agreement) = &document.agreement {
        let share = agreement.same_address as f64 / (agreement.allocations.max(1)) as f64 * 100.0;
        out.push_str(&page.hang(
            "",
            0,
            &format!(
                "The model reproduces the recorded address of {} of {} allocations ({share:.1} %).",
                agreement.same_address, agreement.allocations
            ),
        ));
    }
    for card in cards(document) {
        let results: Vec<&ReplayResult> = document
            .results
            .iter()
            .filter(|result| named(result) == card)
            .collect();
        let rows: Vec<Vec<String>> = results.iter().map(|result| row(result)).collect();
        out.push('\n');
        out.push_str(&page.paint(Role::Heading, &card));
        out.push('\n');
        out.push_str(&table(
            page,
            &["settings", "allocated", "reserved", "retries", ""],
            &rows,
        ));
        out.push_str(&verdict(&results, page));
    }
    if let Some(memory) = &document.by_line {
        out.push_str(&by_line(memory, page));
    }
    out
}

/// The lines of code that hold the most.
fn by_line(memory: &MemoryByLine, page: &Page) -> String {
    let moment = if memory.at_failure {
        "at the failed allocation"
    } else {
        "at the peak"
    };
    let title = format!(
        "Memory in use {moment}, by line of code: {}",
        Bytes(memory.total_bytes)
    );
    let rows: Vec<Vec<String>> = memory
        .lines
        .iter()
        .take(MAX_LINES)
        .map(|line| {
            vec![
                code_line(line, MAX_LINE_CHARS),
                Bytes(line.bytes).to_string(),
                line.allocations.to_string(),
            ]
        })
        .collect();
    let listed = memory
        .lines
        .iter()
        .take(MAX_LINES)
        .fold(0_u64, |sum, line| sum.saturating_add(line.bytes));
    let mut out = format!("\n{}\n", page.paint(Role::Heading, &title));
    out.push_str(&table(page, &["line", "in use", "allocations"], &rows));
    let others = memory.total_bytes.saturating_sub(listed);
    if others > 0 {
        out.push_str(&page.hang("  ", 2, &format!("{} in other lines", Bytes(others))));
    }
    out
}

const MAX_LINES: usize = 8;
const MAX_LINE_CHARS: usize = 46;

/// `train.py:17 step`. A long text keeps its end: paths often begin alike.
fn code_line(line: &LineMemory, max_chars: usize) -> String {
    let Some(file) = &line.file else {
        return "before the history, or not Python".to_owned();
    };
    let number = line.line.map(|number| format!(":{number}"));
    let function = line.function.as_ref().map(|name| format!(" {name}"));
    let text = [Some(file.clone()), number, function]
        .into_iter()
        .flatten()
        .collect::<String>();
    let n_chars = text.chars().count();
    if n_chars <= max_chars {
        return text;
    }
    let end: String = text.chars().skip(n_chars + 1 - max_chars).collect();
    format!("…{end}")
}

/// The cards, in the order asked.
fn cards(document: &ReplayDocument) -> Vec<String> {
    let mut cards: Vec<String> = Vec::new();
    for result in &document.results {
        let card = named(result);
        if !cards.contains(&card) {
            cards.push(card);
        }
    }
    cards
}

fn named(result: &ReplayResult) -> String {
    let capacity = Bytes(result.capacity_bytes);
    match &result.gpu {
        Some(gpu) => format!("On {gpu} with {capacity}"),
        None if result.capacity_bytes >= WITHOUT_LIMIT => "Without a limit".to_owned(),
        None => format!("With {capacity}"),
    }
}

/// What no card has.
const WITHOUT_LIMIT: u64 = 1 << 45;

fn shown(conf: &str) -> &str {
    if conf.is_empty() { "default" } else { conf }
}

fn row(result: &ReplayResult) -> Vec<String> {
    let end = match result.oom_request_bytes {
        Some(bytes) => format!("fails on {}", Bytes(bytes)),
        None if result.oom => "out of memory".to_owned(),
        None => "fits".to_owned(),
    };
    vec![
        shown(&result.alloc_conf).to_owned(),
        Bytes(result.peak_allocated_bytes).to_string(),
        Bytes(result.peak_reserved_bytes).to_string(),
        result.retries.to_string(),
        end,
    ]
}

/// The first setting that fits, and the one that holds least.
fn verdict(results: &[&ReplayResult], page: &Page) -> String {
    let fitting = results.iter().find(|result| !result.oom);
    let least = results
        .iter()
        .filter(|result| !result.oom)
        .min_by_key(|result| result.peak_reserved_bytes);
    let (role, line) = match (fitting, least) {
        (Some(fitting), Some(least)) if fitting.alloc_conf != least.alloc_conf => (
            Role::Strong,
            format!(
                "The first setting that fits is {}; {} reserves the least memory.",
                shown(&fitting.alloc_conf),
                shown(&least.alloc_conf)
            ),
        ),
        (Some(fitting), _) => (
            Role::Strong,
            format!(
                "The first setting that fits is {}.",
                shown(&fitting.alloc_conf)
            ),
        ),
        (None, _) => (
            Role::Fatal,
            "No allocator setting fits: the training run itself must use less memory.".to_owned(),
        ),
    };
    let mut out = String::new();
    for wrapped in page.hang("  ", 2, &line).lines() {
        out.push_str(&page.paint(role, wrapped));
        out.push('\n');
    }
    out
}
