//! The keeper: sets up the isolation, proves it, starts the command, and ends all of it.
//!
//! It is brimful itself, started with [`ARGUMENT`], because namespaces and walls are for whole processes with one
//! thread. Its standard input is a socket to brimful: answers go out on it, and its end means that brimful is gone.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use brimful::env_vars;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountAttrFlags, MountPropagationFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, wait};
use rustix::thread::CapabilitySet;

use crate::canary::{self, Canary};
use crate::gpus::{self, Gpus, Landlock, file_of};
use crate::listing::list;
use crate::overlay::{self, Layers, is_writable};
use crate::reach::Bait;
use crate::redirect::{Walls, landlock_abi, walls, walls_around, walls_of_namespaces};
use crate::request::{Answer, Containment, GpuHidden, Isolation, Network, Request};
use crate::{
    ISOLATION_VARIABLE, descriptors, devices, mounting, namespaces, process_calls, reach, tree,
};

/// The first argument of the keeper. Not for people.
pub const ARGUMENT: &str = "__isolate";
/// The second argument of the process that sends a canary through the redirecting library.
const CANARY: &str = "canary";
/// The second argument of the process that tries to reach the GPUs.
const GPU_CANARY: &str = "gpu-canary";
/// The second argument of the process that tries to reach other programs.
const REACH_CANARY: &str = "reach-canary";
/// What the process of the canaries prints in front of a canary's name.
const RELEASED: &str = "released ";

/// No request is longer; most of it is the environment.
const MAX_REQUEST: u64 = 64 << 20;
/// How long the keeper sleeps where the end of the command cannot be waited for together with the socket.
const SHORT_SLEEP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};
/// How often it collects processes that have lost their parent.
const LONG_SLEEP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// Runs as the keeper, with the arguments behind [`ARGUMENT`]. Returns the exit code of the process.
pub fn program(arguments: &[OsString]) -> u8 {
    match arguments {
        [first, directories @ ..] if first == CANARY => send_canaries(directories),
        [first, targets @ ..] if first == GPU_CANARY => gpus::canary::try_to_reach(targets),
        [first, targets] if first == REACH_CANARY => reach::try_to_reach(targets),
        [path] => keep(Path::new(path)),
        _ => 96,
    }
}

fn keep(path: &Path) -> u8 {
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else {
        return 97;
    };
    let mut keeper = Keeper {
        socket: UnixStream::from(socket),
    };
    let request = match read_request(path) {
        Ok(request) => request,
        Err(error) => {
            keeper.answer(&Answer::Unavailable {
                reason: format!("the request cannot be read: {error}"),
            });
            return 97;
        }
    };
    match keeper.run(&request) {
        Ok(code) => code,
        Err(why) => {
            keeper.answer(&match why {
                NotStarted::Unavailable(reason) => Answer::Unavailable { reason },
                NotStarted::GpuReached(reason) => Answer::GpuReached { reason },
            });
            tree::end_descendants();
            97
        }
    }
}

/// Why the command was not started.
enum NotStarted {
    /// The isolation cannot be had.
    Unavailable(String),
    /// A GPU cannot be hidden.
    GpuReached(String),
}

impl From<String> for NotStarted {
    fn from(reason: String) -> NotStarted {
        NotStarted::Unavailable(reason)
    }
}

/// What a command is started with.
struct Surroundings {
    walls: Option<Walls>,
    variables: Vec<(OsString, OsString)>,
    gpu_hidden: GpuHidden,
    containment: Containment,
}

fn read_request(path: &Path) -> io::Result<Request> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_REQUEST)
        .read_to_end(&mut bytes)?;
    serde_json::from_slice(&bytes).map_err(Into::into)
}

struct Keeper {
    socket: UnixStream,
}

impl Keeper {
    fn answer(&mut self, answer: &Answer) {
        if let Ok(mut line) = serde_json::to_vec(answer) {
            line.push(b'\n');
            // Brimful may be gone; then nobody has to know.
            let _ = self.socket.write_all(&line);
        }
    }

    /// Returns when the command has ended, or why it was not started.
    fn run(&mut self, request: &Request) -> Result<u8, NotStarted> {
        match isolate(request)? {
            Isolating::InChild { child, bait: _bait } => Ok(wait_for(child)),
            Isolating::Here(surroundings) => self.run_in(request, surroundings),
        }
    }

