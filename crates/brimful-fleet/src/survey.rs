//! Reading all files of a directory or of an object store, and counting them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use brimful::fleet::{AttemptRow, Fleet, Tally};
use brimful_load::remote::{Bucket, is_remote};

use crate::error::FleetError;
use crate::read::{Columns, MAX_FILE, read_rows};
use crate::write::EXTENSION;

/// Directories below the one that was named: days or users, for example.
const MAX_DEPTH: usize = 4;
/// Files in all. Their names are held in memory.
const MAX_FILES: usize = 2_000_000;
/// Rows on their way from the readers to the tally.
const IN_FLIGHT: usize = 4096;
/// Requests at once to an object store.
const REQUESTS: usize = 16;
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// How records are read.
#[derive(Clone, Debug, Default)]
pub struct SurveySettings {
    /// Threads that read; one for each CPU by default.
    pub n_threads: Option<usize>,
}

/// What is in a directory of records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    pub fleet: Fleet,
    /// Files with the ending of Parquet.
    pub n_files: u64,
    /// Files that are not whole, or no records. Their rows are not counted.
    pub n_skipped: u64,
    /// Why, for the first of them by name.
    pub first_skipped: Option<(PathBuf, String)>,
    /// Files beyond the number that is read.
    pub n_left_out: u64,
}

/// How far a survey is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurveyProgress {
    pub n_read: usize,
    pub n_files: usize,
}

/// A file, after it was read.
struct FileRows {
    idx: usize,
    rows: Vec<AttemptRow>,
    error: Option<String>,
    is_last: bool,
}

/// Reads every record below a directory or a URL. `report` is called now and then, and ends the work by returning false.
pub fn survey(
    at: &Path,
    settings: &SurveySettings,
    report: &mut dyn FnMut(SurveyProgress) -> bool,
) -> Result<Survey, FleetError> {
    let files = Files::list(at)?;
    let n_files = files.paths.len();
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let n_threads = match (&files.bucket, settings.n_threads) {
        (_, Some(n_threads)) => n_threads.max(1),
        (Some(_), None) => REQUESTS,
        (None, None) => cpus,
    };
    let mut survey = Survey {
        n_files: n_files as u64,
        n_left_out: files.n_left_out,
        ..Survey::default()
    };
    let mut tally = Tally::default();
    let next = AtomicUsize::new(0);
    let is_stopped = AtomicBool::new(false);
    let (sender, receiver) = sync_channel::<FileRows>(IN_FLIGHT / 64);
    let mut first_skipped: Option<(usize, String)> = None;
    thread::scope(|scope| {
        for _ in 0..n_threads.min(n_files.max(1)) {
            let (sender, files, next, is_stopped) = (sender.clone(), &files, &next, &is_stopped);
            scope.spawn(move || files.read_some(next, is_stopped, &sender));
        }
        drop(sender);
        let mut n_read = 0;
        let mut reported = Instant::now();
        for file in receiver {
            for row in &file.rows {
                tally.add(row);
            }
            n_read += usize::from(file.is_last);
            if let Some(why) = file.error {
                survey.n_skipped += 1;
                if first_skipped
                    .as_ref()
                    .is_none_or(|(idx, _)| file.idx < *idx)
                {
                    first_skipped = Some((file.idx, why));
                }
            }
            if reported.elapsed() >= REPORT_EVERY && !is_stopped.load(Ordering::Relaxed) {
                reported = Instant::now();
                if !report(SurveyProgress { n_read, n_files }) {
                    is_stopped.store(true, Ordering::Relaxed);
                }
            }
        }
    });
    if is_stopped.load(Ordering::Relaxed) {
        return Err(FleetError::Interrupted);
    }
    survey.fleet = tally.finish();
    survey.first_skipped =
        first_skipped.and_then(|(idx, why)| Some((files.paths.get(idx)?.clone(), why)));
    Ok(survey)
}

/// The files of a survey, by name.
struct Files {
    paths: Vec<PathBuf>,
    bucket: Option<Bucket>,
    n_left_out: u64,
}

impl Files {
    fn list(at: &Path) -> Result<Files, FleetError> {
        let failed = |source| FleetError::unreadable(at, source);
        let is_record = |path: &Path| {
            let is_hidden = path
                .file_name()
                .and_then(OsStr::to_str)
                .is_none_or(|name| name.starts_with('.'));
            !is_hidden && path.extension().is_some_and(|found| found == EXTENSION)
        };
        let (mut paths, bucket) = if is_remote(at) {
            let bucket = Bucket::of(at).map_err(failed)?;
            let objects = bucket.list(at).map_err(failed)?;
            let paths = objects.into_iter().map(|(path, _)| path).collect();
            (paths, Some(bucket))
        } else {
            if fs::metadata(at).map_err(failed)?.is_file() {
                return Err(FleetError::NotADirectory {
                    path: at.to_owned(),
                });
            }
            let mut paths = Vec::new();
            list_directory(at, 0, &mut paths).map_err(failed)?;
            (paths, None)
        };
        paths.retain(|path: &PathBuf| is_record(path));
        paths.sort();
        let n_left_out = paths.len().saturating_sub(MAX_FILES) as u64;
        paths.truncate(MAX_FILES);
        Ok(Files {
            paths,
            bucket,
            n_left_out,
        })
    }

