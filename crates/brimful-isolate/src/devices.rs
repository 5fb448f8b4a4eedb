//! A `/dev` that holds what is allowed, and so no GPU.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::mount::{MountAttrFlags, MountFlags, MountPropagationFlags};

use crate::gpus::{Gpus, is_gpu};
use crate::listing::{Entry, list};
use crate::mounting::{
    Depth, MountError, at, bind, make_directory, make_read_only, unless_vanished,
};
use crate::namespaces;

/// What a command keeps of the machine's `/dev`, directories with everything in them. Terminals and shared memory are
/// set up apart.
const ALLOWED: [&str; 12] = [
    "full",
    "fuse",
    "hugepages",
    "infiniband",
    "kvm",
    "log",
    "net",
    "null",
    "random",
    "tty",
    "urandom",
    "zero",
];

/// Links that are the same everywhere.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("ptmx", "pts/ptmx"),
    ("stderr", "/proc/self/fd/2"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
];

/// Terminals of its own: the node `ptmx` of another instance leads to that one's terminals.
const TERMINALS: &CStr = c"newinstance,ptmxmode=0666,mode=620";

/// What `/dev/shm` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedMemory {
    /// A new one of equal size.
    Own,
    /// That of the machine.
    Machine,
}

/// What becomes of the nodes of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceNodes {
    Hidden,
    Shown,
}

/// Mounts a new `/dev` at `target`.
pub(crate) fn mount_at(
    target: &Path,
    shared_memory: SharedMemory,
    gpus: DeviceNodes,
) -> Result<(), MountError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", target, "tmpfs", flags, c"mode=755")
        .map_err(at("cannot mount", target))?;
    for entry in allowed(list(Path::new("/dev")), gpus) {
        unless_vanished(entry.path(), || show(&entry, target))?;
    }
    for (name, to) in LINKS {
        symlink(to, target.join(name)).map_err(at("cannot create", target.join(name)))?;
    }
    let terminals = target.join("pts");
    make_directory(&terminals)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    rustix::mount::mount("devpts", &terminals, "devpts", flags, TERMINALS)
        .map_err(at("cannot mount", &terminals))?;
    mount_shared_memory(&target.join("shm"), shared_memory)?;
    mount_queues(&target.join("mqueue"), shared_memory)?;
    make_read_only(target)
}

/// The entries of a `/dev` that a new one has too.
fn allowed(entries: Vec<Entry>, gpus: DeviceNodes) -> Vec<Entry> {
    let is_allowed = |entry: &Entry| {
        let name = entry.path().file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| ALLOWED.contains(&name))
            || gpus == DeviceNodes::Shown && is_gpu(entry.path())
    };
    entries.into_iter().filter(is_allowed).collect()
}

fn show(entry: &Entry, target: &Path) -> Result<(), MountError> {
    let path = entry.path();
    let place = target.join(path.file_name().unwrap_or_default());
    let depth = match entry {
        Entry::Link(_) => {
            let to = std::fs::read_link(path).map_err(at("cannot read", path))?;
            return symlink(to, &place).map_err(at("cannot create", &place));
        }
        Entry::Directory(_) => {
            make_directory(&place)?;
            Depth::All
        }
        Entry::Other(_) => {
            match brimful_private::write_new(&place, b"") {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(at("cannot create", &place)(error));
                }
                _ => {}
            }
            Depth::One
        }
    };
    // Devices can be used on a read-only mount; only the directory entries cannot be changed.
    bind(path, &place, depth, MountAttrFlags::MOUNT_ATTR_RDONLY)
}

fn mount_shared_memory(place: &Path, shared_memory: SharedMemory) -> Result<(), MountError> {
    // It may be a link, to `/run/shm` for example.
    let machine = Path::new("/dev/shm");
    let Ok(facts) = rustix::fs::statvfs(machine) else {
        return Ok(());
    };
    make_directory(place)?;
    match shared_memory {
        SharedMemory::Machine => bind(machine, place, Depth::All, MountAttrFlags::empty()),
        SharedMemory::Own => {
            let size = facts.f_blocks.saturating_mul(facts.f_frsize);
            let options = format!("mode=1777,size={size}\0");
            let options = CStr::from_bytes_with_nul(options.as_bytes())
                .expect("the text ends with its only NUL");
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            rustix::mount::mount("tmpfs", place, "tmpfs", flags, options)
                .map_err(at("cannot mount", place))
        }
    }
}

