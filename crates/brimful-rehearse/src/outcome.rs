//! How a rehearsal ended: the results of each card, or the reason that there are none.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use crate::error::RehearsalError;
use crate::events::Event;
use crate::facts::EndReason;
use crate::request::RehearsalRequest;
use crate::results::{Rehearsed, read_results, tail};
use crate::script_end::ScriptEnd;
use crate::stacks::{crash_place, without_list_of_modules};

/// Ending of the files about processes that met the end of a card's memory, when the script was started again with
/// more room (`brimful_branches.py`).
const RAN_OUT: &str = "ran-out";

/// What came of one card.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    /// By rank; none where the script died before its first step.
    pub processes: Vec<Rehearsed>,
    /// Why there are none.
    pub failure: String,
}

/// How a script came to its end.
pub(crate) struct EndOfScript {
    /// Nothing where brimful ended it.
    pub(crate) status: Option<ExitStatus>,
    /// For how long it had done nothing when brimful ended it for that reason.
    pub(crate) stalled: Option<Duration>,
    pub(crate) seen: Vec<Event>,
    pub(crate) output: String,
    /// Where the script was, if it made no step for some time.
    pub(crate) place: Option<String>,
}

impl EndOfScript {
    fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Whether the processes of that card ended with an error; the whole script's end where nothing else is known.
    fn failed(&self, variant: usize) -> bool {
        self.code_of(variant)
            .map_or(!self.success(), |code| code != 0)
    }

    /// The exit code of the processes of that card.
    fn code_of(&self, variant: usize) -> Option<i32> {
        self.seen.iter().rev().find_map(|event| match event {
            Event::Ended { variant: of, code } if *of == variant => Some(*code),
            _ => None,
        })
    }

    /// Why there are no figures for one card, of which this is the end of the output.
    fn failure_of(&self, variant: usize, output: &str) -> String {
        let ended = self.code_of(variant).and_then(ScriptEnd::of_code);
        match ended.filter(|ended| ended.is_crash()) {
            Some(ended) => match crash_place(output) {
                Some(place) => format!("{ended} ({place})"),
                None => ended.to_string(),
            },
            None => last_words(output),
        }
    }

    fn steps_reported(&self) -> u32 {
        let steps = self.seen.iter().filter_map(|event| match event {
            Event::Step { step, .. } => Some(*step),
            _ => None,
        });
        steps.max().unwrap_or(0)
    }

    /// Where the script last read a value that only the model could compute, if it failed after that.
    fn assumed_value(&self) -> Option<String> {
        self.seen.iter().rev().find_map(|event| match event {
            Event::AssumedValue { place } => Some(place.clone()),
            _ => None,
        })
    }

    /// The reason that a process of the script reported itself.
    fn reported_reason(&self) -> Option<RehearsalError> {
        let unhooked = self.seen.iter().find_map(|event| match event {
            Event::Unhooked { torch, why } => Some(RehearsalError::Unhooked {
                torch: torch.clone(),
                why: why.clone(),
                output: self.output.clone(),
            }),
            _ => None,
        });
        // A script that got on without an answer ends for another reason.
        let input = self.seen.iter().rev().find_map(|event| match event {
            Event::Input { prompt } => Some(RehearsalError::Input {
                prompt: prompt.clone(),
                output: self.output.clone(),
            }),
            _ => None,
        });
        unhooked.or_else(|| input.filter(|_| self.status.is_some() && !self.success()))
    }

