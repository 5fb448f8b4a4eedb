//! All tasks of a preparation in threads of this process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use brimful::units::Bytes;
use serde::Serialize;

use crate::error::PrepareError;
use crate::manifest::Manifest;
use crate::map::{self, TaskLimits};
use crate::preparation::Preparation;
use crate::recipe::Recipe;
use crate::shard;

/// Bytes that a thread should have at least. With fewer, fewer threads are faster.
const PER_THREAD: u64 = 48 << 20;
const PAGE: u64 = 4096;

/// How tasks are run.
#[derive(Clone, Copy, Debug)]
pub struct LocalSettings {
    /// All that tasks may hold, without the tokenizer and the program itself.
    pub memory: Bytes,
    /// Nothing for one per processor.
    pub threads: Option<usize>,
}

impl LocalSettings {
    fn n_threads(&self) -> u64 {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let wanted = self.threads.unwrap_or(processors) as u64;
        wanted.min(self.memory.get() / PER_THREAD).max(1)
    }
}

/// A dataset that is prepared.
#[derive(Clone, Debug, Serialize)]
pub struct Prepared {
    pub manifest: Manifest,
    /// The most memory that was seen in this process, without the page cache.
    pub peak_bytes: u64,
    /// Whether it was there before.
    pub was_finished: bool,
}

