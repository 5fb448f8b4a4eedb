//! A comparison in which the settings of a job are planned for each GPU and machine.

use std::ops::ControlFlow;

use brimful::plan::{Answer, RateSource, Throughput};
use brimful::secrets::mask_command;
use brimful::speed::{RateRange, SecondsRange};
use brimful_rehearse::{PredictionError, RehearsalError};
use brimful_report::json::{
    CompareDocument, ComparedGpu, JobLength, LikelyAndSafe, LowLikelyHigh, PlanDocument,
};

use crate::compare::{CompareCandidate, CompareOptions, candidates, document_of, in_hours};
use crate::error::WorkflowError;
use crate::plan::{PlanRequest, plan};
use crate::planned::PlannedJob;
use crate::progress::Progress;

/// A job to plan for each candidate.
#[derive(Clone, Debug)]
pub struct ComparePlansRequest {
    /// Its machine counts for GPUs that are named alone: host memory and CPUs are those of this machine.
    pub plan: PlanRequest,
    pub options: CompareOptions,
}

/// Plans the job for every candidate and compares.
pub fn compare_plans(
    request: &ComparePlansRequest,
    mut progress: impl FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<CompareDocument, WorkflowError> {
    let chosen = request.options.chosen(&request.plan.machine.environment);
    let requested = candidates(&request.options, &chosen)?;
    if let Some(other) = requested
        .iter()
        .find(|one| one.card.compute_capability.is_none())
    {
        let name = other.card.name;
        return Err(PredictionError::NotNvidia { name }.into());
    }
    let mut found = Vec::new();
    for (at, candidate) in requested.iter().enumerate() {
        let planned = plan(
            plan_request(&request.plan, candidate),
            |event| match event {
                Progress::Rehearsal { label } => progress(Progress::Rehearsal {
                    label: format!("{}: {label}", candidate.name),
                }),
                // The job is the same for all.
                Progress::JobProblem(_) if at > 0 => progress(Progress::Idle),
                other => progress(other),
            },
        );
        match planned {
            Err(error) if !is_of_the_script(&error) => return Err(error),
            other => found.push(other),
        }
    }
    if found.iter().all(Result::is_err)
        && let Some(Err(error)) = found.pop()
    {
        return Err(error);
    }
    let planned = || found.iter().flatten();
    let epoch_samples = planned().flat_map(|one| &one.shapes);
    let epoch_samples = epoch_samples.map(|shape| shape.host.dataset.samples).max();
    let epoch_samples = epoch_samples.filter(|count| *count > 0);
    let mut length = request.options.length.length(epoch_samples.is_some(), None);
    let has_batch = planned().any(|one| one.document().effective_batch.is_some());
    if length.steps.is_some() && !has_batch {
        length.missing = Some(
            "the number of samples in a step is not known; add `effective_batch` to the job file"
                .to_owned(),
        );
    }
    let compared = requested.iter().zip(&found);
    let compared: Vec<ComparedGpu> = compared
        .map(|(candidate, found)| match found {
            Ok(planned) => compared_plan(candidate, planned, &length, epoch_samples),
            Err(error) => ComparedGpu {
                reason: Some(error.to_string()),
                ..candidate.row_without_result(None)
            },
        })
        .collect();
    let first = planned().next();
    let torch = first
        .and_then(|one| one.shapes.first())
        .map(|shape| shape.torch.clone());
    Ok(document_of(
        first
            .map(|one| mask_command(&one.job.command))
            .unwrap_or_default(),
        torch.unwrap_or_default(),
        length,
        compared,
        chosen,
    ))
}

/// The script died on this GPU; on another one it may not.
fn is_of_the_script(error: &WorkflowError) -> bool {
    matches!(
        error,
        WorkflowError::Prediction(PredictionError::Rehearsal(RehearsalError::Died { .. }))
    )
}

fn plan_request(plan: &PlanRequest, candidate: &CompareCandidate) -> PlanRequest {
    let mut request = plan.clone();
    match candidate.profile {
        Some(profile) => request.machine.as_machine = Some(profile.id.to_owned()),
        None => request.machine.gpu = Some(candidate.gpu.clone()),
    }
    request
}

fn compared_plan(
    candidate: &CompareCandidate,
    planned: &PlannedJob,
    length: &JobLength,
    epoch_samples: Option<u64>,
) -> ComparedGpu {
    let document = planned.document();
    let rate = match &planned.answer {
        Answer::Plan(plan) => rate_of(plan.throughput),
        Answer::Impossible(_) => None,
    };
    let samples = match (length.epochs, length.steps) {
        (Some(epochs), _) => epoch_samples.map(|samples| samples as f64 * epochs),
        (None, Some(steps)) => document.effective_batch.map(|batch| batch as f64 * steps),
        (None, None) => None,
    };
    let hours = rate.zip(samples).map(|(rate, samples)| {
        let SecondsRange { low, likely, high } = rate.time_for(samples);
        in_hours([low, likely, high])
    });
    ComparedGpu {
        fits: document.fits,
        verdict: verdict(&document).to_owned(),
        headroom_bytes: headroom(&document, "gpu"),
        device_bytes: document.footprint.gpu.map(|bytes| LikelyAndSafe {
            likely: bytes.likely_bytes,
            safe: bytes.safe_bytes,
        }),
        measured_context: document.measured_context.clone(),
        settings: Some(document.settings.clone()),
        samples_per_second: rate.map(LowLikelyHigh::from),
        reason: document
            .reasons
            .first()
            .filter(|_| !document.fits)
            .map(|reason| reason.text.clone()),
        ..candidate.row_without_result(hours)
    }
}

/// Nothing where the rate is only an order of settings.
fn rate_of(throughput: Throughput) -> Option<RateRange> {
    let likely = throughput.samples_per_second;
    if !(likely.is_finite() && likely > 0.0) {
        return None;
    }
    match throughput.from {
        RateSource::Measured => Some(RateRange::measured(likely)),
        RateSource::Calculated => Some(RateRange::calculated(likely)),
        RateSource::Estimated => None,
    }
}

/// The limit that the plan gives as its reason decides.
fn verdict(document: &PlanDocument) -> &'static str {
    let exceeded = document
        .reasons
        .iter()
        .find_map(|reason| reason.brim.as_deref());
    match exceeded {
        _ if document.fits => "fits",
        Some(brim) if !brim.starts_with("gpu") => "host_does_not_fit",
        _ => "does_not_fit",
    }
}