    /// Why there are no figures.
    fn reason(&self, request: &RehearsalRequest) -> RehearsalError {
        let output = self.output.clone();
        if let Some(reported) = self.reported_reason() {
            return reported;
        }
        let unsupported = self.seen.iter().find_map(|event| match event {
            Event::Unsupported { torch, what } => Some((torch.clone(), what.clone())),
            _ => None,
        });
        if let Some((torch, found)) = unsupported {
            return RehearsalError::NoCuda {
                torch,
                found,
                output,
            };
        }
        let without_cuda = self.seen.iter().find_map(|event| match event {
            Event::NoCuda { torch } => Some(torch.clone()),
            _ => None,
        });
        if let Some(waited) = self.stalled {
            return RehearsalError::Stalled {
                waited,
                made: self.steps_reported(),
                steps: request.steps,
                place: self.place.clone(),
                output,
            };
        }
        match (without_cuda, self.status.map(ScriptEnd::of)) {
            (_, None) => RehearsalError::TimeLimit {
                limit: request.time_limit,
                made: self.steps_reported(),
                steps: request.steps,
                place: self.place.clone(),
                output,
            },
            (Some(torch), Some(Some(ended))) if !ended.is_crash() => RehearsalError::NoCuda {
                torch,
                found: format!("it ended with {ended} before its first optimizer step"),
                output,
            },
            (_, Some(Some(ended))) => RehearsalError::Died {
                ended,
                crash_place: ended.is_crash().then(|| crash_place(&output)).flatten(),
                made: self.steps_reported(),
                steps: request.steps,
                assumed: self.assumed_value(),
                output: without_list_of_modules(&output),
            },
            (_, Some(None)) => {
                let torch = |event: &Event| matches!(event, Event::Torch { .. });
                if self.seen.iter().any(torch) {
                    RehearsalError::GpuUnused { output }
                } else {
                    RehearsalError::NoTorch { output }
                }
            }
        }
    }
}

/// What each card's processes wrote. A card on which the script died before its first step has none.
pub(crate) fn by_variant(
    request: &RehearsalRequest,
    ended: &EndOfScript,
    results: &Path,
) -> Result<Vec<Variant>, RehearsalError> {
    let processes = read_results(results, "json", request.on_cpus)?;
    let mut variants: Vec<Variant> = request
        .variants
        .iter()
        .map(|_| Variant::default())
        .collect();
    for process in processes {
        let variant = process.facts.variant.unwrap_or(0);
        if let Some(variant) = variants.get_mut(variant) {
            variant.processes.push(process);
        }
    }
    for (number, variant) in variants.iter_mut().enumerate() {
        let died = ended.failed(number);
        for process in &mut variant.processes {
            process.died = died && process.facts.reason == EndReason::End;
        }
        let trained = |process: &Rehearsed| process.facts.steps > 0 || !process.died;
        if !variant.processes.iter().any(trained) {
            variant.processes.clear();
            let own = match number {
                0 => ended.output.clone(),
                _ => tail(&results.join(format!("output-{number}"))),
            };
            variant.failure = ended.failure_of(number, &own);
            variant.processes = ran_out_before(results, number)?;
        }
    }
    if variants.iter().all(|variant| variant.processes.is_empty()) {
        return Err(ended.reason(request));
    }
    Ok(variants)
}

/// What a card's processes allocated until its memory ran out, where the same with more room brought nothing: that it
/// does not fit is known, and that it needs at least as much.
fn ran_out_before(results: &Path, variant: usize) -> Result<Vec<Rehearsed>, RehearsalError> {
    let mut ran_out = read_results(results, RAN_OUT, false)?;
    ran_out.retain(|process| {
        process.facts.variant == Some(variant) && !process.trace.fatal_failures().is_empty()
    });
    for process in &mut ran_out {
        process.died = true;
        process.ran_out = true;
    }
    Ok(ran_out)
}

