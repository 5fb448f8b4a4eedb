//! The names in one physical directory.

use crate::errno::Outcome;
use crate::path::PathBuf;
use crate::sys::{self, int, pointer};

/// One name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryKind {
    /// `DT_REG` and its like.
    pub file_type: u8,
    pub inode: u64,
}

/// Calls `each` with every name in one physical directory, without the dots, until it gives false.
pub(crate) fn each_entry(
    directory: &mut PathBuf,
    each: &mut dyn FnMut(&[u8], EntryKind) -> Outcome<bool>,
) -> Outcome<()> {
    let fd = sys::open(directory, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let mut buffer = [0_u64; 1024];
    loop {
        let size = size_of_val(&buffer);
        let len = sys::call(
            libc::SYS_getdents64,
            [int(fd.0), pointer(buffer.as_mut_ptr()), size, 0, 0, 0],
        )?;
        if len == 0 {
            return Ok(());
        }
        // SAFETY: the same memory as bytes; the kernel filled the first `len` of them.
        let mut rest = unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), len) };
        while let Some((head, _)) = rest.split_at_checked(19) {
            let number = |at: usize, n: usize| {
                head.get(at..at + n)
                    .unwrap_or_default()
                    .iter()
                    .rev()
                    .fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
            };
            let record = usize::try_from(number(16, 2)).unwrap_or(0).max(19);
            let kind = EntryKind {
                file_type: head.get(18).copied().unwrap_or(0),
                inode: number(0, 8),
            };
            let name = rest.get(19..record).unwrap_or_default();
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            if name != b"." && name != b".." && !each(name, kind)? {
                return Ok(());
            }
            rest = rest.get(record..).unwrap_or_default();
        }
    }
}

/// All names in one physical directory.
pub(crate) fn names(directory: &mut PathBuf) -> Outcome<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    each_entry(directory, &mut |name, _| {
        names.push(name.to_vec());
        Ok(true)
    })?;
    Ok(names)
}
