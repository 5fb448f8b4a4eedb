//! Which files of a directory are samples, and where their labels come from.

use brimful::units::Bytes;

/// Where the label of a sample comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Labels {
    /// There are none; all files below the root are samples.
    #[default]
    None,
    /// Directories in the root are classes, all files below them samples.
    Classes,
    /// Directories in the root are classes, files below `root/class/SPLIT` samples. The classes are the same in each split.
    ClassesWithSplit(String),
}

/// What is taken from a directory.
#[derive(Clone, Debug)]
pub struct FolderOptions {
    /// `jpg`, `png`: files with other names are left out; any case. Empty takes all files.
    pub extensions: Vec<String>,
    pub labels: Labels,
    /// Larger files are errors.
    pub max_file_bytes: Bytes,
    /// Memory that is free for the data and the loader; nothing where that is not known.
    pub headroom: Option<Bytes>,
}

impl Default for FolderOptions {
    fn default() -> FolderOptions {
        FolderOptions {
            extensions: Vec::new(),
            labels: Labels::None,
            max_file_bytes: Bytes::from_gib(1),
            headroom: None,
        }
    }
}
