//! Private directories that take what commands write, inside a budget of disk space.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use brimful::env_vars;
use brimful::units::Bytes;

#[cfg(target_os = "linux")]
use crate::copied_up::file_being_opened;

const PREFIX: &str = "brimful-scratch-";
const LOCK: &str = "lock";
/// The part of the free space that commands may fill where nobody says otherwise.
const DEFAULT_PART: u64 = 10;
/// Counting the bytes may take a twentieth of the time.
const COUNTING_PART: u32 = 20;

/// Where shared memory lies by name.
const SHARED_MEMORY: &str = "/dev/shm";

/// A private directory on disk, removed at the end.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
    /// Held while the directory is in use, so that nobody takes it for one that was left behind.
    _lock: File,
    /// A private directory in shared memory, with its lock; made when it is first needed.
    shared_memory: OnceLock<Option<(PathBuf, File)>>,
    budget: u64,
    free_at_start: u64,
    n_commands: AtomicUsize,
}

/// The command has written more than it may.
#[derive(Debug, thiserror::Error)]
#[error(
    "the script has written {used}, more than the {budget} that scratch may hold; the largest file is {largest} \
     with {largest_bytes}"
)]
pub struct ScratchFull {
    pub used: Bytes,
    pub budget: Bytes,
    pub largest: LargestFile,
    pub largest_bytes: Bytes,
}

/// The file that takes most of scratch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LargestFile {
    /// As the command names it.
    Written(PathBuf),
    /// A file that was opened for writing, and is being copied into scratch; its path if it could be found out.
    Copied(Option<PathBuf>),
}

