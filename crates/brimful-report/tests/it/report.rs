//! Reports: what they show, that they stay small, and that nothing in them is trusted.

use std::fmt::Write;
use std::path::Path;

use brimful::explain::{Verdict, explain};
use brimful::preview::{MAX_SAMPLES, Picture, Preview, PreviewField, PreviewValue};
use brimful::record::Record;
use brimful::units::Bytes;
use brimful_report::html::report::{
    PrepareReport, PrepareStage, RunOverview, RunReport, compare_report, plan_report,
    predict_report, prepare_report, replay_report, run_report, runs_report,
};
use brimful_report::json::{
    CompareDocument, PlanDocument, PredictDocument, ReplayDocument, SavedDocument,
};
use brimful_report::text::{self, Page};
use proptest::prelude::*;

const MAX_BYTES: usize = 500_000;

fn recorded(name: &str) -> Record {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/runs")
        .join(name)
        .join("record.jsonl");
    Record::read(std::fs::File::open(path).unwrap()).unwrap()
}

fn verdict(record: &Record) -> Option<Verdict> {
    Some(explain(&record.last_attempt()?.evidence()))
}

fn page(record: &Record) -> String {
    let verdict = verdict(record);
    run_report(&RunReport {
        record,
        verdict: verdict.as_ref(),
        running: false,
        snapshot: None,
    })
    .unwrap()
}

/// What a page consists of but for its style, its script and the values for zooming.
fn body(page: &str) -> String {
    let mut rest = page;
    let mut out = String::new();
    while let Some(start) = ["<style>", "<script"]
        .iter()
        .filter_map(|tag| rest.find(tag))
        .min()
    {
        out.push_str(&rest[..start]);
        let end = rest[start..].find("</s").unwrap();
        rest = &rest[start + end..];
        rest = &rest[rest.find('>').unwrap() + 1..];
    }
    out.push_str(rest);
    // The script has tests of its own.
    let hash = out.find("sha256-").unwrap();
    let end = out[hash..].find("=&").unwrap();
    out.replace_range(hash..hash + end, "[HASH]");
    out
}

#[test]
fn a_run_that_died_is_told_by_its_verdict() {
    insta::assert_snapshot!(body(&page(&recorded("killed-by-a-person"))));
}

#[test]
fn every_recorded_run_has_a_report() {
    for (name, expected) in [
        ("checkpoint-spike", "Why it died"),
        ("cuda-fragmented", "GPU 0 when the allocation failed"),
        ("cuda-other-process", "GPU 0"),
        ("dataloader-worker-killed", "DataLoader worker"),
        ("shm-bus-error", "shm in the last"),
    ] {
        let page = page(&recorded(name));
        assert!(page.contains(expected), "{name}: {expected}");
        assert!(page.len() < MAX_BYTES, "{name}: {} bytes", page.len());
        check_page(&page);
    }
}

/// Nothing is loaded from outside, and every element of the frame is there once.
fn check_page(page: &str) {
    assert!(
        page.contains("default-src 'none'") || page.contains("default-src &#x27;none&#x27;"),
        "no policy"
    );
    for outside in [
        "http://", "https://", "src=", "@import", "<link", "<iframe", "<img",
    ] {
        assert!(!page.contains(outside), "found {outside}");
    }
    assert_eq!(page.matches("<h1>").count(), 1);
    assert!(page.trim_end().ends_with("</html>"));
}

