//! Evidence, remedies and confirmations that several rules share.

use crate::explain::Detail;
use crate::explain::series::Shape;
use crate::explain::signs::{Leading, Signs};
use crate::explain::{Evidence, EvidenceSource, Proof, Remedy, RemedyMemory};
use crate::units::Bytes;

pub(super) fn proof(source: EvidenceSource, text: impl Into<String>) -> Proof {
    Proof {
        source,
        text: text.into(),
    }
}

pub(super) fn remedy(text: impl Into<String>) -> Remedy {
    Remedy {
        text: text.into(),
        effect: None,
        memory: None,
    }
}

pub(super) fn remedy_with(text: impl Into<String>, effect: impl Into<String>) -> Remedy {
    Remedy {
        text: text.into(),
        effect: Some(effect.into()),
        memory: None,
    }
}

/// A remedy after which `used` of `limit` would be in use.
pub(super) fn remedy_to(
    text: impl Into<String>,
    effect: impl Into<String>,
    used: Bytes,
    limit: Bytes,
) -> Remedy {
    Remedy {
        memory: Some(RemedyMemory { used, limit }),
        ..remedy_with(text, effect)
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
        proofs.push(proof(
            EvidenceSource::Samples,
            format!("host memory: {words}"),
        ));
    }
    if let Some(shape) = signs.series.shape {
        proofs.push(proof(EvidenceSource::Samples, shape_in_words(shape)));
    }
    if let Some(workers) = signs.series.workers {
        let mut text = format!(
            "{} DataLoader workers hold {} of private memory each",
            workers.n, workers.private_each
        );
        if workers.grown_by >= Bytes::from_mib(256) {
            text = format!("{text}; the total has grown by {}", workers.grown_by);
        }
        proofs.push(proof(EvidenceSource::Samples, text));
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
    Some(proof(
        EvidenceSource::Samples,
        format!("the brim is {limit}{by}"),
    ))
}

fn shape_in_words(shape: Shape) -> String {
    match shape {
        Shape::Leak { rise, over_ms } => {
            format!(
                "host memory grew steadily by {rise} in {}",
                duration(over_ms)
            )
        }
        Shape::Burst { rise, over_ms } => {
            format!(
                "host memory was stable, then grew by {rise} in the last {:.1} s",
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
            "Store the dataset in arrays (NumPy, Arrow) instead of lists of Python objects, so that the workers share one copy",
            format!("the {} workers hold {copies} of private memory", workers.n),
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
            "Find what grows from step to step: losses collected without `.item()`, caches in the dataset, lists",
            format!("host memory grew by {rise} in {}", duration(over_ms)),
        )),
        Some(Shape::Burst { .. }) if saves_a_checkpoint(signs) => remedies.push(remedy(
            "Save a sharded or streamed checkpoint, which needs no second copy of the state in host memory",
        )),
        Some(Shape::Burst { rise, over_ms }) => remedies.push(remedy_with(
            "Find what started at the end: a checkpoint built in memory, an evaluation, a longer sample, or a file read as a whole",
            format!("{rise} in {:.1} s", over_ms as f64 / 1000.0),
        )),
        None => {}
    }
    remedies.push(match signs.series.limit() {
        Some(limit) => remedy(format!("Request more than {limit} of memory")),
        None => remedy("Request more memory: `--mem` (Slurm), `resources.limits.memory` (Kubernetes), `--memory` (Docker)"),
    });
    remedies
}

/// Remedies if the notebook platform killed the kernel: there is no scheduler to request more memory from.
pub(super) fn notebook_remedies() -> Vec<Remedy> {
    [
        "Load less data at once: batches of rows, only the columns you need, smaller dtypes; `del` objects you no longer need",
        "Use fewer DataLoader workers: each may hold a copy of the dataset",
        "Train in a separate process with `!brimful run -- python train.py`: the notebook kernel survives, and brimful explains the failure",
        "Choose a machine with more memory (Colab: Runtime, Change runtime type; Kaggle: accelerator of the session)",
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
    Some(remedy_to(
        match n {
            1 => format!("Use 1 worker instead of {}", workers.n),
            n => format!("Use {n} workers instead of {}", workers.n),
        },
        format!("about {used} of {limit}"),
        used,
        limit,
    ))
}

/// What would confirm whether a SIGKILL came from the kernel OOM killer.
pub(super) fn settles_a_kill() -> Vec<String> {
    vec![
        "`dmesg -T | grep -i -E 'killed process|out of memory'` or `journalctl -k`, at the time of the kill".into(),
        "`oom_kill` in `memory.events` (cgroup v2) or `memory.oom_control` (cgroup v1) of the job, before and after".into(),
        "on Slurm, `sacct -j JOB --format=State,ExitCode,MaxRSS`, on Kubernetes, `kubectl describe pod`".into(),
        "another run with `brimful run`, which counts OOM kills and samples memory".into(),
    ]
}
