//! The footprint: a workload on one card.

use std::collections::BTreeMap;

use brimful_allocsim::replay::{Moment, Outcome, Setup, replay, replay_observed};
use brimful_allocsim::settings::AllocatorSettings;
use brimful_allocsim::trace::Event;
use brimful_allocsim::version::TorchVersion;

use super::caveats::memory_of_the_host;
use super::kind::Kind;
use super::kinds::kinds;
use super::measured::MeasuredContext;
use super::outside::{LoadedLibraries, Outside, context, nccl};
use super::story::{Phase, Story};
use super::timeline::{StepTimeline, TimelineColumn, TimelineRecorder, modules};
use super::{Caveat, Workload, caveats};
use crate::machine::ComputeCapability;
use crate::units::Bytes;

/// The card and the settings to predict for.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub name: String,
    /// What PyTorch calls the card's total.
    pub total: Bytes,
    pub multiprocessors: u32,
    /// NVIDIA's generation number; AMD has none.
    pub compute_capability: Option<ComputeCapability>,
    pub settings: AllocatorSettings,
    /// Stands in for the context that is calculated.
    pub measured_context: Option<MeasuredContext>,
}

/// A likely value, and one that 95 of 100 runs stay below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceBytes {
    pub likely: Bytes,
    pub safe: Bytes,
}

impl DeviceBytes {
    /// The larger of both, each by itself.
    pub(super) fn at_least(self, other: DeviceBytes) -> DeviceBytes {
        DeviceBytes {
            likely: self.likely.max(other.likely),
            safe: self.safe.max(other.safe),
        }
    }
}

/// Whether it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitVerdict {
    /// The safe value fits.
    Fits,
    /// The likely value fits, the safe one does not; or the figure is an upper bound that does not fit.
    Tight,
    DoesNotFit,
}

impl FitVerdict {
    pub const fn id(self) -> &'static str {
        match self {
            FitVerdict::Fits => "fits",
            FitVerdict::Tight => "tight",
            FitVerdict::DoesNotFit => "does_not_fit",
        }
    }
}

/// One line of the budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// `weights`, `gradients`, … `rounding`, `cached`, `context`, `nccl`.
    pub id: &'static str,
    /// At the moment when most is in use; `cached` is what is held above that at the highest.
    pub likely: Bytes,
    pub safe: Bytes,
    /// At the fullest moment of each phase.
    pub by_phase: Vec<(Phase, Bytes)>,
}

/// The fullest moment of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhasePeak {
    pub phase: Phase,
    pub allocated: Bytes,
    pub reserved: Bytes,
}

/// What takes most at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargestAllocation {
    pub kind: Kind,
    /// The tensor's name, or the module or phase that made it.
    pub made_by: String,
    pub count: usize,
    pub size: Bytes,
}

/// One column of the memory curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurvePoint {
    pub allocated: Bytes,
    pub reserved: Bytes,
    /// Steps that were complete.
    pub step: u32,
}

/// Settings of the allocator under which PyTorch holds less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// As in `PYTORCH_ALLOC_CONF`.
    pub settings: String,
    pub peak_reserved: Bytes,
    /// Whether the safe value fits the card then.
    pub fits: bool,
}

/// Predicted memory of a workload on one card.
#[derive(Clone, Debug, PartialEq)]
pub struct Footprint {
    pub gpu: String,
    pub total: Bytes,
    pub peak_allocated: Bytes,
    pub peak_reserved: Bytes,
    pub device: DeviceBytes,
    pub peak_phase: Phase,
    /// Times that cached memory had to be given back to go on.
    pub retries: u64,
    pub verdict: FitVerdict,
    /// Bytes left of the card by the safe value, in the worst case if there is one; negative: bytes missing.
    pub headroom: i64,
    /// The values end where the GPU's memory ran out: a whole run needs at least as much.
    pub is_lower_bound: bool,
    /// Where shapes depend on values that only the model could compute: what is used if they are unfavourable.
    pub worst_case: Option<DeviceBytes>,
    pub terms: Vec<Term>,
    pub phases: Vec<PhasePeak>,
    pub largest: Vec<LargestAllocation>,
    pub curve: Vec<CurvePoint>,
    /// The fullest step in detail.
    pub timeline: Option<StepTimeline>,
    pub caveats: Vec<Caveat>,
    pub steps: u32,
    pub events: usize,
    pub settings: String,
    /// Where much of what PyTorch holds is not in use.
    pub alternative: Option<Alternative>,
    /// Where the context is not calculated.
    pub measured_context: Option<MeasuredContext>,
}

