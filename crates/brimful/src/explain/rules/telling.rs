//! What many rules say alike: proofs, remedies, and what would settle a doubt.

use crate::explain::Detail;
use crate::explain::series::Shape;
use crate::explain::signs::{Leading, Signs};
use crate::explain::{Evidence, Proof, Remedy, Source};
use crate::units::Bytes;

pub(super) fn proof(source: Source, text: impl Into<String>) -> Proof {
    Proof {
        source,
        text: text.into(),
    }
}

pub(super) fn remedy(text: impl Into<String>) -> Remedy {
    Remedy {
        text: text.into(),
        effect: None,
    }
}

pub(super) fn remedy_with(text: impl Into<String>, effect: impl Into<String>) -> Remedy {
    Remedy {
        text: text.into(),
        effect: Some(effect.into()),
    }
}

/// The line of a leading sign, as evidence.
pub(super) fn quoted(leading: &Leading<'_>) -> Proof {
    proof(leading.source, format!("`{}`", leading.quote()))
}

/// What the samples say of host memory, if there are any.
pub(super) fn host_proofs(signs: &Signs<'_>) -> Vec<Proof> {
    let mut proofs = Vec::new();
    if let Some(words) = signs.series.host_in_words() {
        proofs.push(proof(Source::Samples, format!("host memory: {words}")));
    }
    if let Some(shape) = signs.series.shape {
        proofs.push(proof(Source::Samples, shape_in_words(shape)));
    }
    if let Some(workers) = signs.series.workers {
        let mut text = format!(
            "{} DataLoader workers hold {} each that nobody shares",
            workers.n, workers.private_each
        );
        if workers.grown_by >= Bytes::from_mib(256) {
            text = format!("{text}, {} more than at first in all", workers.grown_by);
        }
        proofs.push(proof(Source::Samples, text));
    }
    proofs
}

/// The nearest limit that kills and who sets it, where the record knows.
pub(super) fn limit_proof(evidence: &Evidence) -> Option<Proof> {
    let attempt = evidence.attempt.as_ref()?;
    let limit = attempt.limit?;
    let by = attempt
        .limit_set_by
        .as_ref()
        .map(|by| format!(", set by {by}"))
        .unwrap_or_default();
    Some(proof(Source::Samples, format!("the brim is {limit}{by}")))
}

fn shape_in_words(shape: Shape) -> String {
    match shape {
        Shape::Leak { rise, over_ms } => {
            format!("a steady rise: {rise} in {}", duration(over_ms))
        }
        Shape::Burst { rise, over_ms } => {
            format!(
                "calm, then {rise} more in the last {:.1} s",
                over_ms as f64 / 1000.0
            )
        }
    }
}

fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// One word for how host memory came to its end.
pub(super) fn host_detail(signs: &Signs<'_>, otherwise: Detail) -> Detail {
    if let Some(workers) = signs.series.workers
        && let Some(limit) = signs.series.limit()
        && workers.grown_by.share_of(limit) >= 0.1
    {
        return Detail::WorkerCopies;
    }
    match signs.series.shape {
        Some(Shape::Leak { .. }) => Detail::Leak,
        Some(Shape::Burst { .. }) if saves_a_checkpoint(signs) => Detail::CheckpointSaveSpike,
        Some(Shape::Burst { .. }) => Detail::Burst,
        None => otherwise,
    }
}

fn saves_a_checkpoint(signs: &Signs<'_>) -> bool {
    [
        "savingmodelcheckpoint",
        "savingcheckpoint",
        "save_checkpoint",
        "savingmodel",
        "torch.save",
        "save_pretrained",
        "savingoptimizer",
    ]
    .iter()
    .any(|words| signs.text.contains(words))
}

