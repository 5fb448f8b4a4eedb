//! Which file systems are on another machine, or behind another process.
//!
//! A file there can lose its bytes or become unreachable without anybody on this machine having touched it, and the kernel
//! reports that to a mapping only by SIGBUS. A `read` gets an error that says what happened. So files there are read, not
//! mapped.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

/// `f_type` of `statfs`, and what the file system is called. From the kernel's `include/uapi/linux/magic.h`
/// (`fs/orangefs/protocol.h` for OrangeFS) and, for file systems outside the kernel, from the table in `src/stat.c` of
/// coreutils, which marks those that are remote; November 2026. Not in it, though marked there: overlayfs, which is
/// what containers have on a local disk.
const NETWORK: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0xAAD7_AAEA, "PanFS"),
    (0x2003_0528, "OrangeFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x564C, "NCP"),
    (0x6163_6673, "ACFS"),
    (0xBEEF_DEAD, "SNFS"),
    (0x0131_11A8, "IBRIX"),
    // Also virtiofs, gcsfuse, s3fs, sshfs, JuiceFS and rclone: a process stands behind it, and may end.
    (0x6573_5546, "FUSE"),
    // Directories of the host in a virtual machine or a container (WSL, gVisor, QEMU, VirtualBox, Parallels, VMware).
    (0x0102_1997, "9p"),
    (0x786F_4256, "VirtualBox"),
    (0x7C7C_6673, "Parallels"),
    (0xBACB_ACBC, "VMware"),
];

/// The name of a network file system by its `f_type`.
pub(crate) fn name_of(f_type: u32) -> Option<&'static str> {
    NETWORK
        .iter()
        .find(|(magic, _)| *magic == f_type)
        .map(|(_, name)| *name)
}

/// The first of these files that is on a network file system, with its name. Each file system is asked once: on some that
/// is a request to a server.
pub(crate) fn first_of<'a>(
    paths: impl IntoIterator<Item = &'a Path>,
) -> Option<(&'a Path, &'static str)> {
    let mut known = BTreeMap::new();
    paths.into_iter().find_map(|path| {
        let device = std::fs::metadata(path).ok()?.dev();
        let name = *known.entry(device).or_insert_with(|| of_file_system(path));
        name.map(|name| (path, name))
    })
}

/// Files of one dataset that are kept open at most: half of what this process may have. A map needs no open file.
pub(crate) fn max_open_files() -> u64 {
    getrlimit(Resource::Nofile)
        .current
        .map_or(u64::MAX, |files| files / 2)
}

fn of_file_system(path: &Path) -> Option<&'static str> {
    let f_type = rustix::fs::statfs(path).ok()?.f_type;
    // On some machines it is a signed number of 32 bits, on others one of 64.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "all of them have 32 bits"
    )]
    name_of(f_type as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        assert_eq!(name_of(0x6969), Some("NFS"));
        assert_eq!(name_of(0xFE53_4D42), Some("SMB2"));
        // ext4, tmpfs, overlayfs.
        for local in [0xEF53, 0x0102_1994, 0x794C_7630] {
            assert_eq!(name_of(local), None);
        }
        for (at, (magic, name)) in NETWORK.iter().enumerate() {
            let first = NETWORK.iter().position(|(other, _)| other == magic);
            assert_eq!(first, Some(at), "{name} is listed twice");
        }
    }

    #[test]
    fn files_of_this_machine_are_on_no_network() {
        let paths = [Path::new("/proc/self/status"), Path::new("/no/such/file")];
        assert_eq!(first_of(paths), None);
    }
}
