//! A GPU ran out of memory: exhausted, fragmented, or used by other processes.

use crate::allocator;
use crate::explain::rules::Rule;
use crate::explain::rules::others_on_card::{
    RECENT_MS, job_holds_most, others_by_sample, unknown_by_sample,
};
use crate::explain::rules::telling::{proof, quoted, remedy, remedy_to, remedy_with};
use crate::explain::signs::{Leading, Signs};
use crate::explain::text::{CudaMessage, Rank};
use crate::explain::{
    Cause, Confidence, Detail, Evidence, EvidenceSource, Proof, Remedy, SnapshotReplay, Verdict,
};
use crate::machine::TorchVersion;
use crate::record::{GpuProof, HookLine};
use crate::units::Bytes;
use crate::watch::GpuSample;

pub(super) const RULE: Rule = Rule {
    id: "card_full",
    about: "PyTorch or another library failed to allocate GPU memory. Fragmented: a replay of the allocator snapshot \
            fits with other settings, or a large part of PyTorch's reserved memory is unused and would satisfy the \
            request. Other process: other processes hold more than half of the GPU, and the job itself does not; \
            proved only where the driver's process numbers are known to mean the same processes here. Otherwise \
            exhausted.",
    check,
};

/// A GPU that is fuller than this has no space for the workspace of a library.
const NEARLY_FULL: f64 = 0.95;

fn check(evidence: &Evidence, signs: &Signs<'_>) -> Option<Verdict> {
    let leading = signs.leading();
    let told = leading.filter(|leading| is_card(leading.sign.cause));
    let hooked = evidence.cuda_ooms.last();
    let names_other = leading
        .is_some_and(|leading| leading.sign.rank <= Rank::Hinted && !is_card(leading.sign.cause));
    if signs.killed_with_memory_full() {
        return None;
    }
    let was_killed = matches!(signs.signal, Some(7 | 9));
    // One that was caught, and another exception long after it.
    let is_old = |oom: &GpuProof| {
        let at_end = evidence.end.as_ref().map_or(oom.at_ms, |end| end.at_ms);
        at_end.saturating_sub(oom.at_ms) > RECENT_MS
    };
    let ended_otherwise = leading.is_some_and(|leading| {
        leading.sign.cause == Cause::NotMemory && leading.sign.rank <= Rank::Raised
    });
    let was_caught =
        |oom: &GpuProof| ended_otherwise && (is_old(oom) || raised_something_else(evidence, oom));
    let from_hook = hooked.filter(|oom| !(names_other || was_killed || was_caught(oom)));
    let from_replay = evidence.replay.as_ref().filter(|replay| {
        replay.asked.is_some() && !names_other && !was_killed && !hooked.is_some_and(was_caught)
    });
    if told.is_none() && from_hook.is_none() && from_replay.is_none() {
        return library_without_room(evidence, leading);
    }

    let mut proofs = Vec::new();
    let mut message = told.and_then(|told| told.sign.facts.cuda.clone());
    if let Some(oom) = from_hook {
        message = Some(of_hook(oom, message));
        proofs.push(by_hook(oom));
    }
    let mut cause = message
        .as_ref()
        .map_or(Cause::CudaOomExhausted, CudaMessage::cause);
    if let Some(told) = &told {
        if told.sign.facts.cuda.is_none() && from_hook.is_none() {
            cause = told.sign.cause;
        }
        proofs.push(quoted(told));
    }
    let others = others_by_sample(evidence);
    let is_counted = message
        .as_ref()
        .is_some_and(|message| message.total.is_some() && message.free.is_some());
    let are_others_seen = others.as_ref().is_some_and(|others| others.is_most);
    if are_others_seen && !is_counted && cause == Cause::CudaOomExhausted {
        cause = Cause::CudaOomOtherProcess;
    }
    if cause == Cause::CudaOomOtherProcess && job_holds_most(evidence, message.as_ref()) {
        cause = Cause::CudaOomExhausted;
    }
    proofs.extend(others.map(|others| others.proof));
    if let Some(message) = &message {
        proofs.push(figures(message));
    }
    if let Some(replay) = from_replay {
        cause = by_replay(replay, cause);
        proofs.push(replayed(replay));
    }
    let detail = told.map_or(Detail::Figures, |told| told.sign.detail);
    let adds_up = message
        .as_ref()
        .is_some_and(|message| message.adds_up(cause))
        || (from_replay.is_some() && cause != Cause::CudaOomOtherProcess);
    if !adds_up {
        proofs.extend(unknown_by_sample(evidence));
    }
    Some(Verdict {
        cause,
        confidence: if adds_up {
            Confidence::Proved
        } else {
            Confidence::Likely
        },
        detail,
        summary: if cause == Cause::CudaOomOtherProcess {
            summary_of_others(message.as_ref(), adds_up || are_others_seen)
        } else {
            summary(cause, message.as_ref(), from_replay, detail)
        },
        evidence: proofs,
        remedies: remedies(evidence, cause, message.as_ref(), from_replay, detail),
        would_settle: if adds_up {
            Vec::new()
        } else {
            vec![
                "`nvidia-smi` on that machine, to see which other processes use the GPU".into(),
                "another run with `brimful run`, which saves an allocator snapshot".into(),
            ]
        },
    })
}

