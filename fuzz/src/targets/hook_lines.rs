//! Lines of anyone's making in the files of both hooks: read or left out, and what is read is fit to explain and to show.
//!
//! The lines are templates in which the input changes values, or what is left of the input. They come in two parts, as
//! if the process were still writing.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Write;
use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use brimful::explain::explain;
use brimful::printable::is_printable;
use brimful::record::{HookLine, Line, Record};
use brimful_rehearse::fuzzing::{ProgressReader, reported};
use brimful_report::text::{self, Page};
use brimful_supervise::hook::Staged;
use serde_json::Value;

use crate::{directory, document};

const PID: u32 = 4711;

/// A new directory is staged before the file of lines has as many bytes as are read of it.
const MAX_STAGED_BYTES: u64 = 256 << 10;
const MAX_LINES: usize = 12;

static SUPERVISED: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let lines = [
        r#"{"kind":"torch","at_ms":5,"pid":4711,"version":"2.13.0+cu130","cuda":"13.0"}"#,
        r#"{"kind":"loader","at_ms":9,"pid":4711,"loader":0,"n_workers":2,"batch_size":8,"prefetch_factor":2,
            "pin_memory":true,"persistent_workers":false,"start_method":"fork","dataset":"a.B","n_samples":100,
            "worker_pids":[5000,5001]}"#,
        r#"{"kind":"cuda_oom","at_ms":20,"pid":4711,"device":0,
            "message":"CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 1.00 GiB",
            "asked_bytes":20971520,"allocated_bytes":900,"reserved_bytes":1000,"free_bytes":7,"total_bytes":1073741824,
            "retries":3,"snapshot":"snapshots/oom-4711-1.pickle","evaluating":false}"#,
        r#"{"kind":"exception","at_ms":30,"pid":4711,"type_name":"MemoryError","message":"Unable to allocate 8 GiB"}"#,
    ];
    lines.into_iter().map(document::template).collect()
});

static REHEARSED: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let lines = [
        r#"{"event":"torch","torch":"2.13.0","pid":4711}"#,
        r#"{"event":"no-cuda","torch":"2.13.0","pid":4711}"#,
        r#"{"event":"unsupported","torch":"2.13.0","what":"aten.eig","pid":4711}"#,
        r#"{"event":"cuda","device":0,"pid":4711}"#,
        r#"{"event":"step","step":1,"of":3,"bytes":1048576,"pid":4711}"#,
        r#"{"event":"written","reason":"steps","pid":4711}"#,
        r#"{"event":"ended","variant":0,"code":-9,"pid":4711}"#,
        r#"{"event":"problem","text":"it failed","pid":4711}"#,
        r#"{"event":"unhooked","torch":null,"why":"it failed","pid":4711}"#,
        r#"{"event":"suppressed","what":"wandb.init","pid":4711}"#,
        r#"{"event":"input","prompt":"Continue? [y/n]","pid":4711}"#,
    ];
    lines.into_iter().map(document::template).collect()
});

/// The supervisor's directory, and the bytes of its file of lines.
struct Stage {
    staged: Staged,
    n_bytes: u64,
}

thread_local! {
    static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
}

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let _ = run(&mut input);
}

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let is_supervised = input.arbitrary()?;
    let templates = if is_supervised {
        &SUPERVISED
    } else {
        &REHEARSED
    };
    let mut lines = Vec::new();
    for _ in 0..input.int_in_range(0..=MAX_LINES)? {
        let line = document::changed(input.choose(templates)?, input)?;
        lines.extend(line.to_string().into_bytes());
        lines.push(b'\n');
    }
    let cut = input.int_in_range(0..=lines.len())?;
    lines.extend(input.bytes(input.len())?);
    lines.push(b'\n');
    let parts = lines.split_at(cut);
    if is_supervised {
        supervised(parts);
    } else {
        rehearsed(parts);
    }
    Ok(())
}

fn supervised((first, second): (&[u8], &[u8])) {
    STAGE.with_borrow_mut(|stage| {
        if stage
            .as_ref()
            .is_none_or(|stage| stage.n_bytes > MAX_STAGED_BYTES)
        {
            drop(stage.take());
            *stage = Some(staged());
        }
        let stage = stage.as_mut().expect("it was made");
        let path = stage.staged.directory.join(format!("events/{PID}.jsonl"));
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .expect("a file");
        let mut lines = Vec::new();
        for part in [first, second] {
            file.write_all(part).expect("it can be written");
            stage.n_bytes += part.len() as u64;
            // A call reads 64 KiB or more, where there are as many.
            for _ in 0..part.len() / (64 << 10) + 2 {
                lines.extend(stage.staged.new_lines());
            }
        }
        check(lines);
    });
}

fn staged() -> Stage {
    Stage {
        staged: Staged::new(&directory::path().join("run")).expect("a directory of ours"),
        n_bytes: 0,
    }
}

/// What becomes of the lines: a run record, its evidence, and a page for the terminal.
fn check(lines: Vec<HookLine>) {
    let mut record = String::from("{\"line\":\"run\"}\n{\"line\":\"attempt\"}\n");
    for line in lines {
        if let HookLine::CudaOom(proof) = &line
            && let Some(snapshot) = &proof.snapshot
        {
            let is_ours = (1..=3)
                .any(|number| *snapshot == format!("inside/snapshots/oom-{PID}-{number}.pickle"));
            assert!(is_ours, "{snapshot} leads elsewhere");
        }
        record.push_str(&Line::Hook(line).to_json());
    }
    let record = Record::read(record.as_bytes()).expect("a record of ours");
    assert_eq!(
        record.n_broken_lines, 0,
        "what was read can be written and read again"
    );
    for attempt in &record.attempts {
        let verdict = explain(&attempt.evidence());
        let page = text::explain(&verdict, &Page::plain(80));
        assert!(page.chars().all(|c| c == '\n' || is_printable(c)));
    }
}

fn rehearsed((first, second): (&[u8], &[u8])) {
    let path = directory::path().join("progress");
    let mut file = File::create(&path).expect("a file");
    let mut reader = ProgressReader::new(path.clone());
    let mut events = Vec::new();
    for part in [first, second] {
        file.write_all(part).expect("it can be written");
        for progress in reader.read() {
            let _ = progress.event.line();
            events.push(progress.event);
        }
    }
    let (last, suppressed) = reported(&events);
    assert!(!last.to_string().is_empty() && suppressed.len() <= 100);
    let _ = fs::remove_file(&path);
}
