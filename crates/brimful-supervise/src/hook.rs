//! The Python that notes what happens inside a training process.
//!
//! A directory of one attempt holds the Python (`hook/`, first on PYTHONPATH), what it wrote (`events/PID.jsonl`, one
//! [`HookLine`] per line) and the allocator's snapshots of CUDA out-of-memory errors (`snapshots/`). The gauges lie in
//! memory: see [`Staged::gauges`].

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use brimful::env_vars;
use brimful::explain::ErrorFile;
use brimful::record::HookLine;
use brimful::secrets::mask_text;

use crate::gauge::{open_plain, pid_of};

/// The hook's directory, for the hook. Like those below, of no use to anybody else.
const INSIDE: &str = env_vars::BRIMFUL_INSIDE;
/// Where the gauges are.
const GAUGES: &str = env_vars::BRIMFUL_GAUGES;
/// The start of the attempt on the monotonic clock.
const STARTED: &str = env_vars::BRIMFUL_STARTED_NS;
/// `1`: have PyTorch record every allocation.
const TRACE_ALLOCATIONS: &str = env_vars::BRIMFUL_TRACE_ALLOCATIONS;

/// Where torchrun writes what the worker that failed first raised.
const ERROR_FILE: &str = env_vars::TORCHELASTIC_ERROR_FILE;
const MAX_BYTES_OF_ERROR: u64 = 1 << 20;

const DIRECTORY: &str = "inside";

const FILES: &[(&str, &str)] = &[
    ("sitecustomize.py", include_str!("hook/sitecustomize.py")),
    ("brimful_gauge.py", include_str!("hook/brimful_gauge.py")),
    ("brimful_gpu.py", include_str!("hook/brimful_gpu.py")),
    ("brimful_inside.py", include_str!("hook/brimful_inside.py")),
];

/// The hook writes at most 200 lines per process, of a few kilobytes each at most.
const MAX_BYTES_PER_FILE: u64 = 1 << 20;
const MAX_BYTES_PER_LINE: usize = 64 << 10;
const MAX_BYTES_PER_READ: usize = 128 << 10;
const MAX_BYTES_PER_CALL: usize = 1 << 20;
const MAX_FILES: usize = 4096;

/// In memory: the trainer must not wait for a disk or a network when it stores a figure.
const SHARED_MEMORY: &str = "/dev/shm";
const GAUGES_PREFIX: &str = "brimful-gauges-";
/// Locked by the supervisor for as long as it lives.
const LOCK: &str = "lock";

/// The hook's files, laid out for the processes of one attempt. Removed with [`Staged::remove`].
#[derive(Debug)]
pub struct Staged {
    pub directory: PathBuf,
    gauges: PathBuf,
    /// The user's own error file of torchelastic, or one beside the hook's lines.
    error_file: PathBuf,
    made_at: SystemTime,
    /// Says that the gauges in shared memory belong to a living supervisor.
    lock: Option<File>,
    /// How far the files of lines have been read.
    read: BTreeMap<u32, u64>,
}

impl Staged {
    /// Writes the hook's files below `run_directory`. What an earlier attempt left there goes, but for its snapshots.
    pub fn new(run_directory: &Path) -> io::Result<Staged> {
        Staged::new_with(run_directory, Path::new(SHARED_MEMORY))
    }

