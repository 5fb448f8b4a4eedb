//! The document, the page and the card of a plan.

use brimful::job::{Settings, Value};
use brimful::plan::{
    Answer, Change, GpuNeed, Impossible, Need, Plan, PlanBrim, Reason, ReasonKind, RehearsalUsed,
    Rung, Throughput, WantedSettings,
};
use brimful::predict::host::{HostNeed, HostTerm, HostTermId};
use brimful::units::Bytes;
use brimful_report::html;
use brimful_report::json::{
    self, Containment, HostConnection, PlanContext, PlanDocument, SideEffects, SocketConnection,
};
use brimful_report::text::{self, Page};

fn settings(workers: u64) -> Settings {
    let mut settings = Settings::default();
    settings.set("workers", workers);
    settings.set("model", "full");
    settings.set("activation_checkpointing", false);
    settings
}

fn brim(name: &str, safe: u64, limit: u64) -> PlanBrim {
    PlanBrim {
        name: name.into(),
        limit: Bytes::from_mib(limit),
        likely: Bytes::from_mib(safe * 9 / 10),
        safe: Bytes::from_mib(safe),
    }
}

fn plan() -> Answer {
    Answer::Plan(Box::new(Plan {
        settings: settings(1),
        effective_batch: Some(32),
        footprint: Need {
            host: HostNeed {
                likely: Bytes::from_mib(9000),
                safe: Bytes::from_mib(10_000),
                terms: vec![HostTerm {
                    id: HostTermId::WorkerCopies,
                    likely: Bytes::from_mib(3000),
                    safe: Bytes::from_mib(3100),
                    reason: Some("each worker is sent the dataset and builds it anew".into()),
                }],
                ..HostNeed::default()
            },
            gpu: Some(GpuNeed::default()),
        },
        brims: vec![brim("host", 10_000, 11_600), brim("gpu", 650, 14_900)],
        throughput: Throughput {
            samples_per_second: 99.91,
            ..Throughput::default()
        },
        reasons: vec![Reason {
            kind: ReasonKind::Refused,
            text: "workers 2 would be faster, but needs more\u{1b}[31m than there is".into(),
            brim: Some("host".into()),
            missing: Some(Bytes(17)),
        }],
        rungs: vec![Rung {
            settings: settings(0),
            changed: vec![Change {
                knob: "workers".into(),
                from: Value::Whole(1),
                to: Value::Whole(0),
            }],
            brims: vec![brim("host", 4000, 11_600)],
            throughput: None,
        }],
        wanted: WantedSettings {
            settings: settings(4),
            brims: vec![brim("host", 33_000, 11_600), brim("gpu", 650, 14_900)],
            throughput: Some(Throughput {
                samples_per_second: 251.2,
                ..Throughput::default()
            }),
            result_changes: Vec::new(),
        },
        candidates: Vec::new(),
    }))
}

fn context() -> PlanContext {
    PlanContext {
        job: "brimful.toml".into(),
        machine: "<b>Google Colab</b>".into(),
        command: vec!["python".into(), "train.py".into()],
        rehearsals: vec![RehearsalUsed {
            settings: settings(1),
            reused: true,
            age_seconds: 7300.0,
            seconds: 23.8,
            failed: None,
        }],
        side_effects: Some(SideEffects {
            isolation: "redirect".into(),
            gpu_hidden: "landlock".into(),
            containment: Containment {
                files: "redirected".into(),
                shared_memory: "redirected".into(),
                ipc: "denied".into(),
                processes: "denied".into(),
                network: "open".into(),
                devices: "landlock".into(),
            },
            sockets: vec![SocketConnection {
                path: "/run/database.sock".into(),
                refused: true,
                count: 1,
            }],
            suppressed: vec!["wandb: runs".into()],
            connections: vec![HostConnection {
                host: "hub.example".into(),
                port: 443,
                count: 2,
            }],
        }),
        seconds: 0.02,
        ..PlanContext::default()
    }
}

fn closest() -> Answer {
    Answer::Impossible(Box::new(Impossible {
        settings: settings(0),
        brims: vec![brim("host", 20_000, 11_600)],
        help: vec!["Allow a smaller resolution.".into()],
        ..Impossible::default()
    }))
}

#[test]
fn documents_are_valid_by_their_schema() {
    let schema = serde_json::to_value(json::plan_schema()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let good = serde_json::to_value(PlanDocument::of(&context(), &plan())).unwrap();
    let bad = serde_json::to_value(PlanDocument::of(&context(), &closest())).unwrap();
    for document in [&good, &bad] {
        let errors: Vec<String> = validator
            .iter_errors(document)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
    assert_eq!(good["settings"]["workers"], 1);
    assert_eq!(good["brims"][0]["safe_bytes"], 10_000_u64 << 20);
    assert_eq!(good["reasons"][0]["missing_bytes"], 17);
    assert_eq!(good["rungs"][0]["changed"][0]["after"], "0");
    assert_eq!(bad["fits"], false);
    assert_eq!(bad["throughput"], serde_json::Value::Null);
}

#[test]
fn what_was_wanted_stands_beside_what_is_planned() {
    let page = text::plan(&context(), &plan(), &Page::plain(80));
    for line in [
        "preferred   planned",
        "workers             4         1",
        "host, safe  32.23 GiB  9.77 GiB  preferred exceeds by 20.9 GiB",
        "samples/s         251      99.9",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    let document = serde_json::to_value(PlanDocument::of(&context(), &plan())).unwrap();
    assert_eq!(document["wanted"]["settings"]["workers"], 4);
}

#[test]
fn the_page_fits_the_terminal_and_says_what_it_rests_on() {
    let page = Page::plain(80);
    let text = text::plan(&context(), &plan(), &page);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert!(!line.contains('\u{1b}'));
    }
    assert!(text.contains("workers = 1"));
    assert!(text.contains("1 rehearsal from the cache, the oldest 2 h old"));
    assert!(text.contains("1.56 GiB left"));
    let text = text::plan(&context(), &closest(), &page);
    assert!(text.contains("8.2 GiB over"), "{text}");
    assert!(text.contains("Allow a smaller resolution."));
}

#[test]
fn the_card_holds_no_markup_of_others() {
    let document = PlanDocument::of(&context(), &plan());
    let card = html::plan(&document, "<script>").unwrap();
    assert!(!card.contains("<script") && !card.contains("<b>"));
    assert!(card.contains("<img alt=") && !card.contains("<svg"));
}
