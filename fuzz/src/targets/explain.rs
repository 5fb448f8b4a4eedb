//! A log, a run record or a snapshot of anyone's making: explained, or refused with a message fit to show.
use brimful::explain::{Evidence, explain, replay_snapshot};
use brimful::plan::Observed;
use brimful::printable::is_printable;
use brimful::record::{Line, Merger, Record};
use brimful::secrets::{mask_command, mask_text};
use brimful::watch::Watch;
use brimful_report::text::{self, Page};

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let masked = mask_text(&String::from_utf8_lossy(data));
    let words: Vec<String> = masked.split_whitespace().map(str::to_owned).collect();
    assert_eq!(mask_command(&words).len(), words.len());
    let mut verdicts = vec![explain(&Evidence {
        text: String::from_utf8_lossy(data).into_owned(),
        ..Evidence::default()
    })];
    let mut with_a_head = br#"{"line":"run"}
{"line":"attempt"}
"#
    .to_vec();
    with_a_head.extend_from_slice(data);
    for bytes in [data, &with_a_head] {
        if let Ok(record) = Record::read(bytes) {
            verdicts.extend(
                record
                    .attempts
                    .iter()
                    .map(|attempt| explain(&attempt.evidence())),
            );
            for attempt in &record.attempts {
                let _ = Observed::of(attempt).steps_per_second();
            }
            let mut watch = Watch::default();
            let mut merger = Merger::new(1 << 20, 0);
            for sample in record.attempts.iter().flat_map(|attempt| &attempt.samples) {
                watch.observe(sample);
                merger.push(Line::Sample(sample.clone()), |_| {});
            }
        }
    }
    if let Ok(replay) = replay_snapshot(data) {
        verdicts.push(explain(&Evidence {
            replay: Some(replay),
            ..Evidence::default()
        }));
    }
    for verdict in verdicts {
        assert!(!verdict.summary.is_empty());
        let page = text::explain(&verdict, &Page::plain(80));
        assert!(page.chars().all(|c| c == '\n' || is_printable(c)));
    }
}
