//! Frames of recorded and made-up runs.

use std::path::{Path, PathBuf};

use brimful::live::{LiveRun, TimeRange};
use brimful::printable::is_printable;
use brimful::record::{AttemptLine, CheckpointLine, Line, RunLine};
use brimful::units::Bytes;
use brimful::watch::{
    Alarm, Gauge, GpuSample, HostSample, ProcessSample, Role, Sample, SharedMemorySample, Stall,
    Urgency,
};
use brimful_supervise::AttachedRun;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use crate::controls::{Controls, FullPage};
use crate::draw::draw;
use crate::frame::PanelKind;
use crate::look::Look;
use crate::once::{FrameSize, frame, once};
use crate::shown::{RunState, Shown};

const PLAIN: Look = Look {
    color: false,
    unicode: true,
};
const SIZES: [(u16, u16); 3] = [(80, 24), (200, 50), (40, 10)];

fn size(columns: u16, rows: u16) -> FrameSize {
    FrameSize { columns, rows }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/runs")
        .join(name)
        .join("record.jsonl")
}

fn shown(live: &LiveRun, is_running: bool) -> Shown<'_> {
    Shown {
        live,
        state: RunState::of(live, is_running),
        quiet_seconds: None,
        verdict: None,
        controls: Controls::default(),
        is_interactive: true,
        look: PLAIN,
    }
}

/// The frame as a terminal has it after drawing.
fn on_terminal(shown: &Shown<'_>, size: FrameSize) -> String {
    let mut terminal = Terminal::new(TestBackend::new(size.columns, size.rows)).unwrap();
    terminal
        .draw(|frame| draw(shown, frame.area(), frame.buffer_mut()))
        .unwrap();
    terminal.backend().to_string()
}

/// A run of half a day with four workers that copy what they share, in its third attempt.
fn leaking() -> LiveRun {
    let mut live = LiveRun::default();
    live.take(Line::Run(RunLine {
        id: "2026-11-17T05-09-52-3f2a".into(),
        started_at_unix_ms: 1_000,
        command: vec![
            "python".into(),
            "train.py".into(),
            "--batch-size".into(),
            "32".into(),
        ],
        ..RunLine::default()
    }));
    let attempt: AttemptLine = serde_json::from_str(
        r#"{"number":3,"started_at_unix_ms":61000,"limit_set_by":"cgroup v2 /job","resumed_from":"outputs/last.pt","gpus":[{"index":0,"name":"NVIDIA A100-SXM4-40GB"}],
            "changed":[{"knob":"workers","from":8,"to":4}],"next_rung":[{"knob":"workers","from":4,"to":2}]}"#,
    )
    .unwrap();
    live.take(Line::Attempt(attempt));
    for minute in 0..570_u64 {
        for second in [0, 20, 40] {
            live.take(Line::Sample(leaking_sample(minute, second)));
        }
        if minute % 30 == 8 {
            live.take(Line::Checkpoint(CheckpointLine {
                at_ms: minute * 60_000,
                path: "outputs/last.pt".into(),
                written_at_unix_ms: 61_000 + minute * 60_000,
            }));
        }
        if minute == 90 {
            live.take(alarm(
                minute,
                Urgency::Note,
                "4 DataLoader workers copy memory that they share: 2.7 GiB each so far",
            ));
        }
        if minute == 567 {
            live.take(alarm(
                minute,
                Urgency::Warning,
                "host memory rises 2.7 GiB per hour and does not come back",
            ));
        }
    }
    live
}

fn alarm(minute: u64, urgency: Urgency, message: &str) -> Line {
    Line::Alarm(Alarm {
        at_ms: minute * 60_000,
        detector: "test".into(),
        urgency,
        message: message.into(),
    })
}