    /// Starts the command in its surroundings, and returns when it has ended.
    fn run_in(&mut self, request: &Request, surroundings: Surroundings) -> Result<u8, NotStarted> {
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let directory = Some(&request.current_dir).filter(|directory| directory.is_dir());
        let mut words = request.command.iter();
        let program = words.next().map_or(OsStr::new(""), OsString::as_os_str);
        let mut command = in_environment(program, request, &surroundings.variables);
        command
            .args(words)
            .current_dir(directory.map_or(Path::new("/"), PathBuf::as_path))
            .stdin(Stdio::null());
        let calls = put_behind(&mut command, request, surroundings.walls)
            .map_err(|error| format!("system calls cannot be stopped: {error}"))?;
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                self.answer(&Answer::NotStarted {
                    errno: error.raw_os_error().unwrap_or(libc::ENOENT),
                });
                return Ok(0);
            }
        };
        if let Some(listener) = calls.as_ref().and_then(process_calls::take_over) {
            let _ = process_calls::answer(listener, connections_of(request));
        }
        #[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
        let _ = fs::write(
            format!("/proc/{}/oom_score_adj", child.id()),
            request.oom_score_adj.to_string(),
        );
        self.answer(&Answer::Ready {
            gpu_hidden: surroundings.gpu_hidden,
            containment: surroundings.containment,
        });
        let status = self.watch(Pid::from_child(&child));
        // The processes that it has left behind first: nothing is written after the answer.
        tree::end_descendants();
        if let Some(status) = status {
            self.answer(&Answer::Ended { status });
        }
        Ok(0)
    }

    /// Waits for the end of the command, or of brimful: then there is no status.
    fn watch(&self, child: Pid) -> Option<i32> {
        let pidfd = pidfd_open(child, PidfdFlags::empty()).ok();
        loop {
            // Children of the command that have lost their parent are ours too.
            while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                if pid == child {
                    return Some(status.as_raw());
                }
            }
            let mut waits = vec![PollFd::new(&self.socket, PollFlags::RDHUP)];
            waits.extend(pidfd.iter().map(|it| PollFd::new(it, PollFlags::IN)));
            let sleep = if pidfd.is_some() {
                &LONG_SLEEP
            } else {
                &SHORT_SLEEP
            };
            let _ = poll(&mut waits, Some(sleep));
            let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
            if waits[0].revents().intersects(gone) {
                return None;
            }
        }
    }
}

/// Where the command is to be started.
enum Isolating {
    /// By this process, in these surroundings.
    Here(Surroundings),
    /// By a child, which is the first process of a PID namespace and needs the bait.
    InChild { child: Pid, bait: Bait },
}

/// Isolates this process, and proves it.
fn isolate(request: &Request) -> Result<Isolating, NotStarted> {
    // Asked before the keeper has other rights than the user.
    let checked: Vec<PathBuf> = request
        .checked
        .iter()
        .filter(|path| canary::can_be_caught_in(path) && is_writable(path))
        .cloned()
        .collect();
    let bait = Bait::new();
    if request.isolation != Isolation::Off {
        descriptors::detach(&request.command, &request.scratch)
            .map_err(|error| format!("descriptors cannot be detached: {error}"))?;
    }
    let gpus = Gpus::find();
    if !request.uses_gpus {
        gpus.close_on_exec();
    }
    Ok(Isolating::Here(match request.isolation {
        Isolation::Overlay => {
            let user_namespace = namespaces::enter(request, true)
                .map_err(|error| format!("namespaces are not allowed: {error}"))?;
            if request.pid_namespace {
                match fork().map_err(|error| format!("cannot fork: {error}"))? {
                    Forked::Parent(child) => return Ok(Isolating::InChild { child, bait }),
                    Forked::Child => {
                        // The session of the parent has no number in the new namespace.
                        let _ = rustix::process::setsid();
                    }
                }
            }
            let covered =
                overlay::enter(request, user_namespace).map_err(|error| error.to_string())?;
            canary::prove_overlays(&covered, &checked)?;
            let surroundings = Surroundings {
                walls: walls_of_namespaces(),
                variables: variables(request, None),
                containment: prove_containment(request, &bait, None)?,
                gpu_hidden: if request.uses_gpus {
                    GpuHidden::Used
                } else if gpus.are_absent() {
                    GpuHidden::NoDriver
                } else {
                    GpuHidden::Devices
                },
            };
            if !request.uses_gpus {
                prove_hidden(request, &gpus, None).map_err(NotStarted::GpuReached)?;
            }
            surroundings
        }
        Isolation::Redirect | Isolation::Off => {
            leave_network(request)?;
            if request.isolation == Isolation::Redirect {
                protect_settings();
            }
            let mut surroundings = hide(request, &gpus)?;
            if request.isolation == Isolation::Redirect {
                let around = Some(&gpus).filter(|_| surroundings.gpu_hidden == GpuHidden::Landlock);
                prove_redirection(request, around, &checked)?;
                surroundings.containment = prove_containment(request, &bait, around)?;
            }
            surroundings
        }
    }))
}

