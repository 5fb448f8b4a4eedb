//! The side of brimful: starts the keeper, and listens to it.

use std::env;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use brimful::env_vars;

use crate::request::{
    Answer, Containment, GpuHidden, Isolation, Network, Request, SharedDirectory,
};
use crate::{ARGUMENT, Scratch};

/// How long a keeper may take to end everything before it is killed itself.
const PATIENCE: Duration = Duration::from_secs(5);

const PRELOAD: &str = env_vars::LD_PRELOAD;

/// How a command is to be isolated.
#[derive(Clone, Debug)]
pub struct IsolationSettings {
    /// The program that is started as the keeper: brimful itself.
    pub program: PathBuf,
    /// Only this; otherwise the strongest that can be had.
    pub isolation: Option<Isolation>,
    pub network: Network,
    /// Whether the command may use the GPUs of this machine.
    pub uses_gpus: bool,
    /// Where writes go through: brimful's own results.
    pub writable: Vec<PathBuf>,
    pub shared: Vec<SharedDirectory>,
    /// Directories in which it must be proved that no write gets through.
    pub checked: Vec<PathBuf>,
    /// The library that redirects writes.
    pub redirect_library: PathBuf,
    /// How early the kernel kills the command when memory runs out: 1000 is first.
    pub oom_score_adj: i32,
}

/// The command was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What was tried, and why it cannot be had.
    #[error("the script cannot be isolated from your files here")]
    NoIsolation { reasons: Vec<(Isolation, String)> },
    /// What it could reach, or why nobody knows.
    #[error("the GPUs of this machine cannot be hidden from the command: {reason}")]
    GpuReached { reason: String },
    #[error("the command cannot be started")]
    NotStarted(#[source] io::Error),
    #[error("the keeper of the command cannot be started")]
    Keeper(#[source] io::Error),
}

/// A command that runs in isolation, with all that it starts.
#[derive(Debug)]
pub struct Isolated {
    keeper: Child,
    /// Closed to end everything.
    socket: Option<BufReader<UnixStream>>,
    isolation: Isolation,
    gpu_hidden: GpuHidden,
    containment: Containment,
    scratch: PathBuf,
    status: Option<ExitStatus>,
}

/// Starts a command, whose two output streams go to `output`, in the strongest isolation that can be had.
pub fn start(
    command: &Command,
    output: &File,
    scratch: &Scratch,
    settings: &IsolationSettings,
) -> Result<Isolated, StartError> {
    let mut reasons = Vec::new();
    let levels: &[(Isolation, bool)] = match settings.isolation {
        None => &[
            (Isolation::Overlay, true),
            // A container may hide parts of /proc, and then a new one cannot be mounted.
            (Isolation::Overlay, false),
            (Isolation::Redirect, false),
        ],
        Some(Isolation::Overlay) => &[(Isolation::Overlay, true), (Isolation::Overlay, false)],
        Some(Isolation::Redirect) => &[(Isolation::Redirect, false)],
        Some(Isolation::Off) => &[(Isolation::Off, false)],
    };
    for (isolation, pid_namespace) in levels {
        let request = request(command, scratch, settings, *isolation, *pid_namespace)
            .map_err(StartError::Keeper)?;
        let mut isolated = launch(&request, output, settings).map_err(StartError::Keeper)?;
        match isolated.first_answer() {
            Some(Answer::Ready {
                gpu_hidden,
                containment,
            }) => {
                isolated.gpu_hidden = gpu_hidden;
                isolated.containment = containment;
                return Ok(isolated);
            }
            // Another isolation must not be the way around it.
            Some(Answer::GpuReached { reason }) => {
                isolated.end();
                scratch.remove(&request.scratch);
                return Err(StartError::GpuReached { reason });
            }
            Some(Answer::NotStarted { errno }) => {
                isolated.end();
                return Err(StartError::NotStarted(io::Error::from_raw_os_error(errno)));
            }
            Some(Answer::Unavailable { reason }) => reasons.push((*isolation, reason)),
            Some(Answer::Ended { .. }) | None => {
                reasons.push((*isolation, "the keeper ended without an answer".to_owned()));
            }
        }
        isolated.end();
        scratch.remove(&request.scratch);
    }
    reasons.dedup();
    Err(StartError::NoIsolation { reasons })
}

fn request(
    command: &Command,
    scratch: &Scratch,
    settings: &IsolationSettings,
    isolation: Isolation,
    pid_namespace: bool,
) -> io::Result<Request> {
    let current_dir = match command.get_current_dir() {
        Some(directory) => directory.to_owned(),
        None => env::current_dir()?,
    };
    let shared_memory = match isolation {
        Isolation::Redirect => Some(SharedDirectory {
            path: PathBuf::from("/dev/shm"),
            layer: scratch.new_shared_memory()?,
        }),
        Isolation::Overlay | Isolation::Off => None,
    };
    Ok(Request {
        isolation,
        pid_namespace,
        network: settings.network,
        uses_gpus: settings.uses_gpus,
        command: std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(ToOwned::to_owned)
            .collect(),
        // The keeper itself runs without the user's own preloads; the command has them, unless it sets others.
        environment: env::var_os(PRELOAD)
            .map(|own| (PRELOAD.into(), Some(own)))
            .into_iter()
            .chain(
                command
                    .get_envs()
                    .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))),
            )
            .collect(),
        current_dir,
        scratch: scratch.new_directory()?,
        shared: settings
            .shared
            .iter()
            .cloned()
            .chain(shared_memory)
            .collect(),
        writable: settings.writable.clone(),
        redirect_library: settings.redirect_library.clone(),
        checked: settings.checked.clone(),
        oom_score_adj: settings.oom_score_adj,
    })
}

