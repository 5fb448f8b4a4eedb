//! One file or folder per format.

mod folder;
mod hdf5;
mod listing;
mod names;
mod tar;

pub use folder::{Folder, FolderOptions, Labels};
pub use hdf5::{Hdf5, Holds, Listed, Wanted};
pub use tar::{TarField, Tars};
