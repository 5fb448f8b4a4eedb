//! One file per format.

mod folder;
mod listing;
mod names;
mod tar;

pub use folder::{Folder, FolderOptions, Labels};
pub use tar::{TarField, Tars};
