//! Bounded reads of small text files below one root.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use brimful::fact::{Fact, Gap};

/// No file read here is larger on a healthy machine; a mount table of a busy container host comes closest.
const MAX_BYTES: u64 = 4 << 20;

/// A root directory below which files are looked up by their absolute names.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    root: PathBuf,
}

impl Files {
    pub(crate) fn new(root: &Path) -> Files {
        Files {
            root: root.to_owned(),
        }
    }

    /// Where an absolute name really lies.
    pub(crate) fn locate(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.locate(path).exists()
    }

    /// The text of a file, at most [`MAX_BYTES`] of it; bytes that are not UTF-8 are replaced.
    pub(crate) fn text(&self, path: &str) -> Fact<String> {
        self.text_up_to(path, MAX_BYTES)
    }

    pub(crate) fn text_up_to(&self, path: &str, max_bytes: u64) -> Fact<String> {
        match read_up_to(&self.locate(path), max_bytes) {
            Ok(bytes) => Fact::Known(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Fact::Missing(Gap::FileMissing { path: path.into() })
            }
            Err(error) => Fact::Missing(Gap::FileUnreadable {
                path: path.into(),
                error: error.to_string(),
            }),
        }
    }

    /// Reads a file and makes a value of it; `None` from `parse` is "not in its usual form".
    pub(crate) fn parsed<T>(&self, path: &str, parse: impl FnOnce(&str) -> Option<T>) -> Fact<T> {
        self.text(path).and_then(|text| match parse(&text) {
            Some(value) => Fact::Known(value),
            None => Fact::Missing(malformed(path, &text)),
        })
    }

    /// Reads one whole number.
    pub(crate) fn number<T: std::str::FromStr>(&self, path: &str) -> Fact<T> {
        self.parsed(path, |text| text.trim().parse().ok())
    }

    /// Where a symbolic link leads; `None` where there is none.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.locate(path)).ok()?;
        target.into_os_string().into_string().ok()
    }

    /// The names in a directory, at most `most` of them, sorted.
    pub(crate) fn names(&self, path: &str, most: usize) -> Fact<Vec<String>> {
        match std::fs::read_dir(self.locate(path)) {
            Ok(entries) => {
                let mut names: Vec<String> = entries
                    .take(most)
                    .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                    .collect();
                names.sort();
                Fact::Known(names)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Fact::Missing(Gap::FileMissing { path: path.into() })
            }
            Err(error) => Fact::Missing(Gap::FileUnreadable {
                path: path.into(),
                error: error.to_string(),
            }),
        }
    }
}

fn read_up_to(path: &Path, max_bytes: u64) -> std::io::Result<Vec<u8>> {
    // A recorded tree is untrusted: opening a fifo or a device in it would stall the probe.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(max_bytes).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A gap that shows the first characters of what was found.
pub(crate) fn malformed(path: &str, found: &str) -> Gap {
    Gap::FileMalformed {
        path: path.into(),
        found: found.trim().chars().take(60).collect(),
    }
}

/// Parsers of the kernel's plain formats, as pure functions of text.
pub mod parse {
    /// The value of `name` in lines of `name value` or `name: value kB`.
    pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
        text.lines().find_map(|line| {
            let rest = line.trim_start().strip_prefix(name)?;
            let rest = rest.strip_prefix(':').unwrap_or(rest);
            rest.starts_with([' ', '\t']).then(|| rest.trim())
        })
    }

    /// A counter such as `anon 4096` in `memory.stat`.
    pub fn counter(text: &str, name: &str) -> Option<u64> {
        field(text, name)?.parse().ok()
    }

    /// A line of `/proc/meminfo`, in bytes.
    pub fn meminfo_bytes(text: &str, name: &str) -> Option<u64> {
        let value = field(text, name)?;
        let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
        let number: u64 = number.parse().ok()?;
        match unit.trim() {
            "kB" => number.checked_mul(1024),
            "" => Some(number),
            _ => None,
        }
    }

    /// How many numbers a list such as `0-3,8,10-11` holds; `None` where it is not such a list.
    pub fn list_length(text: &str) -> Option<u32> {
        let text = text.trim();
        if text.is_empty() {
            return Some(0);
        }
        let mut length: u32 = 0;
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.trim().parse().ok()?;
            let last: u32 = last.trim().parse().ok()?;
            let count = last.checked_sub(first)?.checked_add(1)?;
            length = length.checked_add(count)?;
        }
        Some(length)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn fields_are_whole_names() {
            let text = "MemTotal:       24682416 kB\nMemFree:  1 kB\nanon 5\nanon_thp 7\n";
            assert_eq!(meminfo_bytes(text, "MemTotal"), Some(24_682_416 * 1024));
            assert_eq!(meminfo_bytes(text, "Mem"), None);
            assert_eq!(counter(text, "anon"), Some(5));
            assert_eq!(meminfo_bytes("MemTotal: lots kB", "MemTotal"), None);
            assert_eq!(
                meminfo_bytes("MemTotal: 18446744073709551615 kB", "MemTotal"),
                None
            );
            assert_eq!(meminfo_bytes("MemTotal: 5 bananas", "MemTotal"), None);
        }

        #[test]
        fn lists_of_numbers() {
            assert_eq!(list_length("0-3"), Some(4));
            assert_eq!(list_length("0-3,8,10-11\n"), Some(7));
            assert_eq!(list_length(""), Some(0));
            assert_eq!(list_length("3-0"), None);
            assert_eq!(list_length("0-4294967295"), None);
            assert_eq!(list_length("a"), None);
        }
    }
}
