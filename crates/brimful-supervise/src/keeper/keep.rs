//! The keeper's own process.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process, pidfd_open,
    pidfd_send_signal, waitid,
};
use signal_hook::consts::signal::{SIGCHLD, SIGTSTP, SIGTTIN, SIGWINCH, SIGXFSZ};

use crate::by_signal::end_by_signal;
use crate::caller::CallersDescriptors;
use crate::clock::unix_ms;
use crate::descriptors::{set_inherited, write_all};
use crate::exit_status::{Ended, ExitStatusFile};
use crate::fault;
use crate::keeper::messages::{ReadOrder, Report, said};
use crate::keeper::window;
use crate::signals::{PASSED_ON, is_ignored, unblock};
use crate::start_step::StartStep;
use crate::status_line;
use crate::steps::step;

/// What the keeper does, from its arguments on; returns when there is nothing more to keep. It ends as the training did,
/// where the keeper saw its end alone: brimful may have failed, and still wait for it.
pub fn keep(arguments: &[OsString]) -> u8 {
    let word = |idx: usize| arguments.get(idx).and_then(|word| word.to_str());
    let pairs = word(1).unwrap_or_default();
    let own: Vec<RawFd> = [word(0).unwrap_or_default()]
        .into_iter()
        .chain(pairs.split([',', ':']))
        .filter_map(|number| number.parse().ok())
        .collect();
    let callers = CallersDescriptors::now().without(&own);
    let Some(life) = word(0).and_then(inherited) else {
        return 1;
    };
    let routes = pairs
        .split(',')
        .map(|pair| {
            let (source, destination) = pair.split_once(':')?;
            Some((inherited(source)?, inherited(destination)?))
        })
        .collect();
    let life = UnixStream::from(life);
    // Both sides may be killed at any moment; whoever is left continues.
    let started = ReadOrder::read(&life)
        .ok()
        .and_then(|order| start(life, routes, &order, callers));
    let Some(ended) = started.map(Keeping::until_the_end) else {
        return 1;
    };
    if let Some(signal) = ended.signal() {
        end_by_signal(signal);
    }
    ended.exit_code()
}

/// A descriptor that was handed down under this number. The training does not get it.
#[expect(
    unsafe_code,
    reason = "a number on the command line is the only route to hand a descriptor through exec"
)]
fn inherited(number: &str) -> Option<OwnedFd> {
    let number: i32 = number.parse().ok().filter(|number| *number > 2)?;
    // SAFETY: brimful starts the keeper with exactly these descriptors open and names each once; nothing else in this
    // process knows of them. One that is not open makes every call on it fail, and is given up.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    set_inherited(&descriptor, false).ok()?;
    Some(descriptor)
}

/// A training, and what the keeper holds of it.
struct Keeping {
    life: UnixStream,
    brimful: Brimful,
    routes: Vec<Option<(OwnedFd, OwnedFd)>>,
    status_file: Option<ExitStatusFile>,
    /// Has something to read after every signal.
    woken: UnixStream,
    /// Signals that everybody in the training's process group gets with this process, and whether one has come.
    group_signals: Vec<(i32, Arc<AtomicBool>)>,
    training: Pid,
    group: Pid,
    rows: u16,
    ended: Option<Ended>,
    reaped: bool,
    /// brimful is gone.
    alone: bool,
}

/// brimful, to be woken when there is a report.
struct Brimful {
    pid: Option<Pid>,
    pidfd: Option<OwnedFd>,
}

/// Starts the training and lets it wait at its gate until brimful says so. `None` where it was not started.
fn start(
    life: UnixStream,
    routes: Vec<Option<(OwnedFd, OwnedFd)>>,
    order: &ReadOrder,
    callers: CallersDescriptors,
) -> Option<Keeping> {
    let group_signals = survive_signals();
    let has_terminal = window::follow(&routes);
    let brimful = Brimful::of_this_keeper();
    let status_file = order
        .directory
        .as_deref()
        .and_then(|directory| ExitStatusFile::create(directory, order.attempt).ok());
    let started = step(StartStep::KeeperLaunch, || {
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        for (signal, _) in &group_signals {
            signal_hook::low_level::pipe::register(*signal, wake.try_clone()?)?;
        }
        signal_hook::low_level::pipe::register(SIGCHLD, wake)?;
        unblock(&[SIGCHLD, SIGWINCH]);
        let nothing = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        let training = launch(&life, order)?;
        Ok((woken, nothing, training))
    });
    let (woken, nothing, training) = match started {
        Ok(started) => started,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            report(&life, Report::NotStarted(errno));
            if let Some(file) = status_file {
                file.remove();
            }
            return None;
        }
    };
    // The other end of the streams is the training's alone.
    let _ = rustix::stdio::dup2_stdin(&nothing);
    let _ = rustix::stdio::dup2_stdout(&nothing);
    let _ = rustix::stdio::dup2_stderr(&nothing);
    callers.close();
    if has_terminal && order.group.is_none() {
        // The kernel tells the process group of the training about a new size of the window.
        let _ = rustix::process::setpgid(None, Some(training));
    }
    let number = u32::try_from(training.as_raw_nonzero().get()).unwrap_or(0);
    if let Some(file) = &status_file {
        let _ = file.started(number);
    }
    report(&life, Report::Started);
    let _ = fault::inject(StartStep::KeeperWatch);
    let group = order.group.and_then(Pid::from_raw).unwrap_or(training);
    window::group_is(group);
    Some(Keeping {
        life,
        brimful,
        routes,
        status_file,
        woken,
        group_signals: if order.group.is_some() {
            group_signals
        } else {
            Vec::new()
        },
        training,
        group,
        rows: 0,
        ended: None,
        reaped: false,
        alone: false,
    })
}

