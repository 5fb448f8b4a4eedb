//! A job with its plan.

use brimful::cards::Card;
use brimful::job::Job;
use brimful::plan::{Answer, ResourceRequest, Shape};
use brimful_report::json;

use crate::nodes::torchrun;

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
        let Answer::Plan(plan) = &self.answer else {
            return None;
        };
        let nodes = torchrun(&self.job.command).and_then(|launcher| launcher.n_nodes());
        let request = ResourceRequest::of(plan, &self.shapes, self.card, self.cpus);
        Some(request.on_nodes(nodes.unwrap_or(1)))
    }

    pub fn document(&self) -> json::PlanDocument {
        json::PlanDocument::of(&self.context, &self.answer)
    }
}