const HOSTILE: &str = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u{202e}\u{2066}\u{1b}[31m`x` \
                       HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzabcdefgh https://user:secret@host/";

fn check_hostile(page: &str) {
    assert!(page.len() < MAX_BYTES, "{} bytes", page.len());
    let without_own = body(page);
    for forbidden in [
        "<script",
        "<img",
        "onerror=alert(1)>",
        "\u{202e}",
        "\u{2066}",
        "\u{1b}",
        "hf_abc",
        "secret@",
    ] {
        assert!(!without_own.contains(forbidden), "found {forbidden:?}");
    }
    assert!(page.contains("&lt;script&gt;"), "shown as text");
}

#[test]
fn a_hostile_record_is_text_and_nothing_else() {
    let text = serde_json::to_string(HOSTILE).unwrap();
    let long = serde_json::to_string(&"<b>&".repeat(4000)).unwrap();
    let mut lines = format!(
        r#"{{"line":"run","id":{text},"command":["python",{text},{long}],"folder":{text},"host_name":{text}}}
{{"line":"attempt","number":1,"limit_bytes":100,"limit_set_by":{text},"command":[{text}]}}
{{"line":"sample","at_ms":1,"host":{{"used_bytes":90000000,"limit_bytes":100000000,"headroom_bytes":1}},"processes":[{{"pid":1,"role":{{"kind":"main"}},"name":{text},"private_bytes":900000000,"shared_bytes":1,"swapped_bytes":0}}]}}
"#
    );
    for at_ms in 0..3000 {
        let _ = writeln!(
            lines,
            r#"{{"line":"alarm","at_ms":{at_ms},"detector":{text},"urgency":"critical","message":{text}}}"#
        );
    }
    let _ = writeln!(
        lines,
        r#"{{"line":"action","at_ms":5,"action":{{"kind":"kill","reason":{{"detector":{text},"message":{long}}}}},"dry_run":false,"done":{text}}}
{{"line":"end","at_ms":3000,"outcome":{{"kind":"stopped_by_us","detector":{text},"message":{text},"signal":null}},"kernel":{{}},"peaks":{{}},"last":null}}
{{"line":"verdict","at_ms":5000,"verdict":{{"cause":"host_oom_kill","confidence":"proved","detail":"","summary":{text},"evidence":[{{"source":"output","text":{text}}}],"remedies":[{{"text":{text},"effect":{long},"memory":{{"used_bytes":9,"limit_bytes":0}}}}],"would_settle":[{text}]}}}}"#
    );
    let record = Record::read(lines.as_bytes()).unwrap();
    assert_eq!(record.n_broken_lines, 0);
    let verdict = record.attempts[0].verdict.clone();
    let page = run_report(&RunReport {
        record: &record,
        verdict: verdict.as_ref(),
        running: false,
        snapshot: None,
    })
    .unwrap();
    check_hostile(&page);
    let rows = vec![RunOverview::of(&record, false); 100];
    check_hostile(&runs_report(&rows).unwrap());
}

fn replace_texts(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => HOSTILE.clone_into(text),
        serde_json::Value::Array(items) => items.iter_mut().for_each(replace_texts),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(replace_texts),
        _ => {}
    }
}

fn prediction() -> serde_json::Value {
    serde_json::from_str(include_str!("prediction.json")).unwrap()
}

fn plan() -> serde_json::Value {
    serde_json::from_str(include_str!("plan.json")).unwrap()
}

fn replay() -> serde_json::Value {
    serde_json::json!({
        "schema_version": 1, "brimful_version": "0.1.0", "file": "snapshot.pickle", "torch_version": "2.9.0",
        "torch_version_assumed": false, "device": 0, "events": 1000, "agreement": null,
        "timeline": (0..480).map(|n| serde_json::json!({"allocated_bytes": n << 20, "reserved_bytes": n << 21})).collect::<Vec<_>>(),
        "by_line": {"at_failure": true, "total_bytes": 3_u64 << 30, "other_bytes": 1 << 20, "lines": [
            {"file": "/home/u/project/src/<b>train.py", "line": 17, "function": "step", "bytes": 2_u64 << 30, "allocations": 9},
            {"file": null, "line": null, "function": null, "bytes": (1_u64 << 30) - (1 << 20), "allocations": 1}]},
        "results": [
            {"gpu": null, "alloc_conf": "", "capacity_bytes": 15_000_000_000_u64, "peak_allocated_bytes": 2_900_000_000_u64,
             "peak_reserved_bytes": 14_900_000_000_u64, "oom": true, "oom_request_bytes": 1 << 30, "retries": 1,
             "layout": {"segments": (0..14).map(|n| serde_json::json!({"blocks": [
                 {"bytes": 200 << 20, "used_bytes": 0}, {"bytes": (100 + n) << 20, "used_bytes": (100 + n) << 20},
                 {"bytes": 724 << 20, "used_bytes": 9 << 20}]})).collect::<Vec<_>>(),
                 "other_segments": 3, "other_bytes": 6 << 20, "reserved_bytes": 14_900_000_000_u64, "used_bytes": 2_900_000_000_u64,
                 "largest_free_bytes": 800 << 20}},
            {"gpu": null, "alloc_conf": "expandable_segments:True", "capacity_bytes": 15_000_000_000_u64,
             "peak_allocated_bytes": 2_900_000_000_u64, "peak_reserved_bytes": 3_400_000_000_u64, "oom": false,
             "oom_request_bytes": null, "retries": 0,
             "layout": {"segments": [{"blocks": [{"bytes": 3_300_000_000_u64, "used_bytes": 3_300_000_000_u64}, {"bytes": 100_000_000, "used_bytes": 0}]}],
                 "other_segments": 0, "other_bytes": 0, "reserved_bytes": 3_400_000_000_u64, "used_bytes": 3_300_000_000_u64,
                 "largest_free_bytes": 100_000_000}}
        ]
    })
}