/// The last line that says something: where Python's tracebacks end.
fn last_words(output: &str) -> String {
    let line = output.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or("it printed nothing")
        .trim()
        .chars()
        .take(300)
        .collect()
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::path::PathBuf;
    use std::time::Duration;

    use brimful::predict::AssumedCase;
    use brimful::user_error::UserError;

    use super::*;
    use crate::events::Progress;
    use crate::protection::{Protection, ProtectionRequest};

    fn request() -> RehearsalRequest {
        RehearsalRequest {
            command: Vec::new(),
            phantom: PathBuf::new(),
            on_cpus: false,
            variants: vec![Vec::new()],
            assumed: AssumedCase::Usual,
            steps: 3,
            with: Vec::new(),
            alloc_conf: None,
            time_limit: Duration::from_secs(9),
            output: None,
            protection: Protection::new(ProtectionRequest::default()).expect("a disk"),
        }
    }

    fn ended(lines: &[&str], code: Option<i32>) -> EndOfScript {
        let event = |line: &&str| {
            serde_json::from_str::<Progress>(line)
                .expect("an event")
                .event
        };
        EndOfScript {
            status: code.map(|code| ExitStatus::from_raw(code << 8)),
            stalled: None,
            seen: lines.iter().map(event).collect(),
            output: "its last words".into(),
            place: None,
        }
    }

    fn reason(lines: &[&str], code: Option<i32>) -> RehearsalError {
        ended(lines, code).reason(&request())
    }

    #[test]
    fn a_script_that_stopped_making_progress_is_reported_with_its_line() {
        let step = r#"{"event":"step","step":1,"of":3,"bytes":8,"pid":1}"#;
        let mut stalled = ended(&[TORCH, step], None);
        stalled.stalled = Some(Duration::from_millis(150_400));
        stalled.place = Some("train.py:41 in wait_for_file".into());
        let error = stalled.reason(&request());
        assert_eq!(
            error.to_string(),
            "the script stopped making progress: it has waited at train.py:41 in wait_for_file for 150 seconds, with 1 of 3 steps completed"
        );
        assert!(format!("{:?}", error.hints()).contains(brimful::env_vars::BRIMFUL_REHEARSAL));
        assert_eq!(error.script_output(), Some("its last words"));
        stalled.place = None;
        let message = stalled.reason(&request()).to_string();
        assert!(
            message.contains("it has waited for 150 seconds, with"),
            "{message}"
        );
    }

    const NO_CUDA: &str = r#"{"event":"no-cuda","torch":"2.14.1+cpu","pid":1}"#;
    const TORCH: &str = r#"{"event":"torch","torch":"2.14.1+cpu","pid":1}"#;
    const UNSUPPORTED: &str =
        r#"{"event":"unsupported","torch":"2.14.1+cpu","what":"aten.eig","pid":1}"#;

    #[test]
    fn without_cuda_the_message_says_why_the_script_cannot_be_rehearsed() {
        let error = reason(&[NO_CUDA, TORCH, UNSUPPORTED], Some(1));
        assert_eq!(
            error.to_string(),
            "torch 2.14.1+cpu is a CPU-only build, which cannot rehearse this script: aten.eig"
        );
        assert!(format!("{:?}", error.hints()).contains("install the CUDA build of torch"));
        assert_eq!(error.script_output(), Some("its last words"));
        let error = reason(&[NO_CUDA, TORCH], Some(1));
        assert!(
            error
                .to_string()
                .ends_with(": it ended with exit code 1 before its first optimizer step")
        );
    }

    #[test]
    fn a_torch_without_the_hook_is_named_first() {
        let unhooked = r#"{"event":"unhooked","torch":"2.14.1","why":"it failed","pid":1}"#;
        let error = reason(&[NO_CUDA, TORCH, unhooked], Some(97));
        assert_eq!(
            error.to_string(),
            "torch 2.14.1 was loaded without brimful's hook: it failed"
        );
        let unknown = r#"{"event":"unhooked","torch":null,"why":"it failed","pid":1}"#;
        assert_eq!(
            reason(&[unknown], Some(97)).to_string(),
            "torch was loaded without brimful's hook: it failed"
        );
    }

    #[test]
    fn a_script_that_asked_for_input_is_told_so_only_if_it_failed() {
        let input = r#"{"event":"input","prompt":"Continue? [y/n]","pid":1}"#;
        let error = reason(&[input], Some(1));
        assert_eq!(
            error.to_string(),
            "the script asked for input before its first optimizer step: \"Continue? [y/n]\""
        );
        assert!(matches!(
            reason(&[input, TORCH], Some(0)),
            RehearsalError::GpuUnused { .. }
        ));
        assert!(matches!(
            reason(&[input], None),
            RehearsalError::TimeLimit { .. }
        ));
    }

    #[test]
    fn without_cuda_other_reasons_stay_what_they_are() {
        assert!(matches!(
            reason(&[NO_CUDA, TORCH], None),
            RehearsalError::TimeLimit { .. }
        ));
        assert!(matches!(
            reason(&[NO_CUDA, TORCH], Some(0)),
            RehearsalError::GpuUnused { .. }
        ));
        assert!(matches!(
            reason(&[TORCH], Some(1)),
            RehearsalError::Died { .. }
        ));
    }
}