    /// Reads one file after the other until there is none left.
    fn read_some(
        &self,
        next: &AtomicUsize,
        is_stopped: &AtomicBool,
        sender: &SyncSender<FileRows>,
    ) {
        while !is_stopped.load(Ordering::Relaxed) {
            let idx = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = self.paths.get(idx) else {
                return;
            };
            let mut rows = Vec::new();
            let mut n_sent = 0;
            let read = self.bytes(path).map_err(|error| error.to_string());
            let read = read.and_then(|bytes| {
                let mut take = |row| {
                    rows.push(row);
                    // Of a file of many runs; one with an error further on is counted up to there.
                    if rows.len() >= IN_FLIGHT {
                        n_sent += 1;
                        let part = FileRows {
                            idx,
                            rows: std::mem::take(&mut rows),
                            error: None,
                            is_last: false,
                        };
                        let _ = sender.send(part);
                    }
                };
                read_rows(path, bytes, Columns::Counted, &mut take)
                    .map_err(|error| error.to_string())
            });
            if read.is_err() && n_sent == 0 {
                rows.clear();
            }
            let file = FileRows {
                idx,
                rows,
                error: read.err(),
                is_last: true,
            };
            if sender.send(file).is_err() {
                return;
            }
        }
    }

    fn bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        let too_long = || io::Error::other(format!("more than {MAX_FILE} bytes"));
        if let Some(bucket) = &self.bucket {
            let found = bucket.read(path, MAX_FILE)?;
            return found.ok_or_else(|| io::ErrorKind::NotFound.into());
        }
        // To open a pipe would wait for its writer.
        let metadata = fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let file = File::open(path)?;
        if metadata.len() > MAX_FILE {
            return Err(too_long());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len() + 1).unwrap_or(0));
        file.take(MAX_FILE).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Adds the files below a directory, but not those behind links to directories.
fn list_directory(directory: &Path, depth: usize, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            // One that cannot be read is another user's.
            if depth < MAX_DEPTH {
                let _ = list_directory(&entry.path(), depth + 1, paths);
            }
        } else if kind.is_file() || kind.is_symlink() {
            paths.push(entry.path());
        }
        if paths.len() > 2 * MAX_FILES {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use brimful::fleet::SCHEMA_VERSION;
    use proptest::prelude::*;

    use super::*;
    use crate::write::write_rows;

    fn row(run: usize) -> AttemptRow {
        AttemptRow {
            schema_version: SCHEMA_VERSION,
            run: format!("run-{run}"),
            host_name: "node".into(),
            job: Some(format!("job-{}", run % 3)),
            attempt: 1,
            is_last: true,
            seconds: 60.0,
            outcome: "failed".into(),
            cause: Some("host_oom_kill".into()),
            is_memory: true,
            ..AttemptRow::default()
        }
    }

    fn found(directory: &Path) -> Survey {
        survey(directory, &SurveySettings::default(), &mut |_| true).unwrap()
    }

    #[test]
    fn torn_and_foreign_files_are_counted_and_named() {
        let directory = tempfile::tempdir().unwrap();
        for run in 0..20 {
            write_rows(
                &[row(run)],
                &directory.path().join(format!("day-{}", run % 2)),
            )
            .unwrap();
        }
        let torn = write_rows(&[row(99)], directory.path()).unwrap();
        let whole = fs::read(&torn).unwrap();
        fs::write(&torn, &whole[..whole.len() / 2]).unwrap();
        fs::write(directory.path().join("a.parquet"), "PAR1").unwrap();
        fs::write(directory.path().join(".part.parquet"), "half").unwrap();
        fs::write(directory.path().join("notes.txt"), "").unwrap();
        fs::create_dir(directory.path().join("b.parquet")).unwrap();
        let found = found(directory.path());
        assert_eq!((found.n_files, found.n_skipped), (22, 2));
        assert_eq!(found.fleet.n_died_of_memory, 20);
        let (path, _) = found.first_skipped.unwrap();
        assert_eq!(path, directory.path().join("a.parquet"));
        assert_eq!(found.fleet.jobs.len(), 3);
    }

    #[test]
    fn newer_rows_are_counted_and_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let newer = AttemptRow {
            schema_version: SCHEMA_VERSION + 1,
            ..row(1)
        };
        write_rows(&[newer], directory.path()).unwrap();
        write_rows(&[row(2)], directory.path()).unwrap();
        let fleet = found(directory.path()).fleet;
        assert_eq!((fleet.n_newer_rows, fleet.n_attempts), (1, 1));
    }

    #[test]
    fn a_file_of_many_runs_is_read_in_parts() {
        let directory = tempfile::tempdir().unwrap();
        let rows: Vec<AttemptRow> = (0..10_000).map(row).collect();
        write_rows(&rows, directory.path()).unwrap();
        assert_eq!(found(directory.path()).fleet.n_runs, 10_000);
    }

    #[test]
    fn what_is_no_directory_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let settings = SurveySettings::default();
        let missing = survey(&directory.path().join("x"), &settings, &mut |_| true);
        assert!(matches!(missing, Err(FleetError::Unreadable { .. })));
        let file = write_rows(&[row(1)], directory.path()).unwrap();
        let file = survey(&file, &settings, &mut |_| true);
        assert!(matches!(file, Err(FleetError::NotADirectory { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn no_damage_makes_a_reader_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
            static WHOLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
            let whole = WHOLE.get_or_init(|| {
                let directory = tempfile::tempdir().unwrap();
                fs::read(write_rows(&[row(1), row(2)], directory.path()).unwrap()).unwrap()
            });
            let mut damaged = whole.clone();
            let at = at.index(damaged.len());
            damaged[at] = byte;
            let mut n_rows = 0;
            let _ = read_rows(Path::new("x"), damaged, Columns::Counted, &mut |_| n_rows += 1);
            prop_assert!(n_rows <= 2);
            let mut cut_off = whole.clone();
            cut_off.truncate(cut.index(whole.len()));
            let read = read_rows(Path::new("x"), cut_off, Columns::Counted, &mut |_| n_rows += 1);
            prop_assert!(read.is_err());
        }
    }
}
