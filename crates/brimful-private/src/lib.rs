//! Creates, opens and replaces brimful's own files so that no other user can read or replace them.
//!
//! Directories get mode 0700 and files mode 0600 whatever the umask is. Before a directory is trusted, every directory
//! above it is checked: it must belong to this user or to root, and nobody else may write to it (a sticky directory
//! such as `/tmp` is fine). Below a checked directory of mode 0700 no other user can put, rename or read anything, so
//! plain paths are safe there. Files are opened without following links, and only regular files are opened.
//!
//! Files that the user names (`--output`, `--metrics-file`) follow the umask; [`replace_named`] replaces those.
//!
//! Read first: [`own_directory`] for a directory that the user chose and [`create_directory`] for one of ours.

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests make files of all kinds")
)]

mod accounts;
mod directory;
mod file;
mod name;
mod temporary;
mod trust;
mod walk;

pub use directory::{
    Missing, create_directory, create_missing_directories, new_directory, own_directory,
};
pub use file::{
    append, copy_new, create_named, create_new, is_file, open, open_named, read, replace,
    replace_named, take_over_named, write_named, write_new, write_new_named,
};
pub use temporary::{TempDir, temporary_directory};
pub use trust::Untrusted;
