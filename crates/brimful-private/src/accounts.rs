//! Whether a group has members besides this user.
//!
//! Many distributions give each user a group of its own and the umask 002, and many container images make the home
//! directory writable for a group in which nobody else is. Directories of such a group are as safe as the user's own.

use std::ffi::CStr;
use std::sync::OnceLock;

/// The account database of the C library answers within this.
const MAX_ENTRY: usize = 1 << 20;

/// The user whose files these are.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether nobody but this user (and root) is in a group, as far as this machine can know.
pub(crate) fn is_private_group(gid: u32) -> bool {
    static OWN: OnceLock<Option<u32>> = OnceLock::new();
    *OWN.get_or_init(own_group) == Some(gid) || is_unshared(&Files::of_this_machine(), gid, user())
}

/// The user's primary group, if it is called as the user is and has no other members.
fn own_group() -> Option<u32> {
    let (name, gid) = account(user())?;
    let (group, members) = group(gid)?;
    (group == name && members.iter().all(|member| *member == name)).then_some(gid)
}

/// The files in which accounts are listed.
struct Files {
    passwd: String,
    group: String,
    nsswitch: String,
}

impl Files {
    fn of_this_machine() -> Files {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Files {
            passwd: read("/etc/passwd"),
            group: read("/etc/group"),
            nsswitch: read("/etc/nsswitch.conf"),
        }
    }

    /// Whether accounts come from nowhere else: a directory service does not list all of its users.
    fn are_complete(&self) -> bool {
        let sources = self.nsswitch.lines().filter_map(|line| {
            let line = line.split('#').next()?.trim();
            line.strip_prefix("passwd:")
                .or_else(|| line.strip_prefix("group:"))
        });
        !self.passwd.is_empty()
            && sources
                .flat_map(str::split_whitespace)
                .all(|source| matches!(source, "files" | "systemd" | "altfiles"))
    }
}

/// Whether the files of accounts know a group and list nobody else with it.
fn is_unshared(files: &Files, gid: u32, user: u32) -> bool {
    if !files.are_complete() {
        return false;
    }
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
    let mut name = None;
    for line in files.passwd.lines() {
        let mut fields = line.split(':');
        let (account, _) = (fields.next(), fields.next());
        let (uid, primary) = (number(fields.next()), number(fields.next()));
        if uid == Some(user) {
            name = account;
        } else if primary == Some(gid) && uid != Some(0) {
            return false;
        }
    }
    let mut is_known = false;
    for line in files.group.lines() {
        let mut fields = line.split(':').skip(2);
        if number(fields.next()) != Some(gid) {
            continue;
        }
        is_known = true;
        let mut members = fields.next().unwrap_or_default().split(',');
        if !members.all(|member| matches!(member, "" | "root") || Some(member) == name) {
            return false;
        }
    }
    is_known
}

#[expect(unsafe_code, reason = "the account database of the C library")]
fn account(uid: u32) -> Option<(String, u32)> {
    lookup(|buffer| {
        // SAFETY: an all-zero passwd is a valid value of this plain C struct.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: the pointers are to live values, and the length is the buffer's.
        let error = unsafe {
            libc::getpwuid_r(
                uid,
                &raw mut entry,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &raw mut found,
            )
        };
        if error != 0 || found.is_null() {
            return Err(error);
        }
        // SAFETY: the call succeeded, so the name is a C string in the buffer, which is still borrowed.
        let name = unsafe { CStr::from_ptr(entry.pw_name) };
        Ok((name.to_string_lossy().into_owned(), entry.pw_gid))
    })
}

#[expect(unsafe_code, reason = "the group database of the C library")]
fn group(gid: u32) -> Option<(String, Vec<String>)> {
    lookup(|buffer| {
        // SAFETY: an all-zero group is a valid value of this plain C struct.
        let mut entry: libc::group = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: the pointers are to live values, and the length is the buffer's.
        let error = unsafe {
            libc::getgrgid_r(
                gid,
                &raw mut entry,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &raw mut found,
            )
        };
        if error != 0 || found.is_null() {
            return Err(error);
        }
        // SAFETY: the call succeeded, so the name is a C string in the buffer, which is still borrowed.
        let name = unsafe { CStr::from_ptr(entry.gr_name) };
        let mut members = Vec::new();
        let mut next = entry.gr_mem;
        // SAFETY: `gr_mem` is a list of C strings in the buffer that ends with a null pointer.
        while let Some(member) = unsafe { next.as_ref() }.filter(|member| !member.is_null()) {
            // SAFETY: as above.
            let member = unsafe { CStr::from_ptr(*member) };
            members.push(member.to_string_lossy().into_owned());
            // SAFETY: the entry was not the null pointer at the end, so there is one behind it.
            next = unsafe { next.add(1) };
        }
        Ok((name.to_string_lossy().into_owned(), members))
    })
}

/// Asks with a larger buffer as long as the C library wants one.
fn lookup<T>(mut ask: impl FnMut(&mut [u8]) -> Result<T, i32>) -> Option<T> {
    let mut size = 4096;
    while size <= MAX_ENTRY {
        match ask(&mut vec![0; size]) {
            Ok(found) => return Some(found),
            Err(libc::ERANGE) => size *= 4,
            Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_and_groups_are_found() {
        let (name, gid) = account(0).unwrap();
        assert_eq!((name.as_str(), gid), ("root", 0));
        assert_eq!(group(0).unwrap().0, "root");
        assert_eq!(account(u32::MAX - 7), None);
        assert_eq!(group(u32::MAX - 7), None);
    }

    fn unshared(passwd: &str, group: &str, nsswitch: &str) -> bool {
        let root = "root:x:0:0:root:/root:/bin/sh\n";
        let files = Files {
            passwd: format!("{root}{passwd}"),
            group: group.to_owned(),
            nsswitch: nsswitch.to_owned(),
        };
        is_unshared(&files, 100, 1000)
    }

    #[test]
    fn a_group_is_private_where_all_accounts_are_known_and_no_other_is_in_it() {
        let me = "me:x:1000:100::/home/me:/bin/sh\n";
        let other = "you:x:1001:100::/home/you:/bin/sh\n";
        let files = "# all\npasswd: files systemd # local\ngroup: files\nhosts: files dns\n";
        assert!(unshared(me, "users:x:100:\n", files));
        assert!(unshared(me, "users:x:100:me\nother:x:101:you\n", ""));
        assert!(
            unshared("", "users:x:100:\n", files),
            "a user without an account, as in containers"
        );
        assert!(!unshared(me, "other:x:101:\n", files), "not a known group");
        assert!(!unshared(&format!("{me}{other}"), "users:x:100:\n", files));
        assert!(!unshared(me, "users:x:100:me,you\n", files));
        assert!(!unshared(me, "users:x:100:\n", "passwd: files sss\n"));
        assert!(!unshared(
            me,
            "users:x:100:\n",
            "passwd: files\ngroup: files ldap\n"
        ));
        let nothing = Files {
            passwd: String::new(),
            group: String::new(),
            nsswitch: String::new(),
        };
        assert!(!is_unshared(&nothing, 100, 1000));
    }
}