#[test]
fn hostile_documents_are_text_and_nothing_else() {
    let mut value = prediction();
    replace_texts(&mut value);
    let document: PredictDocument = serde_json::from_value(value).unwrap();
    check_hostile(&predict_report(&document).unwrap());
    let mut value = plan();
    replace_texts(&mut value);
    let document: PlanDocument = serde_json::from_value(value).unwrap();
    check_hostile(&plan_report(&document).unwrap());
    let mut value = replay();
    replace_texts(&mut value);
    let document: ReplayDocument = serde_json::from_value(value).unwrap();
    check_hostile(&replay_report(&document).unwrap());
}

#[test]
fn a_prediction_says_where_it_fits_and_where_the_memory_goes() {
    let document: PredictDocument = serde_json::from_value(prediction()).unwrap();
    let page = predict_report(&document).unwrap();
    check_page(&page);
    insta::assert_snapshot!(body(&page));
}

fn speed(steps: f64) -> serde_json::Value {
    serde_json::json!({
        "steps_per_second": {"low": steps * 0.8, "likely": steps, "high": steps * 1.2},
        "samples_per_second": {"low": steps * 25.6, "likely": steps * 32.0, "high": steps * 38.4},
        "epoch_seconds": {"low": 500.0, "likely": 600.0, "high": 750.0},
        "seconds_by_part": {"matmul": 0.5 / steps, "convolution": 0.0, "attention": 0.1 / steps, "memory_bound": 0.3 / steps,
            "optimizer": 0.05 / steps, "launches": 0.05 / steps},
        "basis": "model", "notes": ["this GPU is known by its data sheet only: the range is wider"]
    })
}

#[test]
fn a_prediction_with_a_speed_says_how_fast() {
    let mut value = prediction();
    value["gpus"][0]["speed"] = speed(2.5);
    let document: PredictDocument = serde_json::from_value(value.clone()).unwrap();
    let page = predict_report(&document).unwrap();
    check_page(&page);
    assert!(page.contains("How fast?"));
    assert!(page.contains("80.0 samples&#x2f;s"), "{page}");
    assert!(page.contains("one epoch 10 min"));
    replace_texts(&mut value);
    let document: PredictDocument = serde_json::from_value(value).unwrap();
    check_hostile(&predict_report(&document).unwrap());
}

fn comparison() -> serde_json::Value {
    let candidate = |name: &str, steps: f64, hours: f64, fits: bool| {
        serde_json::json!({
            "name": name, "gpu": format!("NVIDIA {name}"), "machine": null, "fits": fits,
            "verdict": if fits { "fits" } else { "does_not_fit" }, "headroom_bytes": if fits { 3_i64 << 30 } else { -(2_i64 << 30) },
            "device_bytes": {"likely": 9_u64 << 30, "safe": 10_u64 << 30}, "host_limit_bytes": null, "speed": speed(steps),
            "hours": {"low": hours * 0.8, "likely": hours, "high": hours * 1.3}, "price_per_hour": 0.7,
            "cost": {"low": hours * 0.56, "likely": hours * 0.7, "high": hours * 0.91}, "reason": null
        })
    };
    serde_json::json!({
        "schema_version": 1, "brimful_version": "0.1.0", "command": ["python", "train.py"], "torch_version": "2.13.0",
        "length": {"epochs": 3.0, "steps": 900.0, "missing": null},
        "candidates": [candidate("T4", 1.0, 9.0, false), candidate("L4", 2.0, 4.5, true), candidate("H100", 9.0, 1.0, true)],
        "fastest": "H100", "cheapest": "H100", "host_bytes": {"likely": 2_u64 << 30, "safe": 3_u64 << 30}
    })
}

