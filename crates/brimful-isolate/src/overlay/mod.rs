//! A root directory of overlays: the same paths, and no change reaches the files below.
//!
//! The keeper mounts it in a mount namespace of its own and makes it the root. Everything that can be an overlay is one;
//! the rest is read-only. Upper layers lie in scratch, on disk. [`Record`]s of what was mounted stay there too, for the
//! part inside the command that builds the same again with upper layers of its own (one process per GPU model).

mod layout;

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};
use rustix::mount::{MountAttrFlags, MountFlags, MountPropagationFlags, UnmountFlags};
use serde::Serialize;

use crate::devices::{self, DeviceNodes, SharedMemory};
use crate::listing::list;
use crate::mounting::{
    Depth, MountError, at, bind, make_directory, unless_vanished, visible_mounts,
};
use crate::mounts::Mount;
use crate::request::{Request, SharedDirectory};
use layout::{KERNEL_DIRECTORIES, Layout, Placement, Stub, layout};

/// File name of the records, in the directory of the layers.
const RECORDS: &str = "mounts.json";

/// No device can be opened on a mount of the new root: `/dev` has those that are allowed.
const WITHOUT_DEVICES: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NODEV;
const READ_ONLY: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_RDONLY.union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// How one path of the new root came to be.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Record {
    Overlay {
        target: PathBuf,
        lower: PathBuf,
        upper: PathBuf,
    },
    /// The same for every process.
    Bind { target: PathBuf },
}

/// What the part inside the command reads.
#[derive(Debug, Serialize)]
struct Records<'a> {
    layers: &'a Path,
    /// In a user namespace, extended attributes of overlays have other names.
    user_namespace: bool,
    mounts: &'a [Record],
}

/// An overlay that the canary has to be caught by.
#[derive(Clone, Debug)]
pub(crate) struct Covered {
    /// Where it is seen.
    pub(crate) path: PathBuf,
    /// Where the user's files are seen, read-only.
    pub(crate) lower: PathBuf,
    /// Whether the user may create files in it. In a user namespace the keeper itself may do more.
    pub(crate) writable: bool,
}

/// Directories inside scratch.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    root: PathBuf,
    layers: PathBuf,
}

impl Layers {
    pub(crate) fn of(scratch: &Path) -> Layers {
        Layers {
            root: scratch.join("root"),
            layers: scratch.join("layers"),
        }
    }

    pub(crate) fn records(&self) -> PathBuf {
        self.layers.join(RECORDS)
    }
}

/// Mounts the new root and makes it the root of this process.
pub(crate) fn enter(request: &Request, user_namespace: bool) -> Result<Vec<Covered>, MountError> {
    let layers = Layers::of(&request.scratch);
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", flags).map_err(at("cannot make mounts private:", "/"))?;
    let mut tree = Tree {
        layers: layers.clone(),
        user_namespace,
        records: Vec::new(),
        covered: Vec::new(),
        n_overlays: 0,
    };
    let mounts = visible_mounts()?;
    let mut layout = layout(&mounts, !user_namespace, &list);
    if user_namespace {
        for directory in &request.checked {
            no_foreign_files(directory)?;
            layout.cover(&first_owned(directory));
        }
        let scratch = request.scratch.parent().unwrap_or(&request.scratch);
        let is_brimfuls = |path: &Path| {
            let mut own = request
                .writable
                .iter()
                .map(PathBuf::as_path)
                .chain([scratch]);
            own.any(|own| path.starts_with(own))
        };
        for directory in owned_directories(&mounts) {
            if !is_brimfuls(&directory) {
                layout.cover(&directory);
            }
        }
    }
    // Bound later, so that what is written there goes through.
    let is_bound = |path: &Path| request.writable.iter().any(|own| path.starts_with(own));
    layout
        .placements
        .retain(|placement| !is_bound(placement.path()));
    tree.make_root(&layout)?;
    for placement in &layout.placements {
        unless_vanished(placement.path(), || tree.place(placement))?;
    }
    let gpus = if request.uses_gpus {
        DeviceNodes::Shown
    } else {
        DeviceNodes::Hidden
    };
    tree.kernel_directories(request.pid_namespace, gpus)?;
    for shared in &request.shared {
        tree.share(shared)?;
    }
    for path in request.writable.iter().chain([&layers.layers]) {
        tree.bind(path, WITHOUT_DEVICES)?;
    }
    tree.write_records()?;
    tree.switch_root()?;
    Ok(tree.covered)
}

