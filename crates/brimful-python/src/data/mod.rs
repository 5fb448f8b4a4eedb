//! `brimful.data`: datasets, ops and the loader.

mod array;
mod dataset;
mod loader;
mod pack;
mod prepare;

pub(crate) use array::BatchArray;
pub(crate) use dataset::{
    NativeDataset, open_arrow, open_folder, open_hdf5, open_lines, open_npy, open_parquet,
    open_raw, open_tar, open_tokens, quiet_decoder_panics,
};
pub(crate) use loader::{NativeEpoch, NativeLoader};
pub(crate) use pack::NativePacking;
pub(crate) use prepare::{
    NativeCoordinator, NativePreparing, NativeRecipe, check_report, file_sizes, prepare_tasks,
    read_manifest, run_prepare_task,
};

/// An error with what caused it, in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
