//! One file or folder per format.

mod arrow;
mod concatenated;
mod files;
mod folder;
mod folder_options;
mod hdf5;
mod lines;
mod listing;
mod names;
mod npy;
mod numbered;
mod parquet;
mod part;
mod tar;
#[cfg(test)]
pub(crate) mod testing;
mod tokens;
#[cfg(test)]
mod truncated_tests;

pub use arrow::ArrowFile;
pub use concatenated::Concatenated;
pub use folder::Folder;
pub use folder_options::{FolderOptions, Labels};
pub use hdf5::{DatasetRequest, Hdf5, Holds, Listed};
pub use lines::Lines;
pub use npy::Npy;
pub use numbered::Numbered;
pub use parquet::{CACHE, Parquet, check_parquet};
pub use part::Part;
pub use tar::{TarField, Tars};
pub use tokens::{DocumentsHeader, HEADER_BYTES, TokenForm, Tokens, documents_path};
