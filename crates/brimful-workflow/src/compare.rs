//! A comparison: one rehearsal of a command, and its memory, time and cost on several GPUs and machines.

use std::ops::ControlFlow;

use brimful::cards::{self, Card};
use brimful::profiles;
use brimful::speed::Speed;
use brimful::units::Bytes;
use brimful_report::json::{
    CompareDocument, ComparedGpu, JobLength, LowLikelyHigh, PredictDocument,
};

use crate::error::WorkflowError;
use crate::predict::{PredictRequest, predict};
use crate::progress::Progress;

/// What to compare.
#[derive(Clone, Debug)]
pub struct CompareRequest {
    /// GPUs are those of `gpus` and `machines`; its own are not looked at.
    pub predict: PredictRequest,
    /// GPU models, such as `t4` or `2x a100-40gb`.
    pub gpus: Vec<String>,
    /// Names of machine profiles.
    pub machines: Vec<String>,
    /// Names of candidates and the price of one hour.
    pub prices: Vec<(String, f64)>,
    pub length: AskedLength,
}

/// How long the job is, as the user says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum AskedLength {
    /// One pass over the training data, if its size is known.
    #[default]
    OneEpoch,
    Epochs(f64),
    Steps(u64),
}

/// One GPU or machine before the rehearsal.
struct Asked {
    name: String,
    gpu: String,
    card: &'static Card,
    machine: Option<String>,
    host_limit: Option<Bytes>,
}

const SECONDS_PER_HOUR: f64 = 3600.0;

/// Rehearses the command once for every kind of GPU and compares.
pub fn compare(
    request: CompareRequest,
    progress: impl FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<CompareDocument, WorkflowError> {
    let asked = candidates(&request)?;
    for (name, _) in &request.prices {
        if !asked.iter().any(|one| is_named(one, name)) {
            return Err(WorkflowError::UnknownPrice { name: name.clone() });
        }
    }
    let mut gpus: Vec<&str> = Vec::new();
    for one in &asked {
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
    let length = length_of(request.length, &predicted.rehearsed.speeds);
    let predicted = predicted.document();
    let candidates: Vec<ComparedGpu> = asked
        .iter()
        .map(|one| {
            let price = request.prices.iter().find(|(name, _)| is_named(one, name));
            compared(one, &predicted, &length, price.map(|(_, price)| *price))
        })
        .collect();
    let least = |of: &dyn Fn(&ComparedGpu) -> Option<f64>| {
        let fitting = candidates.iter().filter(|found| found.fits);
        fitting
            .filter_map(|found| Some((of(found)?, found)))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, found)| found.name.clone())
    };
    let step_time = |found: &ComparedGpu| Some(1.0 / found.speed.as_ref()?.steps_per_second.likely);
    Ok(CompareDocument {
        schema_version: predicted.schema_version,
        brimful_version: predicted.brimful_version.clone(),
        command: predicted.command.clone(),
        torch_version: predicted.torch_version.clone(),
        fastest: least(&step_time),
        cheapest: least(&|found| Some(found.cost?.likely)),
        host_bytes: predicted.host.as_ref().map(|host| host.bytes),
        length,
        candidates,
    })
}

fn candidates(request: &CompareRequest) -> Result<Vec<Asked>, WorkflowError> {
    let mut asked = Vec::new();
    for name in &request.gpus {
        let cards = cards::find_all(name)?;
        if let Some(card) = cards.first() {
            asked.push(Asked {
                name: name.trim().to_owned(),
                gpu: counted(card, cards.len()),
                card,
                machine: None,
                host_limit: None,
            });
        }
    }
    for name in &request.machines {
        let profile = profiles::find(name)?;
        let ids = profile.gpus.unwrap_or_default();
        let Some(first) = ids.first() else {
            return Err(WorkflowError::NoGpuInProfile { id: profile.id });
        };
        let card = cards::find(first)?;
        asked.push(Asked {
            name: profile.id.to_owned(),
            gpu: counted(card, ids.len()),
            card,
            machine: Some(profile.title.to_owned()),
            host_limit: profile
                .memory
                .map(|memory| memory.saturating_sub(profile.used_at_start.unwrap_or_default())),
        });
    }
    Ok(asked)
}

fn counted(card: &Card, count: usize) -> String {
    if count > 1 {
        format!("{count}x {}", card.id)
    } else {
        card.id.to_owned()
    }
}

/// Whether a price is meant for this candidate.
fn is_named(asked: &Asked, name: &str) -> bool {
    asked.name.eq_ignore_ascii_case(name.trim())
        || (asked.machine.is_none() && cards::find(name).is_ok_and(|card| card.id == asked.gpu))
}

fn length_of(asked: AskedLength, speeds: &[Option<Speed>]) -> JobLength {
    let epoch = speeds
        .iter()
        .flatten()
        .find_map(|speed| Some(speed.epoch_seconds?.likely * speed.steps_per_second.likely));
    let epochs = match asked {
        AskedLength::Steps(steps) => {
            return JobLength {
                steps: Some(steps as f64),
                ..JobLength::default()
            };
        }
        AskedLength::OneEpoch => 1.0,
        AskedLength::Epochs(epochs) => epochs,
    };
    match epoch {
        Some(steps) => JobLength {
            epochs: Some(epochs),
            steps: Some((steps * epochs).round()),
            missing: None,
        },
        None => JobLength {
            missing: Some(
                "the size of the training data or of a batch is not known; give the length of the job with --total-steps".to_owned(),
            ),
            ..JobLength::default()
        },
    }
}

fn compared(
    asked: &Asked,
    predicted: &PredictDocument,
    length: &JobLength,
    price: Option<f64>,
) -> ComparedGpu {
    let failed = predicted
        .failed
        .iter()
        .find(|failed| failed.name == asked.card.name);
    let fit = predicted
        .gpus
        .iter()
        .find(|gpu| gpu.name == asked.card.name);
    let host = predicted.host.as_ref().map(|host| host.bytes.safe);
    let host_fits = match (host, asked.host_limit) {
        (Some(need), Some(limit)) => need <= limit.get(),
        _ => true,
    };
    let verdict = match fit {
        Some(fit) if fit.fits && !host_fits => "host_does_not_fit",
        Some(fit) => fit.verdict.as_str(),
        None => "failed",
    };
    let speed = fit.and_then(|fit| fit.speed.clone());
    let hours = speed.as_ref().and_then(|speed| {
        let steps = length.steps?;
        let rate = speed.steps_per_second;
        let hours = |rate: f64| steps / rate / SECONDS_PER_HOUR;
        Some(LowLikelyHigh {
            low: hours(rate.high),
            likely: hours(rate.likely),
            high: hours(rate.low),
        })
    });
    ComparedGpu {
        name: asked.name.clone(),
        gpu: asked.card.name.to_owned(),
        machine: asked.machine.clone(),
        fits: fit.is_some_and(|fit| fit.fits) && host_fits,
        verdict: verdict.to_owned(),
        headroom_bytes: fit.map(|fit| fit.headroom_bytes),
        device_bytes: fit.map(|fit| fit.device_bytes),
        host_limit_bytes: asked.host_limit.map(Bytes::get),
        cost: hours.zip(price).map(|(hours, price)| LowLikelyHigh {
            low: hours.low * price,
            likely: hours.likely * price,
            high: hours.high * price,
        }),
        hours,
        speed,
        price_per_hour: price,
        reason: failed.map(|failed| failed.reason.clone()),
    }
}
