//! Laws that hold over all rules.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::explain::rules::CATALOGUE;
use crate::explain::rules::testing::{check, ended, with_kills, with_used, with_workers};
use crate::explain::{
    Cause, Confidence, Detail, Evidence, SnapshotAnswer, SnapshotReplay, explain,
};
use crate::record::{GpuProof, Outcome};
use crate::units::Bytes;
use crate::watch::{Gauge, GpuSample, Sample};

#[test]
fn ids_are_unique_words() {
    let ids: BTreeSet<&str> = CATALOGUE.iter().map(|rule| rule.id).collect();
    assert_eq!(ids.len(), CATALOGUE.len());
    for id in ids {
        assert!(id.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
    }
}

#[test]
fn without_evidence_nothing_is_said() {
    let verdict = explain(&Evidence::default());
    assert_eq!(verdict.confidence, Confidence::CannotTell);
    assert_eq!(verdict.cause, Cause::Ambiguous);
}

#[test]
fn words_about_memory_without_the_shape_of_an_error_decide_nothing() {
    for text in [
        "Exit code -9: the worker was ended due to Out of Memory",
        "`dmesg -T | grep -i -E 'killed process|out of memory'` or `journalctl -k`",
        "Tip: lower the resolution when you run out of memory",
        "The job ended. Jobs that run out of memory need more --mem.",
        "see the FAQ about CUDA out of memory and how to read it",
        "memory exhausted",
    ] {
        let verdict = explain(&Evidence {
            text: text.into(),
            ..Evidence::default()
        });
        assert_eq!(verdict.cause, Cause::Ambiguous, "{text}: {verdict:?}");
        assert_eq!(verdict.confidence, Confidence::CannotTell, "{text}");
    }
    let verdict = explain(&Evidence {
        text: "memory exhausted".into(),
        ..Evidence::default()
    });
    assert_eq!(verdict.detail, Detail::UnknownWords);
    assert!(verdict.remedies.len() == 2 && !verdict.would_settle.is_empty());
}

#[test]
fn a_text_alone_proves_only_what_was_counted_or_adds_up() {
    let confidence = |text: &str| {
        explain(&Evidence {
            text: text.into(),
            ..Evidence::default()
        })
        .confidence
    };
    for text in [
        "Memory cgroup out of memory: Killed process 72 (python) total-vm:8000kB, anon-rss:7000kB",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 6.00 GiB already allocated; 1.00 GiB free; 6.20 GiB reserved in total by PyTorch)",
    ] {
        assert_eq!(confidence(text), Confidence::Proved, "{text}");
    }
    for text in [
        "MemoryError",
        "OSError: [Errno 24] Too many open files",
        "RuntimeError: CUDA error: device-side assert triggered",
        "Reason: OOMKilled",
        "torch.OutOfMemoryError: CUDA out of memory.",
        // More is free than was asked for.
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity; 1.00 GiB already allocated; 6.00 GiB free; 1.20 GiB reserved in total by PyTorch)",
    ] {
        assert_eq!(confidence(text), Confidence::Likely, "{text}");
    }
}

fn with_oom(asked: u64, allocated: u64, reserved: u64, free: u64) -> Evidence {
    let mut evidence = ended(Outcome::Failed { code: 1 });
    evidence.cuda_ooms.push(GpuProof {
        message: format!("CUDA out of memory. Tried to allocate {asked}.00 GiB."),
        pid: 40,
        allocated: Bytes::from_gib(allocated),
        reserved: Bytes::from_gib(reserved),
        free: Some(Bytes::from_gib(free)),
        total: Some(Bytes::from_gib(24)),
        ..GpuProof::default()
    });
    evidence
}

