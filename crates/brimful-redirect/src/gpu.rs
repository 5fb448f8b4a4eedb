//! NVIDIA's libraries, in whose place the phantom stands, whatever path they are asked for by.

use std::ffi::{CStr, CString};

use crate::path;

/// The names that the phantom takes when it is loaded (`names.rs` there): whoever asks for them gets it without a search.
/// It asks for them itself to take them, so they must come through unchanged.
const TAKEN: [&[u8]; 3] = [b"libcuda.so", b"libcuda.so.1", b"libnvidia-ml.so.1"];

/// Where nothing can ever lie, so that the loader reports a library that does not exist.
const NOWHERE: &[u8] = b"/proc/brimful-hides-the-gpu";

/// What is opened in place of NVIDIA's libraries.
#[derive(Debug)]
pub(crate) struct GpuLibraries {
    cuda: CString,
    nvml: CString,
    /// Whether there is a phantom: without one, this machine's GPU is hidden all the same.
    has_phantom: bool,
}

impl GpuLibraries {
    /// The phantom lies in `directory` under NVIDIA's names.
    pub(crate) fn new(directory: Option<&[u8]>) -> Self {
        let named = |name: &[u8]| {
            let path = [directory.unwrap_or(NOWHERE), b"/", name].concat();
            CString::new(path).unwrap_or_default()
        };
        Self {
            cuda: named(b"libcuda.so.1"),
            nvml: named(b"libnvidia-ml.so.1"),
            has_phantom: directory.is_some(),
        }
    }

    /// What to open when a program opens `path`; `None`: that very path.
    pub(crate) fn in_place_of(&self, path: &[u8]) -> Option<&CStr> {
        let name = path::name(path);
        let library = if name.starts_with(b"libcuda.so") {
            &self.cuda
        } else if name.starts_with(b"libnvidia-ml.so") {
            &self.nvml
        } else {
            return None;
        };
        (!self.has_phantom || !TAKEN.contains(&path)).then_some(library)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(directory: Option<&str>, path: &str, expected: Option<&str>) {
        let libraries = GpuLibraries::new(directory.map(str::as_bytes));
        let found = libraries.in_place_of(path.as_bytes());
        assert_eq!(found.map(|found| found.to_str().unwrap()), expected);
    }

    #[test]
    fn every_path_of_nvidias_libraries_leads_to_the_phantom() {
        for (path, expected) in [
            ("/usr/lib64-nvidia/libcuda.so.1", "/stage/libcuda.so.1"),
            ("/usr/lib/wsl/lib/libcuda.so", "/stage/libcuda.so.1"),
            ("./libcuda.so.535.309.01", "/stage/libcuda.so.1"),
            ("libcuda.so.535.309.01", "/stage/libcuda.so.1"),
            ("/x/libnvidia-ml.so.1", "/stage/libnvidia-ml.so.1"),
            ("libnvidia-ml.so", "/stage/libnvidia-ml.so.1"),
        ] {
            check(Some("/stage"), path, Some(expected));
        }
    }

    #[test]
    fn names_that_the_phantom_takes_and_other_libraries_come_through() {
        for path in [
            "libcuda.so",
            "libcuda.so.1",
            "libnvidia-ml.so.1",
            "libcudart.so.13",
            "/usr/lib/libcuda.so.d/libc10.so",
            "/usr/lib/mylibcuda.so.1",
            "",
        ] {
            check(Some("/stage"), path, None);
        }
    }

    #[test]
    fn without_a_phantom_there_is_no_such_library() {
        for path in ["libcuda.so.1", "/usr/lib64-nvidia/libcuda.so.1"] {
            let nowhere = "/proc/brimful-hides-the-gpu/libcuda.so.1";
            check(None, path, Some(nowhere));
        }
        check(None, "libcudart.so.13", None);
    }
}
