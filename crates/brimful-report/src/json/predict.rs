//! The outward form of a prediction: what `brimful predict --json` prints and `brimful.predict()` returns.

use brimful::predict::host::HostFacts;
use brimful::predict::{FitVerdict, Footprint, Kind, ModuleMemory, StepTimeline};
use brimful::speed::Speed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::{
    Containment, ContextMeasurement, GpusFrom, HostConnection, LikelyAndSafe, MachineGpu,
    PredictedHost, PredictedSpeed, SCHEMA_VERSION, SideEffects, SocketConnection,
};

/// What is known of a rehearsal besides its footprints.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rehearsed {
    pub command: Vec<String>,
    pub torch_version: String,
    pub world_size: u32,
    pub seconds: f64,
    /// Cards on which the script died before its first step, of something else than memory, with its last words.
    pub failed: Vec<(String, String)>,
    /// Number of rehearsed optimizer steps.
    pub steps: u32,
    /// What was measured on the host; nothing where it could not be measured.
    pub host: Option<HostFacts>,
    /// For each footprint; empty where nothing was captured.
    pub speeds: Vec<Option<Speed>>,
    pub side_effects: SideEffects,
    pub gpus_from: GpusFrom,
    /// This machine's GPUs, where the answer is about them.
    pub machine_gpus: Vec<MachineGpu>,
}

impl Rehearsed {
    /// The speed on the GPU of a footprint.
    pub fn speed(&self, at: usize) -> Option<&Speed> {
        self.speeds.get(at)?.as_ref()
    }

    /// This machine's GPUs, and whether the run fits in what is free on them.
    pub(crate) fn machine_gpus(&self, footprints: &[Footprint]) -> Vec<MachineGpu> {
        let need = |name: &str| {
            let footprint = footprints.iter().find(|footprint| footprint.gpu == name)?;
            let worst = footprint.worst_case.unwrap_or(footprint.device);
            Some(worst.safe.max(footprint.device.safe).get())
        };
        let gpus = self.machine_gpus.iter().cloned();
        gpus.map(|gpu| {
            let need = need(&gpu.name);
            gpu.with_need(need)
        })
        .collect()
    }
}

/// Predicted memory of a training command, on the GPU and on the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "brimful predict")]
pub struct PredictDocument {
    /// The schema version of this document.
    pub schema_version: u32,
    /// The version of brimful that wrote it.
    pub brimful_version: String,
    /// The rehearsed command.
    pub command: Vec<String>,
    /// The PyTorch version of the rehearsal.
    pub torch_version: String,
    /// Number of rehearsed optimizer steps.
    pub steps: u32,
    /// Number of training processes, each with its own GPU.
    pub world_size: u32,
    /// How long the rehearsal and the replays took.
    pub seconds: f64,
    /// How your files were protected from the script: `overlay`, `redirect`, or `off` if writes were allowed.
    pub isolation: String,
    /// How the GPUs of this machine were hidden from the script: `devices` (they were absent from its `/dev`),
    /// `landlock` (it was denied to open them), or `no_driver` if there is nothing to hide. `null` in documents from
    /// before they were hidden.
    #[serde(default)]
    pub gpu_hidden: Option<String>,
    /// How each kind of thing that the script could have reached was kept from it. `null` in
    /// documents from before it was known.
    #[serde(default)]
    pub containment: Option<Containment>,
    /// Requests of the script to experiment trackers and hubs that were not sent in the rehearsal.
    pub suppressed: Vec<String>,
    /// Other hosts, and services on this machine, that the script connected to.
    pub connections: Vec<HostConnection>,
    /// Local sockets that the script connected to, or could not.
    #[serde(default)]
    pub sockets: Vec<SocketConnection>,
    /// The peak on the first GPU of `gpus`; `terms`, `phases`, `largest` and `curve` describe the same GPU.
    /// `null` for training on the CPU.
    pub peak: Option<PredictedPeak>,
    /// Memory by use at the peak. The sum is the likely GPU memory use.
    pub terms: Vec<BudgetTerm>,
    /// The peak of each phase.
    pub phases: Vec<PhaseUse>,
    /// For each requested GPU: whether the run fits, and how much memory is left.
    pub gpus: Vec<GpuFit>,
    /// Where the GPU models come from: `requested`, `machine` (this machine's, if none were named) or `usual` (this machine
    /// has none that is known).
    #[serde(default = "GpusFrom::before")]
    pub gpus_from: String,
    /// This machine's GPUs with what is free on each now, if `gpus_from` is `machine`; otherwise empty.
    #[serde(default)]
    pub machine_gpus: Vec<MachineGpu>,
    /// GPUs on which the script failed before its first step for a reason other than memory.
    pub failed: Vec<FailedGpu>,
    /// The largest allocations at the peak.
    pub largest: Vec<LargestUse>,
    /// Memory over the rehearsal, in intervals with equal numbers of allocations and frees.
    pub curve: Vec<CurveColumn>,
    /// The fullest step in detail; `null` if no step was rehearsed on a GPU.
    #[serde(default)]
    pub timeline: Option<PredictedTimeline>,
    /// Host memory; `null` if it could not be measured.
    pub host: Option<PredictedHost>,
    /// Caveats, most important first.
    pub caveats: Vec<PredictionCaveat>,
}

