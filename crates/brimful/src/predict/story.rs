//! The story of a trace: in which phase, step and module each allocation was born and died.

use brimful_allocsim::trace::{Event, Trace};

/// What the training was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Before the first forward pass: the model is built and moved.
    Setup,
    /// The forward pass, the loss, and what lies between two steps.
    Forward,
    Backward,
    Optimizer,
    Evaluation,
    /// A checkpoint is written.
    Save,
}

impl Phase {
    pub const ALL: [Phase; 6] = [
        Phase::Setup,
        Phase::Forward,
        Phase::Backward,
        Phase::Optimizer,
        Phase::Evaluation,
        Phase::Save,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Phase::Setup => "setup",
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Optimizer => "optimizer",
            Phase::Evaluation => "evaluation",
            Phase::Save => "save",
        }
    }

    fn from_name(name: &str) -> Option<Phase> {
        Phase::ALL.into_iter().find(|phase| phase.name() == name)
    }
}

/// A moment of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// Position in the trace's events.
    pub event: usize,
    pub phase: Phase,
    /// Counts how often the phase has changed.
    pub chapter: u32,
    /// Position in the trace's labels of the module at work.
    pub module: Option<u32>,
    /// The model has been called in this chapter and has returned: what follows is the loss.
    pub model_called: bool,
}

/// Birth and death of each allocation.
#[derive(Clone, Debug, Default)]
pub struct Story {
    /// By allocation; nothing for one that never came to be.
    pub births: Vec<Option<When>>,
    /// By allocation; nothing for one that lives to the end.
    pub deaths: Vec<Option<When>>,
    /// Events after which an optimizer step began.
    pub optimizer_starts: Vec<usize>,
    /// Events at which a step was complete.
    pub step_ends: Vec<usize>,
    /// The event at which the names of tensors were noted.
    pub names_noted: Option<usize>,
    /// The phase of every event, as `(first event, phase)`.
    pub phases: Vec<(usize, Phase)>,
}

impl Story {
    /// Reads the marks of a trace.
    pub fn of(trace: &Trace) -> Story {
        let mut story = Story {
            births: vec![None; trace.allocations.len()],
            deaths: vec![None; trace.allocations.len()],
            phases: vec![(0, Phase::Setup)],
            ..Story::default()
        };
        let mut now = When {
            event: 0,
            phase: Phase::Setup,
            chapter: 0,
            module: None,
            model_called: false,
        };
        for &number in trace.initial.iter().flat_map(|segment| &segment.live) {
            set(&mut story.births, number, now);
        }
        let fatal = trace.fatal_failures();
        for (at, event) in trace.events.iter().enumerate() {
            now.event = at;
            match *event {
                Event::Alloc(number) => set(&mut story.births, number, now),
                Event::Free(number) | Event::FreeRequested(number) => {
                    set(&mut story.deaths, number, now);
                }
                // It is played where the card has room for it.
                Event::AllocFailed(number) if fatal.binary_search(&at).is_ok() => {
                    set(&mut story.births, number, now);
                }
                Event::Mark(label) => story.mark(&mut now, label, trace),
                _ => {}
            }
        }
        story
    }

    fn mark(&mut self, now: &mut When, label: u32, trace: &Trace) {
        let text = trace.labels.get(label as usize).map_or("", String::as_str);
        if let Some(name) = text.strip_prefix("phase:") {
            let Some(phase) = Phase::from_name(name) else {
                return;
            };
            now.phase = phase;
            now.chapter += 1;
            now.model_called = false;
            if phase != Phase::Forward {
                now.module = None;
            }
            self.phases.push((now.event, phase));
            if phase == Phase::Optimizer {
                self.optimizer_starts.push(now.event);
            }
        } else if let Some(name) = text.strip_prefix("module:") {
            now.module = (!name.is_empty()).then_some(label);
            now.model_called |= name.is_empty();
        } else if text.starts_with("step:") {
            self.step_ends.push(now.event);
        } else if text.starts_with("tensors:") {
            self.names_noted = Some(now.event);
        }
    }

    /// The phase at an event.
    pub fn phase_at(&self, event: usize) -> Phase {
        let after = self.phases.partition_point(|(first, _)| *first <= event);
        after
            .checked_sub(1)
            .map_or(Phase::Setup, |at| self.phases[at].1)
    }
}

fn set(times: &mut [Option<When>], number: u32, when: When) {
    if let Some(time) = times.get_mut(number as usize) {
        *time = Some(when);
    }
}
