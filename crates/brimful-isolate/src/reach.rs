//! The proof that a command reaches no memory, queue or process of other programs: a process like those of the command
//! tries to.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::request::{Contained, Containment, Isolation};

const SHARED_MEMORY: &str = "/dev/shm";
const CONTENTS: &[u8] = b"brimful checks that this stays as it is\n";
/// Libraries that are preloaded may print something too.
const MAX_OUTPUT: u64 = 1 << 20;

/// What that process tries to reach.
#[derive(Debug, Serialize, Deserialize)]
struct Targets {
    /// The process that has started the keeper: brimful.
    process: i32,
    /// A file in shared memory; nothing where nobody can make one.
    shared_memory: Option<PathBuf>,
    namespaces: Namespaces,
}

/// The namespaces of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Namespaces {
    ipc: Option<u64>,
    pid: Option<u64>,
}

impl Namespaces {
    fn of_this_process() -> Namespaces {
        let inode = |name: &str| {
            let facts = fs::metadata(Path::new("/proc/self/ns").join(name));
            facts.ok().map(|facts| facts.ino())
        };
        Namespaces {
            ipc: inode("ipc"),
            pid: inode("pid"),
        }
    }
}

/// What it found, in the last line of its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Found {
    reaches_shared_memory: bool,
    reaches_ipc: bool,
    reaches_signals: bool,
    reaches_priorities: bool,
    own_ipc_namespace: bool,
    own_pid_namespace: bool,
}

/// The targets, and what the keeper needs to look at them and to remove them from inside of any namespace.
#[derive(Debug)]
pub(crate) struct Bait {
    targets: Targets,
    directory: Option<OwnedFd>,
    file: Option<File>,
}

impl Bait {
    /// Laid out while this process is where brimful is.
    pub(crate) fn new() -> Bait {
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        let (shared_memory, directory, file) = match shared_memory_file() {
            Ok((path, directory, file)) => (Some(path), Some(directory), Some(file)),
            Err(_) => (None, None, None),
        };
        Bait {
            targets: Targets {
                process: parent,
                shared_memory,
                namespaces: Namespaces::of_this_process(),
            },
            directory,
            file,
        }
    }

    /// Whether the file in shared memory is as it was, and where it was.
    fn is_unchanged(&self) -> bool {
        let Some(file) = &self.file else {
            return true;
        };
        let mut found = vec![0; CONTENTS.len() + 1];
        let n_bytes = file.read_at(&mut found, 0).unwrap_or(0);
        let n_links = file.metadata().map_or(0, |facts| facts.nlink());
        found.get(..n_bytes) == Some(CONTENTS) && n_links == 1
    }
}

impl Drop for Bait {
    fn drop(&mut self) {
        if let (Some(directory), Some(path)) = (&self.directory, &self.targets.shared_memory)
            && let Some(name) = path.file_name()
        {
            let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        }
    }
}

fn shared_memory_file() -> io::Result<(PathBuf, OwnedFd, File)> {
    let parent = Path::new(SHARED_MEMORY);
    let held = brimful_private::temporary_directory(&[parent], "brimful-canary-")?;
    // A file with the random name of a directory that is gone again.
    let path = held.path().to_owned();
    drop(held);
    brimful_private::write_new(&path, CONTENTS)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(parent, flags, Mode::empty())?;
    let file = File::open(&path)?;
    Ok((path, directory, file))
}

/// Starts it. Its calls may have to be answered before [`containment`] can wait for it.
pub(crate) fn start(command: &mut Command, bait: &Bait) -> io::Result<Child> {
    command
        .arg(serde_json::to_string(&bait.targets)?)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

/// How the command is contained, by what that process could not reach.
pub(crate) fn containment(
    mut child: Child,
    bait: &Bait,
    isolation: Isolation,
) -> Result<Containment, String> {
    let failed =
        |error: io::Error| format!("it cannot be checked what the command reaches: {error}");
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout
            .take(MAX_OUTPUT)
            .read_to_end(&mut output)
            .map_err(failed)?;
    }
    let status = child.wait().map_err(failed)?;
    let found = last_line(&output).ok_or_else(|| {
        format!("the process that checks what the command reaches gave no answer ({status})")
    })?;
    if !bait.is_unchanged() {
        return Err("shared memory of other programs can be changed".into());
    }
    judge(found, isolation)
}

fn last_line(output: &[u8]) -> Option<Found> {
    let line = output
        .split(|byte| *byte == b'\n')
        .rfind(|line| !line.is_empty())?;
    serde_json::from_slice(line).ok()
}

fn judge(found: Found, isolation: Isolation) -> Result<Containment, String> {
    if found.reaches_shared_memory {
        return Err("shared memory of other programs can be opened".into());
    }
    if found.reaches_ipc && !found.own_ipc_namespace {
        return Err("System V or POSIX queues and memory of other programs can be reached".into());
    }
    let processes = if found.own_pid_namespace {
        Contained::Namespace
    } else if !found.reaches_signals && !found.reaches_priorities {
        Contained::Denied
    } else if !found.reaches_signals {
        Contained::SignalsDenied
    } else {
        Contained::Open
    };
    Ok(Containment {
        shared_memory: if isolation == Isolation::Overlay {
            Contained::Namespace
        } else {
            Contained::Redirected
        },
        ipc: if found.own_ipc_namespace {
            Contained::Namespace
        } else {
            Contained::Denied
        },
        processes,
    })
}

