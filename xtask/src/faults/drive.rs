//! One run, from its start to its end, in bounded time.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::Signal as Number;

use crate::faults::leftovers;
use crate::faults::manifest::{Fault, Outside, Signal, Target};
use crate::faults::signals::send;
use crate::faults::surroundings::Surroundings;

/// How a run ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    /// The process that was started: brimful, or the program itself.
    pub(crate) pid: u32,
    /// As a shell shows it: 128 and the signal's number for a signal.
    pub(crate) code: i32,
    pub(crate) output: String,
    pub(crate) errors: String,
    pub(crate) seconds: f64,
    /// What did not happen when it should have.
    pub(crate) late: Option<String>,
}

/// How often we look.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a program has to outlive a signal.
const OUTLIVES: Duration = Duration::from_secs(1);

/// Runs `words` in the surroundings, does what has to be done from outside, and waits for the end.
pub(crate) fn run(fault: &Fault, surroundings: &Surroundings, words: &[String]) -> Result<Ended> {
    let (out, err) = (surroundings.file("out"), surroundings.file("err"));
    let started = Instant::now();
    let deadline = started + Duration::from_secs(fault.time_limit_s);
    let mut child = surroundings
        .command(words)
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?)
        .spawn()
        .context("the run cannot be started")?;
    let mut late = None;
    let mut status = None;
    if let Some(act) = fault.after_ready {
        match wait_until_ready(&mut child, &out, deadline)? {
            Ready::Process(pid) => {
                if fault.neighbor_killed {
                    surroundings.kill_a_neighbor()?;
                }
                interfere(act, child.id(), pid, surroundings);
                if act.then_kill {
                    std::thread::sleep(OUTLIVES);
                    status = child.try_wait()?;
                    match status {
                        Some(_) => late = Some("did not outlive the signal".into()),
                        None => send(pid, Number::KILL),
                    }
                }
            }
            Ready::Ended(early) => status = Some(early),
            Ready::Never => late = Some("was never ready".into()),
        }
    }
    let status = match status {
        Some(status) => Some(status),
        None => wait(&mut child, deadline)?,
    };
    let status = if let Some(status) = status {
        status
    } else {
        late.get_or_insert_with(|| format!("not over after {} s", fault.time_limit_s));
        leftovers::end(surroundings);
        child.wait()?
    };
    Ok(Ended {
        pid: child.id(),
        code: code(status),
        output: text(&out),
        errors: text(&err),
        seconds: started.elapsed().as_secs_f64(),
        late,
    })
}

/// What came first.
enum Ready {
    Process(u32),
    Ended(ExitStatus),
    Never,
}

/// Waits for the line `ready PID`.
fn wait_until_ready(child: &mut Child, out: &Path, deadline: Instant) -> Result<Ready> {
    while Instant::now() < deadline {
        let pid = text(out)
            .lines()
            .find_map(|line| line.trim().strip_prefix("ready ")?.parse().ok());
        if let Some(pid) = pid {
            return Ok(Ready::Process(pid));
        }
        if let Some(status) = child.try_wait()? {
            return Ok(Ready::Ended(status));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(Ready::Never)
}

fn wait(child: &mut Child, deadline: Instant) -> Result<Option<ExitStatus>> {
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(None)
}

fn interfere(act: Outside, brimful: u32, training: u32, surroundings: &Surroundings) {
    let number = match act.signal {
        Signal::Interrupt => Number::INT,
        Signal::Terminate => Number::TERM,
        Signal::Kill => Number::KILL,
    };
    match act.to {
        Target::Brimful => send(brimful, number),
        Target::Training => send(training, number),
        Target::Everything => {
            // The supervisor first: it must not see the others go.
            send(brimful, number);
            leftovers::end(surroundings);
        }
    }
}

/// As a shell shows it.
fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// What is in the file so far.
fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
