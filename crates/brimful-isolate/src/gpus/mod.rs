//! The GPUs of this machine, as a process would reach them, and how they can be kept from a command.
//!
//! A GPU is reached through its device nodes. Libraries of the driver, directories in `/proc` and variables only lead to
//! them. So a command that can open no node reaches no GPU, whatever it loads.

pub(crate) mod canary;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::io::FdFlags;

use crate::listing::{Entry, list};
use crate::mounting::visible_mounts;
use crate::mounts::Mount;
use crate::request::{GpuHidden, Isolation};

/// Names of device nodes, and of directories with nothing else in them, of AMD, Intel, WSL2 and drivers' companions.
const NAMES: [&str; 5] = ["dri", "dxg", "gdrdrv", "kfd", "nvmap"];
/// What those of NVIDIA and of its Jetsons begin with: `nvidia0`, `nvidia-uvm`, `nvidia-caps`, `nvhost-gpu`, `nvgpu`.
const PREFIXES: [&str; 3] = ["nvgpu", "nvhost", "nvidia"];
/// Nodes that a driver creates when it is first used.
const CREATED_LATER: [&str; 5] = [
    "/dev/nvidia0",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/dxg",
    "/dev/kfd",
];
/// The place of a driver that runs in a container of its own.
const DRIVER_CONTAINER: &str = "/run/nvidia/driver/dev";
/// More device nodes than any machine has, and a deeper directory of them.
const MAX_NODES: usize = 4096;
const MAX_DEPTH: usize = 4;

/// Directories in which drivers put their libraries.
const LIBRARY_DIRECTORIES: [&str; 15] = [
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/opengl-driver/lib",
    "/usr/lib",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu/nvidia",
    "/usr/lib/aarch64-linux-gnu/tegra",
    "/usr/lib/wsl/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib64-nvidia",
    "/usr/lib64/nvidia",
    "/usr/local/cuda/compat",
    "/usr/local/cuda/compat/lib",
    "/usr/local/nvidia/lib",
    "/usr/local/nvidia/lib64",
];
/// Directories that hold one directory for each of several drivers.
const LIBRARY_PARENTS: [&str; 2] = ["/usr/lib/wsl/drivers", "/usr/lib/x86_64-linux-gnu/nvidia"];
const LIBRARIES: [&str; 3] = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"];

/// What leads to a GPU on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpus {
    pub(crate) nodes: BTreeSet<PathBuf>,
    /// Libraries of drivers, by their full paths.
    pub(crate) libraries: Vec<PathBuf>,
    /// Whether a driver is loaded, which may create its nodes later.
    driver: bool,
}

/// What Landlock can do about them here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landlock {
    /// The version of its interface; 0 without it.
    pub(crate) abi: i64,
    pub(crate) tells_nodes_apart: bool,
}

/// Device and inode of a file.
pub(crate) type FileId = (u64, u64);

/// Says which file is found at a path, without opening it.
pub(crate) fn file_of(path: &Path) -> Option<FileId> {
    let facts = fs::metadata(path).ok()?;
    Some((facts.dev(), facts.ino()))
}

impl Gpus {
    pub(crate) fn find() -> Gpus {
        let mounts = visible_mounts().unwrap_or_default();
        Gpus::among(&mounts, &list, &|path| path.exists())
    }

    /// In a machine with these mounts, directories and files.
    fn among(
        mounts: &[Mount],
        list: &dyn Fn(&Path) -> Vec<Entry>,
        exists: &dyn Fn(&Path) -> bool,
    ) -> Gpus {
        let mut nodes = BTreeSet::new();
        for directory in device_directories(mounts) {
            for entry in list(&directory) {
                if is_gpu(entry.path()) {
                    add_nodes(entry, 0, list, &mut nodes);
                }
            }
        }
        // Containers have single nodes mounted, anywhere.
        let mounted = mounts
            .iter()
            .filter(|mount| mount.file_system == "devtmpfs" && is_gpu(&mount.path));
        for mount in mounted {
            let node = Entry::Other(mount.path.clone());
            let parent = mount.path.parent().unwrap_or(Path::new("/"));
            if list(parent).contains(&node) {
                nodes.insert(mount.path.clone());
            }
        }
        let several = LIBRARY_PARENTS
            .iter()
            .flat_map(|parent| list(Path::new(parent)));
        let directories = several
            .map(|entry| entry.path().to_owned())
            .chain(LIBRARY_DIRECTORIES.iter().map(PathBuf::from));
        let libraries = directories
            .flat_map(|directory| LIBRARIES.map(|name| directory.join(name)))
            .filter(|path| exists(path))
            .collect();
        Gpus {
            nodes,
            libraries,
            driver: exists(Path::new("/proc/driver/nvidia/version")),
        }
    }

    /// Whether there is nothing to hide.
    pub(crate) fn are_absent(&self) -> bool {
        self.nodes.is_empty() && !self.driver
    }