fn leaking_sample(minute: u64, second: u64) -> Sample {
    let at_s = minute * 60 + second;
    let limit = Bytes::from_gib(64);
    let used = Bytes::from_mib(22_000 + at_s * 768 / 1000);
    let worker = |worker: u32| ProcessSample {
        pid: 24_007 + worker,
        role: Role::Worker { loader: 0, worker },
        name: "python".into(),
        private: Bytes::from_mib(1_500 + at_s * 190 / 1000),
        shared: Bytes::from_mib(1_800),
        swapped: Bytes::ZERO,
    };
    let main = ProcessSample {
        pid: 23_981,
        role: Role::Main,
        name: "python".into(),
        private: Bytes::from_mib(10_400 + at_s / 100),
        shared: Bytes::from_mib(1_800),
        swapped: Bytes::ZERO,
    };
    Sample {
        at_ms: at_s * 1000,
        host: Some(HostSample {
            used,
            limit,
            headroom: limit.saturating_sub(used),
            swapped: None,
        }),
        shm: Some(SharedMemorySample {
            used: Bytes::from_mib(1_100),
            total: Bytes::from_gib(32),
        }),
        stall: Some(Stall {
            some_percent: 1.25,
            full_percent: 0.5,
        }),
        gpus: vec![GpuSample {
            index: 0,
            used: Bytes::from_mib(29_600),
            total: Bytes::from_mib(40_510),
            ours: Some(Bytes::from_mib(29_200)),
            ..GpuSample::default()
        }],
        processes: if second == 0 {
            std::iter::once(main).chain((0..4).map(worker)).collect()
        } else {
            Vec::new()
        },
        gauges: vec![Gauge {
            pid: 23_981,
            steps: at_s * 16 / 5,
            epochs: 1 + minute / 150,
            device: Some(0),
            allocated: Bytes::from_mib(16_300),
            reserved: Bytes::from_mib(28_800),
            retries: 2,
            ..Gauge::default()
        }],
        lowest: None,
    }
}

#[test]
fn a_run_in_progress() {
    let live = leaking();
    for (columns, rows) in SIZES {
        let text = frame(&shown(&live, true), size(columns, rows));
        insta::assert_snapshot!(format!("leaking_{columns}x{rows}"), text);
    }
}

#[test]
fn recorded_runs() {
    for name in [
        "checkpoint-spike",
        "cuda-fragmented",
        "cuda-other-process",
        "dataloader-worker-killed",
        "killed-by-a-person",
        "shm-bus-error",
    ] {
        let attached = AttachedRun::File(fixture(name));
        for (columns, rows) in SIZES {
            let text = once(&attached, size(columns, rows), PLAIN).unwrap();
            insta::assert_snapshot!(format!("{name}_{columns}x{rows}"), text);
        }
    }
}

#[test]
fn a_terminal_shows_what_is_printed_once() {
    let live = leaking();
    let shown = shown(&live, true);
    for (columns, rows) in SIZES {
        let size = size(columns, rows);
        let lines = |text: &str| -> Vec<String> {
            text.lines()
                .map(|line| line.trim_matches('"').trim_end().to_owned())
                .filter(|line| !line.is_empty())
                .collect()
        };
        assert_eq!(
            lines(&on_terminal(&shown, size)),
            lines(&frame(&shown, size))
        );
    }
}

#[test]
fn a_chosen_panel_gets_the_rows_and_scrolls() {
    let mut live = leaking();
    for number in 0..30 {
        live.take(alarm(
            570,
            Urgency::Critical,
            &format!("alarm number {number} {}", "long ".repeat(25)),
        ));
    }
    let mut shown = shown(&live, true);
    shown.controls.focus = Some(PanelKind::Alarms);
    let text = frame(&shown, size(80, 30));
    assert!(text.contains("alarm number 29 "), "{text}");
    assert!(text.contains("alarm number 28 "), "{text}");
    shown.controls.scroll = 10;
    let text = frame(&shown, size(80, 30));
    assert!(!text.contains("alarm number 29 "), "{text}");
    shown.controls.scroll = 1_000_000;
    frame(&shown, size(80, 30));
    shown.controls.focus = Some(PanelKind::Processes);
    shown.controls.scroll = 3;
    let text = frame(&shown, size(80, 24));
    assert!(text.contains("24009") && !text.contains("23981"), "{text}");
}

#[test]
fn pages_explain_and_help() {
    let live = leaking();
    let mut shown = shown(&live, true);
    shown.controls.page = Some(FullPage::Explain);
    insta::assert_snapshot!("explain_80x24", frame(&shown, size(80, 24)));
    shown.controls.page = Some(FullPage::Help);
    insta::assert_snapshot!("help_80x24", frame(&shown, size(80, 24)));

    let record =
        brimful::record::Record::read(std::fs::File::open(fixture("shm-bus-error")).unwrap())
            .unwrap();
    let verdict = brimful_supervise::explain_record(&record, None);
    shown.state = RunState::Ended;
    shown.verdict = Some(&verdict);
    shown.controls.page = Some(FullPage::Explain);
    insta::assert_snapshot!("verdict_80x24", frame(&shown, size(80, 24)));
}

