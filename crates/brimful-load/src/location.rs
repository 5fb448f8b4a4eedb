//! Whether a path is the URL of an object, and how it is shown without credentials.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

const SCHEMES: [&str; 5] = ["s3", "gs", "az", "https", "http"];

/// Whether a path is the address of an object.
pub fn is_remote(path: &Path) -> bool {
    parts(path).is_some()
}

/// The same path without credentials: a URL loses its user, its password and what follows the `?`, where signatures are.
pub fn shown(path: &Path) -> Cow<'_, Path> {
    match parts(path) {
        Some((scheme @ ("https" | "http"), rest)) => {
            let rest = rest.split(['?', '#']).next().unwrap_or_default();
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
            Cow::Owned(PathBuf::from(format!("{scheme}://{host}/{path}")))
        }
        _ => Cow::Borrowed(path),
    }
}

/// The scheme and what follows it.
pub(crate) fn parts(path: &Path) -> Option<(&str, &str)> {
    let (scheme, rest) = path.to_str()?.split_once("://")?;
    SCHEMES.contains(&scheme).then_some((scheme, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_url_is_a_path() {
        for path in [
            "/data/x.npy",
            "x.npy",
            "ftp://host/x",
            "s3:/bucket/key",
            "C:\\x",
        ] {
            assert!(!is_remote(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        for (path, expected) in [
            (
                "https://me:secret@host/a/b.npy?X-Amz-Signature=0#1",
                "https://host/a/b.npy",
            ),
            ("https://host?token=secret", "https://host/"),
            ("s3://bucket/a?b#c@d", "s3://bucket/a?b#c@d"),
            ("/data/a?b@c", "/data/a?b@c"),
        ] {
            assert_eq!(shown(Path::new(path)).display().to_string(), expected);
        }
    }
}
