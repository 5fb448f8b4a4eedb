//! Internal: watches the process that called `brimful.watch()` in Python.
//!
//! Python starts this with one argument, a JSON object. It starts itself again, detached, and exits, so that the watch is
//! nobody's child. Standard output is a pipe to the watched process: one JSON object per line.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use brimful::watch::{Action, Sample, WatchState};
use brimful_report::text;
use brimful_supervise::{Audience, Notice, ProcessWatchSettings, leave_session, watch_process};
use brimful_workflow::state_dir;
use serde_json::{Value, json};

use crate::exit::ExitStatus;

/// The first argument of a watch.
pub(crate) const ARGUMENT: &str = "__watch";

pub(crate) fn process_watch(arguments: &[OsString]) -> ExitStatus {
    let request = arguments.first().and_then(|text| text.to_str());
    let request: Option<Value> = request.and_then(|text| serde_json::from_str(text).ok());
    let Some(mut request) = request.filter(Value::is_object) else {
        print(&json!({"error": "expected one JSON object"}));
        return ExitStatus::BadInput;
    };
    if request["detached"] == true {
        leave_session();
        return watch(&request);
    }
    request["detached"] = true.into();
    let started = Command::new("/proc/self/exe")
        .arg(ARGUMENT)
        .arg(request.to_string())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(_) => ExitStatus::Success,
        Err(error) => {
            print(&json!({"error": format!("failed to start the watch: {error}")}));
            ExitStatus::EnvironmentError
        }
    }
}

fn watch(request: &Value) -> ExitStatus {
    let number = |name: &str| {
        request[name]
            .as_u64()
            .and_then(|value| u32::try_from(value).ok())
    };
    let named = request["state_dir"].as_str().map(PathBuf::from);
    let (Some(pid), Some(state)) = (number("pid"), state_dir(named)) else {
        print(&json!({"error": "no state directory: neither state_dir nor HOME is set"}));
        return ExitStatus::BadInput;
    };
    let settings = ProcessWatchSettings {
        pid,
        state,
        brimful_version: env!("CARGO_PKG_VERSION").into(),
        interrupt: request["interrupt"] == true,
        notify: number("notify").and_then(|signal| i32::try_from(signal).ok()),
    };
    let watched = watch_process(&settings, &mut NoticePipe, |run| {
        print(&json!({"run": run.id}));
    });
    match watched {
        Ok(()) => ExitStatus::Success,
        Err(error) => {
            print(&json!({"error": error.to_string()}));
            ExitStatus::EnvironmentError
        }
    }
}

/// A closed pipe is not a failure: the process may have ended.
fn print(line: &Value) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Passes notices to the watched process.
struct NoticePipe;

impl Audience for NoticePipe {
    fn line(&mut self, notice: &Notice<'_>) -> Option<String> {
        Some(match notice {
            Notice::Alarm(alarm) => text::run::alarm(alarm),
            Notice::Action(line) => match &line.action {
                Action::AskForCheckpoint { reason } => {
                    format!("brimful: interrupting this process: {}", reason.message)
                }
                _ => text::run::action(line),
            },
            _ => return None,
        })
    }

    fn status(&mut self, _: &Sample, _: &WatchState) -> String {
        String::new()
    }

    fn print(&mut self, line: &str) {
        print(&json!({"notice": line}));
    }
}
