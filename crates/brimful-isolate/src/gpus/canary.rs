//! The proof that no GPU can be reached: a process like those of the command tries to.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::gpus::Gpus;

/// Stands between the nodes and the libraries in the arguments of that process.
const LIBRARIES: &str = "--";
/// The names by which programs ask the loader for a driver.
const BARE_NAMES: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];
/// What only the phantom exports.
const PHANTOM_SYMBOL: &CStr = c"brimful_phantom_report";
/// Libraries that are preloaded may print something too.
const MAX_OUTPUT: u64 = 1 << 20;

/// The last line of its output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Tried {
    Hidden,
    /// What was reached.
    Reached(String),
}

/// The libraries that must turn out to be the phantom, or not to exist, with these preloads.
///
/// The phantom takes the bare names. All other ones lead to it, or nowhere, through the redirecting library, which can do
/// that on x86-64 only.
pub(crate) fn libraries(gpus: &Gpus, preloaded: &OsStr) -> Vec<OsString> {
    let is_preloaded = |name: &[u8]| {
        let mut parts = preloaded.as_bytes().windows(name.len());
        parts.any(|part| part == name)
    };
    let redirects = is_preloaded(b"libbrimful_redirect") && cfg!(target_arch = "x86_64");
    let mut libraries = Vec::new();
    if redirects || is_preloaded(b"libbrimful_phantom") {
        libraries.extend(BARE_NAMES.map(OsString::from));
    }
    if redirects {
        let full = gpus.libraries.iter().cloned();
        libraries.extend(full.map(PathBuf::into_os_string));
    }
    libraries
}

/// Starts `command`, which is this program with the command's environment and walls. An error names what was reached, or
/// why nobody knows.
pub(crate) fn send(
    mut command: Command,
    gpus: &Gpus,
    libraries: &[OsString],
) -> Result<(), String> {
    let failed = |error: io::Error| format!("it cannot be checked that GPUs are hidden: {error}");
    command
        .args(gpus.paths())
        .arg(LIBRARIES)
        .args(libraries)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout
            .take(MAX_OUTPUT)
            .read_to_end(&mut output)
            .map_err(failed)?;
    }
    let status = child.wait().map_err(failed)?;
    answer(&output).unwrap_or_else(|| {
        Err(format!(
            "the process that checks that GPUs are hidden gave no answer ({status})"
        ))
    })
}

/// What the last line says; nothing where it is no answer.
fn answer(output: &[u8]) -> Option<Result<(), String>> {
    let line = output
        .split(|byte| *byte == b'\n')
        .rfind(|line| !line.is_empty())?;
    Some(match serde_json::from_slice(line).ok()? {
        Tried::Hidden => Ok(()),
        Tried::Reached(what) => Err(what),
    })
}

/// Runs as that process: with paths of nodes, and libraries.
pub(crate) fn try_to_reach(arguments: &[OsString]) -> u8 {
    let mut parts = arguments.split(|argument| argument == LIBRARIES);
    let nodes = parts.next().unwrap_or_default();
    let libraries = parts.next().unwrap_or_default();
    let reached = nodes
        .iter()
        .find_map(|node| try_to_open(Path::new(node)))
        .or_else(|| libraries.iter().find_map(|library| try_to_load(library)));
    let tried = reached.map_or(Tried::Hidden, Tried::Reached);
    let Ok(line) = serde_json::to_string(&tried) else {
        return 97;
    };
    // Behind whatever a preloaded library has printed.
    match writeln!(io::stdout(), "\n{line}") {
        Ok(()) => 0,
        Err(_) => 97,
    }
}

/// What it comes to if a device node can be opened.
fn try_to_open(node: &Path) -> Option<String> {
    let place = node.display();
    for access in [OFlags::RDWR, OFlags::RDONLY, OFlags::WRONLY] {
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        match rustix::fs::open(node, flags, Mode::empty()) {
            Ok(_) => return Some(format!("{place} can be opened")),
            Err(errno) if is_out_of_reach(errno) => {}
            Err(errno) => {
                return Some(format!(
                    "opening {place} is neither absent nor denied: {errno}"
                ));
            }
        }
    }
    None
}

