//! What the kernel says about memory while a job runs, where its log may be read.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// Lines kept; one kill prints a few dozen, most of them about the machine.
const MAX_LINES: usize = 40;
/// Records read at the end of a run; a noisy driver must not keep us busy.
const MAX_READ: usize = 20_000;

/// The kernel's log from now on.
#[derive(Debug)]
pub(crate) struct KernelLog {
    file: File,
}

impl KernelLog {
    /// `None` where it may not be read, which is usual in containers.
    pub(crate) fn open() -> Option<KernelLog> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).ok()?)
            .open("/dev/kmsg")
            .ok()?;
        // Only what comes from here on.
        file.seek(SeekFrom::End(0)).ok()?;
        Some(KernelLog { file })
    }

    /// The new lines that are about memory, the oldest first.
    pub(crate) fn about_memory(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        let mut buffer = vec![0; 8192];
        for _ in 0..MAX_READ {
            match self.file.read(&mut buffer) {
                Ok(0) => break,
                Ok(n_read) => {
                    found.extend(message(&buffer[..n_read]).filter(|line| is_about_memory(line)));
                }
                // Records that were overwritten before we came; the next read goes on behind them.
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => {}
                Err(_) => break,
            }
        }
        let extra = found.len().saturating_sub(MAX_LINES);
        found.drain(..extra);
        found
    }
}

/// The text of one record: `priority,sequence,time,flags;text`, then lines of its own about the device.
fn message(record: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(record);
    let (_, text) = text.split_once(';')?;
    Some(text.lines().next()?.trim().to_owned())
}

fn is_about_memory(line: &str) -> bool {
    [
        "invoked oom-killer",
        "oom-kill:",
        "Killed process",
        "Kill process",
        "ut of memory",
        "oom_reaper",
        "Tasks in ",
        "memory: usage ",
        "segfault at",
        "NVRM: Xid",
    ]
    .iter()
    .any(|words| line.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_taken_apart() {
        let record = b"3,812,9215600,-;Memory cgroup out of memory: Killed process 77 (python)\n SUBSYSTEM=x\n";
        let text = message(record).unwrap();
        assert_eq!(
            text,
            "Memory cgroup out of memory: Killed process 77 (python)"
        );
        assert!(is_about_memory(&text));
        assert_eq!(message(b"no semicolon"), None);
        assert_eq!(message(b""), None);
        assert!(!is_about_memory("usb 1-1: new device"));
    }
}
