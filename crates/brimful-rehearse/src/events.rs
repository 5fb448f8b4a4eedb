//! What the processes of a rehearsal report while they run.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use brimful::predict::AssumedCase;
use brimful::units::Bytes;
use serde::Deserialize;

/// More than any line of progress, and than all lines of a rehearsal.
const MAX_LINE: usize = 1 << 20;
const MAX_PROGRESS: u64 = 64 << 20;

/// Something worth telling while it runs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    Torch {
        torch: String,
    },
    /// Torch was built without CUDA: the script continues with tensors that have shapes and no values.
    NoCuda {
        torch: String,
    },
    /// Something that cannot be rehearsed with this torch.
    Unsupported {
        torch: String,
        what: String,
    },
    Cuda {
        device: u32,
    },
    Step {
        step: u32,
        of: u32,
        bytes: u64,
    },
    Written {
        reason: String,
    },
    /// The process of one card is over.
    Ended {
        variant: usize,
        code: i32,
    },
    Problem {
        text: String,
    },
    /// Torch was loaded without the hook: the process has ended itself.
    Unhooked {
        torch: Option<String>,
        why: String,
    },
    /// Something that would have reached a service was not done.
    Suppressed {
        what: String,
    },
    /// The script asked for input, and got none.
    Input {
        prompt: String,
    },
    /// The script failed, and had read a value before that only the model could compute.
    AssumedValue {
        place: String,
    },
    /// The script is rehearsed again with other assumed values.
    #[serde(skip)]
    OtherCase(AssumedCase),
    /// An overlay was in the script's way: it is started once more with its writes redirected.
    #[serde(skip)]
    Redirected,
}

impl Event {
    /// One line for somebody who waits; nothing where there is nothing to tell.
    pub fn line(&self) -> Option<String> {
        Some(match self {
            Event::Torch { torch } | Event::NoCuda { torch } => format!("torch {torch} is loaded"),
            Event::Cuda { .. } => "the model is being built".to_owned(),
            Event::Step { step, of, bytes } => {
                format!("step {step} of {of}, {} in tensors", Bytes(*bytes))
            }
            Event::Written { .. } => "replaying".to_owned(),
            Event::Problem { text } => text.clone(),
            Event::Unsupported { what, .. } => what.clone(),
            Event::Unhooked { .. } => "torch was loaded without the hook".to_owned(),
            Event::Input { .. } => "the script asks for input".to_owned(),
            Event::OtherCase(AssumedCase::Worst) => {
                "shapes depend on the model's values: rehearsing the worst case".to_owned()
            }
            Event::OtherCase(AssumedCase::Usual | AssumedCase::Balanced) => {
                "shapes depend on the model's values: rehearsing a balanced case".to_owned()
            }
            Event::Redirected => {
                "the overlay file system got in the script's way: starting the script again with its \
                 writes redirected"
                    .to_owned()
            }
            Event::Ended { .. } | Event::Suppressed { .. } | Event::AssumedValue { .. } => {
                return None;
            }
        })
    }
}

/// An event and the process it is from.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Progress {
    pub pid: u32,
    #[serde(flatten)]
    pub event: Event,
}

impl Progress {
    /// An event of brimful itself.
    pub(crate) fn own(event: Event) -> Progress {
        Progress {
            pid: std::process::id(),
            event,
        }
    }
}

/// Lines that several processes append.
#[derive(Debug)]
pub(crate) struct ProgressFile {
    path: PathBuf,
    at: u64,
    rest: String,
}

impl ProgressFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        ProgressFile {
            path,
            at: 0,
            rest: String::new(),
        }
    }

    pub(crate) fn read(&mut self) -> Vec<Progress> {
        let Ok(mut file) = File::open(&self.path) else {
            return Vec::new();
        };
        let mut new = Vec::new();
        let left = MAX_PROGRESS.saturating_sub(self.at).min(1 << 20);
        if file.seek(SeekFrom::Start(self.at)).is_err()
            || file.take(left).read_to_end(&mut new).is_err()
        {
            return Vec::new();
        }
        self.at += new.len() as u64;
        self.rest.push_str(&String::from_utf8_lossy(&new));
        let complete = self.rest.rfind('\n').map_or(0, |end| end + 1);
        let lines: String = self.rest.drain(..complete).collect();
        if self.rest.len() > MAX_LINE {
            self.rest.clear();
        }
        lines
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    const TORCH: &str = r#"{"event":"torch","torch":"2.14.1+cpu","pid":1}"#;

    #[test]
    fn progress_without_an_end_of_a_line_takes_no_more_memory_than_a_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("progress");
        let mut file = File::create(&path).expect("a file");
        let mut lines = ProgressFile::new(path);
        for _ in 0..4 {
            io::Write::write_all(&mut file, &vec![b'x'; 1 << 20]).expect("a disk");
            assert_eq!(lines.read(), []);
            assert!(lines.rest.len() <= MAX_LINE);
        }
        io::Write::write_all(&mut file, format!("\n{TORCH}\n").as_bytes()).expect("a disk");
        assert_eq!(lines.read().len(), 1, "what follows is read");
        file.set_len(2 * MAX_PROGRESS).expect("a sparse file");
        for _ in 0..2 * (MAX_PROGRESS >> 20) {
            lines.read();
        }
        assert_eq!(lines.at, MAX_PROGRESS, "the rest is left alone");
    }
}
