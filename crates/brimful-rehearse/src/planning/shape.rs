//! From what was rehearsed to what the search reckons with.

use brimful::job::{Choices, Job, Settings, knobs};
use brimful::plan::{GpuNeed, Pace, Shape};
use brimful::predict::{FitVerdict, Phase, Target, footprint};
use brimful::speed::StepTime;
use brimful::units::Bytes;
use brimful_allocsim::settings::AllocatorSettings;
use brimful_allocsim::version::TorchVersion;

use super::PlanQuestion;
use super::cache::Kept;
use crate::Rehearsed;
use crate::workload::workload;

/// The shape of one rehearsal in the room there is.
pub(super) fn shape(question: &PlanQuestion, settings: Settings, kept: &Kept) -> Shape {
    let gpu = match question.card {
        Some(_) => allocators(&question.job)
            .iter()
            .filter_map(|allocator| need(question, allocator, &kept.processes))
            .collect(),
        None => Vec::new(),
    };
    Shape {
        settings,
        gpu,
        host: kept.host.clone(),
        pace: pace(question, kept),
        world_size: u64::from(kept.world_size.max(1)),
        failed: kept.failed.clone(),
        rehearsed_at_unix_ms: kept.at_unix_ms,
        torch: (kept.processes.first())
            .map_or_else(String::new, |process| process.facts.torch.clone()),
    }
}

/// The pace of the rehearsal, with the time of the GPU by the model of its speed. Where the model says something,
/// launching is taken from it too: a rehearsed step is slowed down by what watches it.
fn pace(question: &PlanQuestion, kept: &Kept) -> Pace {
    let known = || {
        let (card, _) = question.card?;
        let step = kept.processes.first()?.step.as_ref()?;
        Some((StepTime::of(step, card)?, step.batches.max(1) as f64))
    };
    match known() {
        Some((time, micro_steps)) if !kept.pace.on_cpu => Pace {
            gpu_seconds: time.gpu_seconds.total() / micro_steps,
            step_seconds: time.launching_seconds / micro_steps,
            ..kept.pace
        },
        _ => kept.pace,
    }
}

/// The settings of the allocator to replay with: the job's own first.
fn allocators(job: &Job) -> Vec<String> {
    let mut found: Vec<String> = match job.knob(knobs::ALLOCATOR).map(|knob| &knob.choices) {
        Some(Choices::Listed(values)) => values.iter().map(ToString::to_string).collect(),
        Some(Choices::Auto) | None => vec![String::new()],
    };
    let expandable = "expandable_segments:True";
    if !found.iter().any(|allocator| allocator == expandable) {
        found.push(expandable.to_owned());
    }
    found
}

/// Bytes of the fullest process under one setting of the allocator.
fn need(question: &PlanQuestion, allocator: &str, processes: &[Rehearsed]) -> Option<GpuNeed> {
    let (card, _) = question.card?;
    // Where others hold some of the card, what is left is the room; the fullest rank must fit the fullest card.
    let room = question.room.gpus.iter().map(|(_, bytes)| *bytes).min();
    let total = room.map_or(card.torch_visible.value, |room| {
        room.min(card.torch_visible.value)
    });
    let mut most: Option<GpuNeed> = None;
    for process in processes {
        let version = process
            .facts
            .torch
            .parse()
            .unwrap_or(TorchVersion::NEWEST_CHECKED);
        // Nothing asked for: what the environment says, as the rehearsal had it.
        let conf = if allocator.is_empty() {
            &process.trace.settings
        } else {
            allocator
        };
        let target = Target {
            name: card.name.to_owned(),
            total,
            multiprocessors: card.multiprocessors.value,
            compute_capability: card.compute_capability,
            settings: AllocatorSettings::parse(conf, version).ok()?,
            measured_context: question.measured.context(card, &process.facts.torch),
        };
        let found = footprint(&workload(process, question.steps), &target);
        let evaluation = found
            .phases
            .iter()
            .find(|peak| peak.phase == Phase::Evaluation)
            .map(|peak| peak.reserved);
        let one = GpuNeed {
            allocator: allocator.to_owned(),
            likely: found.device.likely,
            // Where it fits by giving cached memory back, less than it would take with room.
            safe: Bytes(
                total
                    .get()
                    .saturating_add_signed(found.headroom.saturating_neg()),
            ),
            fits: found.verdict == FitVerdict::Fits,
            evaluation,
        };
        let fits = most.as_ref().is_none_or(|most| most.fits) && one.fits;
        if most.as_ref().is_none_or(|most| one.safe > most.safe) {
            most = Some(one);
        }
        if let Some(most) = &mut most {
            most.fits = fits;
        }
    }
    most
}