fn launch(request: &Request, output: &File, settings: &IsolationSettings) -> io::Result<Isolated> {
    let path = request.scratch.join("request.json");
    brimful_private::write_new(&path, &serde_json::to_vec(request)?)?;
    let (ours, theirs) = UnixStream::pair()?;
    let mut keeper = Command::new(&settings.program);
    keeper
        .arg(ARGUMENT)
        .arg(&path)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        // Preloads are for the command.
        .env_remove(PRELOAD);
    #[expect(
        unsafe_code,
        reason = "a session is left by the process that leaves it"
    )]
    // SAFETY: one system call between fork and exec.
    unsafe {
        // Without the user's terminal, whose settings a command could change.
        keeper.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
    Ok(Isolated {
        keeper: keeper.spawn()?,
        socket: Some(BufReader::new(ours)),
        isolation: request.isolation,
        gpu_hidden: GpuHidden::NoDriver,
        containment: Containment::NONE,
        scratch: request.scratch.clone(),
        status: None,
    })
}

impl Isolated {
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// How the GPUs of this machine are hidden from it.
    pub fn gpu_hidden(&self) -> GpuHidden {
        self.gpu_hidden
    }

    /// How what other programs have is kept from it.
    pub fn containment(&self) -> Containment {
        self.containment
    }

    /// The directory that takes its writes.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// The process that everything was started in.
    pub fn ancestor(&self) -> u32 {
        self.keeper.id()
    }

    /// How the command ended, if it has.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            if let Some(socket) = &mut self.socket {
                socket.get_ref().set_nonblocking(true)?;
            }
            match self.answer() {
                Ok(Some(Answer::Ended { status })) => {
                    self.status = Some(ExitStatus::from_raw(status));
                }
                // The keeper was killed, and with it everything: as if the command had been.
                Ok(_) => self.status = Some(ExitStatus::from_raw(libc::SIGKILL)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.status)
    }

    fn first_answer(&mut self) -> Option<Answer> {
        self.answer().ok().flatten()
    }

    /// The next answer; nothing at the end.
    fn answer(&mut self) -> io::Result<Option<Answer>> {
        let Some(socket) = &mut self.socket else {
            return Ok(None);
        };
        let mut line = String::new();
        // An answer is written in one go, so that a line is never found half.
        if socket.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        serde_json::from_str(&line).map(Some).map_err(Into::into)
    }

    /// Ends the command and all that it has started.
    pub fn end(&mut self) {
        if self.socket.take().is_none() {
            return;
        }
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if !matches!(self.keeper.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

impl Drop for Isolated {
    fn drop(&mut self) {
        self.end();
    }
}
