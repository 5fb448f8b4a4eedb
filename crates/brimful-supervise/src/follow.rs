//! Reads a run record while it is being written.
//!
//! Takes no lock and keeps only the last, unfinished line: it reads what was appended since the last time. The writer
//! shortens a long record by renaming a new file over it (`recorder.rs`); the reader then starts over with the new file,
//! which holds everything that is left of the old one.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use brimful::record::{Line, MAX_BYTES, MAX_LINE_BYTES};

use crate::state::StoredRun;

const CHUNK_BYTES: usize = 64 << 10;

/// Follows one run record.
#[derive(Debug)]
pub struct RecordFollower {
    path: PathBuf,
    open: fn(&Path) -> io::Result<File>,
    file: Option<File>,
    /// Bytes of the file that were read.
    offset: u64,
    /// The beginning of a line whose end was not written yet.
    unfinished: Vec<u8>,
    /// Inside a line that is too long to be ours.
    is_skipping: bool,
}

/// What was found in the record.
#[derive(Debug)]
pub enum Followed {
    /// The record starts from its beginning: forget the lines so far.
    Restarted,
    Line(Box<Line>),
}

impl RecordFollower {
    /// The record of a stored run.
    pub fn of_run(run: &StoredRun) -> RecordFollower {
        RecordFollower::new(run.record_path(), brimful_private::open)
    }

    /// A record that the user named.
    pub fn of_file(path: &Path) -> RecordFollower {
        RecordFollower::new(path.to_owned(), brimful_private::open_named)
    }

    fn new(path: PathBuf, open: fn(&Path) -> io::Result<File>) -> RecordFollower {
        RecordFollower {
            path,
            open,
            file: None,
            offset: 0,
            unfinished: Vec::new(),
            is_skipping: false,
        }
    }