/// Runs as that process.
pub(crate) fn try_to_reach(argument: &OsString) -> u8 {
    let Some(targets) = argument
        .to_str()
        .and_then(|text| serde_json::from_str::<Targets>(text).ok())
    else {
        return 96;
    };
    let own = Namespaces::of_this_process();
    let differs = |own: Option<u64>, other: Option<u64>| own.is_some() && own != other;
    let own_pid_namespace = differs(own.pid, targets.namespaces.pid);
    // In another namespace the number means nothing, or somebody else.
    let process = Pid::from_raw(targets.process).filter(|_| !own_pid_namespace);
    let found = Found {
        reaches_shared_memory: targets
            .shared_memory
            .as_deref()
            .is_some_and(opens_past_the_library),
        reaches_ipc: makes_queues_or_memory(),
        reaches_signals: process.is_some_and(|process| {
            // Ignored by everybody who does not ask for it.
            kill_process(process, Signal::URG).is_ok()
        }),
        reaches_priorities: process.is_some_and(sets_priority),
        own_ipc_namespace: differs(own.ipc, targets.namespaces.ipc),
        own_pid_namespace,
    };
    if let Some(path) = &targets.shared_memory {
        change_as_a_program_would(path);
    }
    let Ok(line) = serde_json::to_string(&found) else {
        return 97;
    };
    // Behind whatever a preloaded library has printed.
    match writeln!(io::stdout(), "\n{line}") {
        Ok(()) => 0,
        Err(_) => 97,
    }
}

/// By a system call of its own, which no library redirects.
fn opens_past_the_library(path: &Path) -> bool {
    rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

/// Through libc, as `multiprocessing` does. Whether it reached the file itself, the keeper sees.
fn change_as_a_program_would(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return;
    };
    let Ok(name) = CString::new(name) else {
        return;
    };
    #[expect(unsafe_code, reason = "as a program opens shared memory")]
    // SAFETY: a C string; the descriptor is this process's, which ends next.
    unsafe {
        let descriptor = libc::shm_open(name.as_ptr(), libc::O_RDWR, 0o600);
        if descriptor >= 0 {
            libc::write(descriptor, c"EVIL".as_ptr().cast(), 4);
            libc::close(descriptor);
        }
        libc::shm_unlink(name.as_ptr());
    }
}

/// Whether memory of System V can be had. What is made is removed at once.
fn makes_queues_or_memory() -> bool {
    #[expect(unsafe_code, reason = "as a program asks for it")]
    // SAFETY: no pointers; the segment is nobody else's, and is removed.
    unsafe {
        let segment = libc::shmget(libc::IPC_PRIVATE, 4096, 0o600);
        if segment < 0 {
            return false;
        }
        libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut());
    }
    true
}

/// Whether another process can be given the priority that it has.
fn sets_priority(process: Pid) -> bool {
    let priority = rustix::process::getpriority_process(Some(process));
    priority
        .is_ok_and(|priority| rustix::process::setpriority_process(Some(process), priority).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reached_is_no_isolation() {
        let found = Found {
            reaches_shared_memory: true,
            ..Found::default()
        };
        judge(found, Isolation::Overlay).unwrap_err();
        let found = Found {
            reaches_ipc: true,
            ..Found::default()
        };
        judge(found, Isolation::Redirect).unwrap_err();
        let found = Found {
            reaches_ipc: true,
            own_ipc_namespace: true,
            own_pid_namespace: true,
            ..Found::default()
        };
        let own = judge(found, Isolation::Overlay).unwrap();
        assert_eq!(own.ipc, Contained::Namespace);
        assert_eq!(own.processes, Contained::Namespace);
        assert_eq!(own.shared_memory, Contained::Namespace);
    }

    #[test]
    fn what_the_kernel_does_not_offer_is_named() {
        let processes = |reaches_signals, reaches_priorities| {
            let found = Found {
                reaches_signals,
                reaches_priorities,
                ..Found::default()
            };
            judge(found, Isolation::Redirect).unwrap().processes
        };
        assert_eq!(processes(false, false), Contained::Denied);
        assert_eq!(processes(false, true), Contained::SignalsDenied);
        assert_eq!(processes(true, true), Contained::Open);
        assert_eq!(processes(true, false), Contained::Open);
    }

    #[test]
    fn the_last_line_is_the_answer() {
        let line = serde_json::to_string(&Found::default()).unwrap();
        let answer = |text: String| last_line(text.as_bytes());
        assert_eq!(
            answer(format!("noise\n\n{line}\n\n")),
            Some(Found::default())
        );
        assert_eq!(answer(format!("{line}\nAborted\n")), None);
        assert_eq!(answer(String::new()), None);
    }
}
