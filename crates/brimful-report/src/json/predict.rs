//! The outward form of a prediction: what `brimful predict --json` prints and `brimful.predict()` returns.

use brimful::predict::host::HostFacts;
use brimful::predict::{Footprint, Verdict};
use schemars::JsonSchema;
use serde::Serialize;

use crate::json::{HostConnection, LikelyAndSafe, PredictedHost, SCHEMA_VERSION, SideEffects};

/// What is known of a rehearsal besides its footprints.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rehearsed {
    pub command: Vec<String>,
    pub torch_version: String,
    pub world_size: u32,
    pub seconds: f64,
    /// Cards on which the script died before its first step, of something else than memory, with its last words.
    pub failed: Vec<(String, String)>,
    /// Optimizer steps that were made.
    pub steps: u32,
    /// What was measured on the host; nothing where it could not be measured.
    pub host: Option<HostFacts>,
    pub side_effects: SideEffects,
}

/// Predicted memory of a training command, on the GPU and on the host.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "brimful predict")]
pub struct PredictDocument {
    /// The version of this document's form.
    pub schema_version: u32,
    /// The version of brimful that wrote it.
    pub brimful_version: String,
    /// What was rehearsed.
    pub command: Vec<String>,
    /// The PyTorch it was rehearsed with.
    pub torch_version: String,
    /// Optimizer steps that were made.
    pub steps: u32,
    /// Processes of the training, each with a GPU of its own.
    pub world_size: u32,
    /// How long the rehearsal and the replays took.
    pub seconds: f64,
    /// How your files were protected from the script: `overlay`, `redirect`, or `off` where writes were allowed.
    pub isolation: String,
    /// What the script asked of experiment trackers and hubs, and what was not done in the rehearsal.
    pub suppressed: Vec<String>,
    /// Hosts beyond this machine that the script connected to.
    pub connections: Vec<HostConnection>,
    /// The highest use of the first card of `gpus`, which `terms`, `phases`, `largest` and `curve` speak of too.
    /// Nothing for a training on the processors.
    pub peak: Option<PredictedPeak>,
    /// The budget: what the memory is for when most is in use. Its sum is the likely use of the card.
    pub terms: Vec<BudgetTerm>,
    /// The fullest moment of each phase.
    pub phases: Vec<PhaseUse>,
    /// Every card asked for: whether it fits, and what is left.
    pub gpus: Vec<GpuFit>,
    /// Cards on which the script died before its first step, of something else than memory.
    pub failed: Vec<FailedGpu>,
    /// What takes most when most is in use.
    pub largest: Vec<LargestUse>,
    /// The memory over the rehearsal, in equal parts of its allocations and frees.
    pub curve: Vec<CurveColumn>,
    /// Host memory; nothing where it could not be measured.
    pub host: Option<PredictedHost>,
    /// What makes the figures weaker, heaviest first.
    pub caveats: Vec<PredictionCaveat>,
}

/// The highest use of a card.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PredictedPeak {
    /// The card.
    pub gpu: String,
    /// Bytes in tensors and scratch memory, as `torch.cuda.max_memory_allocated` would say.
    pub allocated_bytes: u64,
    /// Bytes that PyTorch holds, as `torch.cuda.max_memory_reserved` would say.
    pub reserved_bytes: u64,
    /// All of the process on the card, with the CUDA context.
    pub device_bytes: LikelyAndSafe,
    /// What the training is doing then.
    pub phase: String,
}

/// One line of the budget.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BudgetTerm {
    /// `weights`, `gradients`, `optimizer_state`, `activations`, `temporaries`, `workspaces`, `other`, `rounding`,
    /// `cached` (held by PyTorch, not in use: fragmentation), `context` or `nccl`.
    pub name: String,
    /// Bytes when most is in use; for `cached` what is held above that at the highest.
    pub likely_bytes: u64,
    /// The same with the uncertainty that belongs to this term.
    pub safe_bytes: u64,
    /// Bytes at the fullest moment of each phase.
    pub by_phase: Vec<PhaseBytes>,
}

/// Bytes in a phase.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PhaseBytes {
    /// `setup`, `forward`, `backward`, `optimizer`, `evaluation` or `save`.
    pub phase: String,
    /// Bytes.
    pub bytes: u64,
}

/// The fullest moment of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PhaseUse {
    /// `setup`, `forward`, `backward`, `optimizer`, `evaluation` or `save`.
    pub phase: String,
    /// Bytes in use.
    pub allocated_bytes: u64,
    /// Bytes that PyTorch holds.
    pub reserved_bytes: u64,
}

/// Whether the training fits a card.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GpuFit {
    /// The card.
    pub name: String,
    /// What PyTorch sees of its memory.
    pub total_bytes: u64,
    /// Whether it fits, by the safe value.
    pub fits: bool,
    /// `fits`, `tight` (the likely value fits, the safe one does not, or the figure is an upper bound) or
    /// `does_not_fit`.
    pub verdict: String,
    /// Bytes left by the safe value; negative: bytes missing.
    pub headroom_bytes: i64,
    /// The highest use of the card by the process.
    pub device_bytes: LikelyAndSafe,
    /// Bytes that PyTorch holds at the most.
    pub peak_reserved_bytes: u64,
    /// Bytes in use at the most.
    pub peak_allocated_bytes: u64,
    /// Times that PyTorch has to give cached memory back to go on.
    pub retries: u64,
    /// The allocator's settings, as in `PYTORCH_CUDA_ALLOC_CONF`.
    pub alloc_conf: String,
    /// Settings of the allocator under which PyTorch would hold less; nothing where little is unused.
    pub alternative: Option<AllocatorAlternative>,
}

/// Settings of the allocator under which PyTorch would hold less.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AllocatorAlternative {
    /// As in `PYTORCH_ALLOC_CONF`.
    pub alloc_conf: String,
    /// Bytes that PyTorch holds at most with these settings.
    pub peak_reserved_bytes: u64,
    /// Whether it fits the GPU then, by the safe value.
    pub fits: bool,
}

/// A card on which the script did not run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FailedGpu {
    /// The card.
    pub name: String,
    /// The last line that the script wrote.
    pub reason: String,
}

/// What takes much.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LargestUse {
    /// `weights`, `gradients`, … as in the budget.
    pub kind: String,
    /// The tensor, or the module or phase that made it.
    pub made_by: String,
    /// How many allocations.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// One part of the memory curve: its highest values.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CurveColumn {
    /// Bytes in use.
    pub allocated_bytes: u64,
    /// Bytes that PyTorch holds.
    pub reserved_bytes: u64,
    /// Steps that were complete.
    pub step: u32,
}

/// A reason to trust the figures less.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PredictionCaveat {
    /// A stable name, such as `value_dependent_shape`.
    pub id: String,
    /// What it means here.
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
            suppressed: rehearsed.side_effects.suppressed.clone(),
            connections: rehearsed.side_effects.connections.clone(),
            peak: None,
            terms: Vec::new(),
            phases: Vec::new(),
            gpus: footprints.iter().map(fit).collect(),
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
            caveats: first
                .caveats
                .iter()
                .map(|caveat| PredictionCaveat {
                    id: caveat.id.into(),
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

fn fit(footprint: &Footprint) -> GpuFit {
    GpuFit {
        name: footprint.gpu.clone(),
        total_bytes: footprint.total.get(),
        fits: footprint.verdict == Verdict::Fits,
        verdict: footprint.verdict.id().into(),
        headroom_bytes: footprint.headroom,
        device_bytes: footprint.device.into(),
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
    }
}
