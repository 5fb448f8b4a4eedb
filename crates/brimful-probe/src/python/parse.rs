//! Parsers of the files that describe a Python installation, as pure functions of text.

use brimful::machine::{Accelerator, PythonVersion};

/// The value of a `key = value` line of `pyvenv.cfg`; keys are not case-sensitive.
pub fn pyvenv_value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        name.trim().eq_ignore_ascii_case(key).then(|| value.trim())
    })
}

/// The version in a name such as `python3.11`.
pub fn version_in_name(name: &str) -> Option<PythonVersion> {
    let rest = name.strip_prefix("python")?;
    // `python3.11-config` and `python3.13t` are no plain interpreters' directories.
    rest.bytes()
        .all(|b| b.is_ascii_digit() || b == b'.')
        .then(|| PythonVersion::parse(rest))?
}

/// `__version__` and the accelerator of `torch/version.py`.
///
/// The file is a list of assignments, `cuda = '11.7'` up to torch 2.1 and `cuda: Optional[str] = '12.8'` since.
pub fn torch_version_file(text: &str) -> Option<(String, Accelerator)> {
    let version = assigned(text, "__version__")?.filter(|version| !version.is_empty())?;
    let cuda = assigned(text, "cuda").flatten();
    let hip = assigned(text, "hip").flatten();
    let accelerator = match (cuda, hip) {
        (_, Some(hip)) => Accelerator::Rocm(hip),
        (Some(cuda), None) => {
            let (major, minor) = cuda.split_once('.')?;
            Accelerator::Cuda {
                major: major.parse().ok()?,
                minor: minor.parse().ok()?,
            }
        }
        (None, None) => Accelerator::None,
    };
    Some((version, accelerator))
}

/// What a line assigns to `name`: `Some(None)` for Python's `None`.
fn assigned(text: &str, name: &str) -> Option<Option<String>> {
    text.lines().take(200).find_map(|line| {
        let rest = line.strip_prefix(name)?;
        let rest = rest.trim_start();
        if !rest.starts_with([':', '=']) {
            return None;
        }
        let (_, value) = rest.split_once('=')?;
        let value = value.trim();
        if value == "None" {
            return Some(None);
        }
        let quote = value.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let inner = value.strip_prefix(quote)?.strip_suffix(quote)?;
        (inner.len() <= 100).then(|| Some(inner.to_owned()))
    })
}

/// The `Version:` header of a package's `METADATA`.
pub fn metadata_version(text: &str) -> Option<&str> {
    text.lines()
        .take_while(|line| !line.is_empty())
        .find_map(|line| line.strip_prefix("Version:"))
        .map(str::trim)
        .filter(|version| !version.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Option<(&str, Accelerator)>) {
        let found = torch_version_file(text);
        let expected = expected.map(|(version, accelerator)| (version.to_owned(), accelerator));
        assert_eq!(found, expected);
    }

    #[test]
    fn version_files_of_old_and_new_builds() {
        check(
            "__version__ = '2.0.0+cu117'\ndebug = False\ncuda = '11.7'\ngit_version = 'c263'\nhip = None\n",
            Some((
                "2.0.0+cu117",
                Accelerator::Cuda {
                    major: 11,
                    minor: 7,
                },
            )),
        );
        check(
            "from typing import Optional\n\n__all__ = ['__version__']\n__version__ = '2.9.1+cu128'\n\
             debug = False\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n",
            Some((
                "2.9.1+cu128",
                Accelerator::Cuda {
                    major: 12,
                    minor: 8,
                },
            )),
        );
        check(
            "__version__ = '2.9.1+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n",
            Some(("2.9.1+cpu", Accelerator::None)),
        );
        check(
            "__version__ = '2.9.1+rocm6.4'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4.43482'\n",
            Some(("2.9.1+rocm6.4", Accelerator::Rocm("6.4.43482".into()))),
        );
        check("", None);
        check("__version__ = '", None);
        check("__version__ = '2'\ncuda = 'soon'", None);
    }

    #[test]
    fn names_of_interpreters() {
        assert_eq!(
            version_in_name("python3.11"),
            Some(PythonVersion::new(3, 11))
        );
        assert_eq!(version_in_name("python3"), None);
        assert_eq!(version_in_name("python3.11-config"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s)(__version__|cuda|hip|Version)?.{0,200}") {
            let _ = torch_version_file(&text);
            let _ = pyvenv_value(&text, "home");
            let _ = metadata_version(&text);
            let _ = version_in_name(&text);
        }
    }
}