    fn new_with(run_directory: &Path, shared_memory: &Path) -> io::Result<Staged> {
        let directory = brimful_private::create_directory(&run_directory.join(DIRECTORY))?;
        clear(&directory);
        if directory.as_os_str().as_bytes().contains(&b':') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "PYTHONPATH cannot name a directory with a colon in its path",
            ));
        }
        let directory = brimful_private::create_directory(&directory)?;
        brimful_private::create_directory(&directory.join("snapshots"))?;
        // New ones: what was there before is never run or believed.
        // Python would make its cache by the umask.
        for name in ["hook", "hook/__pycache__", "events"] {
            brimful_private::new_directory(&directory.join(name))?;
        }
        for (name, text) in FILES {
            brimful_private::write_new(&directory.join("hook").join(name), text.as_bytes())?;
        }
        remove_left_behind(shared_memory);
        let (gauges, lock) = if let Ok((gauges, lock)) = gauges_in_memory(shared_memory) {
            (gauges, Some(lock))
        } else {
            let gauges = directory.join("gauges");
            brimful_private::new_directory(&gauges)?;
            (gauges, None)
        };
        let own = std::env::var_os(ERROR_FILE).filter(|own| !own.is_empty());
        Ok(Staged {
            error_file: own.map_or_else(|| directory.join("events/error.json"), PathBuf::from),
            made_at: SystemTime::now(),
            directory,
            gauges,
            lock,
            read: BTreeMap::new(),
        })
    }

    /// Variables to set for the training so that its Python finds the hook. `python_path` is its PYTHONPATH so far;
    /// `started_monotonic_ns` the start of the attempt on the monotonic clock.
    pub fn environment(
        &self,
        python_path: Option<&OsStr>,
        started_monotonic_ns: u64,
        trace_allocations: bool,
    ) -> Vec<(OsString, OsString)> {
        let mut path = self.directory.join("hook").into_os_string();
        if let Some(own) = python_path.filter(|own| !own.is_empty()) {
            path.push(":");
            path.push(own);
        }
        let trace_allocations = if trace_allocations { "1" } else { "0" };
        vec![
            (env_vars::PYTHONPATH.into(), path),
            (INSIDE.into(), self.directory.clone().into()),
            (GAUGES.into(), self.gauges.clone().into()),
            (STARTED.into(), started_monotonic_ns.to_string().into()),
            (TRACE_ALLOCATIONS.into(), trace_allocations.into()),
            (ERROR_FILE.into(), self.error_file.clone().into()),
        ]
    }

    /// What torchelastic has written about the worker that failed first, as the hook would say it.
    pub fn error_file(&self, at_ms: u64) -> Option<HookLine> {
        let file = open_plain(&self.error_file)?;
        let written = file.metadata().ok()?.modified().ok()?;
        if written < self.made_at {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES_OF_ERROR).read_to_end(&mut bytes).ok()?;
        let error = ErrorFile::parse(&bytes)?;
        Some(HookLine::Exception {
            at_ms,
            pid: 0,
            type_name: error.type_name,
            message: mask_text(&error.message),
        })
    }

    /// What the hooks have noticed since the last call, oldest first. Bounded per call: what is left comes with the
    /// next one. Snapshots are named relative to the run's directory.
    pub fn new_lines(&mut self) -> Vec<HookLine> {
        let mut lines = Vec::new();
        let mut budget = MAX_BYTES_PER_CALL;
        for pid in self.writers() {
            let path = self.directory.join("events").join(format!("{pid}.jsonl"));
            let so_far = self.read.get(&pid).copied().unwrap_or(0);
            let Some(bytes) = read_lines(&path, so_far, budget.min(MAX_BYTES_PER_READ)) else {
                continue;
            };
            budget -= bytes.len();
            self.read.insert(pid, so_far + bytes.len() as u64);
            lines.extend(
                bytes
                    .split(|byte| *byte == b'\n')
                    .filter_map(|line| parse(line, pid)),
            );
        }
        lines.sort_by_key(at_ms);
        lines
    }

    /// Processes that have written lines.
    fn writers(&self) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir(self.directory.join("events")) else {
            return Vec::new();
        };
        let mut pids: Vec<u32> = entries
            .flatten()
            .take(MAX_FILES)
            .filter_map(|entry| pid_of(entry.file_name().to_str()?.strip_suffix(".jsonl")?))
            .collect();
        // Those that had their turn come last when a call is too small for all.
        pids.sort_by_key(|pid| (self.read.get(pid).copied().unwrap_or(0), *pid));
        pids
    }

    /// Where the gauges are: in `/dev/shm` where that can be, since a page of a file on a disk or a network may have to
    /// wait for it, and on a full one may even end the process that touches it; else in the directory.
    pub fn gauges(&self) -> PathBuf {
        self.gauges.clone()
    }

    /// Removes everything but the snapshots.
    pub fn remove(self) {
        clear(&self.directory);
    }
}