impl Prepared {
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What is being done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseName {
    #[default]
    Map,
    Shard,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrepareProgress {
    pub phase: PhaseName,
    pub tasks_done: u64,
    pub tasks: u64,
    pub bytes_done: u64,
    pub bytes: u64,
    pub peak_bytes: u64,
}

#[derive(Debug, Default)]
struct Shared {
    is_stopped: AtomicBool,
    peak_bytes: AtomicU64,
    progress: Mutex<PrepareProgress>,
}

impl Shared {
    fn progress(&self, change: impl FnOnce(&mut PrepareProgress)) {
        change(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn look_at_memory(&self) {
        self.peak_bytes.fetch_max(own_bytes(), Ordering::Relaxed);
    }
}

/// Memory of this process that is its own: not that of files.
fn own_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut numbers = text.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
    let resident = numbers.nth(1).unwrap_or(0);
    let of_files = numbers.next().unwrap_or(0);
    resident.saturating_sub(of_files) * PAGE
}

/// A preparation at work in threads. Dropping it stops them; what is finished stays for the next time.
#[derive(Debug)]
pub struct Preparing {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    outcome: Mutex<mpsc::Receiver<Result<Prepared, PrepareError>>>,
}

impl Preparing {
    pub fn start(
        recipe: Recipe,
        out: &Path,
        settings: LocalSettings,
    ) -> Result<Preparing, PrepareError> {
        if settings.threads == Some(0) {
            return Err(PrepareError::Setting {
                name: "threads",
                expected: "at least 1".to_owned(),
                found: "0".to_owned(),
            });
        }
        let shared = Arc::new(Shared::default());
        let (done, outcome) = mpsc::channel();
        let work = {
            let (shared, out) = (Arc::clone(&shared), out.to_owned());
            move || {
                let prepared = catch_unwind(AssertUnwindSafe(|| {
                    prepare(&recipe, &out, settings, &shared)
                }));
                let prepared = prepared.unwrap_or_else(|_| Err(panicked("the preparation")));
                drop(done.send(prepared));
            }
        };
        let thread = std::thread::Builder::new()
            .name("brimful-prepare".to_owned())
            .spawn(work)
            .map_err(|cause| PrepareError::Unwritable {
                path: out.to_owned(),
                cause,
            })?;
        Ok(Preparing {
            shared,
            thread: Some(thread),
            outcome: Mutex::new(outcome),
        })
    }

    pub fn progress(&self) -> PrepareProgress {
        let progress = self.shared.progress.lock();
        PrepareProgress {
            peak_bytes: self.shared.peak_bytes.load(Ordering::Relaxed),
            ..*progress.unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// The dataset; nothing where it is not finished after `timeout`.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Prepared>, PrepareError> {
        self.shared.look_at_memory();
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome.recv_timeout(timeout) {
            Ok(prepared) => prepared.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(PrepareError::Stopped),
        }
    }
}

impl Drop for Preparing {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic was caught and told.
            let _ = thread.join();
        }
    }
}

fn panicked(task: &str) -> PrepareError {
    PrepareError::Panic {
        task: task.to_owned(),
    }
}

fn prepare(
    recipe: &Recipe,
    out: &Path,
    settings: LocalSettings,
    shared: &Shared,
) -> Result<Prepared, PrepareError> {
    let preparation = Preparation::begin(recipe, out)?;
    let is_there = |manifest| Prepared {
        manifest,
        peak_bytes: shared.peak_bytes.load(Ordering::Relaxed),
        was_finished: true,
    };
    if let Some(manifest) = preparation.finished()? {
        preparation.work().remove_leftovers();
        return Ok(is_there(manifest));
    }
    let lock = preparation.lock()?;
    // Somebody may have finished it before the lock was ours.
    if let Some(manifest) = preparation.finished()? {
        return Ok(is_there(manifest));
    }
    preparation.work().remove_attempts();
    let prepared = run_tasks(&preparation, settings, shared);
    drop(lock);
    if prepared.is_err()
        && preparation.work().is_remote()
        && let Ok(Some(manifest)) = preparation.finished()
    {
        // Where there is no lock, somebody else may have finished it and removed the runs.
        preparation.work().remove_leftovers();
        return Ok(is_there(manifest));
    }
    let manifest = prepared?;
    shared.look_at_memory();
    Ok(Prepared {
        manifest,
        peak_bytes: shared.peak_bytes.load(Ordering::Relaxed),
        was_finished: false,
    })
}

/// Runs all tasks that are not finished, and writes the manifest.
fn run_tasks(
    preparation: &Preparation,
    settings: LocalSettings,
    shared: &Shared,
) -> Result<Manifest, PrepareError> {
    let budget = preparation.budget(settings.memory)?;
    let limits = TaskLimits {
        budget: &budget,
        threads: settings.n_threads(),
        is_stopped: &shared.is_stopped,
    };
    let tasks = preparation.map_tasks();
    let bytes = (0..tasks).map(|task| preparation.split_bytes(task)).sum();
    shared.progress(|progress| {
        *progress = PrepareProgress {
            tasks,
            bytes,
            ..PrepareProgress::default()
        };
    });
    each(tasks, limits, shared, |task| {
        map::map_task(preparation, task, limits)?;
        let done = preparation.split_bytes(task);
        shared.progress(|progress| {
            progress.tasks_done += 1;
            progress.bytes_done += done;
        });
        Ok(())
    })?;
    map::tails_task(preparation)?;
    preparation.close_pipeline();
    let runs = preparation.runs()?;
    let samples: u64 = runs.iter().map(|run| run.footer.records()).sum();
    let shards = preparation.shards(&runs)?;
    shared.progress(|progress| {
        *progress = PrepareProgress {
            phase: PhaseName::Shard,
            tasks: shards,
            bytes: samples * preparation.record_bytes() as u64,
            ..PrepareProgress::default()
        };
    });
    let entries = Mutex::new(vec![None; usize::try_from(shards).unwrap_or(usize::MAX)]);
    each(shards, limits, shared, |number| {
        let entry = shard::shard_task(preparation, &runs, number, shards, limits)?;
        shared.progress(|progress| {
            progress.tasks_done += 1;
            progress.bytes_done += entry.bytes;
        });
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        entries.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(entry);
        Ok(())
    })?;
    let entries = entries.into_inner().unwrap_or_else(PoisonError::into_inner);
    preparation.finish(&runs, entries.into_iter().flatten().collect())
}

/// Runs tasks by number in threads; the first error ends all of them.
fn each(
    tasks: u64,
    limits: TaskLimits<'_>,
    shared: &Shared,
    run: impl Fn(u64) -> Result<(), PrepareError> + Sync,
) -> Result<(), PrepareError> {
    let next = AtomicU64::new(0);
    let failed: Mutex<Option<PrepareError>> = Mutex::new(None);
    let work = || {
        while !shared.is_stopped.load(Ordering::Relaxed) {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            let done = catch_unwind(AssertUnwindSafe(|| run(task)));
            let done = done.unwrap_or_else(|_| Err(panicked(&format!("task {task}"))));
            if let Err(error) = done {
                shared.is_stopped.store(true, Ordering::Relaxed);
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                // Those that were stopped by it say nothing new.
                if !matches!(error, PrepareError::Stopped) && failed.is_none() {
                    *failed = Some(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..limits.threads.min(tasks) {
            // One that cannot be started is not missed: this one does all of the work.
            let thread = std::thread::Builder::new().name("brimful-prepare".to_owned());
            let _ = thread.spawn_scoped(scope, work);
        }
        work();
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None if shared.is_stopped.load(Ordering::Relaxed) => Err(PrepareError::Stopped),
        None => Ok(()),
    }
}