/// A library that failed to allocate or to initialize on a GPU that was full at the last sample. With free memory, the
/// same message has another cause.
fn library_without_room(evidence: &Evidence, leading: Option<Leading<'_>>) -> Option<Verdict> {
    let leading = leading.filter(|leading| {
        matches!(
            leading.sign.detail,
            Detail::LibraryAllocation | Detail::LibrarySetupFailed
        )
    })?;
    let last = evidence.end.as_ref().and_then(|end| end.last.as_ref());
    let sample = last.or(evidence.samples.last())?;
    let gpu = sample.gpus.iter().max_by(|a, b| {
        let share = |gpu: &GpuSample| gpu.used.share_of(gpu.total);
        share(a).total_cmp(&share(b))
    })?;
    if gpu.used.share_of(gpu.total) < NEARLY_FULL {
        return None;
    }
    let full = format!(
        "GPU {}: {} of {} used at the last sample",
        gpu.index, gpu.used, gpu.total
    );
    let cause = Cause::CudaOomExhausted;
    Some(Verdict {
        cause,
        confidence: Confidence::Likely,
        detail: leading.sign.detail,
        summary: format!("a CUDA library probably failed to allocate memory: {full}"),
        evidence: vec![proof(EvidenceSource::Samples, full), quoted(&leading)],
        remedies: remedies(evidence, cause, None, None, leading.sign.detail),
        would_settle: vec![
            "a run with half the batch size: if it works, GPU memory was the cause".into(),
        ],
    })
}

/// Whether the process that ran out of memory was ended by an exception of another kind: it had caught this one.
fn raised_something_else(evidence: &Evidence, oom: &GpuProof) -> bool {
    let last = evidence.hook.iter().rev().find_map(|line| match line {
        HookLine::Exception {
            pid,
            type_name,
            message,
            ..
        } if *pid == oom.pid => Some((type_name, message)),
        _ => None,
    });
    last.is_some_and(|(type_name, message)| {
        !type_name.contains("OutOfMemory") && !message.to_lowercase().contains("out of memory")
    })
}

fn is_card(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::CudaOomExhausted | Cause::CudaOomFragmented | Cause::CudaOomOtherProcess
    )
}

fn by_hook(oom: &GpuProof) -> Proof {
    proof(
        EvidenceSource::Hook,
        format!(
            "PyTorch in process {} on GPU {}: {} allocated, {} reserved{}, {}",
            oom.pid,
            oom.device,
            oom.allocated,
            oom.reserved,
            oom.free
                .map(|free| format!(", {free} free"))
                .unwrap_or_default(),
            match oom.retries {
                1 => "1 retry".to_owned(),
                n => format!("{n} retries"),
            }
        ),
    )
}

/// The values of the hook, which need no parsing, take precedence over those of the message.
fn of_hook(oom: &GpuProof, printed: Option<CudaMessage>) -> CudaMessage {
    let mut message = CudaMessage::of_text(&oom.message)
        .or(printed)
        .unwrap_or_default();
    message.allocated = Some(oom.allocated);
    message.unused = Some(oom.reserved.saturating_sub(oom.allocated));
    message.free = oom.free.or(message.free);
    message.total = oom.total.or(message.total);
    message.asked = oom.asked.or(message.asked);
    message.device = Some(oom.device);
    message
}

