//! A comparison: one rehearsal of a command, and its memory, time and cost on several GPUs and machines.

use std::ops::ControlFlow;

use brimful::cards::{self, Card};
use brimful::profiles::{self, Profile};
use brimful::speed::Speed;
use brimful::units::Bytes;
use brimful_probe::Environment;
use brimful_report::json::{
    CompareDocument, ComparedGpu, GpuFit, GpusFrom, JobLength, LikelyAndSafe, LowLikelyHigh,
    SCHEMA_VERSION,
};

use crate::error::WorkflowError;
use crate::gpus::{GpuChoice, counted};
use crate::predict::{PredictRequest, predict};
use crate::progress::Progress;

/// A command to compare as it is.
#[derive(Clone, Debug)]
pub struct CompareRequest {
    /// GPUs are those of `options`, else of its environment; its own are not looked at.
    pub predict: PredictRequest,
    pub options: CompareOptions,
}

/// What to compare.
#[derive(Clone, Debug, Default)]
pub struct CompareOptions {
    /// GPU models, such as `t4` or `2x a100-40gb`. If neither GPUs nor machines are named, those of this machine, else the
    /// usual ones.
    pub gpus: Vec<String>,
    /// Names of machine profiles.
    pub machines: Vec<String>,
    /// Names of candidates and the price of one hour.
    pub prices: Vec<(String, f64)>,
    pub length: RequestedLength,
}

impl CompareOptions {
    /// The GPU models to compare, where none are named; these variables choose those of this machine.
    pub(crate) fn chosen(&self, environment: &Environment) -> GpuChoice {
        if self.gpus.is_empty() && self.machines.is_empty() {
            GpuChoice::here(environment.clone())
        } else {
            GpuChoice::requested(self.gpus.join(","))
        }
    }
}

/// Length of the job, as given by the user.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RequestedLength {
    /// One pass over the training data, if its size is known.
    #[default]
    OneEpoch,
    Epochs(f64),
    Steps(u64),
}

/// A GPU or machine to compare.
pub(crate) struct CompareCandidate {
    pub(crate) name: String,
    pub(crate) gpu: String,
    pub(crate) card: &'static Card,
    pub(crate) profile: Option<&'static Profile>,
    pub(crate) host_limit: Option<Bytes>,
    pub(crate) price: Option<f64>,
}

const SECONDS_PER_HOUR: f64 = 3600.0;

/// Rehearses the command once for every kind of GPU and compares.
pub fn compare(
    request: CompareRequest,
    progress: impl FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<CompareDocument, WorkflowError> {
    let chosen = request.options.chosen(&request.predict.environment);
    let requested = candidates(&request.options, &chosen)?;
    let mut gpus: Vec<&str> = Vec::new();
    for one in &requested {
        if !gpus.contains(&one.gpu.as_str()) {
            gpus.push(&one.gpu);
        }
    }
    let predicted = predict(
        PredictRequest {
            gpu: Some(gpus.join(",")),
            ..request.predict
        },
        progress,
    )?;
    let length = length_of(request.options.length, &predicted.rehearsed.speeds);
    let document = predicted.document();
    let found = |gpu: &str| {
        let at = gpus.iter().position(|known| *known == gpu)?;
        let (fits, failed) = &predicted.requested;
        if let Some(place) = fits.iter().position(|place| *place == at) {
            let fit = document.gpus.get(place)?;
            return Some(Found::Fit(fit, predicted.rehearsed.speed(place)));
        }
        let place = failed.iter().position(|place| *place == at)?;
        Some(Found::Failed(&document.failed.get(place)?.reason))
    };
    let host = document.host.as_ref().map(|host| host.bytes);
    let candidates: Vec<ComparedGpu> = requested
        .iter()
        .map(|one| compared(one, found(&one.gpu).as_ref(), host, &length))
        .collect();
    Ok(CompareDocument {
        host_bytes: host,
        ..document_of(
            document.command.clone(),
            document.torch_version.clone(),
            length,
            candidates,
            chosen,
        )
    })
}

/// The document, with the best candidates found.
pub(crate) fn document_of(
    command: Vec<String>,
    torch_version: String,
    length: JobLength,
    candidates: Vec<ComparedGpu>,
    chosen: GpuChoice,
) -> CompareDocument {
    let need = |name: &str| {
        let candidate = candidates.iter().find(|candidate| candidate.gpu == name)?;
        Some(candidate.device_bytes?.safe)
    };
    let machine_gpus = chosen.of_machine.into_iter().map(|gpu| {
        let need = need(&gpu.name);
        gpu.with_need(need)
    });
    CompareDocument {
        gpus_from: chosen.from.id().to_owned(),
        machine_gpus: machine_gpus.collect(),
        schema_version: SCHEMA_VERSION,
        brimful_version: env!("CARGO_PKG_VERSION").into(),
        command,
        torch_version,
        fastest: least(&candidates, time_of),
        cheapest: least(&candidates, |found| Some(found.cost?.likely)),
        host_bytes: None,
        length,
        candidates,
    }
}

/// The result of a rehearsal for one kind of GPU.
enum Found<'a> {
    Fit(&'a GpuFit, Option<&'a Speed>),
    /// The last line of the script.
    Failed(&'a str),
}

/// The candidate that fits and has the least of something.
fn least(candidates: &[ComparedGpu], of: impl Fn(&ComparedGpu) -> Option<f64>) -> Option<String> {
    candidates
        .iter()
        .filter(|found| found.fits)
        .filter_map(|found| Some((of(found)?, found)))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, found)| found.name.clone())
}

