//! What the hook measured on the host, and what is made of it.

use brimful::plan::Pace;
use brimful::predict::host::{DatasetFacts, EvaluationFacts, HostFacts, StartMethod, WorkerFacts};
use brimful::units::Bytes;
use serde::{Deserialize, Serialize};

/// The host side of one process, as `brimful_host.py` writes it. Everything may be missing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostReport {
    pub imported: u64,
    pub on_processors: bool,
    pub fresh: Fresh,
    pub peak: u64,
    pub trough: u64,
    pub saves: Vec<u64>,
    pub largest_tensor: u64,
    pub ranks: u64,
    pub steps: u32,
    pub compute_seconds: Option<f64>,
    pub handover_seconds: Option<f64>,
    /// Batches that the process made itself.
    pub fetched: Option<Fetched>,
    pub loader: Option<LoaderReport>,
    pub others: Vec<LoaderReport>,
    pub problems: Vec<String>,
}

/// A fresh interpreter: after `import torch`, and after all imports of the script.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fresh {
    pub torch: u64,
    pub program: u64,
}

/// One DataLoader.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoaderReport {
    pub workers: u64,
    pub prefetch: u64,
    pub pin_memory: bool,
    pub persistent: bool,
    pub start_method: String,
    pub micro_batch: u64,
    pub beside: bool,
    pub build_peak: u64,
    pub main_at_start: u64,
    pub samples: u64,
    pub composition: Option<Composition>,
    pub main_at_first_batch: u64,
    pub batch_bytes: u64,
    pub batch_shm_bytes: u64,
    pub batch_pinned_bytes: u64,
    pub measured_workers: Vec<Fetched>,
}

/// What the dataset is made of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Composition {
    pub buffer_bytes: u64,
    pub array_bytes: u64,
    pub tensor_bytes: u64,
    pub heap_tensor_bytes: u64,
    pub object_bytes: u64,
    pub fresh_object_bytes: u64,
    pub pickled_bytes: u64,
    pub protocol: u64,
}

/// A process that made batches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fetched {
    pub anon: u64,
    pub private: u64,
    pub start_peak: u64,
    pub fetch_peak: u64,
    /// Of the highest within one batch, what is gone again at its end; the least of all batches.
    pub passing: u64,
    /// Samples so far, private and all anonymous bytes.
    pub seen: Vec<(u64, u64, u64)>,
    pub seconds: f64,
    pub timed: u64,
    pub first_seconds: f64,
    pub samples: u64,
}

/// The facts of a rehearsal; nothing where nothing was measured.
///
/// A script that loads its data by itself, without a DataLoader, has one process and no pipeline.
pub fn host_facts(report: &HostReport) -> Option<HostFacts> {
    let loader = match &report.loader {
        Some(loader) if loader.main_at_start > 0 => loader,
        _ if report.trough > 0 => &LoaderReport {
            main_at_start: report.trough,
            ..LoaderReport::default()
        },
        _ => return None,
    };
    let imports = if report.fresh.program > 0 {
        report.fresh.program
    } else {
        report.imported
    };
    let on_gpu = !report.on_processors;
    let libraries = if on_gpu && report.fresh.torch > 0 {
        report.fresh.torch.saturating_sub(report.imported)
    } else {
        0
    };
    let start = loader.main_at_first_batch.max(loader.main_at_start);
    // Pinned batches are a term of their own.
    let pinned = if on_gpu && loader.pin_memory {
        let ahead = loader.workers.saturating_mul(loader.prefetch).max(1);
        loader.batch_pinned_bytes.saturating_mul(ahead)
    } else {
        0
    };
    let kept = report.trough.saturating_sub(start).saturating_sub(pinned);
    let within = report.peak.saturating_sub(report.trough.max(start));
    let made = || loader.measured_workers.iter().chain(&report.fetched);
    Some(HostFacts {
        workers: loader.workers,
        prefetch: loader.prefetch,
        micro_batch: loader.micro_batch,
        start_method: StartMethod::from_name(&loader.start_method).unwrap_or_default(),
        pin_memory: loader.pin_memory,
        persistent_workers: loader.persistent,
        ranks: report.ranks.max(1),
        on_gpu,
        imports: Bytes(imports),
        libraries: Bytes(libraries),
        build_peak: Bytes(loader.build_peak.max(loader.main_at_start)),
        main_at_start: Bytes(loader.main_at_start),
        training_kept: Bytes(kept),
        training_peak: Bytes(within),
        batch: Bytes(loader.batch_bytes),
        batch_shm: Bytes(loader.batch_shm_bytes),
        batch_pinned: Bytes(loader.batch_pinned_bytes),
        making: Bytes(made().map(|one| one.fetch_peak).max().unwrap_or(0)),
        passing: Bytes(made().map(|one| one.passing).min().unwrap_or(0)),
        dataset: dataset(loader),
        worker: worker(&loader.measured_workers),
        checkpoint: report.saves.iter().max().map(|spike| Bytes(*spike)),
        largest_parameter: Bytes(report.largest_tensor),
        evaluation: evaluation(&report.others),
    })
}

fn dataset(loader: &LoaderReport) -> DatasetFacts {
    let parts = loader.composition.clone().unwrap_or_default();
    DatasetFacts {
        samples: loader.samples,
        buffers: Bytes(parts.buffer_bytes),
        objects: Bytes(parts.object_bytes),
        fresh_objects: Bytes(parts.fresh_object_bytes),
        arrays: Bytes(parts.array_bytes),
        tensors: Bytes(parts.tensor_bytes),
        heap_tensors: Bytes(parts.heap_tensor_bytes),
        pickled: Bytes(parts.pickled_bytes),
        protocol: parts.protocol,
    }
}