fn by_replay(replay: &SnapshotReplay, otherwise: Cause) -> Cause {
    let Some(asked) = replay.asked else {
        return otherwise;
    };
    let in_pieces = replay
        .free_in_segments
        .saturating_add(replay.device_free.unwrap_or_default());
    let another_setting_fits = replay.answers.iter().any(|answer| answer.fits);
    if another_setting_fits || (replay.largest_free_block < asked && asked <= in_pieces) {
        Cause::CudaOomFragmented
    } else if otherwise == Cause::CudaOomFragmented {
        Cause::CudaOomExhausted
    } else {
        otherwise
    }
}

fn replayed(replay: &SnapshotReplay) -> Proof {
    proof(
        EvidenceSource::Snapshot,
        format!(
            "allocator snapshot: {} allocated of {} reserved, {} unused, largest free block {}{}",
            replay.allocated,
            replay.reserved,
            replay.free_in_segments,
            replay.largest_free_block,
            replay
                .asked
                .map(|asked| format!("; {asked} requested"))
                .unwrap_or_default(),
        ),
    )
}

fn figures(message: &CudaMessage) -> Proof {
    let mut parts = Vec::new();
    let mut part = |name: &str, value: Option<Bytes>| {
        if let Some(value) = value {
            parts.push(format!("{value} {name}"));
        }
    };
    part("requested", message.asked);
    part("free", message.free);
    part("allocated by PyTorch", message.allocated);
    part("reserved but unused", message.unused);
    part("total", message.total);
    if message.others() > Bytes::ZERO {
        let whose = if message.knows_itself() {
            "used outside this process"
        } else {
            "not used by PyTorch in this process"
        };
        part(whose, Some(message.others()));
    }
    part("allowed for this process", message.allowed);
    proof(EvidenceSource::Output, parts.join(", "))
}

fn summary(
    cause: Cause,
    message: Option<&CudaMessage>,
    replay: Option<&SnapshotReplay>,
    detail: Detail,
) -> String {
    let none = CudaMessage::default();
    let message = message.unwrap_or(&none);
    let asked = message
        .asked
        .or_else(|| replay.and_then(|replay| replay.asked));
    let request = asked.map_or_else(
        || "the request".to_owned(),
        |asked| format!("the {asked} request"),
    );
    let allocation = allocation_of(asked);
    let gpu = gpu_of(message);
    match cause {
        Cause::CudaOomFragmented => {
            let unused = message
                .unused
                .or_else(|| replay.map(|replay| replay.free_in_segments))
                .map_or_else(String::new, |unused| {
                    format!(": {unused} of PyTorch's reserved memory was unused")
                });
            format!("{gpu} had enough free memory for {request}, but it was fragmented{unused}")
        }
        _ if detail == Detail::PerProcessCap => format!(
            "this process reached its GPU memory cap of {}; {allocation} failed",
            message.allowed.unwrap_or_default()
        ),
        _ if message.is_unified_memory() => {
            format!("{allocation} failed: the memory that {gpu} shares with the host ran out")
        }
        _ => match message.total {
            Some(total) => format!(
                "{gpu} ran out of memory: {allocation} failed; this process holds {own} of {total}",
                own = message.own()
            ),
            None => format!("{gpu} ran out of memory: {allocation} failed"),
        },
    }
}

fn summary_of_others(message: Option<&CudaMessage>, is_proved: bool) -> String {
    let none = CudaMessage::default();
    let message = message.unwrap_or(&none);
    let held = match (message.others(), message.total) {
        (others, Some(total)) if others > Bytes::ZERO && message.knows_itself() => {
            format!(": other processes hold {others} of {total}")
        }
        (others, Some(total)) if others > Bytes::ZERO => {
            format!(": {others} of {total} are in use, but not by PyTorch in this process")
        }
        _ => String::new(),
    };
    format!(
        "another process {}holds most of {}; {} failed{held}",
        if is_proved { "" } else { "probably " },
        gpu_of(message),
        allocation_of(message.asked)
    )
}

fn allocation_of(asked: Option<Bytes>) -> String {
    asked.map_or_else(
        || "an allocation".to_owned(),
        |asked| format!("an allocation of {asked}"),
    )
}

