//! The end of what the training printed, kept in memory and beside the record.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use brimful::record::{OutputLine, Stream};
use brimful::secrets::mask_text;

use crate::streams::DirectFile;

/// A traceback of a large model with its chained causes fits; so does the last screen of every rank.
const KEPT_BYTES: usize = 64 << 10;
/// A longer one is kept although it was cut.
const MAX_LINE: usize = 8 << 10;

/// The last of one stream.
///
/// On disk it is two numbered files, the older of which goes when a new one is begun, so that the last 64 KiB survive the
/// end of everything without a file that grows or is rewritten.
#[derive(Debug)]
pub(crate) struct Tail {
    stream: Stream,
    bytes: Vec<u8>,
    /// `bytes` does not begin where the stream did.
    is_cut: bool,
    directory: Option<PathBuf>,
    file: Option<File>,
    written: usize,
    turn: u64,
    /// Bytes at the end of `bytes` that are not on disk yet.
    unwritten: usize,
}

impl Tail {
    pub(crate) fn new(stream: Stream, directory: Option<&Path>) -> Tail {
        let mut tail = Tail {
            stream,
            bytes: Vec::new(),
            is_cut: false,
            directory: directory.map(Path::to_owned),
            file: None,
            written: 0,
            turn: 0,
            unwritten: 0,
        };
        tail.next_file();
        tail
    }

    pub(crate) fn push(&mut self, new: &[u8]) {
        self.bytes.extend_from_slice(new);
        self.unwritten = (self.unwritten + new.len()).min(KEPT_BYTES);
        if self.bytes.len() > 2 * KEPT_BYTES {
            let extra = self.bytes.len() - KEPT_BYTES;
            self.bytes.drain(..extra);
            self.is_cut = true;
        }
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        self.unwritten == 0
    }

    /// Puts what is new on disk. Done between bursts of output, not for every piece of them.
    pub(crate) fn flush(&mut self) {
        let unwritten = std::mem::take(&mut self.unwritten).min(self.bytes.len());
        let new = &self.bytes[self.bytes.len() - unwritten..];
        if let Some(file) = &mut self.file
            && file.write_all(new).is_ok()
        {
            self.written += unwritten;
            if self.written >= KEPT_BYTES {
                self.turn += 1;
                self.next_file();
            }
        }
    }

    pub(crate) fn line(&self, at_ms: u64) -> OutputLine {
        OutputLine {
            at_ms,
            stream: self.stream,
            tail: text_of(&self.bytes, self.is_cut),
        }
    }

    /// Forgets the files: what they hold is in the record now.
    pub(crate) fn remove_files(&mut self) {
        self.file = None;
        for turn in [self.turn.checked_sub(1), Some(self.turn)] {
            self.remove_file(turn);
        }
    }

    fn remove_file(&self, turn: Option<u64>) {
        if let Some(path) = turn.and_then(|turn| self.path(turn)) {
            let _ = std::fs::remove_file(path);
        }
    }

    fn next_file(&mut self) {
        self.written = 0;
        self.remove_file(self.turn.checked_sub(2));
        self.file = self.path(self.turn).and_then(|path| {
            // One of an earlier attempt.
            let _ = std::fs::remove_file(&path);
            brimful_private::create_new(&path).ok()
        });
    }

    fn path(&self, turn: u64) -> Option<PathBuf> {
        self.directory
            .as_ref()
            .map(|directory| file_of(directory, self.stream, turn))
    }
}

fn file_of(directory: &Path, stream: Stream, turn: u64) -> PathBuf {
    directory.join(format!("{}.{turn}.tail", name_of(stream)))
}

fn name_of(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
        Stream::Both => "output",
    }
}