/// Hours, or seconds per sample or per step where the length of the job is not known.
fn time_of(found: &ComparedGpu) -> Option<f64> {
    let steps = || Some(found.speed.as_ref()?.steps_per_second);
    let rate = found.samples_per_second.or_else(steps)?;
    Some(found.hours.map_or(1.0 / rate.likely, |hours| hours.likely))
}

/// The GPUs and machines, each with its price.
pub(crate) fn candidates(
    options: &CompareOptions,
    chosen: &GpuChoice,
) -> Result<Vec<CompareCandidate>, WorkflowError> {
    let mut found = Vec::new();
    let gpus = match chosen.from {
        GpusFrom::Requested => &options.gpus[..],
        GpusFrom::Machine | GpusFrom::Usual => std::slice::from_ref(&chosen.models),
    };
    let lists = gpus.iter().map(|list| cards::alternatives(list));
    for name in lists.collect::<Result<Vec<_>, _>>()?.concat() {
        let (card, count) = cards::find_counted(name)?;
        found.push(CompareCandidate {
            name: name.to_owned(),
            gpu: counted(card, count),
            card,
            profile: None,
            host_limit: None,
            price: None,
        });
    }
    for name in &options.machines {
        let profile = profiles::find(name)?;
        let ids = profile.gpus.unwrap_or_default();
        let Some(first) = ids.first() else {
            return Err(WorkflowError::NoGpuInProfile { id: profile.id });
        };
        let card = cards::find(first)?;
        found.push(CompareCandidate {
            name: profile.id.to_owned(),
            gpu: counted(card, ids.len()),
            card,
            profile: Some(profile),
            host_limit: profile
                .memory
                .map(|memory| memory.saturating_sub(profile.used_at_start.unwrap_or_default())),
            price: None,
        });
    }
    for (name, price) in &options.prices {
        let mut is_known = false;
        for one in found.iter_mut().filter(|one| is_named(one, name)) {
            one.price = Some(*price);
            is_known = true;
        }
        if !is_known {
            return Err(WorkflowError::UnknownPrice { name: name.clone() });
        }
    }
    Ok(found)
}

/// Whether a price is meant for this candidate.
fn is_named(candidate: &CompareCandidate, name: &str) -> bool {
    candidate.name.eq_ignore_ascii_case(name.trim())
        || (candidate.profile.is_none()
            && cards::find(name).is_ok_and(|card| card.id == candidate.gpu))
}

fn length_of(requested: RequestedLength, speeds: &[Option<Speed>]) -> JobLength {
    let epoch = speeds
        .iter()
        .flatten()
        .find_map(|speed| Some(speed.epoch_seconds?.likely * speed.steps_per_second.likely));
    requested.length(epoch.is_some(), epoch)
}

impl RequestedLength {
    /// Of the two values that users may give; steps count if both are there.
    pub fn of(epochs: Option<f64>, steps: Option<u64>) -> RequestedLength {
        match (epochs, steps) {
            (_, Some(steps)) => RequestedLength::Steps(steps),
            (Some(epochs), None) => RequestedLength::Epochs(epochs),
            (None, None) => RequestedLength::OneEpoch,
        }
    }

    /// The length of a job. `epoch_steps` is the number of steps in one pass over the data.
    pub(crate) fn length(self, is_epoch_known: bool, epoch_steps: Option<f64>) -> JobLength {
        let epochs = match self {
            RequestedLength::Steps(steps) => {
                return JobLength {
                    steps: Some(steps as f64),
                    ..JobLength::default()
                };
            }
            RequestedLength::OneEpoch => 1.0,
            RequestedLength::Epochs(epochs) => epochs,
        };
        if !is_epoch_known {
            return JobLength {
                missing: Some(
                    "the size of the training data or of a batch is not known; give the length of the job with --total-steps".to_owned(),
                ),
                ..JobLength::default()
            };
        }
        JobLength {
            epochs: Some(epochs),
            steps: epoch_steps.map(|steps| (steps * epochs).round()),
            missing: None,
        }
    }
}

