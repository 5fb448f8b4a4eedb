//! Several attempts of one run, by hand: `ladder STATE_DIR SCRIPT SCRIPT…` runs the first shell script and, each time
//! one dies of memory, the next.
//!
//! After the end it prints one line of JSON per attempt on standard error, and ends with the exit code of the last.

#![expect(
    clippy::print_stderr,
    reason = "an example for the terminal, and for the tests"
)]

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use brimful::job::Settings;
use brimful::plan::Change;
use brimful::watch::{OnPressure, Sample, WatchRules, WatchState};
use brimful_supervise::{
    AttemptEnd, Audience, Ladder, NextAttempt, Notice, RunSettings, StateDir, keeper, run_attempts,
};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().unwrap_or_default();
    let rest: Vec<OsString> = arguments.collect();
    if first == keeper::ARGUMENT {
        return ExitCode::from(keeper::keep(&rest));
    }
    if rest.is_empty() {
        eprintln!("expected: ladder STATE_DIR SCRIPT SCRIPT…");
        return ExitCode::from(2);
    }
    let settings = RunSettings {
        command: rest.clone(),
        job: String::new(),
        records: None,
        brimful_version: env!("CARGO_PKG_VERSION").into(),
        state: Some(StateDir {
            directory: PathBuf::from(first),
        }),
        rules: WatchRules {
            on_pressure: OnPressure::Warn,
            grace_ms: 1000,
            stop_grace_ms: 1000,
        },
        checkpoint_signal: 10,
        dry_run: false,
        hook: true,
        trace_allocations: false,
        metrics_file: None,
        status_line: false,
        keeper: Some(PathBuf::from("/proc/self/exe")),
    };
    let mut ladder = Scripts {
        n_scripts: u32::try_from(rest.len()).unwrap_or(u32::MAX),
        left: rest.into(),
    };
    match run_attempts(&settings, &mut Words, &mut ladder) {
        Ok(end) => {
            for attempt in &end.attempts {
                eprintln!(
                    "{{\"number\":{},\"cause\":\"{}\",\"exit_code\":{},\"wall_ms\":{}}}",
                    attempt.number,
                    attempt.verdict.cause.id(),
                    attempt.exit_code,
                    attempt.wall_ms
                );
            }
            ExitCode::from(end.exit_code)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(127)
        }
    }
}

/// One script after the other.
struct Scripts {
    n_scripts: u32,
    left: VecDeque<OsString>,
}

impl Scripts {
    fn attempt(&mut self) -> Option<NextAttempt> {
        let script = self.left.pop_front()?;
        let rung = self.n_scripts - u32::try_from(self.left.len()).unwrap_or(0);
        let mut settings = Settings::default();
        settings.set("rung", u64::from(rung));
        Some(NextAttempt {
            command: if script.is_empty() {
                // Something that cannot be started.
                vec!["no-such-program-anywhere".into()]
            } else {
                vec!["sh".into(), "-c".into(), script]
            },
            variables: vec![("RUNG".into(), rung.to_string().into())],
            settings: Some(settings),
            changed: if rung == 1 {
                Vec::new()
            } else {
                vec![Change {
                    knob: "rung".into(),
                    from: u64::from(rung - 1).into(),
                    to: u64::from(rung).into(),
                }]
            },
            why: format!("script {rung}"),
            ..NextAttempt::default()
        })
    }
}

impl Ladder for Scripts {
    fn first(&mut self) -> NextAttempt {
        self.attempt().unwrap_or_default()
    }

    fn next(
        &mut self,
        ended: &AttemptEnd,
        _pause: &mut dyn FnMut(Duration) -> bool,
    ) -> Option<NextAttempt> {
        if ended.verdict.cause.is_memory() {
            // As if it took long to choose.
            if let Some(ms) = std::env::var("LADDER_PAUSE_MS")
                .ok()
                .and_then(|ms| ms.parse().ok())
            {
                eprintln!("ladder: choosing");
                std::thread::sleep(Duration::from_millis(ms));
            }
            self.attempt()
        } else {
            None
        }
    }

    fn max_attempts(&self) -> Option<u32> {
        Some(self.n_scripts)
    }
}

struct Words;

impl Audience for Words {
    fn line(&mut self, notice: &Notice<'_>) -> Option<String> {
        Some(match notice {
            Notice::CutOff { verdict, .. } => format!("cut off: {}", verdict.summary),
            Notice::StillRunning { pid, .. } => format!("still running: {pid}"),
            Notice::Unsupervised(reason) => format!("unsupervised: {reason}"),
            Notice::Gap(message) => format!("gap: {message}"),
            Notice::Alarm(alarm) => format!("alarm: {}", alarm.message),
            Notice::Action(action) => format!("action: {}", action.done),
            Notice::ComingBack { ended, number, .. } => {
                format!("attempt {number} after: {}", ended.verdict.summary)
            }
            Notice::LadderAtItsEnd { ended } => {
                format!("at its end after {} attempts", ended.number)
            }
        })
    }

    fn status(&mut self, _sample: &Sample, _state: &WatchState) -> String {
        String::new()
    }

    fn print(&mut self, line: &str) {
        eprintln!("ladder: {line}");
    }
}