#[test]
fn eight_gpus_share_a_panel() {
    let mut live = leaking();
    let mut sample = leaking_sample(571, 0);
    let gpu = sample.gpus.remove(0);
    sample.gpus = (0..8)
        .map(|index| GpuSample {
            index,
            ..gpu.clone()
        })
        .collect();
    live.take(Line::Sample(sample));
    insta::assert_snapshot!(
        "eight_gpus_100x40",
        frame(&shown(&live, true), size(100, 40))
    );
}

#[test]
fn an_empty_record_says_that_it_waits() {
    let live = LiveRun::default();
    for (columns, rows) in SIZES {
        frame(&shown(&live, true), size(columns, rows));
    }
    let text = frame(&shown(&live, true), size(40, 10));
    assert_eq!(text, "waiting for the first sample\n");
    let text = frame(&shown(&live, false), size(80, 24));
    assert!(text.contains("the exit was not recorded"), "{text}");
}

#[test]
fn without_utf8_every_character_is_ascii() {
    let live = leaking();
    let mut shown = shown(&live, true);
    shown.look.unicode = false;
    for (columns, rows) in SIZES {
        let text = frame(&shown, size(columns, rows));
        assert!(text.is_ascii(), "{text}");
    }
}

#[test]
fn color_is_only_there_when_it_is_wanted() {
    let live = leaking();
    let mut shown = shown(&live, true);
    assert!(!frame(&shown, size(80, 24)).contains('\u{1b}'));
    shown.look.color = true;
    let colored = frame(&shown, size(80, 24));
    assert!(colored.contains("\u{1b}[34m"), "{colored:?}");
}

/// Texts that would move the cursor, clear the screen, turn a name around or break the layout.
const HOSTILE: [&str; 6] = [
    "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m",
    "\u{202e}txt.exe\u{2066}\u{200f}",
    "a\r\nb\tc\u{0}\u{8}\u{7f}",
    "数据集数据集数据集数据集数据集数据集数据集数据集数据集数据集数据集数据集数据集数据集数据集",
    "e\u{301}\u{301}\u{301}\u{301}👩‍👩‍👧‍👦\u{200b}\u{feff}",
    "x",
];

fn hostile_run(text: &str) -> LiveRun {
    let text = serde_json::to_string(&text.repeat(40)).unwrap();
    let mut live = LiveRun::default();
    let lines = [
        format!(r#"{{"line":"run","id":{text},"command":[{text},{text}]}}"#),
        format!(
            r#"{{"line":"attempt","number":2,"resumed_from":{text},"limit_set_by":{text},
                "changed":[{{"knob":{text},"from":{text},"to":{text}}}]}}"#
        ),
        format!(
            r#"{{"line":"sample","at_ms":5000,"host":{{"used_bytes":5,"limit_bytes":10,"headroom_bytes":3}},
                "processes":[{{"pid":1,"role":{{"kind":"other"}},"name":{text},"private_bytes":1,"shared_bytes":1,"swapped_bytes":0}}]}}"#
        ),
        format!(
            r#"{{"line":"alarm","at_ms":6000,"detector":{text},"urgency":"critical","message":{text}}}"#
        ),
        format!(r#"{{"line":"gap","at_ms":6000,"message":{text}}}"#),
        format!(
            r#"{{"line":"action","at_ms":6000,"dry_run":false,"done":{text},
                "action":{{"kind":"ask_to_stop","reason":{{"detector":{text},"message":{text}}}}}}}"#
        ),
        format!(
            r#"{{"line":"hook","kind":"exception","at_ms":1,"pid":1,"type_name":{text},"message":{text}}}"#
        ),
        format!(
            r#"{{"line":"end","at_ms":7000,"outcome":{{"kind":"not_started","error":{text}}},"kernel":{{}},"peaks":{{}},"last":null}}"#
        ),
        format!(
            r#"{{"line":"verdict","at_ms":7000,"verdict":{{"cause":"not_memory","detail":"unspecified","confidence":"likely",
                "summary":{text},"evidence":[],"remedies":[],"would_settle":[]}}}}"#
        ),
    ];
    for text in &lines {
        live.take(Line::from_json(text.as_bytes()).unwrap());
    }
    live
}