fn compared(
    candidate: &CompareCandidate,
    found: Option<&Found<'_>>,
    host: Option<LikelyAndSafe>,
    length: &JobLength,
) -> ComparedGpu {
    let (fit, speed, reason) = match found {
        Some(Found::Fit(fit, speed)) => (Some(*fit), *speed, None),
        Some(Found::Failed(reason)) => (None, None, Some(*reason)),
        None => (None, None, None),
    };
    let host_fits = match (host, candidate.host_limit) {
        (Some(need), Some(limit)) => need.safe <= limit.get(),
        _ => true,
    };
    let verdict = match fit {
        Some(fit) if fit.fits && !host_fits => "host_does_not_fit",
        Some(fit) => fit.verdict.as_str(),
        None => "failed",
    };
    let hours = speed.and_then(|speed| hours_of(speed, length));
    let speed = fit.and_then(|fit| fit.speed.clone());
    ComparedGpu {
        fits: fit.is_some_and(|fit| fit.fits) && host_fits,
        verdict: verdict.to_owned(),
        headroom_bytes: fit.map(|fit| fit.headroom_bytes),
        device_bytes: fit.map(|fit| fit.device_bytes),
        measured_context: fit.and_then(|fit| fit.measured_context.clone()),
        samples_per_second: speed.as_ref().and_then(|speed| speed.samples_per_second),
        speed,
        reason: reason.map(str::to_owned),
        ..candidate.row_without_result(hours)
    }
}

impl CompareCandidate {
    /// Names and prices, without a result.
    pub(crate) fn row_without_result(&self, hours: Option<LowLikelyHigh>) -> ComparedGpu {
        let cost = |hours: LowLikelyHigh, price: f64| LowLikelyHigh {
            low: hours.low * price,
            likely: hours.likely * price,
            high: hours.high * price,
        };
        ComparedGpu {
            name: self.name.clone(),
            gpu: self.card.name.to_owned(),
            machine: self.profile.map(|profile| profile.title.to_owned()),
            fits: false,
            verdict: "failed".to_owned(),
            headroom_bytes: None,
            device_bytes: None,
            measured_context: None,
            host_limit_bytes: self.host_limit.map(Bytes::get),
            settings: None,
            samples_per_second: None,
            speed: None,
            cost: hours
                .zip(self.price)
                .map(|(hours, price)| cost(hours, price)),
            hours,
            price_per_hour: self.price,
            reason: None,
        }
    }
}

/// Hours for the job. An epoch has fewer steps where more ranks share it.
fn hours_of(speed: &Speed, length: &JobLength) -> Option<LowLikelyHigh> {
    let seconds = match (length.epochs, length.steps) {
        (Some(epochs), _) => {
            let epoch = speed.epoch_seconds?;
            [epoch.low, epoch.likely, epoch.high].map(|seconds| seconds * epochs)
        }
        (None, Some(steps)) => {
            let time = speed.steps_per_second.time_for(steps);
            [time.low, time.likely, time.high]
        }
        (None, None) => return None,
    };
    Some(in_hours(seconds))
}

/// The shortest time first.
pub(crate) fn in_hours(seconds: [f64; 3]) -> LowLikelyHigh {
    let [low, likely, high] = seconds.map(|seconds| seconds / SECONDS_PER_HOUR);
    LowLikelyHigh { low, likely, high }
}

#[cfg(test)]
mod tests {
    use brimful::speed::{RateRange, SecondsByPart, SpeedBasis};

    use super::*;

    fn speed(steps: f64, epoch: Option<f64>) -> Speed {
        let range = |likely: f64| RateRange {
            low: likely * 0.8,
            likely,
            high: likely * 1.25,
        };
        Speed {
            steps_per_second: range(steps),
            samples_per_second: None,
            epoch_seconds: epoch.map(|seconds| range(1.0).time_for(seconds)),
            seconds_by_part: SecondsByPart::default(),
            basis: SpeedBasis::Model,
            notes: Vec::new(),
        }
    }

    #[test]
    fn an_epoch_is_as_long_as_each_gpu_takes_for_it() {
        let (one, two) = (speed(2.0, Some(7200.0)), speed(2.0, Some(3600.0)));
        let length = length_of(RequestedLength::Epochs(3.0), &[Some(one.clone())]);
        assert_eq!((length.epochs, length.steps), (Some(3.0), Some(43_200.0)));
        assert!((hours_of(&one, &length).unwrap().likely - 6.0).abs() < 1e-9);
        assert!((hours_of(&two, &length).unwrap().likely - 3.0).abs() < 1e-9);
    }

    #[test]
    fn without_a_length_there_are_no_hours() {
        let unknown = speed(2.0, None);
        let length = length_of(RequestedLength::OneEpoch, &[Some(unknown.clone())]);
        assert!(length.missing.is_some());
        assert!(hours_of(&unknown, &length).is_none());
        let steps = length_of(RequestedLength::Steps(7200), &[]);
        assert!((hours_of(&unknown, &steps).unwrap().likely - 1.0).abs() < 1e-9);
    }
}