#[test]
fn a_library_that_is_refused_on_a_full_card_is_short_of_its_memory() {
    let mut evidence = ended(Outcome::Failed { code: 1 });
    evidence.text =
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
            .into();
    check(
        &evidence,
        Cause::Ambiguous,
        "library_allocation",
        "a CUDA library",
    );
    let with_used = |gib| Sample {
        gpus: vec![GpuSample {
            used: Bytes::from_gib(gib),
            total: Bytes::from_gib(24),
            ..GpuSample::default()
        }],
        ..Sample::default()
    };
    evidence.samples = vec![with_used(23)];
    check(
        &evidence,
        Cause::CudaOomExhausted,
        "library_allocation",
        "23 GiB of 24 GiB",
    );
    evidence.samples = vec![with_used(8)];
    check(
        &evidence,
        Cause::Ambiguous,
        "library_allocation",
        "a CUDA library",
    );
}

#[test]
fn the_hooks_figures_tell_the_kinds_of_a_full_card_apart() {
    check(
        &with_oom(2, 22, 23, 1),
        Cause::CudaOomExhausted,
        "",
        "an allocation of 2 GiB failed; this process holds",
    );
    check(
        &with_oom(2, 16, 23, 1),
        Cause::CudaOomFragmented,
        "",
        "it was fragmented",
    );
    check(
        &with_oom(2, 3, 4, 1),
        Cause::CudaOomOtherProcess,
        "",
        "another process probably holds most",
    );
}

#[test]
fn a_job_that_holds_most_of_the_card_blames_nobody_else() {
    // Of this process PyTorch holds little; the rest may be of another process, another library or another rank.
    let reserved = |pid, device, gib| Gauge {
        pid,
        device: Some(device),
        reserved: Bytes::from_gib(gib),
        ..Gauge::default()
    };
    let mut evidence = with_oom(2, 3, 4, 1);
    evidence.cuda_ooms[0].device = 1;
    for (gauges, cause) in [
        (
            vec![reserved(40, 1, 4), reserved(41, 1, 16)],
            Cause::CudaOomExhausted,
        ),
        // On another GPU.
        (
            vec![reserved(40, 1, 4), reserved(41, 0, 16)],
            Cause::CudaOomOtherProcess,
        ),
        // More than the GPU has: these number their GPUs alike, and none holds most of one.
        (
            (40..60).map(|pid| reserved(pid, 1, 4)).collect(),
            Cause::CudaOomOtherProcess,
        ),
    ] {
        evidence.samples = vec![Sample {
            at_ms: 99_000,
            gauges,
            ..Sample::default()
        }];
        check(&evidence, cause, "", "");
    }
    // The driver counts more for the job than its allocators do.
    evidence.samples[0].gauges.clear();
    evidence.samples[0].gpus = vec![GpuSample {
        used: Bytes::from_gib(23),
        total: Bytes::from_gib(24),
        ours: Some(Bytes::from_gib(20)),
        ..GpuSample::default()
    }];
    check(&evidence, Cause::CudaOomExhausted, "", "");
}

#[test]
fn others_on_another_gpu_are_not_to_blame() {
    let gpu = |index, ours: Option<u64>, other: u64| GpuSample {
        index,
        used: Bytes::from_gib(23),
        total: Bytes::from_gib(24),
        ours: ours.map(Bytes::from_gib),
        others: vec![(77, Some(Bytes::from_gib(other)))],
        ..GpuSample::default()
    };
    let mut evidence = ended(Outcome::Failed { code: 1 });
    evidence.text = "RuntimeError: CUDA error: out of memory".into();
    for (gpus, cause) in [
        (
            vec![gpu(0, Some(20), 1), gpu(1, None, 22)],
            Cause::CudaOomExhausted,
        ),
        (
            vec![gpu(0, Some(2), 20), gpu(1, None, 1)],
            Cause::CudaOomOtherProcess,
        ),
        // Which one was full is not known.
        (
            vec![gpu(0, None, 1), gpu(1, None, 22)],
            Cause::CudaOomExhausted,
        ),
        // The driver counts what cannot be on this GPU.
        (vec![gpu(0, Some(2), 36)], Cause::CudaOomExhausted),
    ] {
        evidence.samples = vec![Sample {
            at_ms: 99_000,
            gpus,
            ..Sample::default()
        }];
        check(&evidence, cause, "", "");
    }
}

