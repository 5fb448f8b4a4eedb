//! What `brimful run` does for many runs together: records in a place that a team shares, and metrics for a collector.
//!
//! Both are made by the Python package in processes of their own. Whatever fails in them costs a line of text, never the
//! run.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brimful_supervise::StateDir;

use crate::output;
use crate::package::package_command;

/// Before the training starts, and after it has ended.
const CHECK_WITHIN: Duration = Duration::from_secs(10);
const WRITE_WITHIN: Duration = Duration::from_mins(1);
/// For the last values.
const FLUSH_WITHIN: Duration = Duration::from_secs(8);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Bytes of a message that are read.
const MAX_MESSAGE: u64 = 4096;

/// Writes the rows of earlier runs that could not write theirs, and so checks that this run will be able to.
pub(crate) fn check_records(destination: &str, state: Option<&StateDir>) {
    if let Err(error) = record(destination, state, None, CHECK_WITHIN) {
        output::print_line(&format!(
            "brimful: this run may not be recorded in {destination}: {error}"
        ));
    }
}

/// Writes the rows of a run that has ended.
pub(crate) fn write_record(destination: &str, state: Option<&StateDir>, run: &str) {
    if let Err(error) = record(destination, state, Some(run), WRITE_WITHIN) {
        output::print_line(&format!(
            "brimful: the run was not recorded in {destination}: {error}; the next run with --records here tries \
             again"
        ));
    }
}

fn record(
    destination: &str,
    state: Option<&StateDir>,
    ended: Option<&str>,
    within: Duration,
) -> Result<(), String> {
    let mut command = package_command(None, "_records");
    command.arg(destination);
    if let Some(run) = ended {
        command.arg("--ended").arg(run);
    }
    with_state(&mut command, state);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    wait(child, within)
}

fn with_state(command: &mut Command, state: Option<&StateDir>) {
    if let Some(state) = state {
        command.arg("--state-dir").arg(&state.directory);
    }
}

/// The last line that it has printed is the error.
fn wait(mut child: Child, within: Duration) -> Result<(), String> {
    let until = Instant::now() + within;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => thread::sleep(LOOK_AGAIN_AFTER),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer within {} seconds", within.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    };
    if status.success() {
        return Ok(());
    }
    let mut text = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(MAX_MESSAGE).read_to_string(&mut text);
    }
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    Err(last.map_or_else(|| status.to_string(), str::to_owned))
}

/// A process that sends the metrics of the run which this process supervises.
pub(crate) struct OtlpSender {
    /// Closed when this process ends for any reason, which ends the sender.
    stdin: Option<ChildStdin>,
    messages: Receiver<String>,
}

impl OtlpSender {
    /// Starts it. It leaves this process's descendants, so that it is not taken for a process of the job.
    pub(crate) fn start(url: Option<&str>, state: Option<&StateDir>) -> Option<OtlpSender> {
        match OtlpSender::spawn(url, state) {
            Ok(sender) => Some(sender),
            Err(error) => {
                output::print_line(&format!("brimful: no metrics are sent: {error}"));
                None
            }
        }
    }

    fn spawn(url: Option<&str>, state: Option<&StateDir>) -> Result<OtlpSender, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = now.map_or(0, |now| now.as_millis());
        let mut command = package_command(None, "_otlp");
        command
            .arg("--supervisor")
            .arg(std::process::id().to_string())
            .arg("--since")
            .arg(now_ms.to_string());
        if let Some(url) = url {
            command.arg(format!("--url={url}"));
        }
        with_state(&mut command, state);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        // It forks at once, and this first process ends.
        wait(child, CHECK_WITHIN)?;
        let (sender, messages) = channel();
        if let Some(stdout) = stdout {
            thread::spawn(move || {
                for line in BufReader::new(stdout.take(1 << 20)).lines() {
                    let Ok(line) = line else { break };
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(OtlpSender { stdin, messages })
    }

    /// Waits until the last values were sent, and prints what went wrong.
    pub(crate) fn finish(mut self) {
        drop(self.stdin.take());
        let until = Instant::now() + FLUSH_WITHIN;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // An error is the end of its output, or of the time.
            let Ok(line) = self.messages.recv_timeout(left) else {
                break;
            };
            output::print_line(&format!("brimful: {line}"));
        }
    }
}
