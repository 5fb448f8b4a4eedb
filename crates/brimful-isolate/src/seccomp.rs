//! Denies what Landlock does not see: changes of permissions, owners, times and extended attributes, and memory and queues
//! that are shared with other programs.
//!
//! A filter cannot look at paths. The library that redirects writes therefore marks its own calls, which change files in
//! scratch, with a random number in the sixth argument, which none of these system calls use.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// The argument that holds the mark.
const MARK_ARGUMENT: u8 = 5;

/// System calls without a name in the libc crate; the numbers are the same on all architectures.
const NEWER_CALLS: [libc::c_long; 4] = [
    452, // fchmodat2
    463, // setxattrat
    466, // removexattrat
    469, // file_setattr
];
const SYS_IO_URING_SETUP: libc::c_long = 425;

/// Calls that change a file without opening it for writing.
fn denied_calls(deny_truncate: bool) -> Vec<libc::c_long> {
    let mut calls = vec![
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_utimensat,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        libc::SYS_chmod,
        libc::SYS_chown,
        libc::SYS_lchown,
        libc::SYS_utime,
        libc::SYS_utimes,
        libc::SYS_futimesat,
    ]);
    calls.extend(NEWER_CALLS);
    if deny_truncate {
        calls.push(libc::SYS_truncate);
    }
    calls
}

/// System V and POSIX IPC. Neither torch nor `multiprocessing` uses them, and others fall back.
fn ipc_calls() -> [libc::c_long; 13] {
    [
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_shmctl,
        libc::SYS_semget,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_semctl,
        libc::SYS_msgget,
        libc::SYS_msgsnd,
        libc::SYS_msgrcv,
        libc::SYS_msgctl,
        libc::SYS_mq_open,
        libc::SYS_mq_unlink,
    ]
}

/// The filters. `deny_truncate` where Landlock does not know truncation (before its ABI 3).
pub(crate) fn filters(mark: u64, deny_truncate: bool) -> Result<Vec<BpfProgram>, String> {
    let text = |error: seccompiler::BackendError| error.to_string();
    let without_mark = SeccompCondition::new(
        MARK_ARGUMENT,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::Ne,
        mark,
    )
    .map_err(text)?;
    let rule = SeccompRule::new(vec![without_mark]).map_err(text)?;
    let denied: BTreeMap<i64, Vec<SeccompRule>> = denied_calls(deny_truncate)
        .into_iter()
        .map(|call| (call, vec![rule.clone()]))
        .collect();
    // Requests through io_uring pass no filter; programs fall back to ordinary calls.
    let absent = BTreeMap::from([(SYS_IO_URING_SETUP, Vec::new())]);
    let shared = ipc_calls().map(|call| (call, Vec::new())).into();
    [
        (denied, libc::EPERM),
        (absent, libc::ENOSYS),
        (shared, libc::EACCES),
    ]
    .into_iter()
    .map(|(rules, errno)| {
        let filter = SeccompFilter::new(
            rules,
            SeccompAction::Allow,
            SeccompAction::Errno(errno.cast_unsigned()),
            std::env::consts::ARCH.try_into().map_err(text)?,
        )
        .map_err(text)?;
        filter.try_into().map_err(text)
    })
    .collect()
}

/// Applies the filters to this process and its children.
pub(crate) fn apply(filters: &[BpfProgram]) -> Result<(), String> {
    for filter in filters {
        seccompiler::apply_filter(filter).map_err(|error| error.to_string())?;
    }
    Ok(())
}
