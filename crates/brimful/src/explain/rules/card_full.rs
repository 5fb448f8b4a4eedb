//! A card ran out of memory: too little, in pieces, or held by others.

use crate::allocator;
use crate::explain::rules::Rule;
use crate::explain::rules::telling::{proof, quoted, remedy, remedy_with};
use crate::explain::signs::{Leading, Signs};
use crate::explain::text::{CudaMessage, Rank};
use crate::explain::{
    Cause, Confidence, Detail, Evidence, Proof, Remedy, SnapshotReplay, Source, Verdict,
};
use crate::machine::TorchVersion;
use crate::record::{GpuProof, HookLine};
use crate::units::Bytes;
use crate::watch::GpuSample;

pub(super) const RULE: Rule = Rule {
    id: "card_full",
    about: "PyTorch, or another library on the card, could not have what it asked for. In pieces: a replay of the \
            allocator's snapshot fits under other settings, or what lies unused inside of what PyTorch reserved would \
            do and is much. Held by others: more than half of the card is neither free nor this process's. Else \
            exhausted.",
    check,
};

/// An out-of-memory error this shortly before the end is what ended it.
const RECENT_MS: u64 = 60_000;
/// A card with less left has no room for a library's workspace.
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
        proofs.push(proof(
            Source::Hook,
            format!(
                "PyTorch in process {} on device {}: {} allocated, {} reserved{}, {}",
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
        ));
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
    if let Some(others) = others_by_sample(evidence) {
        if others.is_most && cause == Cause::CudaOomExhausted {
            cause = Cause::CudaOomOtherProcess;
        }
        proofs.push(others.proof);
    }
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
        || from_replay.is_some();
    Some(Verdict {
        cause,
        confidence: if adds_up {
            Confidence::Proved
        } else {
            Confidence::Likely
        },
        detail,
        summary: summary(cause, message.as_ref(), from_replay, detail),
        evidence: proofs,
        remedies: remedies(evidence, cause, message.as_ref(), from_replay, detail),
        would_settle: if adds_up {
            Vec::new()
        } else {
            vec![
                "`nvidia-smi` on that machine: who else holds the card".into(),
                "running it again under `brimful run`, which keeps the allocator's snapshot".into(),
            ]
        },
    })
}

/// A library that was refused, or could not set itself up, on a card that was full at the last sample: the same words
/// with room left mean something else.
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
        evidence: vec![proof(Source::Samples, full), quoted(&leading)],
        remedies: remedies(evidence, cause, None, None, leading.sign.detail),
        would_settle: vec!["the same with half the batch: if it works, memory was short".into()],
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

/// The hook's figures, which need no parsing, over those of the message.
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

#[derive(Debug)]
struct Others {
    is_most: bool,
    proof: Proof,
}

