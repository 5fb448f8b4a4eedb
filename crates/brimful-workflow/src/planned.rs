//! A job with its plan.

use brimful::cards::Card;
use brimful::job::Job;
use brimful::plan::{Answer, ResourceRequest, Shape};
use brimful_report::json;

/// A job with its plan, or with the reason why nothing fits.
#[derive(Debug)]
pub struct PlannedJob {
    pub job: Job,
    pub answer: Answer,
    /// What documents say besides the answer.
    pub context: json::PlanContext,
    pub is_on_gpu: bool,
    pub(crate) card: Option<(&'static Card, usize)>,
    pub(crate) cpus: f64,
    pub(crate) shapes: Vec<Shape>,
}

impl PlannedJob {
    pub fn fits(&self) -> bool {
        matches!(self.answer, Answer::Plan(_))
    }

    /// What to request from a scheduler, or `None` if no settings fit.
    pub fn resource_request(&self) -> Option<ResourceRequest> {
        match &self.answer {
            Answer::Plan(plan) => Some(ResourceRequest::of(
                plan,
                &self.shapes,
                self.card,
                self.cpus,
            )),
            Answer::Impossible(_) => None,
        }
    }

    pub fn document(&self) -> json::PlanDocument {
        json::PlanDocument::of(&self.context, &self.answer)
    }
}