/// What to do about host memory, cheapest first.
pub(super) fn host_remedies(evidence: &Evidence, signs: &Signs<'_>) -> Vec<Remedy> {
    let mut remedies = Vec::new();
    let n_workers = signs.series.workers.map(|workers| workers.n).or_else(|| {
        let most = evidence
            .loaders
            .iter()
            .map(|loader| u64::from(loader.n_workers))
            .max();
        most.filter(|n| *n > 0)
    });
    if let Some(workers) = signs.series.workers
        && workers.n > 1
        && workers.private_each >= Bytes::from_mib(256)
    {
        let copies = Bytes(workers.private_each.get().saturating_mul(workers.n));
        remedies.push(remedy_with(
            "Keep the dataset in arrays (NumPy, Arrow) instead of lists of Python objects: the workers then share one copy",
            format!("the {} workers hold {copies} of their own", workers.n),
        ));
    }
    if let Some(remedy) = fewer_workers(signs) {
        remedies.push(remedy);
    } else if n_workers.is_none_or(|n| n > 0) && !has_no_loader(evidence) {
        remedies.push(remedy(
            "Use fewer DataLoader workers: each may hold a copy of the dataset",
        ));
    }
    match signs.series.shape {
        Some(Shape::Leak { rise, over_ms }) => remedies.push(remedy_with(
            "Look for what is kept from step to step: losses collected without `.item()`, caches in the dataset, growing lists",
            format!("it grew by {rise} in {}", duration(over_ms)),
        )),
        Some(Shape::Burst { .. }) if saves_a_checkpoint(signs) => remedies.push(remedy(
            "Save in parts: a sharded or streamed checkpoint needs no second copy of the state in host memory",
        )),
        Some(Shape::Burst { rise, over_ms }) => remedies.push(remedy_with(
            "Look at what began at the end: building a checkpoint in memory, an evaluation, a longer sample, reading a file as a whole",
            format!("{rise} in {:.1} s", over_ms as f64 / 1000.0),
        )),
        None => {}
    }
    remedies.push(match signs.series.limit() {
        Some(limit) => remedy(format!("Ask for more memory than {limit}")),
        None => remedy("Ask for more memory: `--mem` (Slurm), `resources.limits.memory` (Kubernetes), `--memory` (Docker)"),
    });
    remedies
}

/// What helps where a notebook's platform ended the kernel: there is no scheduler to ask for more.
pub(super) fn notebook_remedies() -> Vec<Remedy> {
    [
        "Load less at once: batches of rows, only the columns that are needed, smaller dtypes; `del` what is done, then `gc.collect()`",
        "Use fewer DataLoader workers: each may hold a copy of the dataset",
        "Train in a process of its own, `!brimful run -- python train.py`: the kernel survives, and the run is explained",
        "Choose a machine with more memory (Colab: Runtime, Change runtime type; Kaggle: the session's accelerator)",
    ]
    .map(remedy)
    .into()
}

/// Whether the hook looked inside and no DataLoader was there.
fn has_no_loader(evidence: &Evidence) -> bool {
    evidence
        .attempt
        .as_ref()
        .is_some_and(|attempt| attempt.hook)
        && evidence.loaders.is_empty()
}

fn fewer_workers(signs: &Signs<'_>) -> Option<Remedy> {
    let workers = signs.series.workers?;
    let limit = signs.series.limit()?;
    let peak = signs.series.peak_used?;
    // Where the kernel killed, more was wanted than the limit.
    let (n, used) = workers.fewer(peak.max(limit), limit)?;
    Some(remedy_with(
        match n {
            1 => format!("Use 1 worker instead of {}", workers.n),
            n => format!("Use {n} workers instead of {}", workers.n),
        },
        format!("about {used} of {limit}"),
    ))
}

/// What would tell whether a SIGKILL came from the kernel's OOM killer.
pub(super) fn settles_a_kill() -> Vec<String> {
    vec![
        "`dmesg -T | grep -i -E 'killed process|out of memory'` or `journalctl -k`, at the time of its end".into(),
        "`oom_kill` in the group's `memory.events` (cgroup v2) or `memory.oom_control` (v1), before and after".into(),
        "on Slurm `sacct -j JOB --format=State,ExitCode,MaxRSS`, on Kubernetes `kubectl describe pod`".into(),
        "running it again under `brimful run`, which counts kills and samples memory".into(),
    ]
}
