//! Private directories that take what commands write, inside a budget of disk space.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PREFIX: &str = "brimful-scratch-";
const LOCK: &str = "lock";
/// The part of the free space that commands may fill where nobody says otherwise.
const DEFAULT_PART: u64 = 10;
/// Counting the bytes may take a twentieth of the time.
const COUNTING_PART: u32 = 20;

/// A private directory on disk, removed at the end.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
    /// Held while the directory is in use, so that nobody takes it for one that was left behind.
    _lock: File,
    budget: u64,
    free_at_start: u64,
    n_commands: AtomicUsize,
}

/// The command has written more than it may.
#[derive(Debug, thiserror::Error)]
#[error(
    "the script has written {used} bytes, more than the {budget} that scratch may hold; the largest file is `{}` with \
     {largest_bytes} bytes",
    largest.display()
)]
pub struct ScratchFull {
    pub used: u64,
    pub budget: u64,
    /// As the command names it.
    pub largest: PathBuf,
    pub largest_bytes: u64,
}

impl Scratch {
    /// Creates one, in the first of `parents` that lies on a disk, and removes those that killed processes have left.
    ///
    /// The paths end in a variable of the dynamic loader, which is cut at colons and blanks, and in options of mounts.
    pub fn create(parents: &[PathBuf], budget: Option<u64>) -> io::Result<Scratch> {
        let mut failed = io::Error::new(
            io::ErrorKind::NotFound,
            "no directory on a disk can be written; set TMPDIR to one",
        );
        for parent in parents.iter().filter(|parent| is_usable(parent)) {
            remove_abandoned(parent);
            match Scratch::create_in(parent, budget) {
                Ok(scratch) => return Ok(scratch),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Where scratch is looked for: `TMPDIR`, `/var/tmp`, `/tmp` and the cache directory.
    pub fn usual_parents() -> Vec<PathBuf> {
        let variable = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let cache =
            variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
        [
            variable("TMPDIR"),
            Some(PathBuf::from("/var/tmp")),
            Some(PathBuf::from("/tmp")),
            cache,
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn create_in(parent: &Path, budget: Option<u64>) -> io::Result<Scratch> {
        let directory = brimful_private::temporary_directory(&[parent], PREFIX)?.keep();
        let lock = brimful_private::create_new(&directory.join(LOCK))?;
        lock.try_lock().map_err(io::Error::from)?;
        let free = free_bytes(&directory).unwrap_or(u64::MAX);
        Ok(Scratch {
            directory,
            _lock: lock,
            budget: budget.unwrap_or(free / DEFAULT_PART),
            free_at_start: free,
            n_commands: AtomicUsize::new(0),
        })
    }

    pub fn path(&self) -> &Path {
        &self.directory
    }

    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// A new directory in it, for one command.
    pub fn new_directory(&self) -> io::Result<PathBuf> {
        let number = self.n_commands.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join(number.to_string());
        brimful_private::new_directory(&path)?;
        Ok(path)
    }

    /// Where what is downloaded below a directory is kept for all commands.
    pub fn shared_layer(&self, name: &str) -> PathBuf {
        self.directory.join(format!("shared-{name}"))
    }

    /// Removes the directory of one command.
    pub fn remove(&self, directory: &Path) {
        if directory.starts_with(&self.directory) {
            remove_tree(directory);
        }
    }

    /// Whether the disk has lost more than the budget since the start: then it is time to count.
    fn may_be_full(&self) -> bool {
        free_bytes(&self.directory)
            .is_none_or(|free| self.free_at_start.saturating_sub(free) > self.budget)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove_tree(&self.directory);
    }
}

/// Looks from time to time whether the budget is kept.
#[derive(Debug)]
pub struct Meter<'a> {
    scratch: &'a Scratch,
    next: Instant,
}

impl Scratch {
    pub fn meter(&self) -> Meter<'_> {
        Meter {
            scratch: self,
            next: Instant::now(),
        }
    }
}

impl Meter<'_> {
    /// An error if more was written than scratch may hold.
    pub fn check(&mut self) -> Result<(), ScratchFull> {
        if Instant::now() < self.next || !self.scratch.may_be_full() {
            return Ok(());
        }
        let began = Instant::now();
        let usage = usage(&self.scratch.directory);
        if usage.bytes > self.scratch.budget {
            return Err(ScratchFull {
                used: usage.bytes,
                budget: self.scratch.budget,
                largest: as_the_command_names_it(&self.scratch.directory, &usage.largest),
                largest_bytes: usage.largest_bytes,
            });
        }
        // Somebody else fills the disk.
        let pause = began.elapsed() * COUNTING_PART;
        self.next = Instant::now() + pause.max(Duration::from_millis(100));
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Usage {
    bytes: u64,
    largest: PathBuf,
    largest_bytes: u64,
}

/// Bytes on disk below a directory. Links are not followed.
fn usage(directory: &Path) -> Usage {
    let mut usage = Usage::default();
    let mut next = vec![directory.to_owned()];
    while let Some(directory) = next.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(facts) = fs::symlink_metadata(entry.path()) else {
                continue;
            };
            if facts.is_dir() {
                next.push(entry.path());
                continue;
            }
            let bytes = bytes_on_disk(&facts);
            usage.bytes += bytes;
            if bytes > usage.largest_bytes {
                usage.largest_bytes = bytes;
                usage.largest = entry.path();
            }
        }
    }
    usage
}

#[cfg(unix)]
fn bytes_on_disk(facts: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(facts) * 512
}

#[cfg(not(unix))]
fn bytes_on_disk(facts: &fs::Metadata) -> u64 {
    facts.len()
}

/// `…/0/layers/upper/7/runs/last.pt` is `/home/runs/last.pt` where overlay 7 lies over `/home`.
fn as_the_command_names_it(scratch: &Path, path: &Path) -> PathBuf {
    let Ok(inside) = path.strip_prefix(scratch) else {
        return path.to_owned();
    };
    let parts: Vec<&std::ffi::OsStr> = inside.iter().collect();
    match parts.as_slice() {
        [command, layers, upper, number, rest @ ..] if *layers == "layers" && *upper == "upper" => {
            let records = scratch.join(command).join("layers/mounts.json");
            let upper = scratch.join(command).join("layers/upper").join(number);
            let over = overlay_target(&records, &upper).unwrap_or_else(|| PathBuf::from("/"));
            over.join(rest.iter().collect::<PathBuf>())
        }
        // A file that is being copied up has no name yet.
        [_, layers, work, ..] if *layers == "layers" && *work == "work" => {
            PathBuf::from("a file that was opened for writing")
        }
        [_, layer, files, rest @ ..]
            if layer.to_string_lossy().starts_with("layer-") && *files == "f" =>
        {
            Path::new("/").join(rest.iter().collect::<PathBuf>())
        }
        _ => path.to_owned(),
    }
}

fn overlay_target(records: &Path, upper: &Path) -> Option<PathBuf> {
    let document: serde_json::Value = serde_json::from_slice(&fs::read(records).ok()?).ok()?;
    let mount = document
        .get("mounts")?
        .as_array()?
        .iter()
        .find(|mount| mount.get("upper").and_then(|it| it.as_str()) == upper.to_str())?;
    mount.get("target")?.as_str().map(PathBuf::from)
}

/// Removes a directory with everything in it. The kernel leaves directories behind that not even their owner may read.
fn remove_tree(directory: &Path) {
    #[cfg(unix)]
    open_up(directory);
    let _ = fs::remove_dir_all(directory);
}

#[cfg(unix)]
fn open_up(directory: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let mut next = vec![directory.to_owned()];
    while let Some(directory) = next.pop() {
        let _ = fs::set_permissions(&directory, fs::Permissions::from_mode(0o700));
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                next.push(entry.path());
            }
        }
    }
}

