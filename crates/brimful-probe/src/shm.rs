//! `/dev/shm`: how large it is and whose memory it fills.

use brimful::fact::Fact;
use brimful::machine::SharedMemory;
use brimful::units::Bytes;

use crate::cgroup::Mounts;
use crate::cgroup::parse::Mount;

const SHM: &str = "/dev/shm";

/// The size of a filesystem, as `statvfs` gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesystemSpace {
    pub total: Bytes,
    pub free: Bytes,
}

pub(crate) fn read(mounts: &Mounts, space: &Fact<FilesystemSpace>) -> SharedMemory {
    // The last mount on a directory is the one in force.
    let mount = mounts.mounts.as_ref().map(|mounts| {
        mounts
            .iter()
            .rev()
            .find(|mount| mount.mount_point == SHM)
            .cloned()
    });
    let size_option = mount.known().and_then(|mount| size_option(mount.as_ref()?));
    SharedMemory {
        path: SHM.into(),
        total: space
            .as_ref()
            .map(|space| space.total)
            .or_else(|| match size_option {
                Some(bytes) => Fact::Known(bytes),
                None => space.as_ref().map(|space| space.total),
            }),
        free: space.as_ref().map(|space| space.free),
        counts_against_brim: mount.and_then(|mount| match mount {
            Some(mount) => Fact::Known(mount.kind == "tmpfs"),
            None => Fact::unavailable("/dev/shm is not a mount of its own"),
        }),
    }
}

fn size_option(mount: &Mount) -> Option<Bytes> {
    mount
        .options
        .split(',')
        .find_map(|option| option.strip_prefix("size="))?
        .parse()
        .ok()
}