struct Tree {
    layers: Layers,
    user_namespace: bool,
    records: Vec<Record>,
    covered: Vec<Covered>,
    n_overlays: usize,
}

impl Tree {
    /// The root itself is an overlay too, over a directory of stubs: a script that runs as root may write there.
    fn make_root(&mut self, layout: &Layout) -> Result<(), MountError> {
        let stubs = self.layers.layers.join("stubs");
        for directory in [
            &self.layers.root,
            &self.layers.layers,
            &stubs,
            &self.layers.layers.join("lower"),
            &self.layers.layers.join("upper"),
            &self.layers.layers.join("work"),
        ] {
            make_directory(directory)?;
        }
        for stub in &layout.stubs {
            unless_vanished(stub.path(), || make_stub(&stubs, stub))?;
        }
        imitate(Path::new("/"), &stubs)?;
        let root = self.layers.root.clone();
        self.overlay_at(&root, Path::new("/"), stubs)
    }

    fn place(&mut self, placement: &Placement) -> Result<(), MountError> {
        match placement {
            Placement::ReadOnly(path) => self.bind(path, READ_ONLY),
            Placement::Overlay(path) if !path.is_dir() => self.bind(path, READ_ONLY),
            Placement::Overlay(path) => match self.overlay(path) {
                // What the user cannot write needs no overlay: some file systems take none.
                Err(_) if !is_writable(path) => self.bind(path, READ_ONLY),
                outcome => outcome,
            },
        }
    }

    fn overlay(&mut self, path: &Path) -> Result<(), MountError> {
        let number = self.n_overlays;
        let writable = is_writable(path);
        let lower = self.layers.layers.join("lower").join(number.to_string());
        make_directory(&lower)?;
        bind(path, &lower, Depth::One, READ_ONLY)?;
        let target = self.inside(path);
        self.overlay_at(&target, path, lower.clone())?;
        self.covered.push(Covered {
            path: path.to_owned(),
            lower,
            writable,
        });
        Ok(())
    }

    /// Mounts an overlay at `target`, which is seen as `path` later.
    fn overlay_at(&mut self, target: &Path, path: &Path, lower: PathBuf) -> Result<(), MountError> {
        let number = self.n_overlays.to_string();
        self.n_overlays += 1;
        let upper = self.layers.layers.join("upper").join(&number);
        let work = self.layers.layers.join("work").join(&number);
        make_directory(&upper)?;
        make_directory(&work)?;
        // The root of an overlay has the attributes of its upper layer.
        imitate(path, &upper)?;
        mount_overlay(target, &lower, &upper, &work, self.user_namespace)
            .map_err(at("cannot mount an overlay over", path))?;
        self.records.push(Record::Overlay {
            target: path.to_owned(),
            lower,
            upper,
        });
        Ok(())
    }

