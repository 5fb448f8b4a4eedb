//! The mounts of this process, as `/proc/self/mountinfo` lists them. Pure.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// File systems that hold no user's files: kernel interfaces, and mount points that mount others when they are entered.
const KERNEL_FILE_SYSTEMS: &[&str] = &[
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "ramfs",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) id: u64,
    pub(crate) path: PathBuf,
    pub(crate) file_system: String,
    /// The mount or its file system is read-only.
    pub(crate) read_only: bool,
}

impl Mount {
    /// Whether it mounts something else when it is entered.
    pub(crate) fn is_automount(&self) -> bool {
        self.file_system == "autofs"
    }

    /// Whether a user's files may lie on it.
    pub(crate) fn holds_files(&self) -> bool {
        !KERNEL_FILE_SYSTEMS.contains(&self.file_system.as_str())
    }
}

/// Reads the table. Lines that make no sense are left out.
pub(crate) fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .collect()
}

/// `36 35 98:0 /root /mount/point rw,noatime master:1 - ext4 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let path = unescape(fields.nth(3)?);
    let options = fields.next()?;
    // Any number of optional fields, then a dash.
    fields.by_ref().find(|field| *field == b"-")?;
    let file_system = String::from_utf8_lossy(fields.next()?).into_owned();
    let super_options = fields.nth(1).unwrap_or_default();
    Some(Mount {
        id,
        path: PathBuf::from(OsString::from_vec(path)),
        file_system,
        read_only: has_ro(options) || has_ro(super_options),
    })
}

fn has_ro(options: &[u8]) -> bool {
    options.split(|byte| *byte == b',').any(|it| it == b"ro")
}

/// Blanks, tabs, line ends and backslashes are written as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        if first == b'\\'
            && let Some(digits) = after.get(..3)
            && digits.iter().all(|digit| (b'0'..=b'7').contains(digit))
        {
            let value = digits
                .iter()
                .fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
            bytes.push(u8::try_from(value).unwrap_or(b'?'));
            rest = &after[3..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    bytes
}

/// Those below a directory that no other one lies in between, in the order of their paths.
pub(crate) fn directly_below<'a>(mounts: &'a [Mount], directory: &Path) -> Vec<&'a Mount> {
    let below = |mount: &&Mount| mount.path != directory && mount.path.starts_with(directory);
    let mut found: Vec<&Mount> = mounts.iter().filter(below).collect();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    let mut kept: Vec<&Mount> = Vec::new();
    for mount in found {
        if !kept.iter().any(|upper| mount.path.starts_with(&upper.path)) {
            kept.push(mount);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
23 22 0:21 / /proc rw,nosuid - proc proc rw
24 22 0:22 / /home/a\\040b ro,relatime master:1 master:2 - nfs4 server:/x rw
25 22 0:23 / /data rw - xfs /dev/vdb rw
26 25 0:24 / /data/inner rw - tmpfs tmpfs rw
nonsense
";

    #[test]
    fn the_table_is_read_with_escapes_and_optional_fields() {
        let mounts = parse(TABLE.as_bytes());
        let seen: Vec<(&str, &str, bool)> = mounts
            .iter()
            .map(|it| {
                (
                    it.path.to_str().unwrap(),
                    it.file_system.as_str(),
                    it.read_only,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("/", "ext4", false),
                ("/proc", "proc", false),
                ("/home/a b", "nfs4", true),
                ("/data", "xfs", false),
                ("/data/inner", "tmpfs", false),
            ]
        );
        assert!(!mounts[1].holds_files() && mounts[4].holds_files());
    }

    #[test]
    fn only_the_nearest_mounts_lie_directly_below() {
        let mounts = parse(TABLE.as_bytes());
        let below = |path: &str| -> Vec<String> {
            directly_below(&mounts, Path::new(path))
                .iter()
                .map(|it| it.path.display().to_string())
                .collect()
        };
        assert_eq!(below("/"), ["/data", "/home/a b", "/proc"]);
        assert_eq!(below("/data"), ["/data/inner"]);
        assert!(below("/dat").is_empty());
    }
}
