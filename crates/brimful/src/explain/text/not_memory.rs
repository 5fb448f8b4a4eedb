//! Errors that have nothing to do with too little memory, some of which use its words.

use crate::explain::Cause::{Ambiguous, NotMemory};
use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::Rank::{self, Named, Raised, Signaled};
use crate::explain::text::sign::Sign;

pub(super) const PHRASES: &[Phrase] = &[
    // A kernel on the card did wrong.
    means("illegal memory access", Named, NotMemory, "illegal_access"),
    means(
        "cudaErrorIllegalAddress",
        Named,
        NotMemory,
        "illegal_access",
    ),
    means("hipErrorIllegalAddress", Named, NotMemory, "illegal_access"),
    means(
        "Memory access fault by GPU",
        Named,
        NotMemory,
        "illegal_access",
    ),
    means("misaligned address", Named, NotMemory, "illegal_access"),
    means("device-side assert", Named, NotMemory, "device_assert"),
    ask("Assertion `", device_assertion),
    ask("CUDA error:", other_error),
    ask("Cuda failure '", named_failure),
    ask("HIP failure: '", named_failure),
    ask("CUDA error (", other_error),
    ask("HIP error:", other_error),
    ask("cuda runtime error (", other_error),
    means("unspecified launch failure", Named, NotMemory, "cuda_error"),
    means(
        "an illegal instruction was encountered",
        Named,
        NotMemory,
        "cuda_error",
    ),
    means(
        "no kernel image is available",
        Named,
        NotMemory,
        "cuda_error",
    ),
    means("invalid device function", Named, NotMemory, "cuda_error"),
    means("invalid device ordinal", Named, NotMemory, "cuda_error"),
    means(
        "invalid configuration argument",
        Named,
        NotMemory,
        "cuda_error",
    ),
    means("invalid resource handle", Named, NotMemory, "cuda_error"),
    means(
        "CUDA driver version is insufficient",
        Named,
        NotMemory,
        "cuda_error",
    ),
    means("CUDA unknown error", Named, NotMemory, "cuda_error"),
    means("CUDA error: unknown error", Named, NotMemory, "cuda_error"),
    means(
        "CUDA error: initialization error",
        Named,
        NotMemory,
        "cuda_error",
    ),
    means("no CUDA-capable device", Named, NotMemory, "cuda_error"),
    means("No CUDA GPUs are available", Named, NotMemory, "cuda_error"),
    means(
        "devices are busy or unavailable",
        Named,
        NotMemory,
        "cuda_error",
    ),
    means(
        "too many resources requested for launch",
        Named,
        NotMemory,
        "cuda_error",
    ),
    means(
        "out of resource: shared memory",
        Named,
        NotMemory,
        "kernel_needs_too_much",
    ),
    means(
        "uses too much shared data",
        Named,
        NotMemory,
        "kernel_needs_too_much",
    ),
    means(
        "CUDNN_STATUS_EXECUTION_FAILED",
        Named,
        NotMemory,
        "cuda_error",
    ),
    means("CUDNN_STATUS_BAD_PARAM", Named, NotMemory, "cuda_error"),
    means("CUDNN_STATUS_MAPPING_ERROR", Named, NotMemory, "cuda_error"),
    means("CUDNN_STATUS_NOT_SUPPORTED", Named, NotMemory, "cuda_error"),
    means("CUDNN_STATUS_ARCH_MISMATCH", Named, NotMemory, "cuda_error"),
    means(
        "CUDNN_STATUS_VERSION_MISMATCH",
        Named,
        NotMemory,
        "cuda_error",
    ),
    means(
        "CUBLAS_STATUS_EXECUTION_FAILED",
        Named,
        NotMemory,
        "cuda_error",
    ),
    means(
        "CUBLAS_STATUS_INTERNAL_ERROR",
        Signaled,
        Ambiguous,
        "library_setup_failed",
    ),
    means(
        "CUBLAS_STATUS_INVALID_VALUE",
        Named,
        NotMemory,
        "cuda_error",
    ),
    means(
        "CUBLAS_STATUS_NOT_SUPPORTED",
        Named,
        NotMemory,
        "cuda_error",
    ),
    means(
        "CUBLAS_STATUS_ARCH_MISMATCH",
        Named,
        NotMemory,
        "cuda_error",
    ),
    means("HSA_STATUS_ERROR_EXCEPTION", Named, NotMemory, "cuda_error"),
    means(
        "HSA_STATUS_ERROR_MEMORY_APERTURE",
        Named,
        NotMemory,
        "illegal_access",
    ),
    means(
        "HSA_STATUS_ERROR_MEMORY_FAULT",
        Named,
        NotMemory,
        "illegal_access",
    ),
    // Hardware.
    means("uncorrectable ECC", Named, NotMemory, "hardware"),
    means("NVRM: Xid", Named, NotMemory, "hardware"),
    means("fallen off the bus", Named, NotMemory, "hardware"),
    means("GPU is lost", Named, NotMemory, "hardware"),
    means(
        "Unable to determine the device handle",
        Named,
        NotMemory,
        "hardware",
    ),
    means("PCIe Bus Error", Raised, NotMemory, "hardware"),
    means("Hardware Error", Raised, NotMemory, "hardware"),
    means("soft lockup", Raised, NotMemory, "hardware"),
    means("EXT4-fs error", Raised, NotMemory, "hardware"),
    means(
        "blk_update_request: I/O error",
        Raised,
        NotMemory,
        "hardware",
    ),
    means(": command not found", Raised, NotMemory, "not_started"),
    // Collectives wait for a process that does not come.
    means(
        "Watchdog caught collective operation timeout",
        Signaled,
        NotMemory,
        "nccl_timeout",
    ),
    means(
        "Some NCCL operations have failed or timed out",
        Signaled,
        NotMemory,
        "nccl_timeout",
    ),
    means(
        "watchdog thread terminated",
        Signaled,
        NotMemory,
        "nccl_timeout",
    ),
    means(
        "Timed out initializing process group",
        Signaled,
        NotMemory,
        "nccl_timeout",
    ),
    means("Timed out waiting", Raised, NotMemory, "nccl_timeout"),
    means("wait timeout after", Raised, NotMemory, "nccl_timeout"),
    means("Socket Timeout", Raised, NotMemory, "nccl_timeout"),
    means("unhandled system error", Raised, NotMemory, "nccl_error"),
    // NCCL keeps the reason to itself: too little memory is one of several.
    means("unhandled cuda error", Raised, Ambiguous, "nccl_hides_it"),
    ask("NCCL error", nccl_error),
    means("NCCL WARN", Rank::Aftermath, NotMemory, "nccl_error"),
    means("ncclSystemError", Raised, NotMemory, "nccl_error"),
    means("ncclInternalError", Raised, NotMemory, "nccl_error"),
    means("ncclInvalidUsage", Raised, NotMemory, "nccl_error"),
    means(
        "remote process exited or there was a network error",
        Raised,
        Ambiguous,
        "failed_elsewhere",
    ),
    means("ncclRemoteError", Raised, Ambiguous, "failed_elsewhere"),
    means("CCL_ERROR|", Raised, NotMemory, "nccl_error"),
    means("ncclUnhandledCudaError", Raised, Ambiguous, "nccl_hides_it"),
    means("Connection closed by", Raised, NotMemory, "connection_lost"),
    means(
        "connectFullMesh failed",
        Raised,
        NotMemory,
        "connection_lost",
    ),
    means(
        "Connection reset by peer",
        Rank::Aftermath,
        NotMemory,
        "connection_lost",
    ),
    // Too many processes or threads.
    means(
        "Resource temporarily unavailable",
        Raised,
        NotMemory,
        "process_limit",
    ),
    means("can't start new thread", Named, NotMemory, "process_limit"),
    means("pthread_create failed", Named, NotMemory, "process_limit"),
    means("Thread creation failed", Named, NotMemory, "process_limit"),
    means(
        "unable to create new native thread",
        Named,
        NotMemory,
        "process_limit",
    ),
    means(
        "fork rejected by pids controller",
        Named,
        NotMemory,
        "process_limit",
    ),
    means(
        "unable to allocate necessary resources for OMP thread",
        Named,
        NotMemory,
        "process_limit",
    ),
    // The heap is broken: a bug in native code, not too little memory.
    means("malloc(): ", Raised, NotMemory, "heap_corruption"),
    means("free(): ", Raised, NotMemory, "heap_corruption"),
    means(
        "double free or corruption",
        Raised,
        NotMemory,
        "heap_corruption",
    ),
    means(
        "corrupted size vs. prev_size",
        Raised,
        NotMemory,
        "heap_corruption",
    ),
    means(
        "corrupted double-linked list",
        Raised,
        NotMemory,
        "heap_corruption",
    ),
    means(
        "munmap_chunk(): invalid pointer",
        Raised,
        NotMemory,
        "heap_corruption",
    ),
    means("realloc(): invalid", Raised, NotMemory, "heap_corruption"),
    means(
        "malloc_consolidate():",
        Raised,
        NotMemory,
        "heap_corruption",
    ),
    means(
        "(): invalid chunk size",
        Raised,
        NotMemory,
        "heap_corruption",
    ),
    means(
        "(): invalid next size",
        Raised,
        NotMemory,
        "heap_corruption",
    ),
    means("(): invalid size", Raised, NotMemory, "heap_corruption"),
    means(
        "(): memory corruption",
        Raised,
        NotMemory,
        "heap_corruption",
    ),
    means("(): unaligned", Raised, NotMemory, "heap_corruption"),
    // Statuses of gRPC, as JAX and TensorFlow pass them on.
    means("DEADLINE_EXCEEDED:", Raised, NotMemory, "nccl_timeout"),
    means("INVALID_ARGUMENT:", Raised, NotMemory, "exception"),
    means("FAILED_PRECONDITION:", Raised, NotMemory, "exception"),
    means("UNIMPLEMENTED:", Raised, NotMemory, "exception"),
    means("UNAVAILABLE:", Raised, NotMemory, "connection_lost"),
    means(
        "terminate called without an active exception",
        Raised,
        NotMemory,
        "aborted",
    ),
    means(
        "terminate called after throwing an instance of",
        Rank::Aftermath,
        NotMemory,
        "aborted",
    ),
    means(
        "Aborted (core dumped)",
        Rank::Aftermath,
        Ambiguous,
        "aborted",
    ),
    // Warnings that training survives.
    means(
        "of free system memory",
        Rank::Aftermath,
        NotMemory,
        "warning",
    ),
    // A file that was cut, and builds that failed.
    means("Ran out of input", Named, NotMemory, "exception"),
    means("nvcc fatal", Raised, NotMemory, "build_failed"),
    means("ninja: build stopped", Raised, NotMemory, "build_failed"),
    means("collect2: error", Raised, NotMemory, "build_failed"),
    means("write error: wrote", Named, NotMemory, "disk_full"),
    // How it was started.
    means("No module named", Named, NotMemory, "missing_module"),
    ask("can't open file", no_script),
    means(
        "before the current process has finished its bootstrapping phase",
        Named,
        NotMemory,
        "no_main_guard",
    ),
    means(
        "error: unrecognized arguments:",
        Named,
        NotMemory,
        "arguments",
    ),
    means(
        "error: the following arguments are required:",
        Named,
        NotMemory,
        "arguments",
    ),
    means(
        "persistent_workers option needs num_workers > 0",
        Named,
        NotMemory,
        "persistent_workers",
    ),
    means(
        "prefetch_factor option could only be specified in multiprocessing",
        Named,
        NotMemory,
        "prefetch_factor",
    ),
    means(
        "timeout option should be non-negative",
        Named,
        NotMemory,
        "exception",
    ),
    means(
        "Cannot re-initialize CUDA in forked subprocess",
        Named,
        NotMemory,
        "forked_cuda",
    ),
    // Asked for by a person.
    means("KeyboardInterrupt", Raised, NotMemory, "stopped_by_user"),
];

/// `python: can't open file 'train.py': [Errno 2] No such file or directory`
fn no_script(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 400);
    (after.contains("[errno2]") || after.contains("nosuchfile"))
        .then(|| hit.sign(Named, NotMemory, "no_script"))
}

/// `NCCL error in: …, unhandled cuda error` is said by its last words.
fn nccl_error(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 240);
    let hides_it = after.contains("unhandledcudaerror") || after.contains("remoteprocessexited");
    (!hides_it).then(|| hit.sign(Raised, NotMemory, "nccl_error"))
}

/// Any other error of the driver, if it does not speak of memory.
fn other_error(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 60);
    let speaks_of_memory = ["memory", "alloc", "resources"]
        .iter()
        .any(|word| after.contains(word));
    (!speaks_of_memory).then(|| hit.sign(Raised, NotMemory, "cuda_error"))
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
        .then(|| hit.sign(Named, NotMemory, "device_assert"))
}
