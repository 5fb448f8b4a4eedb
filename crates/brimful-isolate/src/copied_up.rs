//! Which file the kernel is copying up: a process that opens a file of the lower layer for writing waits in the call
//! until all of it is copied, and the copy has no name until then.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::tree::descendants_of;

const MAX_PATH: usize = 4096;

/// The file that a descendant of a process is opening now, if it is large enough for the bytes that were copied.
pub(crate) fn file_being_opened(ancestor: u32, copied_bytes: u64) -> Option<PathBuf> {
    let ancestor = i32::try_from(ancestor).ok()?;
    descendants_of(ancestor)
        .into_iter()
        .flat_map(|pid| tasks(pid).into_iter())
        .filter_map(|task| path_of_open_call(&task))
        .find(|path| fs::metadata(path).is_ok_and(|facts| facts.len() >= copied_bytes))
}

fn tasks(pid: i32) -> Vec<PathBuf> {
    fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// The path that a thread has passed to the call it is in, if that call opens or truncates a file by its path.
fn path_of_open_call(task: &Path) -> Option<PathBuf> {
    let call = OpenCall::parse(&fs::read_to_string(task.join("syscall")).ok()?)?;
    let path = read_path(&task.join("mem"), call.path_address)?;
    let directory = match call.directory {
        libc::AT_FDCWD => task.join("cwd"),
        descriptor => task.join("fd").join(descriptor.to_string()),
    };
    if path.is_absolute() {
        return Some(path);
    }
    Some(fs::read_link(directory).ok()?.join(path))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpenCall {
    directory: i32,
    path_address: u64,
}

impl OpenCall {
    /// A line of `/proc/PID/syscall`: the number of the call and its arguments in hexadecimal digits.
    fn parse(line: &str) -> Option<OpenCall> {
        let mut fields = line.split_ascii_whitespace();
        let number: libc::c_long = fields.next()?.parse().ok()?;
        let mut argument = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
        match number {
            libc::SYS_openat | libc::SYS_openat2 => {
                let directory = argument()? & u64::from(u32::MAX);
                Some(OpenCall {
                    directory: u32::try_from(directory).ok()?.cast_signed(),
                    path_address: argument()?,
                })
            }
            libc::SYS_truncate => Some(OpenCall {
                directory: libc::AT_FDCWD,
                path_address: argument()?,
            }),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => Some(OpenCall {
                directory: libc::AT_FDCWD,
                path_address: argument()?,
            }),
            _ => None,
        }
    }
}

fn read_path(memory: &Path, address: u64) -> Option<PathBuf> {
    let memory = File::open(memory).ok()?;
    let mut bytes = vec![0; MAX_PATH];
    // It may end at the last page that is mapped: the page of its beginning is read by itself.
    let n_first = MAX_PATH - usize::try_from(address % MAX_PATH as u64).ok()?;
    memory.read_exact_at(&mut bytes[..n_first], address).ok()?;
    if !bytes[..n_first].contains(&0) {
        let rest = address.checked_add(n_first as u64)?;
        memory.read_exact_at(&mut bytes[n_first..], rest).ok()?;
    }
    let end = bytes.iter().position(|byte| *byte == 0)?;
    bytes.truncate(end);
    (!bytes.is_empty()).then(|| PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_open_by_path_are_understood() {
        let line = format!(
            "{} 0xffffff9c 0x7f00 0x80002 0x0 0x0 0x0 0x7ffc 0x7f01\n",
            libc::SYS_openat
        );
        let expected = OpenCall {
            directory: libc::AT_FDCWD,
            path_address: 0x7f00,
        };
        assert_eq!(OpenCall::parse(&line), Some(expected));
        let other = format!("{} 0x3 0x7f00", libc::SYS_read);
        for line in ["running", "-1 0x7ffc 0x7f01", "", other.as_str()] {
            assert_eq!(OpenCall::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_path_is_read_from_the_memory_of_a_process() {
        let path = std::ffi::CString::new("/data/train.bin").unwrap();
        let address = path.as_ptr() as u64;
        let found = read_path(Path::new("/proc/self/mem"), address);
        assert_eq!(found, Some(PathBuf::from("/data/train.bin")));
        assert_eq!(read_path(Path::new("/proc/self/mem"), 8), None);
    }

    #[test]
    fn a_file_that_is_being_opened_is_found() {
        use std::process::{Command, Stdio};
        let directory = tempfile::tempdir().unwrap();
        // A process that opens a FIFO waits in the call, as one whose file is being copied.
        let status = Command::new("mkfifo")
            .arg("pipe")
            .current_dir(directory.path())
            .status()
            .unwrap();
        assert!(status.success());
        let mut child = Command::new("cat")
            .arg("pipe")
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let found = (0..500).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            file_being_opened(std::process::id(), 0).filter(|path| path.ends_with("pipe"))
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(
            found.as_deref(),
            Some(directory.path().join("pipe").as_path())
        );
        assert_eq!(file_being_opened(u32::MAX, 0), None);
    }
}
