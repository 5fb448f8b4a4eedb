//! Starting the training: by a keeper, or without one as a child of brimful.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::Pid;

use crate::caller::SignalState;
use crate::contain::Containment;
use crate::exit_status;
use crate::fault;
use crate::keeper::{Gated, Keeper, Order};
use crate::last_resort;
use crate::settings::RunSettings;
use crate::start_step::StartStep;
use crate::state::StoredRun;
use crate::steps::step;
use crate::streams::Streams;
use crate::terminal::{Offer, TerminalControl, group_of_brimful};

/// Why an attempt was not started.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// The command cannot be started, with or without brimful.
    Command(io::Error),
    /// brimful cannot start it. By itself it may start.
    Brimful(io::Error),
}

/// What is needed to start the training.
pub(crate) struct Launching<'a> {
    pub(crate) settings: &'a RunSettings,
    pub(crate) stored: Option<&'a StoredRun>,
    pub(crate) command: &'a [OsString],
    pub(crate) variables: &'a [(OsString, OsString)],
    pub(crate) streams: &'a Streams,
    pub(crate) control: &'a TerminalControl,
    pub(crate) has_scope: bool,
    pub(crate) number: u32,
}

impl Launching<'_> {
    /// Starts the training: by a keeper, or else without one.
    pub(crate) fn launch(
        &self,
        contained: &mut Containment,
        gaps: &mut Vec<String>,
    ) -> Result<(Pid, Option<Keeper>), NotStarted> {
        let error = match self.with_keeper(contained, gaps) {
            Ok((pid, keeper)) => return Ok((pid, Some(keeper))),
            Err(error) => error,
        };
        if let Some(run) = self.stored {
            exit_status::remove(&run.directory);
        }
        if is_about_command(&error) {
            return Err(NotStarted::Command(error));
        }
        if self.settings.keeper.is_some() {
            gaps.push(format!(
                "no keeper ({error}): if brimful is killed, the training ends at its next line of output, and its exit status is lost"
            ));
        }
        self.without_keeper(contained).map(|pid| (pid, None))
    }

    fn with_keeper(
        &self,
        contained: &mut Containment,
        gaps: &mut Vec<String>,
    ) -> io::Result<(Pid, Keeper)> {
        let program = self.settings.keeper.as_ref();
        let program = program.ok_or(io::ErrorKind::Unsupported)?;
        let order = Order {
            command: self.command,
            group: group_of_brimful()
                .filter(|_| !self.control.own_group())
                .map(|group| group.as_raw_nonzero().get()),
            signals: SignalState::of_caller(),
            directory: self.stored.map(|run| run.directory.clone()),
            attempt: self.number,
        };
        let gated = step(StartStep::Keeper, || {
            let stdio = self.streams.for_process()?;
            let routes = &self.streams.routes;
            Keeper::start(program, routes, stdio, self.variables, &order)
        })
        .map_err(not_about_command)?;
        let pid = gated.training;
        contained.leave_out(gated.keeper_pid());
        if let Err(error) = step(StartStep::JoinCgroup, || self.join(contained, pid)) {
            gaps.push(format!(
                "the training is not in a cgroup of its own: {error}"
            ));
            contained.give_up_group();
        }
        let handed = step(StartStep::Terminal, || {
            self.control.hand_over(pid);
            Ok(())
        });
        if handed.is_err() {
            self.control.hand_over(pid);
        }
        self.begin(gated, pid)
    }

    fn begin(&self, gated: Gated, pid: Pid) -> io::Result<(Pid, Keeper)> {
        if let Err(error) = step(StartStep::Begin, || Ok(())) {
            gated.call_off();
            self.control.take_back(pid);
            return Err(not_about_command(error));
        }
        last_resort::begins();
        last_resort::runs(pid, Some(gated.line()));
        gated.go().map(|keeper| (pid, keeper)).inspect_err(|_| {
            last_resort::arm_again();
            self.control.take_back(pid);
        })
    }

    fn join(&self, contained: &Containment, pid: Pid) -> io::Result<()> {
        if self.has_scope {
            return Ok(());
        }
        contained.take_in(pid)
    }

    fn without_keeper(&self, contained: &Containment) -> Result<Pid, NotStarted> {
        let door = if self.has_scope {
            None
        } else {
            contained.door().ok().flatten()
        };
        let (stdout, stderr) =
            step(StartStep::Launch, || self.streams.for_process()).map_err(NotStarted::Brimful)?;
        let offer = self.control.offer();
        let is_offered = offer.is_some();
        last_resort::begins();
        let launched = launch(Launch {
            command: self.command,
            variables: self.variables,
            stdout,
            stderr,
            own_group: self.control.own_group(),
            door,
            terminal: offer,
        });
        let launched = launched.inspect(|pid| last_resort::runs(*pid, None));
        launched.map_err(|error| {
            last_resort::arm_again();
            if is_offered {
                self.control.take_back_offer();
            }
            if is_about_command(&error) {
                NotStarted::Command(error)
            } else {
                NotStarted::Brimful(error)
            }
        })
    }
}

/// Whether the system refuses this command as such, and not a new process or what brimful needs. A command line that is
/// too long is not among these: the hook's variables count too.
fn is_about_command(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
        || matches!(
            error.raw_os_error(),
            Some(
                libc::ENOENT
                    | libc::EACCES
                    | libc::EPERM
                    | libc::ENOTDIR
                    | libc::EISDIR
                    | libc::ENOEXEC
                    | libc::ELOOP
                    | libc::ENAMETOOLONG
                    | libc::EINVAL
                    | libc::ETXTBSY
                    | libc::ELIBBAD
            )
        )
}

/// An error of brimful's own means, whatever its number says.
fn not_about_command(error: io::Error) -> io::Error {
    if is_about_command(&error) {
        io::Error::other(error)
    } else {
        error
    }
}

/// What to start without a keeper, and how.
#[derive(Debug)]
struct Launch<'a> {
    command: &'a [OsString],
    variables: &'a [(OsString, OsString)],
    stdout: Stdio,
    stderr: Stdio,
    /// In a process group of its own.
    own_group: bool,
    /// The cgroup to join, by its `cgroup.procs`.
    door: Option<File>,
    /// The terminal to take.
    terminal: Option<Offer>,
}

/// Starts it. Its end is reaped by the caller, not through the value that the standard library has for it.
#[expect(
    unsafe_code,
    reason = "joining the cgroup between fork and exec is the only route in which nothing runs outside it; the \
              same for the terminal"
)]
fn launch(launch: Launch<'_>) -> io::Result<Pid> {
    let (program, arguments) = launch
        .command
        .split_first()
        .ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(launch.variables.iter().map(|(name, value)| (name, value)))
        .env_remove(fault::VARIABLE)
        .stdout(launch.stdout)
        .stderr(launch.stderr);
    if launch.own_group {
        command.process_group(0);
    }
    let (door, terminal) = (launch.door, launch.terminal);
    if door.is_some() || terminal.is_some() {
        // SAFETY: between fork and exec only system calls are made that may be made there: a write to an open
        // descriptor, and what the terminal needs. A failure leaves the training outside the group, which the
        // supervisor notices and tells, or without the terminal, which it is then handed from outside.
        unsafe {
            command.pre_exec(move || {
                if let Some(door) = &door {
                    let _ = rustix::io::write(door, b"0");
                }
                if let Some(terminal) = &terminal {
                    terminal.take();
                }
                Ok(())
            });
        }
    }
    SignalState::of_caller().restore_in(&mut command);
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("the kernel gave a process number that is none"))
}