/// What is left of the tightest limit of a kind, by the safe value.
fn headroom(document: &PlanDocument, kind: &str) -> Option<i64> {
    let limits = document
        .brims
        .iter()
        .filter(|brim| brim.name.starts_with(kind));
    let left = |limit: u64, safe: u64| {
        i64::try_from(i128::from(limit) - i128::from(safe)).unwrap_or(i64::MAX)
    };
    limits
        .map(|brim| left(brim.limit_bytes, brim.safe_bytes))
        .min()
}

#[cfg(test)]
mod tests {
    use brimful_report::json::{PlanContext, PlanReason};

    use super::*;

    fn document(fits: bool, brim: Option<&str>) -> PlanDocument {
        let answer = Answer::Plan(Box::default());
        let mut document = PlanDocument::of(&PlanContext::default(), &answer);
        document.fits = fits;
        document.reasons = vec![PlanReason {
            kind: "refused".into(),
            text: "too large".into(),
            brim: brim.map(Into::into),
            missing_bytes: None,
        }];
        document
    }

    #[test]
    fn the_limit_of_the_reason_is_the_verdict() {
        assert_eq!(verdict(&document(true, Some("host"))), "fits");
        assert_eq!(verdict(&document(false, Some("host"))), "host_does_not_fit");
        assert_eq!(verdict(&document(false, Some("gpu 1"))), "does_not_fit");
        assert_eq!(verdict(&document(false, None)), "does_not_fit");
    }

    #[test]
    fn an_estimate_that_only_ranks_settings_has_no_range() {
        let rate = |from| Throughput {
            samples_per_second: 100.0,
            from,
        };
        assert!(rate_of(rate(RateSource::Estimated)).is_none());
        let calculated = rate_of(rate(RateSource::Calculated)).unwrap();
        let measured = rate_of(rate(RateSource::Measured)).unwrap();
        assert!(calculated.high - calculated.low > measured.high - measured.low);
    }
}
