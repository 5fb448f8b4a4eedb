//! One file or folder per format.

mod arrow;
mod folder;
mod hdf5;
mod lines;
mod listing;
mod names;
mod npy;
mod numbered;
mod parquet;
mod part;
mod problem;
mod tar;
#[cfg(test)]
pub(crate) mod testing;
mod tokens;
#[cfg(test)]
mod truncated;

pub use arrow::ArrowFile;
pub use folder::{Folder, FolderOptions, Labels};
pub use hdf5::{Hdf5, Holds, Listed, Wanted};
pub use lines::Lines;
pub use npy::Npy;
pub use numbered::Numbered;
pub use parquet::{CACHE, Parquet};
pub use part::Part;
pub(crate) use problem::Problem;
pub use tar::{TarField, Tars};
pub(crate) use tokens::{DocumentsHeader, HEADER_BYTES, documents_path};
pub use tokens::{TokenForm, Tokens};