#[test]
fn a_comparison_is_time_against_cost() {
    let document: CompareDocument = serde_json::from_value(comparison()).unwrap();
    let page = compare_report(&document).unwrap();
    check_page(&page);
    assert!(page.contains("H100 is the fastest and the cheapest"));
    assert!(page.contains("Time against cost"));
    assert!(page.contains("does not fit"));
    let mut value = comparison();
    replace_texts(&mut value);
    let document: CompareDocument = serde_json::from_value(value).unwrap();
    check_hostile(&compare_report(&document).unwrap());
    let text = text::compare(
        &serde_json::from_value(comparison()).unwrap(),
        &Page::plain(80),
    );
    insta::assert_snapshot!(text);
}

#[test]
fn a_plan_is_memory_against_speed() {
    let document: PlanDocument = serde_json::from_value(plan()).unwrap();
    let page = plan_report(&document).unwrap();
    check_page(&page);
    insta::assert_snapshot!(body(&page));
}

#[test]
fn a_replay_shows_segments_before_and_after_a_setting() {
    let document: ReplayDocument = serde_json::from_value(replay()).unwrap();
    let page = replay_report(&document).unwrap();
    check_page(&page);
    assert!(page.contains("Enough memory, but fragmented"));
    assert!(page.contains("Which lines held the memory when it failed"));
    assert!(
        page.contains("project&#x2f;src&#x2f;&lt;b&gt;train.py:17"),
        "{page}"
    );
    assert!(page.contains("2.00 GiB in 9 allocations") || page.contains("2 GiB in 9 allocations"));
    assert!(
        page.contains(
            "Runs out of memory with default settings, fits with expandable_segments:True"
        )
    );
}