/// More than any card: replays there end without retries.
const HUGE: u64 = 1 << 46;
/// Columns of the curve.
const COLUMNS: usize = 72;
const MAX_LARGEST_ALLOCATIONS: usize = 12;
/// Unused bytes that other settings of the allocator are tried for.
const MIN_UNUSED: u64 = 256 << 20;

/// How much more reserved memory than predicted 95 of 100 runs may need, as a share.
///
/// Measured on real cards, see docs/accuracy.md: transformers and networks without convolutions stay close; cuDNN's
/// choice of workspaces makes convolutions uncertain, more so when they are chosen by timing or when its heuristics
/// could not be asked. The share for timed ones is what 97 % of the calibration half of those rows stay below.
///
/// Without CUDA the figure is measured against the phantom's (29 scripts on one to three cards, see
/// docs/design/2026-11-predict.md): with convolutions it is up to 25 % smaller, so that 1.09 becomes 1.09 / 0.75;
/// without, at most 0.2 %, and the share is doubled for kernels that those scripts do not call.
fn margin(workload: &Workload) -> f64 {
    if workload.fake_tensors {
        if workload.cudnn_guessed { 0.46 } else { 0.08 }
    } else if workload.cudnn_guessed {
        0.20
    } else if workload.cudnn_heuristics {
        if workload.cudnn_benchmark { 0.12 } else { 0.09 }
    } else {
        0.04
    }
}

/// Replays the workload on the card and adds what lies outside of the allocator.
pub fn footprint(workload: &Workload, target: &Target) -> Footprint {
    let story = Story::of(&workload.trace);
    let version = workload
        .trace
        .torch
        .parse()
        .unwrap_or(TorchVersion::NEWEST_CHECKED);
    let loaded = LoadedLibraries {
        torch: version,
        cudnn: workload.cudnn_heuristics || workload.cudnn_guessed,
    };
    let capability = target.compute_capability;
    let calculated = context(target.multiprocessors, capability, loaded);
    let context = match &target.measured_context {
        Some(measured) => measured.in_place_of(calculated),
        None => calculated,
    };
    let nccl = nccl(&workload.communicators, capability, version);
    let outside = |of: fn(&Outside) -> Bytes| of(&context).saturating_add(of(&nccl)).get();
    let (likely_held, safe_held) = (outside(|o| o.likely), outside(|o| o.safe));
    let setup = |capacity: u64, held: u64| Setup {
        capacity,
        held,
        settings: target.settings.clone(),
        version,
    };
    let total = target.total.get();
    let mut recorder = Recorder::new(workload, &story);
    let on_card = replay(&workload.trace, &setup(total, likely_held));
    // A run that does not fit is shown in full, as on a card without end.
    let shown = if on_card.oom.is_none() {
        setup(total, likely_held)
    } else {
        setup(HUGE, 0)
    };
    let outcome = replay_observed(&workload.trace, &shown, |moment| recorder.see(moment));
    let reserved = outcome.statistics.reserved.peak;
    let spare = Bytes(scaled(reserved, margin(workload)));
    let device = DeviceBytes {
        likely: Bytes(reserved + likely_held),
        safe: Bytes(reserved + safe_held).saturating_add(spare),
    };
    let (verdict, headroom) = judge(
        workload,
        &setup,
        total,
        safe_held + spare.get(),
        &on_card,
        device.safe,
    );
    let allocated = outcome.statistics.allocated.peak;
    let alternative = alternative(workload, target, version, (allocated, reserved)).map(
        |(settings, reserved)| Alternative {
            settings,
            peak_reserved: Bytes(reserved),
            fits: reserved + safe_held + scaled(reserved, margin(workload)) <= total,
        },
    );
    Footprint {
        gpu: target.name.clone(),
        total: target.total,
        peak_allocated: Bytes(outcome.statistics.allocated.peak),
        peak_reserved: Bytes(reserved),
        device,
        peak_phase: story.phase_at(outcome.peak_allocated_at),
        retries: outcome.statistics.retries,
        verdict,
        headroom,
        is_lower_bound: workload.ran_out,
        worst_case: None,
        terms: recorder.terms(&context, &nccl, spare),
        phases: recorder.phase_peaks(),
        largest: recorder.largest(),
        curve: recorder.curve(),
        timeline: recorder.into_timeline(),
        caveats: caveats(workload, &story)
            .into_iter()
            .chain(memory_of_the_host(&target.name))
            .collect(),
        steps: workload.steps,
        events: workload.trace.events.len(),
        settings: target.settings.to_string(),
        alternative,
        measured_context: target.measured_context.clone(),
    }
}