fn check_harmless(live: &LiveRun, columns: u16, rows: u16, page: Option<FullPage>) {
    let mut shown = shown(live, false);
    shown.controls.page = page;
    let area = Rect::new(0, 0, columns, rows);
    let mut buffer = Buffer::empty(area);
    draw(&shown, area, &mut buffer);
    for cell in &buffer.content {
        assert!(
            cell.symbol().chars().all(is_printable),
            "{:?}",
            cell.symbol()
        );
    }
    let text = frame(&shown, size(columns, rows));
    for line in text.lines() {
        assert!(line.chars().all(is_printable), "{line:?}");
        assert!(line.width() <= usize::from(columns), "{line:?}");
    }
}

#[test]
fn hostile_texts_never_reach_the_terminal() {
    for text in HOSTILE {
        let live = hostile_run(text);
        for (columns, rows) in SIZES
            .into_iter()
            .chain([(60, 12), (119, 13), (120, 12), (1, 1)])
        {
            for page in [None, Some(FullPage::Explain), Some(FullPage::Help)] {
                check_harmless(&live, columns, rows, page);
            }
        }
    }
}

fn any_line() -> impl Strategy<Value = String> {
    let number = prop_oneof![any::<u64>(), 0_u64..100_000];
    let text = prop_oneof![
        ".{0,30}",
        prop::sample::select(HOSTILE.to_vec()).prop_map(str::to_owned)
    ];
    (0..8_u32, number.clone(), number.clone(), number, text).prop_map(|(kind, a, b, c, text)| {
        let text = serde_json::to_string(&text).unwrap();
        let small = a % 40;
        match kind {
            0 => format!(r#"{{"line":"run","id":{text},"started_at_unix_ms":{a},"command":[{text}]}}"#),
            1 => format!(r#"{{"line":"attempt","number":{small},"started_at_unix_ms":{b}}}"#),
            2 | 3 => format!(
                r#"{{"line":"sample","at_ms":{a},"host":{{"used_bytes":{b},"limit_bytes":{c},"headroom_bytes":{a}}},"shm":{{"used_bytes":{b},"total_bytes":{c}}},"stall":{{"some_percent":-1.0,"full_percent":1e9}},"gpus":[{{"index":{small},"used_bytes":{b},"total_bytes":{c}}}],"processes":[{{"pid":{small},"role":{{"kind":"other"}},"name":{text},"private_bytes":{a},"shared_bytes":{b},"swapped_bytes":{c}}}],"gauges":[{{"pid":{small},"steps":{b},"epochs":{a},"device":{small},"allocated_bytes":{c},"reserved_bytes":{b}}}]}}"#
            ),
            4 => format!(r#"{{"line":"alarm","at_ms":{a},"detector":{text},"urgency":"note","message":{text}}}"#),
            5 => format!(r#"{{"line":"end","at_ms":{a},"outcome":{{"kind":"failed","code":-1}},"kernel":{{}},"peaks":{{}},"last":null}}"#),
            6 => format!(r#"{{"line":"gap","at_ms":{a},"message":{text}}}"#),
            _ => text,
        }
    })
}

fn live_lines(live: &mut LiveRun, lines: &[String]) {
    for parsed in lines
        .iter()
        .filter_map(|text| Line::from_json(text.as_bytes()))
    {
        live.take(parsed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_record_and_no_size_makes_it_panic(
        lines in prop::collection::vec(any_line(), 0..30),
        columns in 1_u16..220,
        rows in 1_u16..60,
        range in 0_usize..4,
        scroll in any::<usize>(),
    ) {
        let mut live = LiveRun::default();
        live_lines(&mut live, &lines);
        for focus in [None, Some(PanelKind::Processes), Some(PanelKind::Alarms)] {
            let mut shown = shown(&live, true);
            shown.controls.range = TimeRange::ALL[range];
            shown.controls.focus = focus;
            shown.controls.scroll = scroll;
            let text = frame(&shown, size(columns, rows));
            prop_assert!(text.chars().all(|c| c == '\n' || is_printable(c)));
        }
    }
}
