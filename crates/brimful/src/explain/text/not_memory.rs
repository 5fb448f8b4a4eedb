//! Errors that have nothing to do with too little memory, some of which use its words.

use crate::explain::Cause::{Ambiguous, NotMemory};
use crate::explain::Detail;
use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::Rank::{self, Named, Raised, Signaled};
use crate::explain::text::sign::Sign;

pub(super) const PHRASES: &[Phrase] = &[
    // A kernel on the card did wrong.
    means(
        "illegal memory access",
        Named,
        NotMemory,
        Detail::IllegalAccess,
    ),
    means(
        "cudaErrorIllegalAddress",
        Named,
        NotMemory,
        Detail::IllegalAccess,
    ),
    means(
        "hipErrorIllegalAddress",
        Named,
        NotMemory,
        Detail::IllegalAccess,
    ),
    means(
        "Memory access fault by GPU",
        Named,
        NotMemory,
        Detail::IllegalAccess,
    ),
    means(
        "misaligned address",
        Named,
        NotMemory,
        Detail::IllegalAccess,
    ),
    means("device-side assert", Named, NotMemory, Detail::DeviceAssert),
    ask("Assertion `", device_assertion),
    ask("CUDA error:", other_error),
    ask("Cuda failure '", named_failure),
    ask("HIP failure: '", named_failure),
    ask("CUDA error (", other_error),
    ask("HIP error:", other_error),
    ask("cuda runtime error (", other_error),
    means(
        "unspecified launch failure",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "an illegal instruction was encountered",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "no kernel image is available",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "invalid device function",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "invalid device ordinal",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "invalid configuration argument",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "invalid resource handle",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "CUDA driver version is insufficient",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means("CUDA unknown error", Named, NotMemory, Detail::CudaError),
    means(
        "CUDA error: unknown error",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "CUDA error: initialization error",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "no CUDA-capable device",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "No CUDA GPUs are available",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "devices are busy or unavailable",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "too many resources requested for launch",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "out of resource: shared memory",
        Named,
        NotMemory,
        Detail::KernelNeedsTooMuch,
    ),
    means(
        "uses too much shared data",
        Named,
        NotMemory,
        Detail::KernelNeedsTooMuch,
    ),
    means(
        "CUDNN_STATUS_EXECUTION_FAILED",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "CUDNN_STATUS_BAD_PARAM",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "CUDNN_STATUS_MAPPING_ERROR",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "CUDNN_STATUS_NOT_SUPPORTED",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "CUDNN_STATUS_ARCH_MISMATCH",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "CUDNN_STATUS_VERSION_MISMATCH",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "CUBLAS_STATUS_EXECUTION_FAILED",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "CUBLAS_STATUS_INTERNAL_ERROR",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "CUBLAS_STATUS_INVALID_VALUE",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "CUBLAS_STATUS_NOT_SUPPORTED",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "CUBLAS_STATUS_ARCH_MISMATCH",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "HSA_STATUS_ERROR_EXCEPTION",
        Named,
        NotMemory,
        Detail::CudaError,
    ),
    means(
        "HSA_STATUS_ERROR_MEMORY_APERTURE",
        Named,
        NotMemory,
        Detail::IllegalAccess,
    ),
    means(
        "HSA_STATUS_ERROR_MEMORY_FAULT",
        Named,
        NotMemory,
        Detail::IllegalAccess,
    ),
    // Hardware.
    means("uncorrectable ECC", Named, NotMemory, Detail::Hardware),
    means("NVRM: Xid", Named, NotMemory, Detail::Hardware),
    means("fallen off the bus", Named, NotMemory, Detail::Hardware),
    means("GPU is lost", Named, NotMemory, Detail::Hardware),
    means(
        "Unable to determine the device handle",
        Named,
        NotMemory,
        Detail::Hardware,
    ),
    means("PCIe Bus Error", Raised, NotMemory, Detail::Hardware),
    means("Hardware Error", Raised, NotMemory, Detail::Hardware),
    means("soft lockup", Raised, NotMemory, Detail::Hardware),
    means("EXT4-fs error", Raised, NotMemory, Detail::Hardware),
    means(
        "blk_update_request: I/O error",
        Raised,
        NotMemory,
        Detail::Hardware,
    ),
    means(": command not found", Raised, NotMemory, Detail::NotStarted),
    // Collectives wait for a process that does not come.
    means(
        "Watchdog caught collective operation timeout",
        Signaled,
        NotMemory,
        Detail::NcclTimeout,
    ),
    means(
        "Some NCCL operations have failed or timed out",
        Signaled,
        NotMemory,
        Detail::NcclTimeout,
    ),
    means(
        "watchdog thread terminated",
        Signaled,
        NotMemory,
        Detail::NcclTimeout,
    ),
    means(
        "Timed out initializing process group",
        Signaled,
        NotMemory,
        Detail::NcclTimeout,
    ),
    means("Timed out waiting", Raised, NotMemory, Detail::NcclTimeout),
    means("wait timeout after", Raised, NotMemory, Detail::NcclTimeout),
    means("Socket Timeout", Raised, NotMemory, Detail::NcclTimeout),
    means(
        "unhandled system error",
        Raised,
        NotMemory,
        Detail::NcclError,
    ),
    // NCCL keeps the reason to itself: too little memory is one of several.
    means(
        "unhandled cuda error",
        Raised,
        Ambiguous,
        Detail::NcclHidesIt,
    ),
    ask("NCCL error", nccl_error),
    means("NCCL WARN", Rank::Aftermath, NotMemory, Detail::NcclError),
    means("ncclSystemError", Raised, NotMemory, Detail::NcclError),
    means("ncclInternalError", Raised, NotMemory, Detail::NcclError),
    means("ncclInvalidUsage", Raised, NotMemory, Detail::NcclError),
    means(
        "remote process exited or there was a network error",
        Raised,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means(
        "ncclRemoteError",
        Raised,
        Ambiguous,
        Detail::FailedElsewhere,
    ),
    means("CCL_ERROR|", Raised, NotMemory, Detail::NcclError),
    means(
        "ncclUnhandledCudaError",
        Raised,
        Ambiguous,
        Detail::NcclHidesIt,
    ),
    means(
        "Connection closed by",
        Raised,
        NotMemory,
        Detail::ConnectionLost,
    ),
    // Gloo, with the address of the other process.
    means("Read error [", Raised, NotMemory, Detail::ConnectionLost),
    means("Write error [", Raised, NotMemory, Detail::ConnectionLost),
    means(
        "Connect timeout [",
        Raised,
        NotMemory,
        Detail::ConnectionLost,
    ),
    means(
        "Application timeout caused pair closure",
        Raised,
        NotMemory,
        Detail::ConnectionLost,
    ),
    means(
        "connectFullMesh failed",
        Raised,
        NotMemory,
        Detail::ConnectionLost,
    ),
    means(
        "Connection reset by peer",
        Rank::Aftermath,
        NotMemory,
        Detail::ConnectionLost,
    ),
    // Too many processes or threads.
    means(
        "Resource temporarily unavailable",
        Raised,
        NotMemory,
        Detail::ProcessLimit,
    ),
    means(
        "can't start new thread",
        Named,
        NotMemory,
        Detail::ProcessLimit,
    ),
    means(
        "pthread_create failed",
        Named,
        NotMemory,
        Detail::ProcessLimit,
    ),
    means(
        "Thread creation failed",
        Named,
        NotMemory,
        Detail::ProcessLimit,
    ),
    means(
        "unable to create new native thread",
        Named,
        NotMemory,
        Detail::ProcessLimit,
    ),
    means(
        "fork rejected by pids controller",
        Named,
        NotMemory,
        Detail::ProcessLimit,
    ),
    means(
        "unable to allocate necessary resources for OMP thread",
        Named,
        NotMemory,
        Detail::ProcessLimit,
    ),
    // The heap is broken: a bug in native code, not too little memory.
    means("malloc(): ", Raised, NotMemory, Detail::HeapCorruption),
    means("free(): ", Raised, NotMemory, Detail::HeapCorruption),
    means(
        "double free or corruption",
        Raised,
        NotMemory,
        Detail::HeapCorruption,
    ),
    means(
        "corrupted size vs. prev_size",
        Raised,
        NotMemory,
        Detail::HeapCorruption,
    ),
    means(
        "corrupted double-linked list",
        Raised,
        NotMemory,
        Detail::HeapCorruption,
    ),
    means(
        "munmap_chunk(): invalid pointer",
        Raised,
        NotMemory,
        Detail::HeapCorruption,
    ),
    means(
        "realloc(): invalid",
        Raised,
        NotMemory,
        Detail::HeapCorruption,
    ),
    means(
        "malloc_consolidate():",
        Raised,
        NotMemory,
        Detail::HeapCorruption,
    ),
    means(
        "(): invalid chunk size",
        Raised,
        NotMemory,
        Detail::HeapCorruption,
    ),
    means(
        "(): invalid next size",
        Raised,
        NotMemory,
        Detail::HeapCorruption,
    ),
    means(
        "(): invalid size",
        Raised,
        NotMemory,
        Detail::HeapCorruption,
    ),
    means(
        "(): memory corruption",
        Raised,
        NotMemory,
        Detail::HeapCorruption,
    ),
    means("(): unaligned", Raised, NotMemory, Detail::HeapCorruption),
    // Statuses of gRPC, as JAX and TensorFlow pass them on.
    means("DEADLINE_EXCEEDED:", Raised, NotMemory, Detail::NcclTimeout),
    means("INVALID_ARGUMENT:", Raised, NotMemory, Detail::Exception),
    means("FAILED_PRECONDITION:", Raised, NotMemory, Detail::Exception),
    means("UNIMPLEMENTED:", Raised, NotMemory, Detail::Exception),
    means("UNAVAILABLE:", Raised, NotMemory, Detail::ConnectionLost),
    means(
        "terminate called without an active exception",
        Raised,
        NotMemory,
        Detail::Aborted,
    ),
    means(
        "terminate called after throwing an instance of",
        Rank::Aftermath,
        NotMemory,
        Detail::Aborted,
    ),
    means(
        "Aborted (core dumped)",
        Rank::Aftermath,
        Ambiguous,
        Detail::Aborted,
    ),
    // Warnings that training survives.
    means(
        "of free system memory",
        Rank::Aftermath,
        NotMemory,
        Detail::Warning,
    ),
    // A file that was cut, and builds that failed.
    means("Ran out of input", Named, NotMemory, Detail::Exception),
    means("nvcc fatal", Raised, NotMemory, Detail::BuildFailed),
    means(
        "ninja: build stopped",
        Raised,
        NotMemory,
        Detail::BuildFailed,
    ),
    means("collect2: error", Raised, NotMemory, Detail::BuildFailed),
    means("write error: wrote", Named, NotMemory, Detail::DiskFull),
    // How it was started.
    means("No module named", Named, NotMemory, Detail::MissingModule),
    ask("can't open file", no_script),
    means(
        "before the current process has finished its bootstrapping phase",
        Named,
        NotMemory,
        Detail::NoMainGuard,
    ),
    means(
        "error: unrecognized arguments:",
        Named,
        NotMemory,
        Detail::Arguments,
    ),
    means(
        "error: the following arguments are required:",
        Named,
        NotMemory,
        Detail::Arguments,
    ),
    means(
        "persistent_workers option needs num_workers > 0",
        Named,
        NotMemory,
        Detail::PersistentWorkers,
    ),
    means(
        "prefetch_factor option could only be specified in multiprocessing",
        Named,
        NotMemory,
        Detail::PrefetchFactor,
    ),
    means(
        "timeout option should be non-negative",
        Named,
        NotMemory,
        Detail::Exception,
    ),
    means(
        "Cannot re-initialize CUDA in forked subprocess",
        Named,
        NotMemory,
        Detail::ForkedCuda,
    ),
    // Asked for by a person.
    means(
        "KeyboardInterrupt",
        Raised,
        NotMemory,
        Detail::StoppedByUser,
    ),
];

/// `python: can't open file 'train.py': [Errno 2] No such file or directory`
fn no_script(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 400);
    (after.contains("[errno2]") || after.contains("nosuchfile"))
        .then(|| hit.sign(Named, NotMemory, Detail::NoScript))
}

/// `NCCL error in: …, unhandled cuda error` is said by its last words.
fn nccl_error(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 240);
    let hides_it = after.contains("unhandledcudaerror") || after.contains("remoteprocessexited");
    (!hides_it).then(|| hit.sign(Raised, NotMemory, Detail::NcclError))
}

/// Any other error of the driver, if it does not speak of memory.
fn other_error(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 60);
    let speaks_of_memory = ["memory", "alloc", "resources"]
        .iter()
        .any(|word| after.contains(word));
    (!speaks_of_memory).then(|| hit.sign(Raised, NotMemory, Detail::CudaError))
}

/// NCCL names the error that it met.
fn named_failure(reading: &Reading, hit: Hit) -> Option<Sign> {
    let sign = other_error(reading, hit)?;
    Some(Sign {
        rank: Named,
        ..sign
    })
}

/// `Indexing.cu:71: …: block: [0,0,0], thread: [0,0,0] Assertion `i < n` failed.`
fn device_assertion(reading: &Reading, hit: Hit) -> Option<Sign> {
    reading
        .after(hit.end, 300)
        .contains("failed")
        .then(|| hit.sign(Named, NotMemory, Detail::DeviceAssert))
}