impl fmt::Display for LargestFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LargestFile::Written(path) => write!(f, "`{}`", path.display()),
            LargestFile::Copied(Some(path)) => {
                write!(
                    f,
                    "`{}`, which the script opened for writing and which is copied for it,",
                    path.display()
                )
            }
            LargestFile::Copied(None) => f.write_str("one that the script opened for writing"),
        }
    }
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
        let cache = variable(env_vars::XDG_CACHE_HOME)
            .or_else(|| variable(env_vars::HOME).map(|home| home.join(".cache")));
        [
            variable(env_vars::TMPDIR),
            Some(PathBuf::from("/var/tmp")),
            Some(PathBuf::from("/tmp")),
            cache,
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn create_in(parent: &Path, budget: Option<u64>) -> io::Result<Scratch> {
        let (directory, lock) = locked_directory(parent)?;
        let free = free_bytes(&directory).unwrap_or(u64::MAX);
        Ok(Scratch {
            directory,
            _lock: lock,
            shared_memory: OnceLock::new(),
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

    /// A new directory for the shared memory of one command; on disk where the machine has no `/dev/shm`.
    pub(crate) fn new_shared_memory(&self) -> io::Result<PathBuf> {
        let parent = self.shared_memory.get_or_init(|| {
            let parent = Path::new(SHARED_MEMORY);
            remove_abandoned(parent);
            locked_directory(parent).ok()
        });
        let parent = parent
            .as_ref()
            .map_or(&self.directory, |(directory, _)| directory);
        let number = self.n_commands.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("shared-memory-{number}"));
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
        if let Some(Some((directory, _))) = self.shared_memory.get() {
            remove_tree(directory);
        }
    }
}

/// A new private directory, and the lock that says that it is in use.
fn locked_directory(parent: &Path) -> io::Result<(PathBuf, File)> {
    let directory = brimful_private::temporary_directory(&[parent], PREFIX)?.keep();
    let lock = brimful_private::create_new(&directory.join(LOCK))?;
    lock.try_lock().map_err(io::Error::from)?;
    Ok((directory, lock))
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
    /// An error if more was written than scratch may hold by what was started in the process `ancestor`.
    pub fn check(&mut self, ancestor: u32) -> Result<(), ScratchFull> {
        if Instant::now() < self.next || !self.scratch.may_be_full() {
            return Ok(());
        }
        let began = Instant::now();
        let usage = usage(&self.scratch.directory);
        if usage.bytes > self.scratch.budget {
            let mut largest = as_the_command_names_it(&self.scratch.directory, &usage.largest);
            if let LargestFile::Copied(path) = &mut largest {
                *path = file_being_opened(ancestor, usage.largest_bytes);
            }
            return Err(ScratchFull {
                used: Bytes(usage.bytes),
                budget: Bytes(self.scratch.budget),
                largest,
                largest_bytes: Bytes(usage.largest_bytes),
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
fn as_the_command_names_it(scratch: &Path, path: &Path) -> LargestFile {
    let inside = path.strip_prefix(scratch).unwrap_or(path);
    let parts: Vec<&std::ffi::OsStr> = inside.iter().collect();
    LargestFile::Written(match parts.as_slice() {
        [command, layers, upper, number, rest @ ..] if *layers == "layers" && *upper == "upper" => {
            let records = scratch.join(command).join("layers/mounts.json");
            let upper = scratch.join(command).join("layers/upper").join(number);
            let over = overlay_target(&records, &upper).unwrap_or_else(|| PathBuf::from("/"));
            over.join(rest.iter().collect::<PathBuf>())
        }
        // A file that is being copied up has no name yet.
        [_, layers, work, ..] if *layers == "layers" && *work == "work" => {
            return LargestFile::Copied(None);
        }
        // The layers of one GPU model are numbered as the mounts are.
        [command, layers, branch, number, layer, rest @ ..]
            if *layers == "layers" && branch.to_string_lossy().starts_with("branch-") =>
        {
            if *layer != "upper" {
                return LargestFile::Copied(None);
            }
            let records = scratch.join(command).join("layers/mounts.json");
            let number = number.to_str().and_then(|number| number.parse().ok());
            let over = number.and_then(|number| target_of_mount(&records, number));
            over.unwrap_or_else(|| PathBuf::from("/"))
                .join(rest.iter().collect::<PathBuf>())
        }
        [_, layer, files, rest @ ..]
            if layer.to_string_lossy().starts_with("layer-") && *files == "f" =>
        {
            Path::new("/").join(rest.iter().collect::<PathBuf>())
        }
        _ => path.to_owned(),
    })
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

fn target_of_mount(records: &Path, number: usize) -> Option<PathBuf> {
    let document: serde_json::Value = serde_json::from_slice(&fs::read(records).ok()?).ok()?;
    let mount = document.get("mounts")?.get(number)?;
    mount.get("target")?.as_str().map(PathBuf::from)
}

/// Removes a directory with everything in it.
fn remove_tree(directory: &Path) {
    if fs::remove_dir_all(directory).is_err() {
        // The kernel leaves directories behind that not even their owner may read.
        #[cfg(unix)]
        open_up(directory);
        let _ = fs::remove_dir_all(directory);
    }
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

#[cfg(not(target_os = "linux"))]
fn file_being_opened(_ancestor: u32, _copied_bytes: u64) -> Option<PathBuf> {
    None
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_as_the_command_names_them() {
        let scratch = tempfile::tempdir().unwrap();
        let layers = scratch.path().join("0/layers");
        brimful_private::new_directory(&scratch.path().join("0")).unwrap();
        brimful_private::new_directory(&layers).unwrap();
        let upper = layers.join("upper/1");
        let records = serde_json::json!({"mounts": [
            {"kind": "bind", "target": "/proc"},
            {"kind": "overlay", "target": "/home", "lower": "", "upper": upper},
        ]});
        let records = serde_json::to_vec(&records).unwrap();
        brimful_private::write_new(&layers.join("mounts.json"), &records).unwrap();
        let written = |path: &str| LargestFile::Written(PathBuf::from(path));
        for (path, expected) in [
            (
                "0/layers/upper/1/runs/last.pt",
                written("/home/runs/last.pt"),
            ),
            ("0/layers/branch-0-0/1/upper/a", written("/home/a")),
            ("0/layer-0/f/home/a", written("/home/a")),
            ("0/layers/work/1/work/#3", LargestFile::Copied(None)),
            (
                "0/layers/branch-0-0/1/work/work/#3",
                LargestFile::Copied(None),
            ),
            (
                "0/layers/branch-0-0/1/second-work/work/#3",
                LargestFile::Copied(None),
            ),
        ] {
            let found = as_the_command_names_it(scratch.path(), &scratch.path().join(path));
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn a_full_scratch_is_said_in_units() {
        let full = ScratchFull {
            used: Bytes(3 << 30),
            budget: Bytes(2 << 30),
            largest: LargestFile::Written("/data/a.bin".into()),
            largest_bytes: Bytes(3 << 30),
        };
        assert_eq!(
            full.to_string(),
            "the script has written 3 GiB, more than the 2 GiB that scratch may hold; the largest file is \
             `/data/a.bin` with 3 GiB"
        );
    }
}