fn worker(measured: &[Fetched]) -> Option<WorkerFacts> {
    let count = measured.len() as u64;
    let mean = |of: fn(&Fetched) -> u64| {
        let sum: u64 = measured.iter().map(of).fold(0, u64::saturating_add);
        sum.checked_div(count)
    };
    Some(WorkerFacts {
        private: Bytes(mean(|one| one.private)?),
        all: Bytes(mean(|one| one.anon)?),
        start_peak: Bytes(mean(|one| one.start_peak)?),
        copied: Bytes(mean(copied)?),
        samples: mean(|one| one.seen.last().map_or(0, |seen| seen.0))?,
    })
}

/// Pages that became its own although it asked for no more memory.
fn copied(one: &Fetched) -> u64 {
    one.seen.last().map_or(0, |(_, private, anon)| {
        let asked = anon.saturating_sub(one.anon);
        private.saturating_sub(one.private).saturating_sub(asked)
    })
}

fn evaluation(others: &[LoaderReport]) -> Option<EvaluationFacts> {
    let other = others.iter().max_by_key(|other| other.workers)?;
    Some(EvaluationFacts {
        workers: other.workers,
        prefetch: other.prefetch,
        batch_shm: Bytes(other.batch_shm_bytes),
        persistent_workers: other.persistent,
        beside: others.iter().any(|other| other.beside),
    })
}

/// How long things took.
pub fn pace(report: &HostReport) -> Option<Pace> {
    let step_seconds = report.compute_seconds?;
    let loader = report.loader.as_ref()?;
    let made = || loader.measured_workers.iter().chain(&report.fetched);
    let sum = |of: fn(&Fetched) -> u64| made().map(of).fold(0, u64::saturating_add);
    let timed = sum(|one| one.timed);
    let sample_seconds = if timed > 0 {
        made().map(|one| one.seconds).sum::<f64>() / timed as f64
    } else {
        let samples = sum(|one| one.samples);
        made().map(|one| one.first_seconds).sum::<f64>() / samples.max(1) as f64
    };
    Some(Pace {
        step_seconds,
        sample_seconds,
        // Where there were no workers: a message, and the mapping of its pages at 2 GB/s.
        handover_seconds: report
            .handover_seconds
            .unwrap_or(0.0003 + loader.batch_bytes as f64 / 2e9),
        gpu_seconds: 0.0,
        on_cpu: report.on_processors,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_made_of_what_the_hook_wrote() {
        let text = r#"{"imported": 158, "fresh": {"torch": 277, "program": 290}, "peak": 900, "trough": 850,
            "saves": [5, 40], "ranks": 1, "compute_seconds": 0.5,
            "loader": {"workers": 2, "prefetch": 2, "start_method": "spawn", "micro_batch": 8, "main_at_start": 800,
                "main_at_first_batch": 810, "samples": 10, "composition": {"object_bytes": 7, "cut": false},
                "measured_workers": [
                    {"anon": 100, "private": 20, "seen": [[8, 60, 130]], "fetch_peak": 33, "seconds": 2.0, "timed": 4},
                    {"anon": 100, "private": 40, "seen": [[8, 80, 130]], "fetch_peak": 31, "seconds": 2.0, "timed": 4}]},
            "others": [{"workers": 1, "beside": true}]}"#;
        let report: HostReport = serde_json::from_str(text).unwrap();
        let facts = host_facts(&report).unwrap();
        assert_eq!(facts.start_method, StartMethod::Spawn);
        assert_eq!((facts.libraries, facts.imports), (Bytes(119), Bytes(290)));
        assert_eq!(
            (facts.training_kept, facts.training_peak),
            (Bytes(40), Bytes(50))
        );
        assert_eq!(facts.making, Bytes(33));
        let worker = facts.worker.unwrap();
        assert_eq!((worker.private, worker.copied), (Bytes(30), Bytes(10)));
        assert_eq!(facts.checkpoint, Some(Bytes(40)));
        assert!(facts.evaluation.unwrap().beside);
        let pace = pace(&report).unwrap();
        assert!((pace.sample_seconds - 0.5).abs() < 1e-9);
    }

    #[test]
    fn counts_that_no_process_reaches_do_not_wrap_around() {
        let most = Fetched {
            timed: u64::MAX,
            samples: u64::MAX,
            seconds: 1.0,
            ..Fetched::default()
        };
        let untimed = Fetched {
            timed: 0,
            ..most.clone()
        };
        for (one, other) in [(&most, &most), (&untimed, &untimed)] {
            let report = HostReport {
                compute_seconds: Some(1.0),
                fetched: Some(one.clone()),
                loader: Some(LoaderReport {
                    measured_workers: vec![other.clone()],
                    ..LoaderReport::default()
                }),
                ..HostReport::default()
            };
            assert!(pace(&report).unwrap().sample_seconds < 1e-9);
        }
    }

    #[test]
    fn without_a_loader_there_is_one_process() {
        let report = HostReport {
            trough: 500,
            peak: 700,
            ..HostReport::default()
        };
        let facts = host_facts(&report).unwrap();
        assert_eq!((facts.main_at_start, facts.workers), (Bytes(500), 0));
        assert_eq!(facts.training_peak, Bytes(200));
        assert_eq!(host_facts(&HostReport::default()), None);
        assert_eq!(pace(&HostReport::default()), None);
    }
}