/// The tails that a killed brimful left beside its record.
pub(crate) fn left_behind(directory: &Path) -> Vec<OutputLine> {
    let names: Vec<String> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .take(1000)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    [Stream::Stdout, Stream::Stderr, Stream::Both]
        .into_iter()
        .filter_map(|stream| {
            let turn_of = |name: &String| -> Option<u64> {
                let rest = name.strip_prefix(name_of(stream))?;
                rest.strip_prefix('.')?.strip_suffix(".tail")?.parse().ok()
            };
            let mut turns: Vec<u64> = names.iter().filter_map(turn_of).collect();
            turns.sort_unstable();
            let mut bytes = Vec::new();
            let is_cut = turns.iter().rev().nth(1).is_some_and(|first| *first > 0);
            for turn in turns.iter().rev().take(2).rev() {
                let _ = brimful_private::open(&file_of(directory, stream, *turn))
                    .and_then(|file| file.take(4 * KEPT_BYTES as u64).read_to_end(&mut bytes));
            }
            (!bytes.is_empty()).then(|| OutputLine {
                at_ms: 0,
                stream,
                tail: text_of(&bytes, is_cut),
            })
        })
        .collect()
}

/// The end of a file that the training wrote by itself.
pub(crate) fn of_file(direct: &mut DirectFile, at_ms: u64) -> Option<OutputLine> {
    let length = direct.file.metadata().ok()?.len();
    let from = direct
        .from
        .min(length)
        .max(length.saturating_sub(KEPT_BYTES as u64));
    direct.file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    (&direct.file)
        .take(KEPT_BYTES as u64)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(OutputLine {
        at_ms,
        stream: direct.stream,
        tail: text_of(&bytes, from > direct.from),
    })
}

/// The end of a stream without its secrets. Where it was cut, it begins with a line: half of a secret is not known as
/// one.
fn text_of(bytes: &[u8], is_cut: bool) -> String {
    let from = bytes.len().saturating_sub(KEPT_BYTES);
    let mut bytes = &bytes[from..];
    if (is_cut || from > 0)
        && let Some(end) = bytes
            .iter()
            .take(MAX_LINE)
            .position(|byte| matches!(byte, b'\n' | b'\r'))
    {
        bytes = &bytes[end + 1..];
    }
    mask_text(&String::from_utf8_lossy(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_long_stream_is_kept_in_memory_and_on_disk() {
        let directory = tempfile::tempdir().unwrap();
        let mut tail = Tail::new(Stream::Both, Some(directory.path()));
        for number in 0..50_000 {
            tail.push(format!("line {number}\n").as_bytes());
            if number % 7 == 0 {
                tail.flush();
            }
        }
        tail.flush();
        assert!(tail.is_on_disk());
        let kept = tail.line(7).tail;
        assert!(kept.ends_with("line 49999\n"));
        assert!(kept.len() <= KEPT_BYTES);
        let left = left_behind(directory.path());
        assert_eq!(left.len(), 1);
        assert!(left[0].tail.ends_with("line 49999\n"));
        tail.remove_files();
        assert!(left_behind(directory.path()).is_empty());
    }

    #[test]
    fn secrets_are_masked_also_where_the_stream_is_cut() {
        let token = format!("hf_{}", "a1b2c3d4e5".repeat(4));
        let directory = tempfile::tempdir().unwrap();
        let mut tail = Tail::new(Stream::Both, Some(directory.path()));
        tail.push(format!("logged in with {token}\n").as_bytes());
        tail.flush();
        assert_eq!(tail.line(0).tail, "logged in with ***\n");
        assert_eq!(
            left_behind(directory.path())[0].tail,
            "logged in with ***\n"
        );
        for n_cut in (0..60).step_by(9) {
            let mut text = format!("logged in with {token}\n");
            text.push_str(&"x\n".repeat((KEPT_BYTES - text.len()) / 2));
            text.push_str(&"y".repeat(n_cut));
            let shown = text_of(text.as_bytes(), false);
            assert!(!shown.contains("a1b2"), "{n_cut}");
        }
    }
}