/// POSIX message queues: those of this process's IPC namespace, if that is its own.
fn mount_queues(place: &Path, shared_memory: SharedMemory) -> Result<(), MountError> {
    let machine = Path::new("/dev/mqueue");
    if !machine.is_dir() {
        return Ok(());
    }
    make_directory(place)?;
    match shared_memory {
        SharedMemory::Machine => bind(machine, place, Depth::All, MountAttrFlags::empty()),
        SharedMemory::Own => {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            rustix::mount::mount("mqueue", place, "mqueue", flags, None)
                .map_err(at("cannot mount", place))
        }
    }
}

/// Covers what NVIDIA's driver says of itself in a `/proc`, with empty directories.
pub(crate) fn cover_driver(proc: &Path) -> Result<(), MountError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    for entry in list(&proc.join("driver")) {
        if let Entry::Directory(path) = entry
            && let Some(name) = path.file_name().and_then(OsStr::to_str)
            && name.starts_with("nvidia")
        {
            unless_vanished(&path, || {
                rustix::mount::mount("tmpfs", &path, "tmpfs", flags, c"mode=555")
                    .map_err(at("cannot mount", &path))
            })?;
        }
    }
    Ok(())
}

/// Moves this process into a mount namespace in which no GPU is left, and everything else is as it was.
pub(crate) fn replace(scratch: &Path, gpus: &Gpus) -> Result<(), MountError> {
    let dev = Path::new("/dev");
    namespaces::enter_mounts().map_err(at("cannot leave the mount namespace of", dev))?;
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", flags).map_err(at("cannot make mounts private:", "/"))?;
    let new = scratch.join("dev");
    make_directory(&new)?;
    mount_at(&new, SharedMemory::Machine, DeviceNodes::Hidden)?;
    rustix::mount::mount_move(&new, dev).map_err(at("cannot replace", dev))?;
    cover_driver(Path::new("/proc"))?;
    for node in gpus.nodes.iter().filter(|node| !node.starts_with(dev)) {
        unless_vanished(node, || {
            bind(node, node, Depth::One, MountAttrFlags::MOUNT_ATTR_NODEV)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_dev_has_what_trainings_use_and_no_gpu() {
        let entries = vec![
            Entry::Directory("/dev/dri".into()),
            Entry::Other("/dev/dxg".into()),
            Entry::Link("/dev/fd".into()),
            Entry::Other("/dev/fuse".into()),
            Entry::Directory("/dev/infiniband".into()),
            Entry::Link("/dev/log".into()),
            Entry::Other("/dev/mem".into()),
            Entry::Other("/dev/null".into()),
            Entry::Directory("/dev/nvidia-caps".into()),
            Entry::Other("/dev/nvidia0".into()),
            Entry::Other("/dev/ptmx".into()),
            Entry::Directory("/dev/pts".into()),
            Entry::Directory("/dev/shm".into()),
            Entry::Other("/dev/vda".into()),
        ];
        let kept = |gpus| -> Vec<String> {
            let kept = allowed(entries.clone(), gpus);
            kept.iter()
                .map(|entry| entry.path().display().to_string())
                .collect()
        };
        assert_eq!(
            kept(DeviceNodes::Hidden),
            ["/dev/fuse", "/dev/infiniband", "/dev/log", "/dev/null"]
        );
        let used: Vec<String> = kept(DeviceNodes::Shown);
        for node in ["/dev/dri", "/dev/dxg", "/dev/nvidia-caps", "/dev/nvidia0"] {
            assert!(used.iter().any(|kept| kept == node), "{node}");
        }
    }
}