/// Hides the GPUs from a command that has the machine's files, and proves it. What fails is tried in another way.
fn hide(request: &Request, gpus: &Gpus) -> Result<Surroundings, NotStarted> {
    // What cannot be had without GPUs either is not their fault.
    let walls = walls_for(request, None)?;
    if request.uses_gpus {
        return Ok(Surroundings {
            variables: variables(request, walls.as_ref()),
            walls,
            gpu_hidden: GpuHidden::Used,
            containment: Containment::NONE,
        });
    }
    let landlock = Landlock {
        abi: landlock_abi(),
        tells_nodes_apart: gpus.differ_from_allowed(&list, &file_of),
    };
    let mut reasons = Vec::new();
    for gpu_hidden in gpus.ways_to_hide(request.isolation, landlock) {
        if *gpu_hidden == GpuHidden::Devices
            && let Err(error) = devices::replace(&request.scratch, gpus)
        {
            reasons.push(error.to_string());
            continue;
        }
        let around = Some(gpus).filter(|_| *gpu_hidden == GpuHidden::Landlock);
        // Made when the devices are there that they allow.
        let walls = match walls_for(request, around) {
            Err(reason) if request.isolation == Isolation::Off => {
                reasons.push(reason);
                continue;
            }
            walls => walls?,
        };
        let variables = variables(request, walls.as_ref());
        match prove_hidden(request, gpus, around) {
            Ok(()) => {
                return Ok(Surroundings {
                    walls,
                    variables,
                    gpu_hidden: *gpu_hidden,
                    containment: Containment::NONE,
                });
            }
            Err(reason) => reasons.push(reason),
        }
    }
    Err(NotStarted::GpuReached(reasons.join("; ")))
}

/// The walls of a command, also around these GPUs.
fn walls_for(request: &Request, around: Option<&Gpus>) -> Result<Option<Walls>, String> {
    match (request.isolation, around) {
        (Isolation::Redirect, _) => walls(request, around).map(Some),
        (Isolation::Off, Some(gpus)) => walls_around(gpus).map(Some),
        (Isolation::Off, None) => Ok(None),
        (Isolation::Overlay, _) => Ok(walls_of_namespaces()),
    }
}

/// Whether calls that name a process or a socket are stopped: not where the command sees none of the others.
fn stops_calls(request: &Request) -> bool {
    match request.isolation {
        Isolation::Overlay => !request.pid_namespace || request.network == Network::None,
        Isolation::Redirect => true,
        Isolation::Off => false,
    }
}

/// The file that lists the connections of the command.
fn connections_of(request: &Request) -> Option<PathBuf> {
    let named = |(name, _): &&(OsString, Option<OsString>)| name == env_vars::BRIMFUL_CONNECTIONS;
    let (_, value) = request.environment.iter().rev().find(named)?;
    value.clone().map(PathBuf::from)
}

/// Makes the settings of the machine read-only where root could change them. In a container they are.
fn protect_settings() {
    let settings = Path::new("/proc/sys");
    if !rustix::process::geteuid().is_root() || namespaces::enter_mounts_as_root().is_err() {
        return;
    }
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    let _ = rustix::mount::mount_change("/", flags);
    let read_only = MountAttrFlags::MOUNT_ATTR_RDONLY;
    let _ = mounting::bind(settings, settings, mounting::Depth::All, read_only);
}

/// A process like those of the command tries to reach other programs. An error says what it reached.
fn prove_containment(
    request: &Request,
    bait: &Bait,
    around: Option<&Gpus>,
) -> Result<Containment, String> {
    let failed =
        |error: io::Error| format!("it cannot be checked what the command reaches: {error}");
    let walls = walls_for(request, around)?;
    let variables = variables(request, walls.as_ref());
    let mut command = in_environment(OsStr::new("/proc/self/exe"), request, &variables);
    command.arg(ARGUMENT).arg(REACH_CANARY);
    let calls = put_behind(&mut command, request, walls).map_err(failed)?;
    let child = reach::start(&mut command, bait).map_err(failed)?;
    let answers = calls
        .as_ref()
        .and_then(process_calls::take_over)
        .and_then(|listener| process_calls::answer(listener, None).ok());
    let containment = reach::containment(child, bait, request.isolation);
    // This process must have one thread when it starts the next one.
    if let Some(answers) = answers {
        let _ = answers.join();
    }
    containment
}

