//! Counts what writes to device memory, for the hook that keeps track of values.
//!
//! The hook knows the values of a tensor as long as it sees everything that writes into it. It sees PyTorch's operators,
//! but not the kernels inside them, nor those of other libraries. So it compares these counts. It reads them as variables
//! of this library, which costs less than a call.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::names;
use crate::report;

/// Kernels, fills and copies to devices.
#[unsafe(no_mangle)]
static BRIMFUL_PHANTOM_WRITES: AtomicU64 = AtomicU64::new(0);

/// Kernels that are not PyTorch's own, such as those of Triton and of CUDA extensions.
#[unsafe(no_mangle)]
static BRIMFUL_PHANTOM_FOREIGN_LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// Kernels in all.
#[unsafe(no_mangle)]
static BRIMFUL_PHANTOM_LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// Whether the names of launched kernels are noted. The hook sets it between PyTorch's operators.
#[unsafe(no_mangle)]
static BRIMFUL_PHANTOM_NOTES_NAMES: AtomicU64 = AtomicU64::new(0);

/// The library with PyTorch's kernels, and what its name begins with where there are several.
const TORCH: &str = "libtorch_cuda";

thread_local! {
    /// Which kernels are foreign: a launch takes no lock.
    static IS_FOREIGN: RefCell<HashMap<usize, bool>> = RefCell::default();
}

/// A fill or a copy.
pub(crate) fn written() {
    BRIMFUL_PHANTOM_WRITES.fetch_add(1, Ordering::Relaxed);
}

/// A kernel of the CUDA runtime, by the address of its stub in the library that it belongs to.
pub(crate) fn launched(function: usize) {
    counted();
    if BRIMFUL_PHANTOM_NOTES_NAMES.load(Ordering::Relaxed) != 0 {
        let file = names::file_of(function as *const c_void);
        let name = file.as_deref().and_then(Path::file_name);
        report::launched_outside(&name.unwrap_or_default().to_string_lossy());
    }
    let is_foreign = IS_FOREIGN.with_borrow_mut(|known| {
        *known
            .entry(function)
            .or_insert_with(|| is_foreign(function))
    });
    if is_foreign {
        BRIMFUL_PHANTOM_FOREIGN_LAUNCHES.fetch_add(1, Ordering::Relaxed);
    }
}

/// A kernel that a program has compiled or loaded by itself.
pub(crate) fn launched_by_driver(function: usize) {
    counted();
    if BRIMFUL_PHANTOM_NOTES_NAMES.load(Ordering::Relaxed) != 0 {
        report::launched_outside(&report::kernel_name(function));
    }
    BRIMFUL_PHANTOM_FOREIGN_LAUNCHES.fetch_add(1, Ordering::Relaxed);
}

fn counted() {
    report::KERNELS.fetch_add(1, Ordering::Relaxed);
    BRIMFUL_PHANTOM_LAUNCHES.fetch_add(1, Ordering::Relaxed);
    written();
}

fn is_foreign(function: usize) -> bool {
    let file = names::file_of(function as *const c_void);
    let name = file.as_deref().and_then(Path::file_name);
    !name.is_some_and(|name| name.to_string_lossy().starts_with(TORCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kernels_of_torch_are_not_foreign() {
        assert!(is_foreign(0));
        assert!(is_foreign(launched as *const () as usize));
        let before = BRIMFUL_PHANTOM_FOREIGN_LAUNCHES.load(Ordering::Relaxed);
        launched(launched as *const () as usize);
        launched_by_driver(0);
        assert!(BRIMFUL_PHANTOM_FOREIGN_LAUNCHES.load(Ordering::Relaxed) >= before + 2);
        assert!(BRIMFUL_PHANTOM_WRITES.load(Ordering::Relaxed) >= 2);
    }

    #[test]
    fn kernels_between_operators_are_named() {
        report::name_kernel(7, "softmax_kernel".to_owned());
        BRIMFUL_PHANTOM_NOTES_NAMES.store(1, Ordering::Relaxed);
        launched_by_driver(7);
        BRIMFUL_PHANTOM_NOTES_NAMES.store(0, Ordering::Relaxed);
        assert!(report::launched_outside_names().contains(&"softmax_kernel".to_owned()));
    }
}
