//! `brimful._native`: the Python extension. Converts values and maps errors; decides nothing.
//!
//! Private: users import from `brimful`, whose Python files give these functions their shape and their words.
//! The stub `python/brimful/_native.pyi` is made from this crate by `cargo xtask generate`.

mod border;
mod compare;
mod data;
mod explain;
mod fleet;
mod hints;
mod live;
mod machine;
mod otlp;
mod plan;
mod predict;
mod progress;
mod rehearsal;
mod report;
mod share;

use pyo3::pymodule;

/// The compiled part of brimful. Import `brimful` instead.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::compare::compare;
    #[pymodule_export]
    use crate::data::{
        BatchArray, NativeCoordinator, NativeDataset, NativeEpoch, NativeLoader, NativePacking,
        NativePreparing, NativeRecipe, check_report, file_sizes, open_arrow, open_folder,
        open_hdf5, open_lines, open_npy, open_parquet, open_raw, open_tar, open_tokens,
        prepare_tasks, read_manifest, run_prepare_task,
    };
    #[pymodule_export]
    use crate::explain::{explain, replay, run_of_supervisor, runs, unshown_kill};
    #[pymodule_export]
    use crate::fleet::{record_runs, survey};
    #[pymodule_export]
    use crate::live::RunFollower;
    #[pymodule_export]
    use crate::machine::{card_names, machine_names, probe, size_bytes, size_text};
    #[pymodule_export]
    use crate::otlp::OtlpExporter;
    #[pymodule_export]
    use crate::plan::plan;
    #[pymodule_export]
    use crate::predict::predict;
    #[pymodule_export]
    use crate::report::{report, report_document};
    #[pymodule_export]
    use crate::share::{
        SharedArray, SharedDict, SharedList, SharedListIterator, share, shared_from_handle,
    };

    /// The version of brimful.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's own spelling")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