/// A process like those of the command, with its variables and behind its walls, tries to reach the GPUs.
fn prove_hidden(request: &Request, gpus: &Gpus, around: Option<&Gpus>) -> Result<(), String> {
    let walls = walls_for(request, around)?;
    let variables = variables(request, walls.as_ref());
    let mut command = in_environment(OsStr::new("/proc/self/exe"), request, &variables);
    let preloaded = command
        .get_envs()
        .find_map(|(name, value)| value.filter(|_| name == env_vars::LD_PRELOAD))
        .unwrap_or_default();
    let libraries = gpus::canary::libraries(gpus, preloaded);
    command.arg(ARGUMENT).arg(GPU_CANARY);
    let _calls = put_behind(&mut command, request, walls).map_err(|error| error.to_string())?;
    gpus::canary::send(command, gpus, &libraries)
}

fn leave_network(request: &Request) -> Result<(), String> {
    if request.network == Network::Full {
        return Ok(());
    }
    namespaces::enter(request, false)
        .map(drop)
        .map_err(|error| format!("a network namespace is not allowed: {error}"))
}

enum Forked {
    Parent(Pid),
    Child,
}

/// The first child after entering a PID namespace is its init process.
fn fork() -> io::Result<Forked> {
    #[expect(
        unsafe_code,
        reason = "a child that goes on from here, not another program"
    )]
    // SAFETY: the keeper has one thread, so the child may do everything that the parent may.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => Ok(Forked::Child),
        pid => Pid::from_raw(pid.max(0))
            .map(Forked::Parent)
            .ok_or_else(io::Error::last_os_error),
    }
}

fn wait_for(child: Pid) -> u8 {
    loop {
        match rustix::process::waitpid(Some(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                let code = status.exit_status().unwrap_or(97);
                return u8::try_from(code).unwrap_or(97);
            }
            Err(rustix::io::Errno::INTR) | Ok(None) => {}
            Err(_) => return 97,
        }
    }
}

/// A program with the command's environment and the variables of the isolation.
fn in_environment(
    program: &OsStr,
    request: &Request,
    variables: &[(OsString, OsString)],
) -> Command {
    let mut command = Command::new(program);
    for (name, value) in &request.environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command
}

/// The variables of the isolation.
fn variables(request: &Request, walls: Option<&Walls>) -> Vec<(OsString, OsString)> {
    let mut variables = Vec::new();
    let branches = match request.isolation {
        Isolation::Overlay => Some(tagged("overlay:", &Layers::of(&request.scratch).records())),
        Isolation::Redirect => Some(tagged("redirect:", &request.scratch)),
        Isolation::Off => None,
    };
    variables.extend(branches.map(|value| (ISOLATION_VARIABLE.into(), value)));
    variables.extend(
        walls
            .into_iter()
            .flat_map(|walls| walls.environment.clone()),
    );
    if stops_calls(request) {
        let keeper = rustix::process::getpid().as_raw_nonzero().to_string();
        variables.push((env_vars::BRIMFUL_KEEPER.into(), keeper.into()));
    }
    // Where it does not redirect writes, the library lists connections.
    if request.redirect_library.is_file() {
        variables.push((env_vars::LD_PRELOAD.into(), preload(request)));
    }
    variables
}

/// What the child does between fork and exec. Gives the end of a socket on which its calls that name a process can be
/// taken over, if they are to be stopped.
fn put_behind(
    command: &mut Command,
    request: &Request,
    mut walls: Option<Walls>,
) -> io::Result<Option<UnixStream>> {
    let (ours, theirs) = if stops_calls(request) {
        let (ours, theirs) = UnixStream::pair()?;
        (Some(ours), Some(theirs))
    } else {
        (None, None)
    };
    let dropped = dropped_capabilities(request.isolation);
    let network = request.network;
    let prepare = move || -> io::Result<()> {
        // Should the keeper be killed, at least the command itself goes with it.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        for capability in dropped {
            let _ = rustix::thread::remove_capability_from_bounding_set(*capability);
        }
        if let Some(walls) = &mut walls {
            walls.close().map_err(io::Error::other)?;
        }
        if let Some(keeper) = &theirs {
            // Where the kernel does not offer it, the canary has found what that leaves open.
            let _ = process_calls::hand_over(keeper, network);
        }
        Ok(())
    };
    #[expect(unsafe_code, reason = "walls are put up around a process that exists")]
    // SAFETY: the keeper has one thread, so the child may allocate and call everything.
    unsafe {
        command.pre_exec(prepare);
    }
    Ok(ours)
}