/// Peak use of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedPeak {
    /// The GPU.
    pub gpu: String,
    /// Allocated bytes, as `torch.cuda.max_memory_allocated` would report.
    pub allocated_bytes: u64,
    /// Reserved bytes, as `torch.cuda.max_memory_reserved` would report.
    pub reserved_bytes: u64,
    /// Total GPU memory of the process, including the CUDA context.
    pub device_bytes: LikelyAndSafe,
    /// The phase of the peak.
    pub phase: String,
}

/// One use of GPU memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetTerm {
    /// `weights`, `gradients`, `optimizer_state`, `activations`, `temporaries`, `workspaces`, `other`, `rounding`,
    /// `cached` (reserved by PyTorch but unused: fragmentation), `context` or `nccl`.
    pub name: String,
    /// Bytes at the peak of allocated memory; for `cached`, reserved bytes above that at the peak.
    pub likely_bytes: u64,
    /// The safe value, which includes the uncertainty of this term.
    pub safe_bytes: u64,
    /// Bytes at the peak of each phase.
    pub by_phase: Vec<PhaseBytes>,
}

/// Bytes in a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseBytes {
    /// `setup`, `forward`, `backward`, `optimizer`, `evaluation` or `save`.
    pub phase: String,
    /// Bytes.
    pub bytes: u64,
}

/// The peak of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseUse {
    /// `setup`, `forward`, `backward`, `optimizer`, `evaluation` or `save`.
    pub phase: String,
    /// Allocated bytes.
    pub allocated_bytes: u64,
    /// Reserved bytes.
    pub reserved_bytes: u64,
}

/// Whether the run fits on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuFit {
    /// The GPU.
    pub name: String,
    /// Total memory that PyTorch sees.
    pub total_bytes: u64,
    /// Whether it fits, by the safe value.
    pub fits: bool,
    /// `fits`, `tight` (the likely value fits but the safe value or the worst case does not, or the value is an upper
    /// bound) or `does_not_fit`.
    pub verdict: String,
    /// Bytes left, by the safe value of the worst case; negative if it does not fit.
    pub headroom_bytes: i64,
    /// Whether the values end where GPU memory ran out, because the script failed when it was rehearsed with more. A
    /// whole run needs at least as much.
    #[serde(default)]
    pub is_lower_bound: bool,
    /// Peak GPU memory of the process.
    pub device_bytes: LikelyAndSafe,
    /// The same in the worst case, if shapes depend on values that only a real model computes: masks select all of
    /// their elements, and nearly all choices (for example of experts) are the same. Otherwise `null`.
    pub worst_case_bytes: Option<LikelyAndSafe>,
    /// Peak of reserved bytes.
    pub peak_reserved_bytes: u64,
    /// Peak of allocated bytes.
    pub peak_allocated_bytes: u64,
    /// Number of times PyTorch frees cached memory and retries.
    pub retries: u64,
    /// The allocator settings, as in `PYTORCH_CUDA_ALLOC_CONF`.
    pub alloc_conf: String,
    /// Allocator settings with which PyTorch would reserve less; `null` if little is unused.
    pub alternative: Option<AllocatorAlternative>,
    /// The CUDA context in `device_bytes`, if earlier runs measured it; `null` if it is calculated.
    #[serde(default)]
    pub measured_context: Option<ContextMeasurement>,
    /// How fast the training is there; `null` if it could not be predicted.
    #[serde(default)]
    pub speed: Option<PredictedSpeed>,
}