/// Shared memory is given back however the attempt ends.
impl Drop for Staged {
    fn drop(&mut self) {
        if self.lock.is_some() {
            let _ = std::fs::remove_dir_all(&self.gauges);
        }
    }
}

/// Removes the hook's files of an attempt, and what is empty then.
fn clear(directory: &Path) {
    for name in ["hook", "events", "gauges"] {
        let _ = std::fs::remove_dir_all(directory.join(name));
    }
    let _ = std::fs::remove_dir(directory.join("snapshots"));
    let _ = std::fs::remove_dir(directory);
}

/// A new directory in shared memory and the lock that says whose it is.
fn gauges_in_memory(shared_memory: &Path) -> io::Result<(PathBuf, File)> {
    let directory = brimful_private::temporary_directory(&[shared_memory], GAUGES_PREFIX)?;
    let unready = directory.path().join("lock.new");
    let lock = brimful_private::create_new(&unready)?;
    lock.lock()?;
    std::fs::rename(unready, directory.path().join(LOCK))?;
    Ok((directory.keep(), lock))
}

/// Removes gauges whose supervisor was killed: nobody holds their lock. Process ids would not tell, since containers
/// may share `/dev/shm` and not those.
fn remove_left_behind(shared_memory: &Path) {
    let Ok(entries) = std::fs::read_dir(shared_memory) else {
        return;
    };
    let user = rustix::process::geteuid().as_raw();
    for entry in entries.flatten().take(MAX_FILES) {
        let name = entry.file_name();
        let is_gauges = name
            .to_str()
            .is_some_and(|name| name.starts_with(GAUGES_PREFIX));
        let is_our_directory = entry
            .metadata()
            .is_ok_and(|facts| facts.is_dir() && facts.uid() == user);
        if !is_gauges || !is_our_directory {
            continue;
        }
        // Without a lock it is being made right now.
        let lock = open_plain(&entry.path().join(LOCK));
        if lock.is_some_and(|lock| lock.try_lock().is_ok()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The whole lines from `start` on, at most `most` bytes. A line that is not finished waits; one that is longer than
/// any of ours is skipped.
fn read_lines(path: &Path, start: u64, most: usize) -> Option<Vec<u8>> {
    if start >= MAX_BYTES_PER_FILE || most == 0 {
        return None;
    }
    let mut file = open_plain(path)?;
    file.seek(SeekFrom::Start(start)).ok()?;
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes).ok()?;
    match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => bytes.truncate(end + 1),
        None if bytes.len() >= MAX_BYTES_PER_LINE => {}
        None => return None,
    }
    Some(bytes)
}

/// One line of process `pid`. What cannot be ours is nothing.
fn parse(line: &[u8], pid: u32) -> Option<HookLine> {
    if line.is_empty() || line.len() > MAX_BYTES_PER_LINE {
        return None;
    }
    let mut line: HookLine = serde_json::from_slice(line).ok()?;
    let written_by = match &line {
        HookLine::Torch { pid, .. } | HookLine::Exception { pid, .. } => *pid,
        HookLine::Loader(loader) => loader.pid,
        HookLine::CudaOom(proof) => proof.pid,
    };
    if let HookLine::Exception { message, .. } = &mut line {
        *message = mask_text(message);
    }
    if let HookLine::CudaOom(proof) = &mut line {
        proof.message = mask_text(&proof.message);
        proof.snapshot = proof
            .snapshot
            .take()
            .filter(|name| is_snapshot(name, pid))
            .map(|name| format!("{DIRECTORY}/{name}"));
    }
    (written_by == pid).then_some(line)
}

/// Whether a snapshot has the name that the hook gives it. Others may lead anywhere.
fn is_snapshot(name: &str, pid: u32) -> bool {
    (1..=3).any(|number| name == format!("snapshots/oom-{pid}-{number}.pickle"))
}

fn at_ms(line: &HookLine) -> u64 {
    match line {
        HookLine::Torch { at_ms, .. } | HookLine::Exception { at_ms, .. } => *at_ms,
        HookLine::Loader(loader) => loader.at_ms,
        HookLine::CudaOom(proof) => proof.at_ms,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    struct Setup {
        root: tempfile::TempDir,
        staged: Staged,
    }

    fn setup() -> Setup {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("shm")).unwrap();
        let staged = Staged::new_with(&root.path().join("run"), &root.path().join("shm")).unwrap();
        Setup { root, staged }
    }

    impl Setup {
        fn write(&self, name: &str, text: &str) {
            use std::io::Write;
            let path = self.staged.directory.join("events").join(name);
            let mut file = File::options()
                .create(true)
                .append(true)
                .open(path)
                .unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        fn in_memory(&self) -> usize {
            self.root.path().join("shm").read_dir().unwrap().count()
        }
    }

    fn torch(pid: u32, at_ms: u64) -> String {
        format!("{{\"kind\":\"torch\",\"at_ms\":{at_ms},\"pid\":{pid},\"version\":\"2.13.0\"}}\n")
    }

    fn times(lines: &[HookLine]) -> Vec<u64> {
        lines.iter().map(at_ms).collect()
    }

    #[test]
    fn the_hook_comes_first_and_the_own_path_stays() {
        let Setup {
            staged,
            root: _root,
        } = setup();
        let variable = |own: Option<&str>, name: &str| {
            let all = staged.environment(own.map(OsStr::new), 17, true);
            let found = all.into_iter().find(|(key, _)| key == name);
            found.unwrap().1.into_string().unwrap()
        };
        let hook = staged.directory.join("hook").display().to_string();
        assert_eq!(variable(None, "PYTHONPATH"), hook);
        assert_eq!(variable(Some(""), "PYTHONPATH"), hook);
        assert_eq!(variable(Some("a:b"), "PYTHONPATH"), format!("{hook}:a:b"));
        assert_eq!(variable(None, STARTED), "17");
        assert_eq!(variable(None, TRACE_ALLOCATIONS), "1");
        assert_eq!(Path::new(&variable(None, GAUGES)), staged.gauges());
        assert!(Path::new(&hook).join("sitecustomize.py").is_file());
    }

    #[test]
    fn a_path_that_pythonpath_cannot_name_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let error = Staged::new(&root.path().join("a:b")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn lines_come_once_and_in_the_order_of_time() {
        let mut setup = setup();
        setup.write("7.jsonl", &(torch(7, 50) + &torch(7, 70)));
        setup.write("8.jsonl", &torch(8, 60));
        assert_eq!(times(&setup.staged.new_lines()), [50, 60, 70]);
        assert_eq!(setup.staged.new_lines(), []);
        setup.write("7.jsonl", &torch(7, 80));
        assert_eq!(times(&setup.staged.new_lines()), [80]);
    }

    #[test]
    fn a_line_that_is_not_finished_waits() {
        let mut setup = setup();
        let line = torch(7, 1);
        let (begin, end) = line.split_at(20);
        setup.write("7.jsonl", begin);
        assert_eq!(setup.staged.new_lines(), []);
        setup.write("7.jsonl", end);
        assert_eq!(times(&setup.staged.new_lines()), [1]);
    }

    #[test]
    fn what_is_not_ours_is_passed_over() {
        let mut setup = setup();
        let deep = "[".repeat(5000);
        for line in [
            "{}",
            "null",
            "\u{0}\u{1}",
            &torch(8, 1),
            "{\"kind\":\"new\"}",
            &deep,
        ] {
            setup.write("7.jsonl", line.trim_end());
            setup.write("7.jsonl", "\n");
        }
        setup.write("7.jsonl", &torch(7, 5));
        setup.write("x.jsonl", &torch(7, 6));
        setup.write("07.jsonl", &torch(7, 6));
        let events = setup.staged.directory.join("events");
        std::fs::write(setup.root.path().join("secret"), torch(9, 7)).unwrap();
        symlink(setup.root.path().join("secret"), events.join("9.jsonl")).unwrap();
        std::fs::create_dir(events.join("10.jsonl")).unwrap();
        assert_eq!(times(&setup.staged.new_lines()), [5]);
    }

    #[test]
    fn a_flood_is_read_in_parts_and_no_further_than_a_megabyte() {
        let mut setup = setup();
        setup.write("7.jsonl", &torch(7, 1).repeat(40_000));
        setup.write("8.jsonl", &"x".repeat(300_000));
        setup.write("8.jsonl", &format!("\n{}", torch(8, 2)));
        let (mut of_7, mut of_8, mut calls) = (0, 0, 0);
        loop {
            let lines = setup.staged.new_lines();
            if lines.is_empty() && calls > 3 {
                break;
            }
            calls += 1;
            of_7 += times(&lines).iter().filter(|at| **at == 1).count();
            of_8 += times(&lines).iter().filter(|at| **at == 2).count();
            let most = MAX_BYTES_PER_CALL / torch(7, 1).len();
            assert!(lines.len() <= most);
        }
        assert_eq!(of_8, 1, "a line that is too long is skipped");
        assert!(calls >= 8);
        let megabyte = usize::try_from(MAX_BYTES_PER_FILE).unwrap() / torch(7, 1).len();
        assert!((megabyte..megabyte + 2500).contains(&of_7));
    }

    #[test]
    fn a_snapshot_is_named_from_the_run_on_and_leads_nowhere_else() {
        let oom = |name: &str| {
            let line = format!("{{\"kind\":\"cuda_oom\",\"pid\":7,\"snapshot\":\"{name}\"}}");
            match parse(line.as_bytes(), 7) {
                Some(HookLine::CudaOom(proof)) => proof.snapshot,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            oom("snapshots/oom-7-1.pickle").as_deref(),
            Some("inside/snapshots/oom-7-1.pickle")
        );
        for name in [
            "../x",
            "/etc/passwd",
            "snapshots/oom-8-1.pickle",
            "snapshots/oom-7-4.pickle",
            "",
        ] {
            assert_eq!(oom(name), None);
        }
    }

    #[test]
    fn the_snapshots_stay_and_the_rest_goes() {
        let setup = setup();
        let directory = setup.staged.directory.clone();
        let snapshot = directory.join("snapshots/oom-7-1.pickle");
        std::fs::write(&snapshot, "").unwrap();
        assert_eq!(setup.in_memory(), 1);
        let Setup { root, staged } = setup;
        staged.remove();
        assert!(snapshot.is_file());
        assert_eq!(directory.read_dir().unwrap().count(), 1);
        assert_eq!(root.path().join("shm").read_dir().unwrap().count(), 0);

        let shm = root.path().join("shm");
        let again = Staged::new_with(&root.path().join("run"), &shm).unwrap();
        assert!(snapshot.is_file(), "the next attempt keeps it too");
        std::fs::remove_file(&snapshot).unwrap();
        again.remove();
        assert!(
            !directory.exists(),
            "nothing is left where there is no snapshot"
        );
    }

    #[test]
    fn gauges_of_the_dead_go_and_those_of_the_living_stay() {
        let setup = setup();
        let shm = setup.root.path().join("shm");
        let dead = shm.join("brimful-gauges-1-1");
        std::fs::create_dir(&dead).unwrap();
        std::fs::write(dead.join(LOCK), "").unwrap();
        std::fs::create_dir(shm.join("brimful-gauges-2-2")).unwrap();
        std::fs::create_dir(shm.join("of somebody else")).unwrap();
        let other = Staged::new_with(&setup.root.path().join("other"), &shm).unwrap();
        assert!(!dead.exists());
        assert!(setup.staged.gauges().exists());
        assert_eq!(setup.in_memory(), 4);
        let mode = other.gauges().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn without_shared_memory_the_gauges_lie_in_the_directory() {
        let root = tempfile::tempdir().unwrap();
        let staged = Staged::new_with(root.path(), &root.path().join("missing")).unwrap();
        assert_eq!(staged.gauges(), staged.directory.join("gauges"));
        assert!(staged.gauges().is_dir());
    }
}