    /// Reads what is new and passes it on. Returns whether there was something new.
    ///
    /// A record that was removed is not an error if it was open before: nothing is new in it.
    pub fn poll(&mut self, mut take: impl FnMut(Followed)) -> io::Result<bool> {
        let is_new_file = self.open_if_replaced()?;
        let Some(file) = &self.file else {
            return Ok(false);
        };
        let length = file.metadata()?.len().min(MAX_BYTES);
        if is_new_file || length < self.offset {
            self.offset = 0;
            self.unfinished = Vec::new();
            self.is_skipping = false;
            take(Followed::Restarted);
        } else if length == self.offset {
            return Ok(false);
        }
        let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(length).unwrap_or(CHUNK_BYTES))];
        while self.offset < length {
            let n_read = match file.read_at(&mut chunk, self.offset) {
                Ok(0) => break,
                Ok(n_read) => n_read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.offset += n_read as u64;
            for part in chunk[..n_read].split_inclusive(|byte| *byte == b'\n') {
                if let Some(line) = next_line(&mut self.unfinished, &mut self.is_skipping, part) {
                    take(Followed::Line(Box::new(line)));
                }
            }
        }
        Ok(true)
    }

    /// Opens the file if it is not open, or if another one has taken its place.
    fn open_if_replaced(&mut self) -> io::Result<bool> {
        if let Some(file) = &self.file {
            let ours = file.metadata()?;
            match std::fs::metadata(&self.path) {
                Ok(found) if (found.dev(), found.ino()) != (ours.dev(), ours.ino()) => {}
                _ => return Ok(false),
            }
        }
        match (self.open)(&self.path) {
            Ok(file) => {
                self.file = Some(file);
                Ok(true)
            }
            // Removed since it was found; what is open stays readable.
            Err(_) if self.file.is_some() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Adds a part of a line that may be its end; returns the line if it is complete and one of ours.
fn next_line(unfinished: &mut Vec<u8>, is_skipping: &mut bool, part: &[u8]) -> Option<Line> {
    let is_end = part.ends_with(b"\n");
    if *is_skipping {
        *is_skipping = !is_end;
        return None;
    }
    if (unfinished.len() + part.len()) as u64 > MAX_LINE_BYTES {
        *unfinished = Vec::new();
        *is_skipping = !is_end;
        return None;
    }
    if !is_end {
        unfinished.extend_from_slice(part);
        return None;
    }
    if unfinished.is_empty() {
        return Line::from_json(part);
    }
    let mut whole = std::mem::take(unfinished);
    whole.extend_from_slice(part);
    Line::from_json(&whole)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use brimful::record::{AttemptLine, GapLine, RunLine};
    use brimful::units::Bytes;
    use brimful::watch::{Gauge, HostSample, Sample};

    use super::*;
    use crate::recorder::Recorder;

    struct Reader {
        follower: RecordFollower,
        seen: Vec<Line>,
        n_restarts: usize,
    }

    impl Reader {
        fn of(path: &Path) -> Reader {
            Reader {
                follower: RecordFollower::of_file(path),
                seen: Vec::new(),
                n_restarts: 0,
            }
        }

        fn poll(&mut self) -> bool {
            let (seen, n_restarts) = (&mut self.seen, &mut self.n_restarts);
            self.follower
                .poll(|followed| match followed {
                    Followed::Restarted => {
                        seen.clear();
                        *n_restarts += 1;
                    }
                    Followed::Line(line) => seen.push(*line),
                })
                .unwrap()
        }

        fn messages(&self) -> Vec<&str> {
            let message = |line| match line {
                &Line::Gap(GapLine { ref message, .. }) => Some(message.as_str()),
                _ => None,
            };
            self.seen.iter().filter_map(message).collect()
        }
    }

    fn gap(message: &str) -> String {
        Line::Gap(GapLine {
            at_ms: 0,
            message: message.into(),
        })
        .to_json()
    }

    fn append(path: &Path, text: &str) {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn lines_are_passed_on_once_they_are_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.jsonl");
        std::fs::write(&path, gap("a")).unwrap();
        let mut reader = Reader::of(&path);
        assert!(reader.poll());
        assert!(!reader.poll());
        let line = gap("ü");
        for byte in line.as_bytes() {
            assert_eq!(reader.messages(), ["a"]);
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(&[*byte]).unwrap();
            assert!(reader.poll());
        }
        assert_eq!(reader.messages(), ["a", "ü"]);
        // A writer that was killed in the middle of a line, and what was added after that.
        append(&path, "{\"line\":\"ga");
        reader.poll();
        append(&path, &format!("\n{}", gap("b")));
        reader.poll();
        assert_eq!(reader.messages(), ["a", "ü", "b"]);
        assert_eq!(reader.n_restarts, 1);
    }

    #[test]
    fn a_record_that_was_shortened_in_place_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.jsonl");
        std::fs::write(&path, gap("a") + &gap("b")).unwrap();
        let mut reader = Reader::of(&path);
        reader.poll();
        std::fs::write(&path, gap("c")).unwrap();
        assert!(reader.poll());
        assert_eq!(reader.messages(), ["c"]);
        assert_eq!(reader.n_restarts, 2);
    }

    #[test]
    fn a_record_that_was_replaced_is_read_again_and_one_that_was_removed_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.jsonl");
        std::fs::write(&path, gap("a")).unwrap();
        let mut reader = Reader::of(&path);
        reader.poll();
        let new = directory.path().join("new");
        std::fs::write(&new, gap("a") + &gap("b")).unwrap();
        std::fs::rename(&new, &path).unwrap();
        assert!(reader.poll());
        assert_eq!(reader.messages(), ["a", "b"]);
        std::fs::remove_file(&path).unwrap();
        assert!(!reader.poll());
        assert_eq!(reader.messages(), ["a", "b"]);
        assert!(
            RecordFollower::of_file(&path)
                .poll(|_| {})
                .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        );
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over_and_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.jsonl");
        std::fs::write(&path, "x".repeat(3 << 20)).unwrap();
        let mut reader = Reader::of(&path);
        reader.poll();
        assert!(reader.follower.unfinished.capacity() <= 2 << 20);
        append(&path, &format!("\n{}", gap("a")));
        reader.poll();
        assert_eq!(reader.messages(), ["a"]);
    }

    #[test]
    fn the_writer_shortens_its_record_while_it_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::create(directory.path());
        recorder.write(&Line::Run(RunLine::default()));
        recorder.write(&Line::Attempt(AttemptLine::default()));
        let mut reader = Reader::of(&directory.path().join("record.jsonl"));
        let peak = Bytes(1 << 40);
        for second in 0..30_000_u64 {
            let used = if second == 1_234 { peak } else { Bytes(second) };
            recorder.write(&Line::Sample(Sample {
                at_ms: second * 1000,
                host: Some(HostSample {
                    used,
                    limit: Bytes(1 << 41),
                    ..HostSample::default()
                }),
                gauges: vec![Gauge::default()],
                ..Sample::default()
            }));
            if second % 500 == 0 {
                reader.poll();
            }
        }
        reader.poll();
        assert!(reader.n_restarts >= 2, "{}", reader.n_restarts);
        let samples: Vec<&Sample> = reader
            .seen
            .iter()
            .filter_map(|line| match line {
                Line::Sample(sample) => Some(sample),
                _ => None,
            })
            .collect();
        assert!(samples.is_sorted_by_key(|sample| sample.at_ms));
        assert_eq!(samples.last().unwrap().at_ms, 29_999_000);
        assert!(
            samples
                .iter()
                .any(|sample| sample.host.unwrap().used == peak)
        );
        assert!(matches!(reader.seen[0], Line::Run(_)));
    }
}