/// Allocator settings with which PyTorch would reserve less.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AllocatorAlternative {
    /// As in `PYTORCH_ALLOC_CONF`.
    pub alloc_conf: String,
    /// Peak of reserved bytes with these settings.
    pub peak_reserved_bytes: u64,
    /// Whether the run then fits on the GPU, by the safe value.
    pub fits: bool,
}

/// A GPU on which the script failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailedGpu {
    /// The GPU.
    pub name: String,
    /// The last line that the script wrote.
    pub reason: String,
}

/// A group of large allocations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LargestUse {
    /// `weights`, `gradients`, …, as in `terms`.
    pub kind: String,
    /// The tensor, or the module or phase that allocated it.
    pub made_by: String,
    /// Number of allocations.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// One interval of the memory curve: its highest values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurveColumn {
    /// Allocated bytes.
    pub allocated_bytes: u64,
    /// Reserved bytes.
    pub reserved_bytes: u64,
    /// Number of completed steps.
    pub step: u32,
}

/// The fullest step: memory by use over time, and by module at the peak.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedTimeline {
    /// The number of the step, from 1.
    pub step: u32,
    /// Number of allocations and frees in it.
    pub events: u64,
    /// The uses of memory, in the order of `bytes` in `columns` and `modules`.
    pub kinds: Vec<String>,
    /// At most 480 columns with equal numbers of events; each shows its fullest moment.
    pub columns: Vec<StepColumn>,
    /// Which columns belong to which phase. Empty if phases change too often to be shown.
    pub phases: Vec<StepPhase>,
    /// The index of the column with the peak.
    pub peak_column: u32,
    /// What each module holds at the peak, largest first; at most 70 modules.
    pub modules: Vec<ModuleUse>,
}

/// The fullest moment of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepColumn {
    /// Bytes of each use.
    pub bytes: Vec<u64>,
    /// Allocated bytes, including rounding.
    pub allocated_bytes: u64,
    /// Reserved bytes.
    pub reserved_bytes: u64,
}

/// A phase of the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepPhase {
    /// `setup`, `forward`, `backward`, `optimizer`, `evaluation` or `save`.
    pub phase: String,
    /// The index of its first column.
    pub first_column: u32,
    /// Number of columns.
    pub columns: u32,
}

/// What a module holds, with everything inside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleUse {
    /// The last part of its path and its class, or what else holds the memory.
    pub name: String,
    /// Bytes of each use.
    pub bytes: Vec<u64>,
    /// The modules inside it, largest first.
    pub inside: Vec<ModuleUse>,
}

/// A reason to trust the prediction less.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionCaveat {
    /// A stable ID, such as `value_dependent_shape`.
    pub id: String,
    /// What it means for this prediction.
    pub text: String,
}

impl PredictDocument {
    /// The document of a rehearsal. `footprints` holds one for each card, the first being the one in detail; it is empty
    /// for a training on the processors.
    pub fn of(rehearsed: &Rehearsed, footprints: &[Footprint]) -> PredictDocument {
        let document = PredictDocument {
            schema_version: SCHEMA_VERSION,
            brimful_version: env!("CARGO_PKG_VERSION").into(),
            command: rehearsed.command.clone(),
            torch_version: rehearsed.torch_version.clone(),
            steps: rehearsed.steps,
            world_size: rehearsed.world_size,
            seconds: (rehearsed.seconds * 1000.0).round() / 1000.0,
            isolation: rehearsed.side_effects.isolation.clone(),
            gpu_hidden: Some(rehearsed.side_effects.gpu_hidden.clone()),
            containment: Some(rehearsed.side_effects.containment.clone()),
            suppressed: rehearsed.side_effects.suppressed.clone(),
            connections: rehearsed.side_effects.connections.clone(),
            sockets: rehearsed.side_effects.sockets.clone(),
            peak: None,
            terms: Vec::new(),
            phases: Vec::new(),
            gpus: footprints
                .iter()
                .enumerate()
                .map(|(at, footprint)| GpuFit {
                    speed: rehearsed.speed(at).map(PredictedSpeed::of),
                    ..fit(footprint)
                })
                .collect(),
            gpus_from: rehearsed.gpus_from.id().into(),
            machine_gpus: rehearsed.machine_gpus(footprints),
            failed: rehearsed
                .failed
                .iter()
                .map(|(name, reason)| FailedGpu {
                    name: name.clone(),
                    reason: reason.clone(),
                })
                .collect(),
            largest: Vec::new(),
            curve: Vec::new(),
            timeline: None,
            host: rehearsed.host.as_ref().map(PredictedHost::of),
            caveats: Vec::new(),
        };
        match footprints.first() {
            Some(first) => document.with_card(first),
            None => document,
        }
    }