/// What root may not do in a command: load a driver or create a node that leads to one; elsewhere than in its own
/// namespaces, change the machine. Others may not anyway.
fn dropped_capabilities(isolation: Isolation) -> &'static [CapabilitySet] {
    const ALL: [CapabilitySet; 9] = [
        CapabilitySet::MKNOD,
        CapabilitySet::SYS_MODULE,
        CapabilitySet::SYS_RAWIO,
        CapabilitySet::NET_ADMIN,
        CapabilitySet::SYS_BOOT,
        CapabilitySet::SYS_PACCT,
        CapabilitySet::SYS_TIME,
        CapabilitySet::SYSLOG,
        // An overlay's branches are mounted by the command.
        CapabilitySet::SYS_ADMIN,
    ];
    match isolation {
        Isolation::Redirect => &ALL,
        Isolation::Overlay => &ALL[..8],
        Isolation::Off => &ALL[..3],
    }
}

/// The command's own preloads, then the redirecting library.
fn preload(request: &Request) -> OsString {
    let own = request
        .environment
        .iter()
        .rev()
        .find(|(name, _)| name == env_vars::LD_PRELOAD)
        .and_then(|(_, value)| value.clone());
    let mut all = own.unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(&request.redirect_library);
    all
}

fn tagged(tag: &str, path: &Path) -> OsString {
    let mut text = OsString::from(tag);
    text.push(path);
    text
}

/// A process of its own sends the canaries, behind walls and through the library; this one looks for them.
fn prove_redirection(
    request: &Request,
    around: Option<&Gpus>,
    directories: &[PathBuf],
) -> Result<(), String> {
    let walls = walls(request, around)?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg(ARGUMENT)
        .arg(CANARY)
        .args(directories)
        .envs(walls.environment.iter().map(|(name, value)| (name, value)))
        // Without the command's own preloads.
        .env(env_vars::LD_PRELOAD, &request.redirect_library)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let failed = |error: io::Error| format!("the canary cannot be sent: {error}");
    let _calls = put_behind(&mut command, request, Some(walls)).map_err(failed)?;
    let mut child = command.spawn().map_err(failed)?;
    let mut answers = BufReader::new(child.stdout.take().ok_or("the canary has no output")?);
    let mut to_child = child.stdin.take().ok_or("the canary has no input")?;
    for directory in directories {
        let mut line = String::new();
        answers.read_line(&mut line).map_err(failed)?;
        let place = directory.display();
        match line.trim_end().strip_prefix(RELEASED) {
            Some(name) if Canary::named(directory, name).is_seen_in(directory) => {
                return Err(format!("a write reached {place}"));
            }
            Some(_) => to_child.write_all(b"\n").map_err(failed)?,
            None => {
                let reason = line.trim_end();
                return Err(format!("a file in {place} cannot be changed: {reason}"));
            }
        }
    }
    drop(to_child);
    let mut rest = String::new();
    let _ = answers.read_to_string(&mut rest);
    let status = child.wait().map_err(failed)?;
    if status.success() {
        Ok(())
    } else {
        Err(format!(
            "the canary ended with {status}: {}",
            rest.trim_end()
        ))
    }
}

/// Releases a canary in each directory, waits until it was looked for, and catches it.
fn send_canaries(directories: &[OsString]) -> u8 {
    let mut input = io::stdin().lines();
    let mut output = io::stdout();
    let mut send = |directory: &Path| -> io::Result<()> {
        let canary = Canary::release(directory)?;
        writeln!(output, "{RELEASED}{}", canary.name())?;
        output.flush()?;
        input.next().transpose()?;
        canary.catch()?;
        canary.must_not_pass_walls()
    };
    for directory in directories {
        if let Err(error) = send(Path::new(directory)) {
            let _ = writeln!(io::stdout(), "{error}");
            return 1;
        }
    }
    0
}