fn gpu_of(message: &CudaMessage) -> String {
    message
        .device
        .map_or_else(|| "the GPU".to_owned(), |device| format!("GPU {device}"))
}

fn remedies(
    evidence: &Evidence,
    cause: Cause,
    message: Option<&CudaMessage>,
    replay: Option<&SnapshotReplay>,
    detail: Detail,
) -> Vec<Remedy> {
    let mut remedies = Vec::new();
    let answers = replay
        .map(|replay| replay.answers.as_slice())
        .unwrap_or_default();
    for answer in answers.iter().filter(|answer| answer.fits).take(3) {
        remedies.push(remedy_to(
            format!("Set `{}={}`", variable(message), answer.alloc_conf),
            format!("replay: fits with {} to spare", answer.to_spare),
            answer.peak_reserved,
            answer.peak_reserved.saturating_add(answer.to_spare),
        ));
    }
    match cause {
        Cause::CudaOomFragmented => {
            if remedies.is_empty() {
                remedies.push(expandable(evidence, message));
            }
            remedies.push(remedy("Keep tensor shapes the same from step to step: pad to a few lengths, drop the last, smaller batch"));
            remedies.push(remedy(
                "Use a smaller micro-batch, and accumulate gradients to keep the effective batch size",
            ));
        }
        Cause::CudaOomOtherProcess => {
            // Else this process may be among them.
            let pids: Vec<String> = message
                .filter(|message| message.knows_itself())
                .map(|message| {
                    message
                        .processes
                        .iter()
                        .take(8)
                        .map(|(pid, held)| format!("{pid} ({held})"))
                        .collect()
                })
                .unwrap_or_default();
            remedies.push(if pids.is_empty() {
                remedy("Stop the other processes on the GPU (`nvidia-smi` lists them); notebooks and orphaned ranks hold memory until they exit")
            } else {
                remedy(format!("Stop the other processes on the GPU: {}", pids.join(", ")))
            });
            remedies.push(remedy(
                "Choose another GPU with `CUDA_VISIBLE_DEVICES`, and run one process per GPU",
            ));
        }
        _ => {
            if detail == Detail::PerProcessCap {
                remedies.push(remedy("Raise the cap with `torch.cuda.set_per_process_memory_fraction`, or `per_process_memory_fraction` in the allocator settings"));
            }
            if detail == Detail::CacheBudget {
                remedies.push(remedy("Give the server more GPU memory (`gpu_memory_utilization`), or a shorter context (`max_model_len`)"));
            }
            if let Some(message) = message
                && let (Some(asked), Some(total)) = (message.asked, message.total)
                && asked > total
            {
                remedies.push(remedy_with(
                    "Check the size of the requested tensor: it is larger than the GPU",
                    format!("{asked} of {total}"),
                ));
            }
            remedies.push(remedy(
                "Use a smaller micro-batch, and accumulate gradients to keep the effective batch size",
            ));
            remedies.push(remedy(
                "Enable activation checkpointing, or 16-bit precision if the GPU supports it",
            ));
            remedies.push(remedy(
                "Run `brimful predict` to see which GPUs the run fits on",
            ));
        }
    }
    remedies
}

/// The variable that every release of this kind of build reads.
fn variable(message: Option<&CudaMessage>) -> &'static str {
    if message.is_some_and(|message| message.is_hip) {
        allocator::HIP
    } else {
        allocator::CUDA
    }
}

/// `expandable_segments` exists since 2.1; older releases have only `max_split_size_mb`.
fn expandable(evidence: &Evidence, message: Option<&CudaMessage>) -> Remedy {
    let version = evidence.hook.iter().find_map(|line| match line {
        HookLine::Torch { version, .. } => TorchVersion::parse(version),
        _ => None,
    });
    let knows = match version {
        Some(version) => version >= TorchVersion::new(2, 1, 0),
        None => message.is_none_or(|message| message.names_expandable_segments),
    };
    let name = variable(message);
    if knows {
        remedy(format!(
            "Set `{name}=expandable_segments:True`, without `max_split_size_mb`"
        ))
    } else {
        remedy(format!(
            "Set `{name}=max_split_size_mb:512`; PyTorch 2.1 and later support `expandable_segments:True`, which works better"
        ))
    }
}