/// Replays with expandable segments, where much more is held than was in use.
fn alternative(
    workload: &Workload,
    target: &Target,
    version: TorchVersion,
    (allocated, reserved): (u64, u64),
) -> Option<(String, u64)> {
    let unused = reserved.saturating_sub(allocated);
    if target.settings.expandable_segments || unused < MIN_UNUSED.max(reserved / 8) {
        return None;
    }
    let settings = AllocatorSettings {
        expandable_segments: true,
        ..target.settings.clone()
    };
    let shown = settings.to_string();
    let setup = Setup {
        capacity: HUGE,
        held: 0,
        settings,
        version,
    };
    let outcome = replay(&workload.trace, &setup);
    let held = outcome.statistics.reserved.peak;
    (outcome.oom.is_none() && held <= reserved - unused / 3).then_some((shown, held))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a byte count"
)]
fn scaled(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share) as u64
}

/// Fits safely, only likely, or not; and the bytes left.
fn judge(
    workload: &Workload,
    setup: &dyn Fn(u64, u64) -> Setup,
    total: u64,
    safe_held: u64,
    on_card: &Outcome,
    safe: Bytes,
) -> (FitVerdict, i64) {
    let difference = |have: u64, need: u64| {
        i64::try_from(i128::from(have) - i128::from(need)).unwrap_or(i64::MIN)
    };
    let fits =
        |held: u64| held < total && replay(&workload.trace, &setup(total, held)).oom.is_none();
    if on_card.oom.is_some() {
        // Where everything counts as selected the figure is a bound, and a bound alone is no reason to say no.
        let verdict = if workload.unknown_shapes.count > 0 {
            FitVerdict::Tight
        } else {
            FitVerdict::DoesNotFit
        };
        return (
            verdict,
            difference(total, least_card(workload, setup, safe_held, safe.get())),
        );
    }
    if safe.get() <= total {
        return (FitVerdict::Fits, difference(total, safe.get()));
    }
    // It fits by giving cached memory back: how much could be missing besides?
    if fits(safe_held) {
        (
            FitVerdict::Fits,
            difference(total, least_card(workload, setup, safe_held, total)),
        )
    } else {
        (
            FitVerdict::Tight,
            difference(total, least_card(workload, setup, safe_held, safe.get())),
        )
    }
}