    /// Downloads: the upper layer outlives this command.
    fn share(&mut self, shared: &SharedDirectory) -> Result<(), MountError> {
        let path = &shared.path;
        let lower = self
            .layers
            .layers
            .join("lower")
            .join(format!("shared-{}", self.records.len()));
        make_directory(&lower)?;
        if path.is_dir() {
            bind(path, &lower, Depth::One, READ_ONLY)?;
        }
        let target = self.inside(path);
        #[expect(
            clippy::disallowed_methods,
            reason = "a directory of the script, in the overlay"
        )]
        fs::create_dir_all(&target).map_err(at("cannot create", path))?;
        let upper = shared.layer.join("upper");
        // A directory of this command's own: a volatile overlay marks it as used up.
        let work = self
            .layers
            .layers
            .join("work")
            .join(format!("shared-{}", self.records.len()));
        make_directory(&shared.layer)?;
        make_directory(&upper)?;
        make_directory(&work)?;
        if path.is_dir() {
            imitate(path, &upper)?;
        }
        mount_overlay(&target, &lower, &upper, &work, self.user_namespace)
            .map_err(at("cannot mount an overlay over", path))?;
        self.records.push(Record::Bind {
            target: path.clone(),
        });
        Ok(())
    }

    /// A path as it is, with all mounts below it.
    fn bind(&mut self, path: &Path, attributes: MountAttrFlags) -> Result<(), MountError> {
        bind(path, &self.inside(path), Depth::All, attributes)?;
        self.records.push(Record::Bind {
            target: path.to_owned(),
        });
        Ok(())
    }

    fn kernel_directories(
        &mut self,
        pid_namespace: bool,
        gpus: DeviceNodes,
    ) -> Result<(), MountError> {
        let [proc, sys, dev] = KERNEL_DIRECTORIES.map(Path::new);
        let target = self.inside(proc);
        if pid_namespace {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            rustix::mount::mount("proc", &target, "proc", flags, None)
                .map_err(at("cannot mount", proc))?;
            self.records.push(Record::Bind {
                target: proc.to_owned(),
            });
        } else {
            self.bind(proc, WITHOUT_DEVICES)?;
        }
        // Settings of the machine, not of the process.
        let settings = target.join("sys");
        if settings.is_dir() {
            bind(&settings, &settings, Depth::All, READ_ONLY)?;
        }
        if gpus == DeviceNodes::Hidden {
            devices::cover_driver(&target)?;
        }
        if sys.is_dir() {
            self.bind(sys, READ_ONLY)?;
        }
        devices::mount_at(&self.inside(dev), SharedMemory::Own, gpus)?;
        self.records.push(Record::Bind {
            target: dev.to_owned(),
        });
        Ok(())
    }

    fn write_records(&self) -> Result<(), MountError> {
        let path = self.layers.records();
        let records = Records {
            layers: &self.layers.layers,
            user_namespace: self.user_namespace,
            mounts: &self.records,
        };
        let bytes = serde_json::to_vec(&records).map_err(io::Error::other);
        bytes
            .and_then(|bytes| brimful_private::write_new(&path, &bytes))
            .map_err(at("cannot write", path))
    }

    /// Where a path lies while the new root is not yet the root.
    fn inside(&self, path: &Path) -> PathBuf {
        self.layers
            .root
            .join(path.strip_prefix("/").unwrap_or(path))
    }

    fn switch_root(&self) -> Result<(), MountError> {
        let root = &self.layers.root;
        let failed = || at("cannot switch to", root);
        rustix::process::chdir(root).map_err(failed())?;
        // The old root is stacked on the new one, and goes at once.
        rustix::process::pivot_root(".", ".").map_err(failed())?;
        rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(failed())?;
        rustix::process::chdir("/").map_err(failed())
    }
}

/// The first directory on the way to another one that belongs to the user; that one itself where none does.
///
/// A change copies the directories above a file up, with their owner, and in a user namespace no other owner than the
/// user can be set. An overlay that begins there has none of another's directories to copy.
fn first_owned(directory: &Path) -> PathBuf {
    let mut ancestors: Vec<&Path> = directory.ancestors().collect();
    ancestors.reverse();
    ancestors
        .into_iter()
        .find(|path| fs::symlink_metadata(path).is_ok_and(|facts| is_own(&facts)))
        .unwrap_or(directory)
        .to_owned()
}

/// Trees of the system, in which no user has directories.
const SYSTEM_TREES: [&str; 12] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/nix", "/proc", "/sbin", "/snap", "/sys",
    "/usr",
];
/// How deep the user's directories are looked for in directories of others, and among how many entries.
const MAX_DEPTH: usize = 4;
const MAX_LOOKED_AT: usize = 20_000;
const MAX_IN_ONE: usize = 2000;
const MAX_OWNED: usize = 256;

/// Directories of the user that lie in directories of others, such as `/scratch/projects/ann`, as far as they are found
/// in a short look.
fn owned_directories(mounts: &[Mount]) -> Vec<PathBuf> {
    // To look into one would mount what it stands for.
    let is_automount = |path: &Path| {
        mounts
            .iter()
            .any(|mount| mount.is_automount() && mount.path == path)
    };
    let mut owned = Vec::new();
    let mut looked_at = 0;
    let mut level = vec![PathBuf::from("/")];
    for _ in 0..MAX_DEPTH {
        let mut next = Vec::new();
        for directory in level {
            let mut inner = Vec::new();
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                looked_at += 1;
                if looked_at > MAX_LOOKED_AT || inner.len() > MAX_IN_ONE {
                    break;
                }
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    inner.push(entry);
                }
            }
            if inner.len() > MAX_IN_ONE {
                continue;
            }
            for entry in inner {
                let path = entry.path();
                match entry.metadata() {
                    Ok(facts) if is_own(&facts) => owned.push(path),
                    Ok(_) if SYSTEM_TREES.iter().any(|tree| path == Path::new(tree)) => {}
                    Ok(_) if !is_automount(&path) => next.push(path),
                    _ => {}
                }
            }
        }
        level = next;
    }
    owned.truncate(MAX_OWNED);
    owned
}

fn is_own(facts: &fs::Metadata) -> bool {
    facts.uid() == rustix::process::geteuid().as_raw()
        && facts.gid() == rustix::process::getegid().as_raw()
}

