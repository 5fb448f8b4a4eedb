//! Parts of a job that are valid but probably not intended.

use std::fmt;

use crate::job::{Choices, Job, knobs};
use crate::suggest::closest_owned;

/// A part of a job that is probably not intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobProblem {
    /// It has values that are never used, because `sacrifice` does not list it.
    NeverGivenUp { knob: String },
    /// `sacrifice` lists it, but it has only one value.
    NothingToGiveUp { knob: String },
    /// A micro-batch that does not divide the effective batch.
    NotADivisor {
        micro_batch: u64,
        effective_batch: u64,
    },
    /// A name that is nearly one that brimful knows.
    NearMiss { name: String, close: String },
    /// `resume` is set, but `checkpoints` is not.
    NoCheckpoints,
}

impl fmt::Display for JobProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobProblem::NeverGivenUp { knob } => write!(
                f,
                "only the first value of `{knob}` is used: it changes the training result and `sacrifice` does not list it"
            ),
            JobProblem::NothingToGiveUp { knob } => write!(
                f,
                "`sacrifice` lists `{knob}`, but it has only one value"
            ),
            JobProblem::NotADivisor {
                micro_batch,
                effective_batch,
            } => write!(
                f,
                "micro_batch {micro_batch} is not used: it does not divide the effective batch size of {effective_batch}"
            ),
            JobProblem::NearMiss { name, close } => write!(
                f,
                "`{name}` is not a known knob and is passed to the script as an option (did you mean `{close}`?)"
            ),
            JobProblem::NoCheckpoints => f.write_str(
                "`resume` is set but `checkpoints` is not: after a failure, the job restarts from the beginning",
            ),
        }
    }
}

impl Job {
    /// Parts of it that are probably not intended.
    pub fn problems(&self) -> Vec<JobProblem> {
        let mut problems = Vec::new();
        for knob in self.other_science() {
            let several = matches!(&knob.choices, Choices::Listed(values) if values.len() > 1);
            let named = self.sacrifice.contains(&knob.name);
            let knob = knob.name.clone();
            match (several, named) {
                (true, false) => problems.push(JobProblem::NeverGivenUp { knob }),
                (false, true) => problems.push(JobProblem::NothingToGiveUp { knob }),
                _ => {}
            }
        }
        if let (Some(effective_batch), Some(Choices::Listed(values))) = (
            self.effective_batch,
            self.knob(knobs::MICRO_BATCH).map(|knob| &knob.choices),
        ) {
            let usable = self.micro_batches(1);
            for micro_batch in values.iter().filter_map(super::Value::count) {
                if !usable.contains(&micro_batch) {
                    problems.push(JobProblem::NotADivisor {
                        micro_batch,
                        effective_batch,
                    });
                }
            }
        }
        let own: Vec<&str> = self.knobs.iter().map(|knob| knob.name.as_str()).collect();
        let others = self.other_science().map(|knob| &knob.name);
        for name in others.chain(self.values.keys()) {
            let known = knobs::SAME_SCIENCE
                .iter()
                .chain(&own)
                .copied()
                .filter(|known| known != name);
            if let Some(close) = closest_owned(name, known)
                .into_iter()
                .next()
                .filter(|close| is_slip(name, close))
            {
                let name = name.clone();
                problems.push(JobProblem::NearMiss { name, close });
            }
        }
        if !self.resume.is_empty() && self.checkpoints.is_empty() {
            problems.push(JobProblem::NoCheckpoints);
        }
        problems
    }
}

/// One or two letters apart: `worker`, `workrs`. `model` and `model_width` are not.
fn is_slip(name: &str, close: &str) -> bool {
    strsim::damerau_levenshtein(name, close) <= 2 && name.len() > 4
}
