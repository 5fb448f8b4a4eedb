//! What the processes of a rehearsal leave behind, of anyone's making: facts, snapshots, connections, options and entries
//! of the cache are read or refused, and what is read becomes a prediction.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use brimful::cards;
use brimful::job::draft::draft;
use brimful::predict::host::{HostFacts, Pipeline, StartMethod, host_need};
use brimful::predict::{Target, footprint};
use brimful::user_error::UserError as _;
use brimful_allocsim::settings::AllocatorSettings;
use brimful_allocsim::version::TorchVersion;
use brimful_rehearse::fuzzing;
use brimful_rehearse::{Rehearsed, host_facts, pace, workload};
use serde_json::Value;

use crate::{directory, document};

/// Longer traces only repeat what shorter ones do.
const MAX_EVENTS: usize = 5000;

static FACTS: LazyLock<Value> = LazyLock::new(|| {
    document::template(
        r#"{"reason": "steps", "variant": 0, "attempt": 0, "torch": "2.13.0+cu130", "rank": 0, "world_size": 2,
        "device": 0, "marks": [[0, "phase", "forward"], [1, "module", "layer.0"], [1, "tensors", ""], [2, "step", "1"],
        [2, "empty_cache", ""]], "tensors": [[140000000000000, "weight", "layer.0.weight"], [7, "state", "x"]],
        "steps": 3, "evaluated": 1, "saved": 0, "compiled": false, "caveats": {"autotune": [2, "train.py:7"]},
        "problems": [], "cudnn_benchmark": true, "phantom": {"unknown_entry_points": ["cuX"], "guesses": ["rnn"],
        "cudnn": "deviceless 9.1", "cudnn_plans": 3, "nccl_communicators": [{"ranks": 2, "count": 1}]},
        "peak_allocated_bytes": 1024, "peak_reserved_bytes": 2097152, "ooms": 1, "sources": ["/a/train.py"],
        "host": {"imported": 158, "on_processors": false, "fresh": {"torch": 277, "program": 290}, "peak": 900,
            "trough": 850, "saves": [5, 40], "largest_tensor": 30, "ranks": 1, "steps": 3, "compute_seconds": 0.5,
            "handover_seconds": 0.01, "fetched": {"anon": 9, "samples": 4, "first_seconds": 0.5},
            "loader": {"workers": 2, "prefetch": 2, "pin_memory": true, "persistent": false, "start_method": "spawn",
                "micro_batch": 8, "build_peak": 810, "main_at_start": 800, "main_at_first_batch": 810, "samples": 10,
                "composition": {"object_bytes": 7, "pickled_bytes": 5, "protocol": 5}, "batch_bytes": 64,
                "batch_shm_bytes": 64, "batch_pinned_bytes": 64, "measured_workers": [
                    {"anon": 100, "private": 20, "seen": [[8, 60, 130]], "fetch_peak": 33, "seconds": 2.0, "timed": 4},
                    {"anon": 100, "private": 40, "seen": [[8, 80, 130]], "seconds": 2.0, "timed": 4}]},
            "others": [{"workers": 1, "beside": true}]}}"#,
    )
});

static SNAPSHOT: LazyLock<Value> = LazyLock::new(|| document::template(document::SNAPSHOT));

static CONNECTION: LazyLock<Value> = LazyLock::new(|| {
    document::template(r#"{"address": "1.2.3.4", "port": 443, "host": "hub.example"}"#)
});

static OPTIONS: LazyLock<Value> = LazyLock::new(|| {
    document::template(
        r#"{"framework": "argparse", "options": [
        {"flags": ["--batch-size", "-b"], "dest": "batch_size", "takes": "value", "default": 32, "choices": [],
            "help": "samples of a batch"},
        {"flags": ["--output-dir"], "dest": "output_dir", "takes": "value", "default": "out"},
        {"flags": ["--resume"], "dest": "resume", "takes": "word", "default": null, "choices": ["auto", "none"]},
        {"flags": ["--bf16"], "dest": "bf16", "takes": "both", "default": false}]}"#,
    )
});

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let _ = run(&mut input);
}

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    match input.int_in_range(0..=7)? {
        0 => connections(input),
        1 => options(input),
        2 | 3 => kept(input),
        _ => results(input),
    }
}

fn results(input: &mut Unstructured<'_>) -> Result<()> {
    let results = clean(&directory::path().join("results"));
    let facts = document::changed(&FACTS, input)?;
    let snapshot = document::changed(&SNAPSHOT, input)?;
    let on_cpus = input.arbitrary()?;
    write(&results.join("7.json"), facts.to_string().as_bytes());
    if input.ratio(7, 8)? {
        write(&results.join("7.snapshot"), &document::pickled(&snapshot));
    }
    if input.arbitrary()? {
        let rest = input.bytes(input.len())?;
        let (json, pickle) = rest.split_at(rest.len() / 2);
        write(&results.join("8.json"), json);
        write(&results.join("8.snapshot"), pickle);
    }
    match fuzzing::results(&results, on_cpus) {
        Ok(processes) => processes.iter().for_each(predict),
        Err(error) => {
            assert!(!error.hints().is_empty(), "a refusal says what to do");
            assert!(error.to_string().len() < 20_000, "a message, not a page");
        }
    }
    Ok(())
}

