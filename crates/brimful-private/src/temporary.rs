//! Temporary directories that only this user can enter.

use std::io;
use std::path::{Path, PathBuf};

use crate::walk::{Missing, walk};
use crate::{directory, name, trust};

const TRIES: u32 = 16;

/// A directory of mode 0700 that is removed at the end.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
    is_kept: bool,
}

impl TempDir {
    /// Without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the directory where it is, or where it was moved to.
    pub fn keep(mut self) -> PathBuf {
        self.is_kept = true;
        std::mem::take(&mut self.path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if !self.is_kept {
            // Does not follow links. What cannot be removed is left for the system to clean up.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// A new directory `PREFIX` + random letters in the first of `places` that is there, in which nobody else can replace
/// it, and which takes one.
pub fn temporary_directory(places: &[impl AsRef<Path>], prefix: &str) -> io::Result<TempDir> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for place in places {
        match temporary_in(place.as_ref(), prefix) {
            Ok(made) => return Ok(made),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn temporary_in(place: &Path, prefix: &str) -> io::Result<TempDir> {
    let reached = walk(place, Missing::Fail)?;
    trust::check(&reached.path, &reached.stat)?;
    for _ in 0..TRIES {
        let path = reached.path.join(format!("{prefix}{}", name::random()));
        match directory::new_directory(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                return made.map(|()| TempDir {
                    path,
                    is_kept: false,
                });
            }
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    #[test]
    fn the_first_place_that_is_safe_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().canonicalize().unwrap().join(name);
        for (name, mode) in [("open", 0o777), ("good", 0o1777)] {
            fs::create_dir(at(name)).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let places = [at("missing"), at("open"), at("good")];
        let made = temporary_directory(&places, "x-").unwrap();
        assert_eq!(made.path().parent(), Some(at("good").as_path()));
        assert_eq!(made.path().metadata().unwrap().mode() & 0o7777, 0o700);
        let error = temporary_directory(&places[..2], "x-").unwrap_err();
        assert!(error.to_string().contains("open` can be changed"));
    }

    #[test]
    fn it_is_removed_and_what_links_lead_to_is_not() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("outside")).unwrap();
        fs::write(root.path().join("outside/file"), "").unwrap();
        let made = temporary_directory(&[root.path()], "x-").unwrap();
        let path = made.path().to_owned();
        symlink(root.path().join("outside"), path.join("link")).unwrap();
        drop(made);
        assert!(!path.exists());
        assert!(root.path().join("outside/file").exists());
        let kept = temporary_directory(&[root.path()], "x-").unwrap().keep();
        assert!(kept.is_dir());
    }
}