/// The smallest card, to 1 %, on which the run does not die; at most `enough`.
fn least_card(
    workload: &Workload,
    setup: &dyn Fn(u64, u64) -> Setup,
    held: u64,
    enough: u64,
) -> u64 {
    let (mut low, mut high) = (held, enough.max(held));
    while high - low > high / 100 {
        let middle = low + (high - low) / 2;
        if replay(&workload.trace, &setup(middle, held)).oom.is_none() {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// Sums by kind, for the peak and for each phase, while a replay goes by.
struct Recorder<'a> {
    workload: &'a Workload,
    story: &'a Story,
    kinds: Vec<Kind>,
    names: BTreeMap<u32, String>,
    sums: [u64; Kind::ALL.len()],
    phase: Phase,
    steps: u32,
    peak: Sums,
    by_phase: BTreeMap<Phase, Sums>,
    curve: Vec<CurvePoint>,
    width: usize,
    timeline: TimelineRecorder,
}

/// The state at a fullest moment.
#[derive(Clone, Copy, Default)]
struct Sums {
    event: usize,
    kinds: [u64; Kind::ALL.len()],
    allocated: u64,
    reserved: u64,
}

impl<'a> Recorder<'a> {
    fn new(workload: &'a Workload, story: &'a Story) -> Self {
        let (kinds, names) = kinds(workload, story);
        let mut sums = [0; Kind::ALL.len()];
        for &number in workload
            .trace
            .initial
            .iter()
            .flat_map(|segment| &segment.live)
        {
            sums[kinds[number as usize].index()] +=
                workload.trace.allocations[number as usize].requested;
        }
        Recorder {
            workload,
            story,
            kinds,
            names,
            sums,
            phase: Phase::Setup,
            steps: 0,
            peak: Sums::default(),
            by_phase: BTreeMap::new(),
            curve: Vec::new(),
            width: workload.trace.events.len().div_ceil(COLUMNS).max(1),
            timeline: TimelineRecorder::new(story, workload.trace.events.len()),
        }
    }

    fn see(&mut self, moment: Moment<'_>) {
        let trace = &self.workload.trace;
        match trace.events[moment.event] {
            Event::Alloc(number) | Event::AllocFailed(number)
                if self.story.births[number as usize].is_some() =>
            {
                self.sums[self.kinds[number as usize].index()] +=
                    trace.allocations[number as usize].requested;
            }
            Event::Free(number) | Event::FreeRequested(number) => {
                let sum = &mut self.sums[self.kinds[number as usize].index()];
                *sum = sum.saturating_sub(trace.allocations[number as usize].requested);
            }
            Event::Mark(_) => {
                self.phase = self.story.phase_at(moment.event);
                self.steps = u32::try_from(
                    self.story
                        .step_ends
                        .partition_point(|end| *end <= moment.event),
                )
                .unwrap_or(u32::MAX);
            }
            _ => {}
        }
        let now = Sums {
            event: moment.event,
            kinds: self.sums,
            allocated: moment.statistics.allocated.current,
            reserved: moment.statistics.reserved.current,
        };
        // What is in use at its highest tells why the memory is needed; what is held then may still grow.
        if now.allocated > self.peak.allocated {
            self.peak = Sums {
                reserved: self.peak.reserved,
                ..now
            };
        }
        self.peak.reserved = self.peak.reserved.max(now.reserved);
        let best = self.by_phase.entry(self.phase).or_default();
        if now.allocated > best.allocated {
            *best = now;
        }
        self.timeline.see(
            moment.event,
            TimelineColumn {
                kinds: now.kinds,
                allocated: Bytes(now.allocated),
                reserved: Bytes(now.reserved),
            },
        );
        let column = moment.event / self.width;
        if self.curve.len() <= column {
            self.curve.push(CurvePoint {
                allocated: Bytes::ZERO,
                reserved: Bytes::ZERO,
                step: self.steps,
            });
        }
        if let Some(point) = self.curve.get_mut(column) {
            point.allocated = point.allocated.max(Bytes(now.allocated));
            point.reserved = point.reserved.max(Bytes(now.reserved));
        }
    }

    fn terms(&self, context: &Outside, nccl: &Outside, spare: Bytes) -> Vec<Term> {
        let mut terms = Vec::new();
        let phases = || self.by_phase.iter().map(|(phase, sums)| (*phase, sums));
        for kind in Kind::ALL {
            let bytes = Bytes(self.peak.kinds[kind.index()]);
            let by_phase = phases()
                .map(|(phase, sums)| (phase, Bytes(sums.kinds[kind.index()])))
                .collect();
            terms.push(Term {
                id: kind.id(),
                likely: bytes,
                safe: bytes,
                by_phase,
            });
        }
        let rounding = |sums: &Sums| Bytes(sums.allocated.saturating_sub(sums.kinds.iter().sum()));
        let cached = |sums: &Sums| Bytes(sums.reserved.saturating_sub(sums.allocated));
        terms.push(Term {
            id: "rounding",
            likely: rounding(&self.peak),
            safe: rounding(&self.peak),
            by_phase: phases()
                .map(|(phase, sums)| (phase, rounding(sums)))
                .collect(),
        });
        terms.push(Term {
            id: "cached",
            likely: cached(&self.peak),
            safe: cached(&self.peak).saturating_add(spare),
            by_phase: phases()
                .map(|(phase, sums)| (phase, cached(sums)))
                .collect(),
        });
        let constant = |id, outside: &Outside| Term {
            id,
            likely: outside.likely,
            safe: outside.safe,
            by_phase: phases().map(|(phase, _)| (phase, outside.likely)).collect(),
        };
        terms.push(constant("context", context));
        if nccl.safe > Bytes::ZERO {
            terms.push(constant("nccl", nccl));
        }
        terms
    }

    fn phase_peaks(&self) -> Vec<PhasePeak> {
        let peak = |(phase, sums): (&Phase, &Sums)| PhasePeak {
            phase: *phase,
            allocated: Bytes(sums.allocated),
            reserved: Bytes(sums.reserved),
        };
        self.by_phase.iter().map(peak).collect()
    }

    fn largest(&self) -> Vec<LargestAllocation> {
        let at = self.peak.event;
        let mut groups: BTreeMap<(Kind, String), (usize, u64)> = BTreeMap::new();
        for (number, allocation) in (0_u32..).zip(&self.workload.trace.allocations) {
            let index = number as usize;
            let (Some(birth), death) = (self.story.births[index], self.story.deaths[index]) else {
                continue;
            };
            if birth.event > at || death.is_some_and(|death| death.event <= at) {
                continue;
            }
            let module = birth
                .module
                .and_then(|label| self.workload.trace.labels.get(label as usize));
            let made_by = match (self.names.get(&number), module) {
                (Some(name), _) => name.clone(),
                (None, Some(module)) => module.trim_start_matches("module:").to_owned(),
                (None, None) if birth.phase == Phase::Forward && birth.model_called => {
                    "the loss".to_owned()
                }
                (None, None) => birth.phase.name().to_owned(),
            };
            let group = groups.entry((self.kinds[index], made_by)).or_default();
            group.0 += 1;
            group.1 += allocation.requested;
        }
        let mut largest: Vec<LargestAllocation> = groups
            .into_iter()
            .map(|((kind, made_by), (count, size))| LargestAllocation {
                kind,
                made_by,
                count,
                size: Bytes(size),
            })
            .collect();
        largest.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.made_by.cmp(&b.made_by)));
        largest.truncate(MAX_LARGEST_ALLOCATIONS);
        largest
    }

    fn curve(&self) -> Vec<CurvePoint> {
        self.curve.clone()
    }

    fn into_timeline(self) -> Option<StepTimeline> {
        let modules = modules(
            self.workload,
            self.story,
            &self.kinds,
            &self.names,
            self.peak.event,
        );
        self.timeline.timeline(self.story, modules)
    }
}