    /// Paths that must lead nowhere.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let later = CREATED_LATER
            .iter()
            .map(Path::new)
            .filter(|path| !self.nodes.contains(*path));
        self.nodes.iter().map(PathBuf::as_path).chain(later)
    }

    /// How they can be hidden from a command that has the machine's files, the first choice first.
    pub(crate) fn ways_to_hide(
        &self,
        isolation: Isolation,
        landlock: Landlock,
    ) -> &'static [GpuHidden] {
        // The first version of Landlock denies moving files between directories, which redirected writes do without.
        let needed = if isolation == Isolation::Off { 2 } else { 1 };
        if self.are_absent() {
            &[GpuHidden::NoDriver]
        } else if landlock.abi >= needed && landlock.tells_nodes_apart {
            &[GpuHidden::Landlock, GpuHidden::Devices]
        } else {
            &[GpuHidden::Devices]
        }
    }

    /// Everything but the nodes: the largest trees without one. Links are left out: what they lead to counts.
    ///
    /// Of `/dev` each entry is named also where no node is in it yet.
    pub(crate) fn allowed_paths(&self, list: &dyn Fn(&Path) -> Vec<Entry>) -> Vec<PathBuf> {
        let mut allowed = Vec::new();
        let mut next = vec![PathBuf::from("/")];
        while let Some(directory) = next.pop() {
            for entry in list(&directory) {
                match entry {
                    Entry::Link(_) => {}
                    Entry::Directory(path) if self.leads_to_a_node(&path) => next.push(path),
                    Entry::Other(path) if self.nodes.contains(&path) => {}
                    Entry::Directory(path) | Entry::Other(path) => allowed.push(path),
                }
            }
        }
        allowed
    }

    /// Whether no node is the same file as something that is allowed: Landlock knows files, not their names.
    pub(crate) fn differ_from_allowed(
        &self,
        list: &dyn Fn(&Path) -> Vec<Entry>,
        file_of: &dyn Fn(&Path) -> Option<FileId>,
    ) -> bool {
        let nodes: BTreeSet<FileId> = self.nodes.iter().filter_map(|it| file_of(it)).collect();
        let allowed = self.allowed_paths(list);
        let mut files = allowed.iter().filter_map(|path| file_of(path));
        nodes.is_empty() || !files.any(|file| nodes.contains(&file))
    }

    fn leads_to_a_node(&self, directory: &Path) -> bool {
        self.paths().any(|node| node.starts_with(directory))
    }

    /// Descriptors of nodes that this process was started with, from a notebook that uses a GPU for example, end here.
    pub(crate) fn close_on_exec(&self) {
        for entry in fs::read_dir("/proc/self/fd")
            .into_iter()
            .flatten()
            .flatten()
        {
            let is_node = fs::read_link(entry.path()).is_ok_and(|open| self.nodes.contains(&open));
            let number = entry.file_name().to_str().and_then(|it| it.parse().ok());
            if let Some(number) = number.filter(|_| is_node) {
                #[expect(unsafe_code, reason = "a descriptor that somebody else opened")]
                // SAFETY: the keeper has one thread, and closes none of the descriptors it was started with.
                let open = unsafe { BorrowedFd::borrow_raw(number) };
                let _ = rustix::io::fcntl_setfd(open, FdFlags::CLOEXEC);
            }
        }
    }
}

/// Whether a device node, or a directory of them, is one of a GPU.
pub(crate) fn is_gpu(path: &Path) -> bool {
    path.file_name()
        .and_then(OsStr::to_str)
        .is_some_and(|name| {
            NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        })
}

/// Directories of device nodes: `/dev`, and those of containers and chroots.
fn device_directories(mounts: &[Mount]) -> BTreeSet<PathBuf> {
    let is_one = |mount: &&Mount| {
        mount.file_system == "devtmpfs"
            || mount.file_system == "tmpfs" && mount.path.ends_with("dev")
    };
    let mounted = mounts.iter().filter(is_one);
    ["/dev", DRIVER_CONTAINER]
        .into_iter()
        .map(PathBuf::from)
        .chain(mounted.map(|mount| mount.path.clone()))
        .collect()
}

fn add_nodes(
    entry: Entry,
    depth: usize,
    list: &dyn Fn(&Path) -> Vec<Entry>,
    nodes: &mut BTreeSet<PathBuf>,
) {
    match entry {
        Entry::Other(path) if nodes.len() < MAX_NODES => {
            nodes.insert(path);
        }
        Entry::Directory(path) if depth < MAX_DEPTH => {
            for inner in list(&path) {
                add_nodes(inner, depth + 1, list, nodes);
            }
        }
        Entry::Directory(_) | Entry::Link(_) | Entry::Other(_) => {}
    }
}

#[cfg(test)]
mod tests;
