//! Parsers of `/proc/self/cgroup`, `/proc/self/mountinfo` and the memory files, as pure functions of text.

use brimful::units::Bytes;

/// One line of `/proc/self/cgroup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub controllers: Vec<String>,
    pub is_v2: bool,
    pub path: String,
}

/// One line of `/proc/self/mountinfo`, the fields that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// What part of the filesystem is mounted.
    pub root: String,
    pub mount_point: String,
    pub kind: String,
    /// Options of the filesystem itself (the "super options").
    pub options: String,
}

/// Reads the lines that are in their usual form, and passes over the rest.
pub fn memberships(text: &str) -> Vec<Membership> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let id = fields.next()?;
            let controllers = fields.next()?;
            let path = fields.next()?;
            if !path.starts_with('/') {
                return None;
            }
            Some(Membership {
                is_v2: id == "0" && controllers.is_empty(),
                controllers: controllers
                    .split(',')
                    .filter(|name| !name.is_empty())
                    .map(Into::into)
                    .collect(),
                path: path.into(),
            })
        })
        .collect()
}

/// Reads the lines that are in their usual form, and passes over the rest.
pub fn mounts(text: &str) -> Vec<Mount> {
    text.lines()
        .filter_map(|line| {
            // 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
            let (before, after) = line.split_once(" - ")?;
            let mut before = before.split(' ').skip(3);
            let mut after = after.split(' ');
            Some(Mount {
                root: unescape(before.next()?),
                mount_point: unescape(before.next()?),
                kind: after.next()?.into(),
                options: after.nth(1).unwrap_or_default().into(),
            })
        })
        .collect()
}

/// The kernel writes blanks and backslashes in paths as `\040`.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 4).and_then(octal);
        match (bytes[at], code) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                at += 4;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn octal(digits: &[u8]) -> Option<u8> {
    digits.iter().try_fold(0_u8, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value.checked_mul(8)?.checked_add(digit)
    })
}

/// What is left of `path` below `prefix`; `None` where it is not below, or climbs with `..`.
pub fn strip_path_prefix<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    if path.split('/').any(|part| part == "..") {
        return None;
    }
    let prefix = prefix.trim_end_matches('/');
    let rest = path.strip_prefix(prefix)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// A v2 limit: a number of bytes, or `max`.
pub fn v2_limit(text: &str) -> Option<Option<Bytes>> {
    match text.trim() {
        "max" => Some(None),
        number => number.parse().ok().map(|bytes| Some(Bytes(bytes))),
    }
}

/// A v1 limit. "No limit" is written as the largest multiple of the page size, which differs by page size.
pub fn v1_limit(text: &str) -> Option<Option<Bytes>> {
    const MAX_PAGE: u64 = 64 * Bytes::KIB;
    let text = text.trim();
    if text == "-1" {
        return Some(None);
    }
    let bytes: u64 = text.parse().ok()?;
    let unlimited = bytes >= i64::MAX.unsigned_abs() - MAX_PAGE;
    Some((!unlimited).then_some(Bytes(bytes)))
}

/// `cpu.max`: processors as quota over period, or `max`.
pub fn v2_cpu_quota(text: &str) -> Option<Option<f64>> {
    let mut fields = text.split_ascii_whitespace();
    let quota = fields.next()?;
    if quota == "max" {
        return Some(None);
    }
    let period = fields.next().unwrap_or("100000");
    cpu_share(quota.parse().ok()?, period.parse().ok()?)
}

/// `cpu.cfs_quota_us` and `cpu.cfs_period_us`; a negative quota is "no quota".
pub fn v1_cpu_quota(quota: i64, period: i64) -> Option<Option<f64>> {
    if quota < 0 {
        return Some(None);
    }
    cpu_share(quota, period)
}

fn cpu_share(quota: i64, period: i64) -> Option<Option<f64>> {
    (quota > 0 && period > 0).then(|| Some(quota as f64 / period as f64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn memberships_of_a_hybrid_system() {
        let text =
            "9:name=systemd:/\n4:memory:/a:b/c\n1:cpu,cpuacct:/x\n0::/user.slice\nnonsense\n7:x\n";
        let found = memberships(text);
        assert_eq!(found.len(), 4);
        assert_eq!(found[1].path, "/a:b/c");
        assert_eq!(found[2].controllers, ["cpu", "cpuacct"]);
        assert!(found[3].is_v2);
    }

    #[test]
    fn mounts_with_and_without_optional_fields() {
        let text = "30 23 0:26 /docker/ab /sys/fs/cgroup/memory ro,nosuid master:9 shared:3 - cgroup cgroup rw,memory\n\
                    31 23 0:27 / /mnt/a\\040b rw - tmpfs tmpfs rw,size=65536k\n\
                    half a line\n";
        let found = mounts(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].root, "/docker/ab");
        assert_eq!(found[0].options, "rw,memory");
        assert_eq!(found[1].mount_point, "/mnt/a b");
    }

    #[test]
    fn prefixes_end_at_a_separator() {
        assert_eq!(strip_path_prefix("/docker/ab/c", "/docker/ab"), Some("/c"));
        assert_eq!(strip_path_prefix("/docker/ab", "/docker/ab"), Some(""));
        assert_eq!(strip_path_prefix("/docker/abc", "/docker/ab"), None);
        assert_eq!(strip_path_prefix("/a/b", "/"), Some("/a/b"));
        assert_eq!(strip_path_prefix("/../../etc", "/"), None);
    }

    #[test]
    fn limits_and_their_absence() {
        assert_eq!(v2_limit("max\n"), Some(None));
        assert_eq!(v2_limit("536870912\n"), Some(Some(Bytes(536_870_912))));
        assert_eq!(v2_limit("much"), None);
        assert_eq!(v2_limit("-5"), None);
        assert_eq!(v1_limit("9223372036854771712\n"), Some(None)); // 4 KiB pages
        assert_eq!(v1_limit("9223372036854710272\n"), Some(None)); // 64 KiB pages
        assert_eq!(v1_limit("18446744073709551615"), Some(None));
        assert_eq!(v1_limit("1073741824"), Some(Some(Bytes(1 << 30))));
        assert_eq!(v1_limit(""), None);
    }

    #[test]
    fn processor_quotas() {
        assert_eq!(v2_cpu_quota("max 100000"), Some(None));
        assert_eq!(v2_cpu_quota("250000 100000"), Some(Some(2.5)));
        assert_eq!(v2_cpu_quota("0 100000"), None);
        assert_eq!(v2_cpu_quota("5 0"), None);
        assert_eq!(v1_cpu_quota(-1, 100_000), Some(None));
        assert_eq!(v1_cpu_quota(50_000, 100_000), Some(Some(0.5)));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,200}") {
            let _ = memberships(&text);
            let _ = mounts(&text);
            let _ = v1_limit(&text);
            let _ = v2_limit(&text);
            let _ = v2_cpu_quota(&text);
        }

        #[test]
        fn escapes_of_any_kind_do_not_panic(text in r"[\\0-9a-z]{0,40}") {
            let _ = unescape(&text);
        }
    }
}