    fn with_card(self, first: &Footprint) -> PredictDocument {
        PredictDocument {
            steps: first.steps,
            peak: Some(PredictedPeak {
                gpu: first.gpu.clone(),
                allocated_bytes: first.peak_allocated.get(),
                reserved_bytes: first.peak_reserved.get(),
                device_bytes: first.device.into(),
                phase: first.peak_phase.name().into(),
            }),
            terms: first.terms.iter().map(term).collect(),
            phases: first
                .phases
                .iter()
                .map(|peak| PhaseUse {
                    phase: peak.phase.name().into(),
                    allocated_bytes: peak.allocated.get(),
                    reserved_bytes: peak.reserved.get(),
                })
                .collect(),
            largest: first
                .largest
                .iter()
                .map(|largest| LargestUse {
                    kind: largest.kind.id().into(),
                    made_by: largest.made_by.clone(),
                    count: largest.count as u64,
                    bytes: largest.size.get(),
                })
                .collect(),
            curve: first
                .curve
                .iter()
                .map(|point| CurveColumn {
                    allocated_bytes: point.allocated.get(),
                    reserved_bytes: point.reserved.get(),
                    step: point.step,
                })
                .collect(),
            timeline: first.timeline.as_ref().map(timeline),
            caveats: first
                .caveats
                .iter()
                .map(|caveat| PredictionCaveat {
                    id: caveat.kind.id().into(),
                    text: caveat.text.clone(),
                })
                .collect(),
            ..self
        }
    }
}

fn term(term: &brimful::predict::Term) -> BudgetTerm {
    BudgetTerm {
        name: term.id.into(),
        likely_bytes: term.likely.get(),
        safe_bytes: term.safe.get(),
        by_phase: term
            .by_phase
            .iter()
            .map(|(phase, bytes)| PhaseBytes {
                phase: phase.name().into(),
                bytes: bytes.get(),
            })
            .collect(),
    }
}

fn timeline(step: &StepTimeline) -> PredictedTimeline {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    PredictedTimeline {
        step: step.step,
        events: step.events as u64,
        kinds: Kind::ALL.iter().map(|kind| kind.id().to_owned()).collect(),
        columns: step
            .columns
            .iter()
            .map(|column| StepColumn {
                bytes: column.kinds.to_vec(),
                allocated_bytes: column.allocated.get(),
                reserved_bytes: column.reserved.get(),
            })
            .collect(),
        phases: step
            .phases
            .iter()
            .map(|band| StepPhase {
                phase: band.phase.name().to_owned(),
                first_column: count(band.first_column),
                columns: count(band.n_columns),
            })
            .collect(),
        peak_column: count(step.peak_column),
        modules: step.modules.iter().map(module).collect(),
    }
}

fn module(module: &ModuleMemory) -> ModuleUse {
    ModuleUse {
        name: module.name.clone(),
        bytes: module.kinds.to_vec(),
        inside: module.inside.iter().map(self::module).collect(),
    }
}

fn fit(footprint: &Footprint) -> GpuFit {
    GpuFit {
        name: footprint.gpu.clone(),
        total_bytes: footprint.total.get(),
        fits: footprint.verdict == FitVerdict::Fits,
        verdict: footprint.verdict.id().into(),
        headroom_bytes: footprint.headroom,
        is_lower_bound: footprint.is_lower_bound,
        device_bytes: footprint.device.into(),
        worst_case_bytes: footprint.worst_case.map(LikelyAndSafe::from),
        peak_reserved_bytes: footprint.peak_reserved.get(),
        peak_allocated_bytes: footprint.peak_allocated.get(),
        retries: footprint.retries,
        alloc_conf: footprint.settings.clone(),
        alternative: footprint
            .alternative
            .as_ref()
            .map(|found| AllocatorAlternative {
                alloc_conf: found.settings.clone(),
                peak_reserved_bytes: found.peak_reserved.get(),
                fits: found.fits,
            }),
        measured_context: footprint
            .measured_context
            .as_ref()
            .map(ContextMeasurement::of),
        speed: None,
    }
}
