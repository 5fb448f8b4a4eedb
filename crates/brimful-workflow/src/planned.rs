//! A job with its plan.

use brimful::job::Job;
use brimful::plan::{Answer, Shape};
use brimful_report::json;

/// A job with its plan, or with the reason why nothing fits.
#[derive(Debug)]
pub struct PlannedJob {
    pub job: Job,
    pub answer: Answer,
    /// What documents say besides the answer.
    pub context: json::PlanContext,
    pub is_on_gpu: bool,
    pub(crate) shapes: Vec<Shape>,
}

impl PlannedJob {
    pub fn fits(&self) -> bool {
        matches!(self.answer, Answer::Plan(_))
    }

    pub fn document(&self) -> json::PlanDocument {
        json::PlanDocument::of(&self.context, &self.answer)
    }
}
