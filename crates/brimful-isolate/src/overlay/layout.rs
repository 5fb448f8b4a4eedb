//! What has to be mounted where, so that every file is seen at its own path and none can be changed. Pure.

use std::path::{Path, PathBuf};

use crate::listing::Entry;
use crate::mounts::{Mount, directly_below};

/// Something that the new root holds before anything is mounted in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stub {
    Directory(PathBuf),
    Link(PathBuf),
    File(PathBuf),
}

impl Stub {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Stub::Directory(path) | Stub::Link(path) | Stub::File(path) => path,
        }
    }
}

/// How a path of the old root is shown in the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Covered by an overlay, so that changes go to its upper layer.
    Overlay(PathBuf),
    /// As it is, with all mounts below it, and read-only.
    ReadOnly(PathBuf),
}

impl Placement {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Placement::Overlay(path) | Placement::ReadOnly(path) => path,
        }
    }
}

/// The new root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) stubs: Vec<Stub>,
    /// In the order in which they are to be mounted.
    pub(crate) placements: Vec<Placement>,
}

impl Layout {
    /// One more overlay over a directory inside one that has an overlay already.
    pub(crate) fn cover(&mut self, directory: &Path) {
        let overlay = Placement::Overlay(directory.to_owned());
        let is_inside = |placement: &Placement| match placement {
            Placement::Overlay(path) => directory.starts_with(path) && directory != path,
            Placement::ReadOnly(_) => false,
        };
        if self.placements.contains(&overlay) {
            return;
        }
        // Behind the one that it lies in, and in front of mounts below it.
        if let Some(at) = self.placements.iter().rposition(is_inside) {
            self.placements.insert(at + 1, overlay);
        }
    }
}

/// Directories that are set up by themselves.
pub(crate) const KERNEL_DIRECTORIES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Decides the layout.
///
/// The kernel takes a directory as the lower layer of an overlay only if nothing is mounted below it, unless the mounter
/// is `privileged` over those mounts. A directory with mounts below it is therefore created again, and its entries are
/// placed one by one; `/` is always such a directory.
pub(crate) fn layout(
    mounts: &[Mount],
    privileged: bool,
    list: &dyn Fn(&Path) -> Vec<Entry>,
) -> Layout {
    let mut builder = Builder {
        mounts,
        privileged,
        list,
        layout: Layout::default(),
    };
    builder.entries_of(Path::new("/"));
    builder.layout
}

struct Builder<'a> {
    mounts: &'a [Mount],
    privileged: bool,
    list: &'a dyn Fn(&Path) -> Vec<Entry>,
    layout: Layout,
}

