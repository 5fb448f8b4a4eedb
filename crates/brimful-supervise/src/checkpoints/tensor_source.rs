//! Where the tensors of a checkpoint lie.

use std::path::PathBuf;

/// Something that holds storages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TensorSource {
    /// A file, which says by itself of which kind it is.
    File(PathBuf),
    /// An archive of `torch.save` within a file.
    Part {
        path: PathBuf,
        offset: u64,
        length: u64,
    },
}