#[test]
fn a_replay_decides_what_figures_cannot() {
    let mut evidence = with_oom(2, 22, 23, 1);
    evidence.replay = Some(SnapshotReplay {
        asked: Some(Bytes::from_gib(2)),
        allocated: Bytes::from_gib(22),
        reserved: Bytes::from_gib(23),
        largest_free_block: Bytes::from_mib(100),
        free_in_segments: Bytes::from_gib(1),
        has_history: true,
        answers: vec![SnapshotAnswer {
            alloc_conf: "expandable_segments:True".into(),
            fits: true,
            peak_reserved: Bytes::from_gib(22),
            to_spare: Bytes::from_gib(1),
        }],
        ..SnapshotReplay::default()
    });
    let verdict = check(&evidence, Cause::CudaOomFragmented, "", "it was fragmented");
    assert_eq!(
        verdict.remedies[0].text,
        "Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`"
    );
    assert_eq!(
        verdict.remedies[0].effect.as_deref(),
        Some("replay: fits with 1 GiB to spare")
    );
}

#[test]
fn others_on_the_card_are_seen_in_samples() {
    let mut evidence = ended(Outcome::Failed { code: 1 });
    evidence.text = "RuntimeError: CUDA error: out of memory".into();
    evidence.samples.push(Sample {
        at_ms: 99_000,
        gpus: vec![GpuSample {
            index: 0,
            used: Bytes::from_gib(23),
            total: Bytes::from_gib(24),
            ours: Some(Bytes::from_gib(1)),
            others: vec![(77, Some(Bytes::from_gib(22)))],
            ..GpuSample::default()
        }],
        ..Sample::default()
    });
    let verdict = check(
        &evidence,
        Cause::CudaOomOtherProcess,
        "",
        "another process holds most",
    );
    assert!(
        verdict
            .evidence
            .iter()
            .any(|proof| proof.text.contains("(PID 77) hold 22 GiB of 24 GiB"))
    );
}

#[test]
fn a_killed_process_is_not_blamed_on_the_card() {
    let mut evidence = with_kills(with_oom(2, 22, 23, 1), Some(1));
    evidence.end.as_mut().unwrap().outcome = Outcome::Killed { signal: 9 };
    check(&evidence, Cause::HostOomKill, "", "host memory ran out");
}

#[test]
fn an_error_that_was_caught_long_ago_is_not_what_ended_it() {
    let mut evidence = with_oom(2, 22, 23, 1);
    evidence.text = "KeyError: 'label'".into();
    check(&evidence, Cause::NotMemory, "exception", "label");
    evidence.cuda_ooms[0].at_ms = 99_000;
    check(&evidence, Cause::CudaOomExhausted, "", "24 GiB");
}

#[test]
fn a_killed_process_with_memory_full_outranks_what_it_printed() {
    let mut evidence = with_used(ended(Outcome::Killed { signal: 9 }), 32, 32);
    evidence.text = "RuntimeError: CUDA error: out of memory".into();
    check(&evidence, Cause::HostOomKill, "", "likely killed");
}

#[test]
fn a_rise_in_the_workers_is_named() {
    let mut evidence = with_workers(
        with_kills(ended(Outcome::Failed { code: 1 }), Some(1)),
        &[71, 72],
    );
    let mut first = evidence.samples[0].clone();
    first.at_ms = 0;
    for process in &mut first.processes {
        process.private = Bytes::from_gib(1);
    }
    evidence.samples.insert(0, first);
    evidence.text = "DataLoader worker (pid 71) is killed by signal: Killed.".into();
    let verdict = check(
        &evidence,
        Cause::DataloaderWorkerKilledOom,
        "worker_copies",
        "worker 71",
    );
    assert!(
        verdict
            .remedies
            .iter()
            .any(|remedy| remedy.effect.as_deref() == Some("about 22 GiB of 32 GiB")),
        "{verdict:#?}"
    );
}