impl Builder<'_> {
    fn entries_of(&mut self, directory: &Path) {
        for entry in (self.list)(directory) {
            match entry {
                Entry::Link(path) => self.layout.stubs.push(Stub::Link(path)),
                Entry::Other(path) => {
                    self.layout.stubs.push(Stub::File(path.clone()));
                    self.layout.placements.push(Placement::ReadOnly(path));
                }
                Entry::Directory(path) => {
                    self.layout.stubs.push(Stub::Directory(path.clone()));
                    if !KERNEL_DIRECTORIES.iter().any(|it| path == Path::new(it)) {
                        self.directory(path);
                    }
                }
            }
        }
    }

    /// A directory whose stub exists.
    fn directory(&mut self, path: PathBuf) {
        let mounts = self.mounts;
        if let Some(mount) = mounts.iter().find(|mount| mount.path == path)
            && (!mount.holds_files() || mount.read_only)
        {
            self.layout.placements.push(Placement::ReadOnly(path));
            return;
        }
        let below = directly_below(mounts, &path);
        if below.is_empty() || self.privileged {
            self.layout.placements.push(Placement::Overlay(path));
            for mount in below {
                self.mount_on_top(mount);
            }
        } else {
            self.entries_of(&path);
        }
    }

    /// A mount below a directory that has an overlay: the overlay hides it, but shows its mount point.
    fn mount_on_top(&mut self, mount: &Mount) {
        if !mount.holds_files() || mount.read_only {
            let read_only = Placement::ReadOnly(mount.path.clone());
            self.layout.placements.push(read_only);
            return;
        }
        let overlay = Placement::Overlay(mount.path.clone());
        self.layout.placements.push(overlay);
        for inner in directly_below(self.mounts, &mount.path) {
            self.mount_on_top(inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::parse;

    const MOUNTS: &str = "\
1 0 8:1 / / rw - ext4 /dev/sda rw
2 1 0:1 / /proc rw - proc proc rw
3 1 0:2 / /home/ann/data rw - nfs4 server:/data rw
4 1 0:3 / /etc/hosts rw - ext4 /dev/sda rw
5 1 0:4 / /snap/x ro - squashfs /dev/loop0 ro
6 1 0:5 / /run rw - tmpfs tmpfs rw
";

    fn list(path: &Path) -> Vec<Entry> {
        let directory = |path: &str| Entry::Directory(path.into());
        match path.to_str().unwrap() {
            "/" => vec![
                Entry::Link("/bin".into()),
                directory("/etc"),
                directory("/home"),
                Entry::Other("/init".into()),
                directory("/proc"),
                directory("/run"),
                directory("/usr"),
            ],
            "/etc" => vec![
                Entry::Other("/etc/hosts".into()),
                Entry::Other("/etc/passwd".into()),
                directory("/etc/ssl"),
            ],
            "/home" => vec![directory("/home/ann")],
            "/home/ann" => vec![directory("/home/ann/data"), directory("/home/ann/work")],
            _ => Vec::new(),
        }
    }

    fn placed(privileged: bool) -> Vec<String> {
        let placements = layout(&parse(MOUNTS.as_bytes()), privileged, &list).placements;
        placements
            .iter()
            .map(|placement| match placement {
                Placement::Overlay(path) => format!("overlay {}", path.display()),
                Placement::ReadOnly(path) => format!("read-only {}", path.display()),
            })
            .collect()
    }

    #[test]
    fn without_privileges_a_directory_with_mounts_below_is_placed_entry_by_entry() {
        assert_eq!(
            placed(false),
            [
                "read-only /etc/hosts",
                "read-only /etc/passwd",
                "overlay /etc/ssl",
                "overlay /home/ann/data",
                "overlay /home/ann/work",
                "read-only /init",
                "overlay /run",
                "overlay /usr",
            ]
        );
    }

    #[test]
    fn with_privileges_mounts_are_put_back_on_top_of_the_overlay() {
        assert_eq!(
            placed(true),
            [
                "overlay /etc",
                "overlay /etc/hosts",
                "overlay /home",
                "overlay /home/ann/data",
                "read-only /init",
                "overlay /run",
                "overlay /usr",
            ]
        );
    }

    #[test]
    fn a_directory_inside_an_overlay_can_have_its_own() {
        let mut layout = layout(&parse(MOUNTS.as_bytes()), false, &list);
        let n_before = layout.placements.len();
        layout.cover(Path::new("/home/ann/work/project"));
        layout.cover(Path::new("/home/ann/work/project"));
        layout.cover(Path::new("/etc/hosts"));
        assert_eq!(layout.placements.len(), n_before + 1);
        let at = |path: &str| {
            let overlay = Placement::Overlay(path.into());
            layout.placements.iter().position(|it| *it == overlay)
        };
        assert_eq!(
            at("/home/ann/work/project"),
            at("/home/ann/work").map(|before| before + 1)
        );
    }

    #[test]
    fn every_entry_of_a_directory_that_is_created_again_has_a_stub() {
        let stubs = layout(&parse(MOUNTS.as_bytes()), false, &list).stubs;
        assert!(stubs.contains(&Stub::Link("/bin".into())));
        assert!(stubs.contains(&Stub::Directory("/proc".into())));
        assert!(stubs.contains(&Stub::File("/etc/hosts".into())));
        assert!(stubs.contains(&Stub::Directory("/home/ann/work".into())));
        assert!(!stubs.contains(&Stub::Directory("/usr/lib".into())));
    }
}