/// Removes the directories of processes that were killed: nobody holds their locks.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) || !is_ours(&entry.path()) {
            continue;
        }
        let lock = OpenOptions::new().write(true).open(entry.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            remove_tree(&entry.path());
        }
    }
}

#[cfg(unix)]
fn is_ours(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::symlink_metadata(path)
        .is_ok_and(|facts| facts.is_dir() && facts.uid() == rustix::process::geteuid().as_raw())
}

#[cfg(not(unix))]
fn is_ours(_: &Path) -> bool {
    false
}

fn is_usable(parent: &Path) -> bool {
    let plain = !parent
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .any(|byte| matches!(byte, b' ' | b':' | b',' | b'\\' | b'\t' | b'\n'));
    plain && parent.is_absolute() && is_on_disk(parent)
}

/// A checkpoint must not fill memory.
#[cfg(target_os = "linux")]
fn is_on_disk(directory: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    rustix::fs::statfs(directory).is_ok_and(|facts| facts.f_type != TMPFS && facts.f_type != RAMFS)
}

#[cfg(not(target_os = "linux"))]
fn is_on_disk(_: &Path) -> bool {
    true
}

#[cfg(unix)]
fn free_bytes(directory: &Path) -> Option<u64> {
    let facts = rustix::fs::statvfs(directory).ok()?;
    Some(facts.f_bavail.saturating_mul(facts.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}