/// Signals that would end or stop the keeper do neither. By handlers: what is ignored would be handed down to the
/// training.
fn survive_signals() -> Vec<(i32, Arc<AtomicBool>)> {
    let survived = |signals: &[i32]| {
        let handled = signals.iter().filter(|signal| !is_ignored(**signal));
        let handled = handled.filter_map(|signal| {
            let has_come = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(*signal, Arc::clone(&has_come)).ok()?;
            Some((*signal, has_come))
        });
        let handled: Vec<_> = handled.collect();
        unblock(
            &handled
                .iter()
                .map(|(signal, _)| *signal)
                .collect::<Vec<_>>(),
        );
        handled
    };
    survived(&[SIGXFSZ, SIGTSTP, SIGTTIN]);
    survived(&PASSED_ON)
}

#[expect(
    unsafe_code,
    reason = "the gate stands between fork and exec, where the process exists and the training does not"
)]
fn launch(life: &UnixStream, order: &ReadOrder) -> io::Result<Pid> {
    let (program, arguments) = order
        .command
        .split_first()
        .ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_remove(fault::VARIABLE)
        .process_group(order.group.unwrap_or(0));
    let life = life.try_clone()?;
    // SAFETY: between fork and exec only system calls are made that may be made there: getpid, write and read.
    unsafe {
        command.pre_exec(move || {
            let at_gate = Report::AtGate(getpid().as_raw_nonzero().get()).to_bytes();
            if rustix::io::write(&life, &at_gate) != Ok(at_gate.len()) {
                return Err(io::Error::from_raw_os_error(libc::ECANCELED));
            }
            let mut answer = [0; 2];
            let mut n_read = 0;
            while n_read < answer.len() {
                match rustix::io::read(&life, &mut answer[n_read..]) {
                    Ok(0) => return Err(io::Error::from_raw_os_error(libc::ECANCELED)),
                    Ok(n_more) => n_read += n_more,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if answer[0] == said::GO {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(libc::ECANCELED))
            }
        });
    }
    order.signals.restore_in(&mut command);
    let child = command.spawn()?;
    Ok(Pid::from_child(&child))
}

fn report(life: &UnixStream, report: Report) {
    write_all(life, &report.to_bytes());
}

impl Keeping {
    fn until_the_end(mut self) -> Ended {
        let mut buffer = vec![0; 64 << 10];
        loop {
            self.look_at_training();
            self.look_for_group_signals();
            if self.alone {
                self.record_end();
                if self.reaped && self.routes.iter().all(Option::is_none) {
                    return self.ended.unwrap_or(Ended::Unknown);
                }
            }
            let ready = self.wait();
            if ready.woken {
                while rustix::io::read(&self.woken, &mut buffer).is_ok_and(|n_read| n_read > 0) {}
            }
            if ready.life && !self.hear() {
                return Ended::Exited(0);
            }
            for idx in ready.routes {
                self.pass_on(idx, &mut buffer);
            }
        }
    }

    /// Reports what became of the training. It is reaped once brimful knows, or is gone: until then nobody else has its
    /// number.
    fn look_at_training(&mut self) {
        let of = |options| waitid(WaitId::Pid(self.training), options | WaitIdOptions::NOHANG);
        if self.ended.is_none() {
            let stopped = of(WaitIdOptions::STOPPED);
            if !self.alone && stopped.is_ok_and(|status| status.is_some()) {
                self.tell(Report::Stopped);
            }
            let ended = match of(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Ended::Exited(code),
                    (None, Some(signal)) => Ended::Signaled(signal),
                    (None, None) => return,
                },
                Ok(None) | Err(Errno::INTR) => return,
                Err(_) => Ended::Unknown,
            };
            self.ended = Some(ended);
            if !self.alone {
                self.tell(Report::Ended(ended));
            }
        }
    }

    /// Reports signals that were sent to the whole process group. The training has them too, so brimful need not pass
    /// them on.
    fn look_for_group_signals(&self) {
        for (signal, has_come) in &self.group_signals {
            if has_come.swap(false, Ordering::AcqRel) && !self.alone {
                self.tell(Report::Signaled(*signal));
            }
        }
    }

    /// Writes the status beside the record, and reaps.
    fn record_end(&mut self) {
        if let Some(ended) = self.ended
            && !self.reaped
        {
            let pid = u32::try_from(self.training.as_raw_nonzero().get()).unwrap_or(0);
            if let Some(file) = &self.status_file {
                let _ = file.ended(pid, ended, unix_ms());
            }
            self.reap_if_ended();
        }
    }

    fn reap_if_ended(&mut self) {
        if self.ended.is_some() && !self.reaped {
            window::group_is_gone();
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let _ = waitid(WaitId::Pid(self.training), options);
            self.reaped = true;
        }
    }

    fn tell(&self, what: Report) {
        report(&self.life, what);
        self.brimful.wake();
    }

    /// Waits for something to do.
    fn wait(&self) -> Ready {
        let open: Vec<usize> = (0..self.routes.len())
            .filter(|idx| self.alone && self.routes[*idx].is_some())
            .collect();
        let mut waiting = vec![PollFd::new(&self.woken, PollFlags::IN)];
        if !self.alone {
            waiting.push(PollFd::new(&self.life, PollFlags::IN));
        }
        let n_before = waiting.len();
        waiting.extend(
            open.iter()
                .filter_map(|idx| self.routes[*idx].as_ref())
                .map(|(source, _)| PollFd::new(source, PollFlags::IN)),
        );
        if poll(&mut waiting, None).is_err() {
            return Ready::default();
        }
        let is_ready = |idx: usize| !waiting[idx].revents().is_empty();
        Ready {
            woken: is_ready(0),
            life: !self.alone && is_ready(1),
            routes: open
                .into_iter()
                .enumerate()
                .filter(|(place, _)| is_ready(n_before + place))
                .map(|(_, idx)| idx)
                .collect(),
        }
    }

    /// Takes one message of brimful, or notices that it is gone; false where nothing is left to do.
    fn hear(&mut self) -> bool {
        let mut message = [0; 2];
        let mut life = &self.life;
        if io::Read::read_exact(&mut life, &mut message).is_err() {
            self.is_alone();
            return true;
        }
        match message {
            [said::DONE, _] => {
                self.reap_if_ended();
                if let Some(file) = self.status_file.take() {
                    file.remove();
                }
                return false;
            }
            [said::HEARD, _] => self.reap_if_ended(),
            [said::LET_GO, idx] => {
                if let Some(route) = self.routes.get_mut(usize::from(idx)) {
                    *route = None;
                }
            }
            [said::ROWS, up] => {
                self.rows = u16::from(up);
                window::status_line_is(up > 0);
            }
            _ => {}
        }
        true
    }

    /// brimful was killed.
    fn is_alone(&mut self) {
        self.alone = true;
        window::status_line_is(false);
        if self.rows > 0
            && let Some((_, destination)) = self.routes.iter().flatten().next_back()
        {
            write_all(destination, status_line::reset(self.rows).as_bytes());
        }
        // Out of the session, so that the training's process group has no parent in it any more: reading from the
        // terminal then fails, where it would otherwise stop a process that nobody can let continue. Only who leads no
        // group may leave.
        window::group_is_gone();
        let _ = rustix::process::setpgid(None, Some(self.group));
        let _ = rustix::process::setsid();
    }

    fn pass_on(&mut self, idx: usize, buffer: &mut [u8]) {
        let Some((source, destination)) = &self.routes[idx] else {
            return;
        };
        match rustix::io::read(source.as_fd(), &mut *buffer) {
            // Where nobody reads any more, the training still continues.
            Ok(n_read) if n_read > 0 => {
                write_all(destination, &buffer[..n_read]);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Ok(_) | Err(_) => self.routes[idx] = None,
        }
    }
}

#[derive(Default)]
struct Ready {
    woken: bool,
    life: bool,
    routes: Vec<usize>,
}

impl Brimful {
    fn of_this_keeper() -> Brimful {
        let pid = getppid();
        Brimful {
            pid,
            pidfd: pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
        }
    }

    /// Wakes brimful as the end of a child of its own does.
    fn wake(&self) {
        match (&self.pidfd, self.pid) {
            (Some(pidfd), _) => {
                let _ = pidfd_send_signal(pidfd, Signal::CHILD);
            }
            (None, Some(pid)) if getppid() == Some(pid) => {
                let _ = kill_process(pid, Signal::CHILD);
            }
            _ => {}
        }
    }
}