/// Who else was on the cards, at the last sample that names any.
fn others_by_sample(evidence: &Evidence) -> Option<Others> {
    let last = evidence.end.as_ref().and_then(|end| end.last.as_ref());
    let sample = evidence
        .samples
        .iter()
        .chain(last)
        .rfind(|sample| sample.gpus.iter().any(|gpu| !gpu.others.is_empty()))?;
    let gpu = sample
        .gpus
        .iter()
        .max_by_key(|gpu| gpu.others.iter().filter_map(|(_, held)| *held).max())?;
    let held: u64 = gpu
        .others
        .iter()
        .filter_map(|(_, held)| held.map(Bytes::get))
        .fold(0, u64::saturating_add);
    let pids: Vec<String> = gpu
        .others
        .iter()
        .take(8)
        .map(|(pid, _)| pid.to_string())
        .collect();
    Some(Others {
        is_most: Bytes(held).share_of(gpu.total) > 0.5,
        proof: proof(
            Source::Samples,
            format!(
                "others on card {}: process {}, {} of {}",
                gpu.index,
                pids.join(", "),
                Bytes(held),
                gpu.total
            ),
        ),
    })
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
        Source::Snapshot,
        format!(
            "the allocator's snapshot: {} allocated of {} reserved, {} free inside in pieces of at most {}{}",
            replay.allocated,
            replay.reserved,
            replay.free_in_segments,
            replay.largest_free_block,
            replay
                .asked
                .map(|asked| format!("; {asked} were asked for"))
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
    part("asked for", message.asked);
    part("free", message.free);
    part("allocated by PyTorch", message.allocated);
    part("reserved and unused", message.unused);
    part("on the card", message.total);
    if message.others() > Bytes::ZERO {
        part("held by neither", Some(message.others()));
    }
    part("allowed to this process", message.allowed);
    proof(Source::Output, parts.join(", "))
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
        .or_else(|| replay.and_then(|replay| replay.asked))
        .map_or_else(
            || "what was asked for".to_owned(),
            |asked| format!("{asked} more"),
        );
    let card = message
        .device
        .map_or_else(|| "the card".to_owned(), |device| format!("card {device}"));
    match cause {
        Cause::CudaOomFragmented => {
            let unused = message
                .unused
                .or_else(|| replay.map(|replay| replay.free_in_segments))
                .map_or_else(String::new, |unused| {
                    format!(": {unused} lie unused in pieces inside of what PyTorch reserved")
                });
            format!("{card} had room for {asked}, but not in one piece{unused}")
        }
        Cause::CudaOomOtherProcess => {
            let held = match (message.others(), message.total) {
                (others, Some(total)) if others > Bytes::ZERO => {
                    format!(": {others} of {total} are neither free nor this process's")
                }
                _ => String::new(),
            };
            format!("others hold most of {card}, {asked} did not fit{held}")
        }
        _ if detail == Detail::PerProcessCap => format!(
            "this process reached the cap set for it ({}), {asked} was refused",
            message.allowed.unwrap_or_default()
        ),
        _ if message.is_unified_memory() => {
            format!("{asked} did not fit: the memory that {card} shares with the host is used up")
        }
        _ => match message.total {
            Some(total) => format!(
                "{card} is full: {asked} did not fit into {total}, of which this process holds {}",
                message.own()
            ),
            None => format!("{card} is full: {asked} could not be had"),
        },
    }
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
        remedies.push(remedy_with(
            format!("Set `{}={}`", variable(message), answer.alloc_conf),
            format!("replayed: fits with {} to spare", answer.to_spare),
        ));
    }
    match cause {
        Cause::CudaOomFragmented => {
            if remedies.is_empty() {
                remedies.push(expandable(evidence, message));
            }
            remedies.push(remedy("Keep shapes alike from step to step: pad to few lengths, drop the last small batch"));
            remedies.push(remedy(
                "Use a smaller micro-batch, and accumulate to keep the effective batch",
            ));
        }
        Cause::CudaOomOtherProcess => {
            let pids: Vec<String> = message
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
                remedy("End what else is on the card: `nvidia-smi` lists it; notebooks and dead ranks keep memory until they end")
            } else {
                remedy(format!("End what else is on the card: process {}", pids.join(", ")))
            });
            remedies.push(remedy(
                "Choose another card: `CUDA_VISIBLE_DEVICES`; one process per card",
            ));
        }
        _ => {
            if detail == Detail::PerProcessCap {
                remedies.push(remedy("Raise the cap: `torch.cuda.set_per_process_memory_fraction`, or `per_process_memory_fraction` in the allocator's settings"));
            }
            if detail == Detail::CacheBudget {
                remedies.push(remedy("Give the server a larger share of the card, or a shorter context: `gpu_memory_utilization`, `max_model_len`"));
            }
            if let Some(message) = message
                && let (Some(asked), Some(total)) = (message.asked, message.total)
                && asked > total
            {
                remedies.push(remedy_with(
                    "Look at the one tensor that is asked for: no card of this size can hold it",
                    format!("{asked} of {total}"),
                ));
            }
            remedies.push(remedy(
                "Use a smaller micro-batch, and accumulate to keep the effective batch",
            ));
            remedies.push(remedy("Turn on activation checkpointing, or a precision of 16 bits where the card computes in it"));
            remedies.push(remedy(
                "Ask `brimful predict` what fits on which card before the next run",
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

/// `expandable_segments` came with 2.1; before there is only the cruder setting.
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
            "Set `{name}=max_split_size_mb:512`; from PyTorch 2.1 on `expandable_segments:True` does it better"
        ))
    }
}
