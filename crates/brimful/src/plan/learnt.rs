//! What an earlier run of a job taught, as it is kept in its history.

use serde::{Deserialize, Serialize};

use crate::explain::Cause;
use crate::job::Settings;
use crate::plan::{Observed, PlanLimits, Shape};

/// One attempt of an earlier run of the same job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LearntRun {
    /// Milliseconds since 1970, at its end.
    pub at_unix_ms: u64,
    pub settings: Settings,
    /// What it died of; nothing where it finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    pub observed: Observed,
    /// Nothing in records of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_on: Option<MeasuredOn>,
}

/// Where something was measured: what a speed depends on besides the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MeasuredOn {
    /// Names of the GPUs that the job used; none for a job on CPUs.
    pub gpus: Vec<String>,
    /// CPUs that the job could use, rounded up.
    pub cpus: u64,
    /// The release of torch, such as `2.13`; empty where it is not known.
    pub torch: String,
}

impl MeasuredOn {
    /// The machine that a job runs on, with the torch that it was rehearsed with.
    pub fn of<'a>(room: &PlanLimits, shapes: impl IntoIterator<Item = &'a Shape>) -> MeasuredOn {
        let torch = (shapes.into_iter()).find(|shape| !shape.torch.is_empty());
        MeasuredOn {
            gpus: room.gpus.iter().map(|(name, _)| name.clone()).collect(),
            cpus: whole(room.cpus),
            torch: torch.map_or_else(String::new, |shape| release(&shape.torch)),
        }
    }

    /// Whether a speed that was measured here says something about a run there.
    pub(crate) fn is_like(&self, other: &MeasuredOn) -> bool {
        let same_torch =
            self.torch == other.torch || self.torch.is_empty() || other.torch.is_empty();
        self.gpus == other.gpus && self.cpus == other.cpus && same_torch
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of CPUs, bounded"
)]
fn whole(cpus: f64) -> u64 {
    cpus.clamp(0.0, 65536.0).ceil() as u64
}

/// `2.13` of `2.13.0+cu130`.
pub(crate) fn release(version: &str) -> String {
    let parts: Vec<&str> = version.split('.').take(2).collect();
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    #[test]
    fn a_speed_holds_for_the_same_gpus_cpus_and_torch() {
        let room = |gpus: &[&str], cpus: f64| PlanLimits {
            host: None,
            shm: None,
            gpus: gpus
                .iter()
                .map(|name| ((*name).to_owned(), Bytes::from_gib(16)))
                .collect(),
            cpus,
            ranks: None,
        };
        let torch = |version: &str| {
            [Shape {
                torch: version.to_owned(),
                ..Shape::default()
            }]
        };
        let on = |gpus: &[&str], cpus, version| MeasuredOn::of(&room(gpus, cpus), &torch(version));
        let t4 = on(&["Tesla T4"], 2.0, "2.13.0+cu130");
        assert_eq!(t4.torch, "2.13");
        assert!(t4.is_like(&on(&["Tesla T4"], 1.5, "2.13.1")));
        assert!(t4.is_like(&on(&["Tesla T4"], 2.0, "")));
        for other in [
            on(&[], 2.0, "2.13.0"),
            on(&["NVIDIA L4"], 2.0, "2.13.0"),
            on(&["Tesla T4", "Tesla T4"], 2.0, "2.13.0"),
            on(&["Tesla T4"], 8.0, "2.13.0"),
            on(&["Tesla T4"], 2.0, "2.12.0"),
        ] {
            assert!(!t4.is_like(&other), "{other:?}");
        }
    }
}