/// Absent, denied, or a node without a device.
fn is_out_of_reach(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::PERM | Errno::NXIO | Errno::NODEV
    )
}

/// What it comes to if a library is found that is not the phantom.
fn try_to_load(library: &OsStr) -> Option<String> {
    let name = CString::new(library.as_bytes()).ok()?;
    #[expect(unsafe_code, reason = "as a program loads the driver")]
    // SAFETY: a C string; what the library runs when it is loaded, it runs in this process alone, which ends next.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return None;
    }
    #[expect(unsafe_code, reason = "as a program asks for a function")]
    // SAFETY: the handle is open, and the address is only compared with null.
    let is_phantom = unsafe { !libc::dlsym(handle, PHANTOM_SYMBOL.as_ptr()).is_null() };
    let place = Path::new(library).display();
    (!is_phantom).then(|| format!("loading {place} finds the driver of this machine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_answer() {
        let told = |text: &str| answer(text.as_bytes());
        assert_eq!(told("\"hidden\"\n"), Some(Ok(())));
        assert_eq!(told("noise\n\n\"hidden\"\n\n"), Some(Ok(())));
        let reached = Err("/dev/nvidia0 can be opened".to_owned());
        assert_eq!(
            told("\"hidden\"\n{\"reached\":\"/dev/nvidia0 can be opened\"}\n"),
            Some(reached)
        );
        for text in ["", "\n", "\"hidden\"\nAborted\n", "{}", "null", "hidden"] {
            assert_eq!(told(text), None, "{text}");
        }
    }

    #[test]
    fn libraries_are_tried_where_something_stands_in_for_them() {
        let gpus = Gpus {
            libraries: vec!["/usr/lib64-nvidia/libcuda.so.1".into()],
            ..Gpus::default()
        };
        let tried = |preloaded: &str| libraries(&gpus, OsStr::new(preloaded)).len();
        assert_eq!(tried(""), 0);
        assert_eq!(tried("/usr/lib/libtcmalloc.so.4"), 0);
        assert_eq!(
            tried("/stage/libbrimful_phantom.so:/usr/lib/libtcmalloc.so.4"),
            2
        );
        if cfg!(target_arch = "x86_64") {
            assert_eq!(tried("/scratch/libbrimful_redirect.so"), 3);
        }
    }

    #[test]
    fn only_what_cannot_be_opened_is_out_of_reach() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(try_to_open(&directory.path().join("nvidia0")), None);
        let null = try_to_open(Path::new("/dev/null"));
        assert_eq!(null.as_deref(), Some("/dev/null can be opened"));
        for errno in [Errno::BUSY, Errno::IO, Errno::LOOP, Errno::INVAL] {
            assert!(!is_out_of_reach(errno), "{errno}");
        }
    }

    #[test]
    fn a_library_that_is_not_the_phantom_is_found_out() {
        let reached = try_to_load(OsStr::new("libc.so.6"));
        assert_eq!(
            reached.as_deref(),
            Some("loading libc.so.6 finds the driver of this machine")
        );
        assert_eq!(try_to_load(OsStr::new("libbrimful-nowhere.so.1")), None);
    }

    #[test]
    fn a_process_that_says_nothing_proves_nothing() {
        let gpus = Gpus::default();
        let silent = send(Command::new("true"), &gpus, &[]).unwrap_err();
        assert!(
            silent.contains("gave no answer (exit status: 0)"),
            "{silent}"
        );
        let missing = send(Command::new("/nowhere/brimful"), &gpus, &[]).unwrap_err();
        assert!(missing.contains("cannot be checked"), "{missing}");
    }
}
