//! What the processes of a rehearsal report besides their results.

use std::fmt;

use brimful::units::Bytes;

use crate::events::Event;

/// Of what a script leaves undone; it may come from many processes.
const MAX_SUPPRESSED: usize = 100;

/// How far a rehearsal had come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastStep {
    /// Optimizer steps made; 0 before the first.
    pub step: u32,
    /// Optimizer steps asked for.
    pub of: u32,
    /// The most bytes in tensors that a process had after that step.
    pub bytes: Bytes,
}

impl LastStep {
    /// The furthest step that any process reported.
    pub(crate) fn of(seen: &[Event]) -> LastStep {
        let steps = seen.iter().filter_map(|event| match event {
            Event::Step { step, of, bytes } => Some(LastStep {
                step: *step,
                of: *of,
                bytes: Bytes(*bytes),
            }),
            _ => None,
        });
        steps
            .max_by_key(|last| (last.step, last.bytes))
            .unwrap_or_default()
    }
}

impl fmt::Display for LastStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.step == 0 {
            return f.write_str("before the first step");
        }
        let LastStep { step, of, bytes } = self;
        write!(f, "after step {step} of {of}: {bytes} in tensors so far")
    }
}

/// What was not done, each once, in the order of the first report.
pub(crate) fn suppressed(seen: &[Event]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for event in seen {
        if let Event::Suppressed { what } = event
            && found.len() < MAX_SUPPRESSED
            && !found.contains(what)
        {
            found.push(what.clone());
        }
    }
    found
}

/// A script's question for a message.
pub(crate) fn quoted(prompt: &str) -> String {
    if prompt.is_empty() {
        "it showed no prompt".to_owned()
    } else {
        format!("\"{prompt}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: u32, bytes: u64) -> Event {
        Event::Step { step, of: 3, bytes }
    }

    #[test]
    fn the_last_step_is_the_furthest_of_the_fullest_process() {
        let seen = [step(1, 9 << 30), step(2, 1 << 30), step(2, 2 << 30)];
        let last = LastStep::of(&seen);
        assert_eq!((last.step, last.bytes), (2, Bytes(2 << 30)));
        assert_eq!(
            last.to_string(),
            "after step 2 of 3: 2 GiB in tensors so far"
        );
        assert_eq!(LastStep::of(&[]).to_string(), "before the first step");
    }

    #[test]
    fn what_was_not_done_is_listed_once_and_bounded() {
        let event = |what: String| Event::Suppressed { what };
        let mut seen = vec![
            event("a".into()),
            step(1, 1),
            event("b".into()),
            event("a".into()),
        ];
        assert_eq!(suppressed(&seen), ["a", "b"]);
        seen.extend((0..200).map(|number| event(number.to_string())));
        assert_eq!(suppressed(&seen).len(), MAX_SUPPRESSED);
    }
}
