//! The facts and the pipeline that is asked about, with what several terms need of both.

use crate::predict::host::{
    EvaluationFacts, HostFacts, HostTerm, HostTermId, Moment, Pipeline, StartMethod,
};
use crate::units::Bytes;

/// The bytes of one term; `likely` and `safe` hold what lies in `/dev/shm` too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) likely: Bytes,
    pub(crate) safe: Bytes,
    pub(crate) shm_likely: Bytes,
    pub(crate) shm_safe: Bytes,
    pub(crate) reason: Option<String>,
}

impl Estimate {
    pub(crate) fn new(likely: Bytes, safe: Bytes) -> Estimate {
        Estimate {
            likely,
            safe: safe.max(likely),
            ..Estimate::default()
        }
    }

    pub(crate) fn because(mut self, reason: impl Into<String>) -> Estimate {
        if self.safe > Bytes::ZERO {
            self.reason = Some(reason.into());
        }
        self
    }

    /// All of it lies in `/dev/shm`.
    pub(crate) fn in_shm(mut self) -> Estimate {
        self.shm_likely = self.likely;
        self.shm_safe = self.safe;
        self
    }

    pub(crate) fn plus(mut self, other: &Estimate) -> Estimate {
        self.likely = self.likely.saturating_add(other.likely);
        self.safe = self.safe.saturating_add(other.safe);
        self.shm_likely = self.shm_likely.saturating_add(other.shm_likely);
        self.shm_safe = self.shm_safe.saturating_add(other.shm_safe);
        self
    }

    pub(crate) fn times(mut self, count: u64) -> Estimate {
        for bytes in [
            &mut self.likely,
            &mut self.safe,
            &mut self.shm_likely,
            &mut self.shm_safe,
        ] {
            *bytes = times(*bytes, count);
        }
        self
    }

    pub(crate) fn named(self, id: HostTermId) -> HostTerm {
        HostTerm {
            id,
            likely: self.likely,
            safe: self.safe,
            reason: self.reason,
        }
    }
}

pub(crate) fn times(bytes: Bytes, count: u64) -> Bytes {
    Bytes(bytes.get().saturating_mul(count))
}

/// So many parts of a thousand.
pub(crate) fn per_mille(bytes: Bytes, parts: u64) -> Bytes {
    let scaled = u128::from(bytes.get()) * u128::from(parts) / 1000;
    Bytes(u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// One question.
pub(crate) struct Case<'a> {
    pub(crate) facts: &'a HostFacts,
    pub(crate) pipeline: &'a Pipeline,
}

impl<'a> Case<'a> {
    pub(crate) fn new(facts: &'a HostFacts, pipeline: &'a Pipeline) -> Case<'a> {
        Case { facts, pipeline }
    }

    /// Training processes on this machine.
    pub(crate) fn ranks(&self) -> u64 {
        self.facts.ranks.max(1)
    }

    /// Workers are made of a fresh interpreter, and are sent the dataset.
    pub(crate) fn is_fresh(&self) -> bool {
        self.pipeline.start_method != StartMethod::Fork
    }

    /// The rehearsed workers came to be as the asked ones do, so that they can be taken as measured.
    pub(crate) fn like_rehearsed(&self) -> bool {
        self.facts.worker.is_some() && self.facts.start_method == self.pipeline.start_method
    }

    /// Bytes that grow with the micro-batch; as they are where it is not known which one was rehearsed.
    pub(crate) fn scaled(&self, bytes: Bytes) -> Bytes {
        let before = self.facts.micro_batch;
        if before == 0 {
            return bytes;
        }
        let scaled =
            u128::from(bytes.get()) * u128::from(self.pipeline.micro_batch) / u128::from(before);
        Bytes(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// Another loader whose workers live beside those of the training.
    pub(crate) fn evaluation_beside(&self) -> Option<&'a EvaluationFacts> {
        let evaluation = self.facts.evaluation.as_ref()?;
        (evaluation.beside || self.pipeline.persistent_workers).then_some(evaluation)
    }

    /// Workers that are there at a moment, over all loaders of one process.
    pub(crate) fn workers_at(&self, moment: Moment) -> u64 {
        let own = self.pipeline.workers;
        match moment {
            Moment::Building => 0,
            Moment::Starting | Moment::Training | Moment::Saving => own,
            Moment::StartingEvaluation | Moment::Evaluating => match self.evaluation_beside() {
                // A loader for evaluation has as many workers as the other one, in most scripts.
                Some(_) => own.saturating_mul(2),
                None => own,
            },
        }
    }
}
