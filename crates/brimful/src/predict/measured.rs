//! The CUDA context that earlier runs measured, in place of the one that is calculated.

use std::fmt;

use super::outside::Outside;
use crate::units::Bytes;

/// What runs on a GPU held outside PyTorch's allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredContext {
    pub context: Bytes,
    /// Runs that it comes from: the last one of the same job, or the median of several.
    pub n_runs: usize,
    pub same_job: bool,
    /// The release of torch, such as `2.13`.
    pub torch: String,
    /// Nothing where the driver did not say.
    pub driver: Option<String>,
}

impl MeasuredContext {
    /// The measured value, with the slack of the calculated one: another script loads other kernels.
    pub(super) fn in_place_of(&self, calculated: Outside) -> Outside {
        let slack = calculated.safe.saturating_sub(calculated.likely);
        Outside {
            likely: self.context,
            safe: self.context.saturating_add(slack),
        }
    }
}

impl fmt::Display for MeasuredContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, measured by ", self.context)?;
        match (self.same_job, self.n_runs) {
            (true, _) => write!(f, "the last run of this job")?,
            (false, 1) => write!(f, "an earlier run of another job")?,
            (false, n_runs) => write!(f, "{n_runs} earlier runs (median)")?,
        }
        write!(f, " with torch {}", self.torch)?;
        match &self.driver {
            Some(driver) => write!(f, " and driver {driver}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slack_of_the_calculated_value_stays() {
        let measured = MeasuredContext {
            context: Bytes::from_mib(310),
            n_runs: 3,
            same_job: false,
            torch: "2.13".into(),
            driver: Some("535.104.05".into()),
        };
        let calculated = Outside {
            likely: Bytes::from_mib(250),
            safe: Bytes::from_mib(400),
        };
        let found = measured.in_place_of(calculated);
        assert_eq!(
            (found.likely, found.safe),
            (Bytes::from_mib(310), Bytes::from_mib(460))
        );
        assert_eq!(
            measured.to_string(),
            "310 MiB, measured by 3 earlier runs (median) with torch 2.13 and driver 535.104.05"
        );
    }
}
