//! Recorded results of real rehearsals (`fixtures/rehearsals/`), read as those of one that has just ended.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use brimful::cards;
use brimful::predict::host::{Pipeline, host_need};
use brimful::predict::{AssumedCase, Footprint, Target, footprint};
use brimful_allocsim::settings::AllocatorSettings;

use crate::error::RehearsalError;
use crate::events::{Event, ProgressFile};
use crate::facts::EndReason;
use crate::host::{host_facts, pace};
use crate::outcome::{EndOfScript, Variant, by_variant};
use crate::protection::{Protection, ProtectionRequest};
use crate::reports::LastStep;
use crate::request::RehearsalRequest;
use crate::results::{Rehearsed, tail};
use crate::workload::workload;

const STEPS: u32 = 3;

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/rehearsals")
        .join(name)
}

fn events(name: &str) -> Vec<Event> {
    let lines = ProgressFile::new(recorded(name).join("progress")).read();
    lines.into_iter().map(|line| line.event).collect()
}

/// What came of a rehearsal for `n_cards` GPUs; none is one on CPUs.
fn outcome(name: &str, n_cards: usize, code: i32) -> Result<Vec<Variant>, RehearsalError> {
    let request = RehearsalRequest {
        command: Vec::new(),
        phantom: PathBuf::new(),
        on_cpus: n_cards == 0,
        variants: vec![Vec::new(); n_cards.max(1)],
        assumed: AssumedCase::Usual,
        steps: STEPS,
        with: Vec::new(),
        alloc_conf: None,
        time_limit: Duration::from_secs(9),
        output: None,
        protection: Protection::new(ProtectionRequest::default()).expect("a disk"),
    };
    let ended = EndOfScript {
        status: Some(ExitStatus::from_raw(code << 8)),
        stalled: None,
        seen: events(name),
        output: tail(&recorded(name).join("output")),
        place: None,
    };
    by_variant(&request, &ended, &recorded(name))
}

fn footprint_on(card: &str, process: &Rehearsed) -> Footprint {
    let card = cards::find(card).expect("a GPU of the catalogue");
    let version = process.facts.torch.parse().expect("a version");
    let target = Target {
        name: card.name.to_owned(),
        total: card.torch_visible.value,
        multiprocessors: card.multiprocessors.value,
        compute_capability: card.compute_capability,
        settings: AllocatorSettings::parse(&process.trace.settings, version).expect("settings"),
        measured_context: None,
    };
    footprint(&workload(process, STEPS), &target)
}

fn caveats(footprint: &Footprint) -> Vec<&'static str> {
    footprint
        .caveats
        .iter()
        .map(|caveat| caveat.kind.id())
        .collect()
}

#[test]
fn each_gpu_has_its_process_and_its_bytes() {
    let variants = outcome("mlp", 2, 0).expect("results");
    let expected = [
        ("t4", 181_403_648, 339_864_453),
        ("l4", 295_698_432, 454_159_237),
    ];
    assert_eq!(variants.len(), expected.len());
    for (variant, (card, likely, safe)) in variants.iter().zip(expected) {
        let [process] = variant.processes.as_slice() else {
            panic!("one process for each GPU")
        };
        assert_eq!(process.facts.steps, STEPS);
        assert_eq!(process.facts.reason, EndReason::Steps);
        assert!(!process.died);
        let found = footprint_on(card, process);
        assert_eq!(found.peak_allocated.get(), 22_576_128);
        assert_eq!(found.peak_reserved.get(), 29_360_128);
        assert_eq!(found.device.likely.get(), likely);
        assert_eq!(found.device.safe.get(), safe);
        assert_eq!(caveats(&found), [""; 0]);
    }
    assert_eq!(LastStep::of(&events("mlp")).step, STEPS);
}

#[test]
fn a_script_that_died_after_its_first_steps_still_has_a_footprint() {
    let variants = outcome("dies", 1, 1).expect("results");
    let [process] = variants[0].processes.as_slice() else {
        panic!("one process")
    };
    assert!(process.died);
    assert_eq!(process.facts.steps, 2);
    let found = footprint_on("t4", process);
    assert_eq!(found.peak_reserved.get(), 23_068_672);
    assert_eq!(found.device.likely.get(), 175_112_192);
    assert_eq!(caveats(&found), ["ended_early", "died"]);
}

#[test]
fn a_script_that_died_before_its_first_step_is_an_error_with_its_output() {
    let error = outcome("dies-at-once", 1, 1).expect_err("no step");
    assert!(matches!(error, RehearsalError::Died { .. }), "{error:?}");
    let RehearsalError::Died { output, .. } = error else {
        return;
    };
    assert!(
        output.ends_with("ValueError: before the first step\n"),
        "{output}"
    );
}

#[test]
fn a_rehearsal_on_cpus_tells_about_its_loaders() {
    let variants = outcome("workers", 0, 0).expect("results");
    let [process] = variants[0].processes.as_slice() else {
        panic!("one process")
    };
    assert_eq!(process.facts.steps, STEPS);
    assert!(process.trace.events.is_empty());
    let report = process.facts.host.as_ref().expect("a report of the host");
    let host = host_facts(report).expect("facts of the host");
    assert_eq!((host.workers, host.prefetch, host.micro_batch), (2, 2, 64));
    assert_eq!(host.dataset.samples, 4096);
    let pipeline = Pipeline {
        workers: host.workers,
        prefetch: host.prefetch,
        micro_batch: host.micro_batch,
        start_method: host.start_method,
        pin_memory: host.pin_memory,
        persistent_workers: host.persistent_workers,
    };
    let need = host_need(&host, &pipeline);
    assert_eq!(need.likely.get(), 417_338_362);
    assert_eq!(need.safe.get(), 450_337_436);
    assert_eq!(need.shm_safe.get(), 1_097_728);
    let pace = pace(report).expect("a pace");
    assert!(pace.sample_seconds > 0.0, "{pace:?}");
}

#[test]
fn ranks_come_in_their_order() {
    let variants = outcome("two-ranks", 1, 0).expect("results");
    let processes = &variants[0].processes;
    let ranks: Vec<u32> = processes.iter().map(|process| process.facts.rank).collect();
    assert_eq!(ranks, [0, 1]);
    // The second rank has batches of twice the size.
    for (process, allocated) in processes.iter().zip([18_108_416, 18_124_800]) {
        let workload = workload(process, STEPS);
        assert_eq!(workload.world_size, 2);
        assert_eq!(workload.communicators, [2]);
        let found = footprint_on("t4", process);
        assert_eq!(found.peak_allocated.get(), allocated);
        assert_eq!(found.device.likely.get(), 1_045_430_272);
        assert_eq!(caveats(&found), ["nccl_estimated"]);
    }
}