/// As a prediction is made of what a process left.
fn predict(process: &Rehearsed) {
    assert_eq!(process.trace.check(), Ok(()), "a trace is in order");
    if process.trace.events.len() > MAX_EVENTS {
        return;
    }
    let report = process.facts.host.as_ref();
    if let Some(facts) = report.and_then(host_facts) {
        need(&facts);
    }
    if let Some(pace) = report.and_then(pace) {
        let _ = format!("{pace:?}");
    }
    let card = cards::find_all("t4").expect("a card")[0];
    let version = (process.facts.torch.parse()).unwrap_or(TorchVersion::NEWEST_CHECKED);
    let Ok(settings) = AllocatorSettings::parse(&process.trace.settings, version) else {
        return;
    };
    let target = Target {
        name: card.name.to_owned(),
        total: card.torch_visible.value,
        multiprocessors: card.multiprocessors.value,
        compute_capability: card.compute_capability,
        settings,
        measured_context: None,
    };
    let found = footprint(&workload(process, 3), &target);
    assert!(
        found.device.likely <= found.device.safe,
        "{:?}",
        found.device
    );
}

fn need(facts: &HostFacts) {
    let pipeline = Pipeline {
        workers: facts.workers,
        prefetch: facts.prefetch,
        micro_batch: facts.micro_batch,
        start_method: StartMethod::Fork,
        pin_memory: facts.pin_memory,
        persistent_workers: facts.persistent_workers,
    };
    for pipeline in [
        pipeline,
        Pipeline {
            workers: 3,
            ..pipeline
        },
    ] {
        let need = host_need(facts, &pipeline);
        assert!(need.likely <= need.safe, "{need:?}");
    }
}

fn connections(input: &mut Unstructured<'_>) -> Result<()> {
    let results = clean(&directory::path().join("results"));
    let mut lines = Vec::new();
    for _ in 0..input.int_in_range(0..=20)? {
        lines.extend(document::changed(&CONNECTION, input)?.to_string().bytes());
        lines.push(b'\n');
    }
    lines.extend(input.bytes(input.len())?);
    write(&results.join("connections"), &lines);
    let found = fuzzing::connections(&results);
    assert!(found.hosts.len() <= 100 && found.sockets.len() <= 100);
    Ok(())
}

fn options(input: &mut Unstructured<'_>) -> Result<()> {
    let results = clean(&directory::path().join("results"));
    let path = results.join("accepts.json");
    let options = document::changed(&OPTIONS, input)?;
    write(&path, options.to_string().as_bytes());
    if let Some(accepts) = fuzzing::accepted(&path) {
        // No command and no option has a zero in it: programs are started with texts that end at one.
        let word = input.arbitrary::<&str>()?.replace('\0', "");
        let command = ["python".to_owned(), "train.py".to_owned(), word];
        let draft = draft(&command, &accepts);
        if let Err(error) = brimful::job::read(&draft.text)
            && !options.to_string().contains("\\u0000")
        {
            panic!("a job file of ours is refused: {error}\n{}", draft.text);
        }
    }
    Ok(())
}

/// An entry of the cache: its own files, in which values are changed.
fn kept(input: &mut Unstructured<'_>) -> Result<()> {
    static ENTRY: LazyLock<(PathBuf, Value, Vec<u8>)> = LazyLock::new(|| {
        let results = clean(&directory::path().join("results"));
        write(&results.join("7.json"), FACTS.to_string().as_bytes());
        write(&results.join("7.snapshot"), &document::pickled(&SNAPSHOT));
        let mut processes = fuzzing::results(&results, false).expect("the templates are whole");
        let process = processes.pop().expect("one process");
        predict(&process);
        let cache = directory::path().join("cache");
        let entry = fuzzing::keep(&cache, process).expect("it can be kept");
        let read = |name| fs::read(entry.join(name)).expect("it was written");
        let json = serde_json::from_slice(&read("entry.json")).expect("an entry is JSON");
        let trace = read("0.trace");
        assert!(fuzzing::kept(&cache).is_some(), "what was kept is found");
        (entry, json, trace)
    });
    let (directory, entry, trace) = &*ENTRY;
    let entry = document::changed(entry, input)?;
    let facts = document::changed(&FACTS, input)?;
    let mut trace = trace.clone();
    for _ in 0..input.int_in_range(0..=4)? {
        let at = input.choose_index(trace.len())?;
        trace[at] = input.arbitrary()?;
    }
    trace.truncate(trace.len().saturating_sub(input.int_in_range(0..=8)?));
    overwrite(&directory.join("entry.json"), entry.to_string().as_bytes());
    overwrite(&directory.join("0.json"), facts.to_string().as_bytes());
    overwrite(&directory.join("0.trace"), &trace);
    let cache = directory.parent().expect("an entry lies in the cache");
    if let Some((processes, host, _)) = fuzzing::kept(cache) {
        processes.iter().for_each(predict);
        need(&host);
    }
    Ok(())
}

/// The directory without the files of the input before.
fn clean(directory: &Path) -> PathBuf {
    fs::create_dir_all(directory).expect("it can be made");
    for entry in fs::read_dir(directory).expect("a directory of ours") {
        fs::remove_file(entry.expect("a file of ours").path()).expect("a file of ours");
    }
    directory.to_owned()
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("it can be written");
    // brimful reads files of its own only where nobody else may write.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(path, mode).expect("a file of ours");
}

/// The file keeps its owner and its permissions.
fn overwrite(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("it can be written");
}
