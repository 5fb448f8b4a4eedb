//! The host's part of the page of `brimful predict`.

use brimful::units::Bytes;

use crate::json::{PredictedHost, Rehearsed};
use crate::text::page::Page;
use crate::text::table::table;

/// Host memory by use and by number of workers; one line if it was not measured.
pub(crate) fn host_sections(out: &mut String, rehearsed: &Rehearsed, page: &Page) {
    let Some(facts) = &rehearsed.host else {
        let text = "  not measured\n";
        page.section(out, "Host memory", text);
        return;
    };
    let host = PredictedHost::of(facts);
    page.section(out, "Host memory", &budget(&host, page));
    if host.micro_batch == 0 {
        return; // the script loads its data by itself
    }
    page.section(
        out,
        &format!("Host memory by workers ({})", host.start_method),
        &by_workers(&host, page),
    );
}

fn budget(host: &PredictedHost, page: &Page) -> String {
    let shown = |bytes: u64| {
        if bytes == 0 {
            "-".to_owned()
        } else {
            Bytes(bytes).to_string()
        }
    };
    let mut rows: Vec<Vec<String>> = host
        .terms
        .iter()
        .map(|term| {
            vec![
                host_term_name(&term.name).to_owned(),
                shown(term.likely_bytes),
                shown(term.safe_bytes),
            ]
        })
        .collect();
    rows.push(vec![
        "peak".into(),
        shown(host.bytes.likely),
        shown(host.bytes.safe),
    ]);
    rows.push(vec![
        "of which in /dev/shm".into(),
        shown(host.shm_bytes.likely),
        shown(host.shm_bytes.safe),
    ]);
    let mut out = table(page, &["all processes together", "likely", "safe"], &rows);
    for reason in host
        .terms
        .iter()
        .filter(|term| matches!(term.name.as_str(), "worker_copies" | "program"))
        .filter_map(|term| Some((&term.name, term.reason.as_ref()?)))
    {
        let (name, reason) = reason;
        out.push_str(&page.hang("  ", 2, &format!("{}: {reason}", host_term_name(name))));
    }
    out
}

fn by_workers(host: &PredictedHost, page: &Page) -> String {
    let rows: Vec<Vec<String>> = host
        .own_rows()
        .map(|row| {
            vec![
                row.workers.to_string(),
                Bytes(row.bytes.likely).to_string(),
                Bytes(row.bytes.safe).to_string(),
                Bytes(row.shm_bytes.safe).to_string(),
            ]
        })
        .collect();
    table(page, &["workers", "likely", "safe", "in /dev/shm"], &rows)
}

/// What a term of the host is called on pages.
pub(crate) fn host_term_name(id: &str) -> &str {
    match id {
        "worker_programs" => "worker processes",
        "worker_copies" => "copies in workers",
        "making_batches" => "batch collation",
        "pickle_buffer" => "pickled dataset",
        "batches" => "prefetched batches",
        "pinned" => "pinned batches",
        other => other,
    }
}
