//! The files of a dataset: how to read them, and their names in messages.

use std::path::Path;

use brimful::units::Bytes;

use crate::error::SourceError;
use crate::location::is_remote;
use crate::problem::Problem;
use crate::reading::{Choice, choose_among};

/// How to read all of these files.
pub(crate) fn choice_of<'a>(
    paths: impl IntoIterator<Item = &'a Path> + Clone,
    headroom: Option<Bytes>,
) -> Result<Choice, SourceError> {
    let mut bytes = 0_u64;
    for path in paths.clone() {
        bytes = bytes.saturating_add(file_bytes(path)?);
    }
    Ok(choose_among(paths, Bytes(bytes), headroom))
}

/// Bytes of a file that the page cache may keep: none of an object in a store, which tells its size when it is opened.
fn file_bytes(path: &Path) -> Result<u64, SourceError> {
    if is_remote(path) {
        return Ok(0);
    }
    let metadata = std::fs::metadata(path).map_err(|cause| Problem::from(cause).of(path))?;
    if metadata.is_file() {
        Ok(metadata.len())
    } else {
        Err(Problem::malformed("a file", "something else").of(path))
    }
}

/// Where a footer of `len` bytes begins that ends at `end`. Longer ones than `longest` are not read.
pub(crate) fn footer_start(end: u64, len: u64, longest: u64) -> Result<u64, Problem> {
    let start = end.checked_sub(len).filter(|_| len <= longest);
    start.ok_or_else(|| {
        let most = end.min(longest);
        Problem::malformed(
            format!("a footer of at most {most} bytes"),
            format!("{len}"),
        )
    })
}

/// The name of a file without its folders, for messages.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}