const STICKY: u32 = 0o1000;
/// Entries of a directory that are looked at.
const MAX_ENTRIES: usize = 4096;

/// An error where a directory holds what the user may change, but which has another owner or group: project directories
/// of clusters, for example. The kernel refuses to copy it up (`EOVERFLOW`).
fn no_foreign_files(directory: &Path) -> Result<(), MountError> {
    if fs::metadata(directory).is_ok_and(|facts| facts.mode() & STICKY != 0) {
        // Everybody's directory, such as /tmp.
        return Ok(());
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.take(MAX_ENTRIES) {
        let Ok(facts) = entry.metadata() else {
            continue;
        };
        let path = entry.path();
        let holds_data = facts.is_file() || facts.is_dir() && facts.mode() & STICKY == 0;
        if holds_data && !is_own(&facts) && may(&path, Access::WRITE_OK) {
            return Err(at("the owner or group cannot be kept:", path)(
                io::Error::from_raw_os_error(libc::EOVERFLOW),
            ));
        }
    }
    Ok(())
}

fn may(path: &Path, access: Access) -> bool {
    rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

/// Whether this process may create files there.
pub(crate) fn is_writable(directory: &Path) -> bool {
    may(directory, Access::WRITE_OK | Access::EXEC_OK)
}

fn mount_overlay(
    target: &Path,
    lower: &Path,
    upper: &Path,
    work: &Path,
    user_namespace: bool,
) -> io::Result<()> {
    let overlay = rustix::mount::fsopen("overlay", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC)?;
    let overlay = overlay.as_fd();
    rustix::mount::fsconfig_set_string(overlay, "lowerdir", lower)?;
    rustix::mount::fsconfig_set_string(overlay, "upperdir", upper)?;
    rustix::mount::fsconfig_set_string(overlay, "workdir", work)?;
    if user_namespace {
        rustix::mount::fsconfig_set_flag(overlay, "userxattr")?;
    } else {
        // Directories of the lower layer can be renamed. In a user namespace the kernel does not offer it.
        rustix::mount::fsconfig_set_string(overlay, "redirect_dir", "on")?;
        rustix::mount::fsconfig_set_string(overlay, "index", "off")?;
    }
    // Nothing has to reach the disk: without this the kernel would write out all of the disk's files at the end.
    rustix::mount::fsconfig_set_flag(overlay, "volatile")?;
    rustix::mount::fsconfig_create(overlay)?;
    let mounted = rustix::mount::fsmount(
        overlay,
        rustix::mount::FsMountFlags::FSMOUNT_CLOEXEC,
        WITHOUT_DEVICES,
    )?;
    rustix::mount::move_mount(
        mounted.as_fd(),
        "",
        CWD,
        target,
        rustix::mount::MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    Ok(())
}

fn make_stub(root: &Path, stub: &Stub) -> Result<(), MountError> {
    let path = stub.path();
    let target = root.join(path.strip_prefix("/").unwrap_or(path));
    match stub {
        Stub::Directory(_) => {
            make_directory(&target)?;
            imitate(path, &target)
        }
        Stub::Link(_) => fs::read_link(path)
            .and_then(|to| symlink(to, &target))
            .map_err(at("cannot create", path)),
        Stub::File(_) => {
            brimful_private::write_new(&target, b"").map_err(at("cannot create", path))
        }
    }
}

/// Gives a directory the permissions of another one, as far as they matter to this process.
fn imitate(original: &Path, directory: &Path) -> Result<(), MountError> {
    let facts = fs::metadata(original).map_err(at("cannot read", original))?;
    let mut mode = facts.mode() & 0o7777;
    // The owner is perhaps another user, which cannot be imitated: what was forbidden stays forbidden, and what was
    // allowed through a group stays allowed.
    for (access, bits) in [
        (Access::READ_OK, 0o400),
        (Access::WRITE_OK, 0o200),
        (Access::EXEC_OK, 0o100),
    ] {
        mode = if may(original, access) {
            mode | bits
        } else {
            mode & !bits
        };
    }
    let owner = rustix::process::geteuid();
    if owner.is_root() {
        // Otherwise the owner would change too.
        let _ = std::os::unix::fs::chown(directory, Some(facts.uid()), Some(facts.gid()));
    } else if !may(original, Access::WRITE_OK) {
        mode &= !0o222;
    }
    fs::set_permissions(directory, Permissions::from_mode(mode))
        .map_err(at("cannot set the permissions of", directory))
}