#[test]
fn evidence_stands_in_order_of_weight() {
    let mut evidence = with_kills(ended(Outcome::Killed { signal: 9 }), Some(1));
    evidence.text = "Killed".into();
    let verdict = explain(&evidence);
    assert!(verdict.evidence.is_sorted_by_key(|proof| proof.source));
}

/// Pieces of messages, so that random texts come near to what rules look for.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(
            "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; "
                .to_owned()
        ),
        Just(
            "7.00 GiB already allocated; 0 bytes free; 7.50 GiB reserved in total by PyTorch)"
                .to_owned()
        ),
        Just("RuntimeError: DataLoader worker (pid 7) is killed by signal: ".to_owned()),
        Just("exitcode: ".to_owned()),
        Just("-9".to_owned()),
        Just("Killed".to_owned()),
        Just("KeyError: 'x'".to_owned()),
        Just("MemoryError".to_owned()),
        Just("Reason: OOMKilled".to_owned()),
        Just("oom-kill event(s)".to_owned()),
        Just("Killed process 7 (python) total-vm:7kB".to_owned()),
        Just("Bus error".to_owned()),
        Just("No space left on device".to_owned()),
        Just("\n".to_owned()),
        Just("\u{1b}[31m".to_owned()),
        ".{0,12}",
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_panics(text in text()) {
        let verdict = explain(&Evidence { text, ..Evidence::default() });
        prop_assert!(!verdict.summary.is_empty());
        prop_assert!(verdict.summary.len() < 1000);
        prop_assert_eq!(verdict.cause == Cause::Ambiguous, verdict.confidence == Confidence::CannotTell);
    }

    #[test]
    fn no_unicode_panics(text in "(?s).{0,300}") {
        let _ = explain(&Evidence { text, ..Evidence::default() });
    }

    #[test]
    fn a_counted_kill_outranks_any_text(text in text(), code in 1_i32..128) {
        let outcomes = [Outcome::Killed { signal: 9 }, Outcome::Failed { code }];
        for outcome in outcomes {
            let mut evidence = with_kills(ended(outcome), Some(1));
            evidence.text.clone_from(&text);
            let verdict = explain(&evidence);
            prop_assert!(
                matches!(verdict.cause, Cause::HostOomKill | Cause::DataloaderWorkerKilledOom),
                "{:?}", verdict
            );
            prop_assert_eq!(verdict.confidence, Confidence::Proved);
        }
    }

    #[test]
    fn where_the_kernel_counted_none_no_text_makes_it_a_kernel_kill(text in text()) {
        let mut evidence = with_kills(ended(Outcome::Killed { signal: 9 }), Some(0));
        evidence.text = text;
        let verdict = explain(&evidence);
        prop_assert!(
            !matches!(verdict.cause, Cause::HostOomKill | Cause::DataloaderWorkerKilledOom),
            "{:?}", verdict
        );
    }
}

#[test]
fn none_counted_around_is_none_here() {
    let mut evidence = ended(Outcome::Killed { signal: 9 });
    evidence.end.as_mut().unwrap().kernel.oom_kills_around = Some(0);
    check(
        &evidence,
        Cause::NotMemory,
        "killed_by_someone",
        "killed no process of this job",
    );
}

#[test]
fn a_failure_beside_a_kill_in_a_job_with_workers_was_a_worker() {
    let mut evidence = with_used(ended(Outcome::Failed { code: 1 }), 32, 32);
    evidence = with_workers(evidence, &[71, 72]);
    evidence.end.as_mut().unwrap().kernel.oom_kills_around = Some(1);
    evidence.text = "ConnectionResetError: [Errno 104] Connection reset by peer".into();
    check(&evidence, Cause::DataloaderWorkerKilledOom, "", "worker");
}

#[test]
fn a_time_limit_is_told_by_its_code() {
    check(
        &ended(Outcome::Failed { code: 124 }),
        Cause::NotMemory,
        "time_limit",
        "124",
    );
}