#[test]
fn colors_of_a_replay_are_whole_and_lines_of_code_fit() {
    let mut document: ReplayDocument = serde_json::from_value(replay()).unwrap();
    document.torch_version_assumed = true;
    let plain = text::replay(&document, &Page::plain(80));
    let color = Page {
        color: true,
        ..Page::plain(80)
    };
    let colored = text::replay(&document, &color);
    assert_eq!(
        colored.matches("[32m").count(),
        colored.matches("\u{1b}[32m").count()
    );
    assert!(plain.contains("by line of code: 3 GiB"), "{plain}");
    assert!(plain.contains("/home/u/project/src/<b>train.py:17 step"));
    assert!(plain.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn saved_documents_are_told_apart_and_others_are_refused() {
    let read = |value: &serde_json::Value| SavedDocument::read(value.to_string().as_bytes());
    assert!(matches!(read(&prediction()), Ok(SavedDocument::Predict(_))));
    assert!(matches!(read(&plan()), Ok(SavedDocument::Plan(_))));
    assert!(matches!(read(&replay()), Ok(SavedDocument::Replay(_))));
    let refused = |bytes: &[u8]| SavedDocument::read(bytes).unwrap_err().to_string();
    assert_eq!(refused(b"[1"), "not JSON");
    assert!(refused(b"{}").starts_with("expected the JSON of"));
    assert!(
        refused(br#"{"schema_version":7,"gpus":[]}"#)
            .starts_with("expected schema version 1, found 7")
    );
    assert_eq!(
        refused(br#"{"schema_version":1,"gpus":[]}"#),
        "not a complete document of `brimful predict`"
    );
    assert!(refused(&vec![b' '; 17 << 20]).starts_with("expected less than 16 MiB"));
}

#[test]
fn runs_are_compared_by_what_differs() {
    let rows: Vec<RunOverview> = [
        "checkpoint-spike",
        "dataloader-worker-killed",
        "shm-bus-error",
    ]
    .iter()
    .map(|name| RunOverview::of(&recorded(name), false))
    .collect();
    let page = runs_report(&rows).unwrap();
    check_page(&page);
    assert!(page.contains("None of 3 runs finished"));
    insta::assert_snapshot!(body(&page));
}

/// A record with any number of samples, GPUs and attempts.
fn any_record() -> impl Strategy<Value = Record> {
    let sample = (
        any::<u32>(),
        any::<u64>(),
        any::<u64>(),
        0..20_u32,
        any::<u64>(),
    );
    let attempt = (any::<u64>(), prop::collection::vec(sample, 0..400));
    prop::collection::vec(attempt, 0..5).prop_map(|attempts| {
        let mut lines = String::from("{\"line\":\"run\",\"id\":\"a\"}\n");
        for (number, (started, samples)) in attempts.iter().enumerate() {
            let _ = writeln!(lines, "{{\"line\":\"attempt\",\"number\":{number},\"started_at_unix_ms\":{started}}}");
            for (at_ms, used, limit, n_gpus, gpu) in samples {
                let gpus: Vec<String> = (0..*n_gpus)
                    .map(|index| format!("{{\"index\":{index},\"used_bytes\":{},\"total_bytes\":{limit}}}", gpu.rotate_left(index)))
                    .collect();
                let _ = writeln!(
                    lines,
                    "{{\"line\":\"sample\",\"at_ms\":{at_ms},\"host\":{{\"used_bytes\":{used},\"limit_bytes\":{limit},\"headroom_bytes\":{gpu}}},\"shm\":{{\"used_bytes\":{gpu},\"total_bytes\":{used}}},\"gpus\":[{}]}}",
                    gpus.join(",")
                );
            }
        }
        Record::read(lines.as_bytes()).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn no_record_makes_a_page_larger_than_half_a_megabyte(record in any_record()) {
        let page = page(&record);
        prop_assert!(page.len() < MAX_BYTES, "{} bytes", page.len());
    }
}

#[test]
fn every_field_of_a_document_is_always_there() {
    for schema in [
        brimful_report::json::predict_schema(),
        brimful_report::json::plan_schema(),
        brimful_report::json::replay_schema(),
        brimful_report::json::runs_schema(),
    ] {
        let schema = serde_json::to_value(schema).unwrap();
        let definitions = schema["$defs"].as_object().unwrap();
        for object in definitions.values().chain([&schema]) {
            if let Some(fields) = object["properties"].as_object() {
                assert_eq!(
                    object["required"].as_array().unwrap().len(),
                    fields.len(),
                    "{object}"
                );
            }
        }
    }
}

fn prepared(texts: &[&str], png: &[u8], n_samples: usize) -> PrepareReport {
    let field = |name: &str, shape: &[usize]| PreviewField {
        name: name.to_owned(),
        dtype: "uint8".to_owned(),
        shape: shape.to_vec(),
    };
    let sample = vec![
        PreviewValue::Picture(Picture {
            png: png.to_vec(),
            width: 96,
            height: 64,
            range: Some((-1.5, 2.0)),
        }),
        PreviewValue::Documents {
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
            n_left_out: 7,
        },
        PreviewValue::Numbers(texts[0].to_owned()),
    ];
    PrepareReport {
        out: texts[0].to_owned(),
        samples: 12_345,
        shards: 1,
        shard_bytes: Bytes::from_mib(3),
        memory: Bytes::from_mib(256),
        stage: PrepareStage::Finished {
            digest: texts[0].to_owned(),
            peak: Some(Bytes::from_mib(64)),
            documents: 10,
            tokens: 20_000,
            dropped_tokens: 3,
            left_out: 2,
            skipped: 1000,
            skipped_reasons: vec![texts[0].to_owned(); 100],
        },
        preview: Preview {
            fields: vec![
                field("image", &[64, 96, 3]),
                field("tokens", &[100]),
                field(texts[0], &[]),
            ],
            samples: vec![sample; n_samples],
        },
    }
}

#[test]
fn a_prepared_dataset_shows_its_first_samples() {
    let page = prepare_report(&prepared(&["first", "second"], b"a picture", 2)).unwrap();
    for expected in [
        "<h1>12,345 samples in 1 shard</h1>",
        "alt=\"image of sample 1\"",
        "YSBwaWN0dXJl",
        "next document",
        "and 7 more tokens",
        "image: black -1.5, white 2",
        "64 × 96 × 3",
        "of 256 MiB",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    for outside in ["http://", "https://", "<script src", "<link", "<iframe"] {
        assert!(!page.contains(outside), "found {outside}");
    }
    // The only pictures are those in the page itself.
    assert_eq!(page.matches("<img").count(), 2);
    assert_eq!(page.matches("<img src=\"data:image/png;base64,").count(), 2);
}

#[test]
fn a_hostile_dataset_is_text_and_its_page_stays_small() {
    let long = HOSTILE.repeat(1000);
    let texts = vec![long.as_str(); 100];
    let page = prepare_report(&prepared(&texts, &vec![7; 40_000], MAX_SAMPLES)).unwrap();
    assert!(page.len() < MAX_BYTES, "{} bytes", page.len());
    assert_eq!(page.matches("<img").count(), 7);
    let without = page.replace("<img src=\"data:image/png;base64,", "");
    check_hostile(&without);
}
