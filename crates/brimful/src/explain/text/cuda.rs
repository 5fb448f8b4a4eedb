//! A card ran out of memory: PyTorch on CUDA, ROCm, MPS, XPU and others, JAX, TensorFlow, and what runs beside them.

use crate::explain::text::clean::Reading;
use crate::explain::text::cuda_message::CudaMessage;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::shape::{is_reported, weak};
use crate::explain::text::sign::{Facts, Rank, Sign};
use crate::explain::text::size::size_at_start;
use crate::explain::{Cause, Detail};

use Cause::{Ambiguous, CudaOomExhausted, CudaOomOtherProcess, HostAllocFailed};
use Rank::{Named, Signaled};

pub(super) const PHRASES: &[Phrase] = &[
    // PyTorch, with figures where the release prints them.
    ask("CUDA out of memory", device_full),
    ask("HIP out of memory", device_full),
    ask("XPU out of memory", device_full),
    ask("NPU out of memory", device_full),
    ask("MLU out of memory", device_full),
    ask("MUSA out of memory", device_full),
    ask("GPU out of memory", device_full),
    ask("MPS backend out of memory", device_full),
    ask("out of memory. Tried to allocate", device_full),
    ask("total capacity;", figures_alone),
    ask("has a total capac", figures_alone),
    ask("would exceed allowed memory", device_full),
    ask("OutOfMemoryError", error_class),
    ask(
        "can NOT allocate memory block with size larger than",
        device_full,
    ),
    means(
        "Allocation is out of device memory",
        Named,
        CudaOomExhausted,
        Detail::NoFigures,
    ),
    means(
        "Invalid buffer size:",
        Named,
        CudaOomExhausted,
        Detail::SingleAllocationLimit,
    ),
    // CUDA, HIP and other drivers, by whatever name the caller gives the error.
    ask("CUDA error: out of memory", driver_full),
    ask("CUDA driver error: out of memory", driver_full),
    ask("CUDA_OUT_OF_MEMORY", driver_full),
    ask("HIP error: out of memory", driver_full),
    ask("Cuda Runtime (out of memory)", driver_full),
    ask("runtime error (2) : out of memory", driver_full),
    ask("error=2 : out of memory", driver_full),
    ask("error 2 out of memory", driver_full),
    ask("error (2): out of memory", driver_full),
    ask("CUDA failure 2: out of memory", driver_full),
    ask("Cuda failure 'out of memory'", driver_full),
    ask("Cuda failure 2 'out of memory'", driver_full),
    ask("cudaErrorMemoryAllocation", driver_full),
    ask("CUDA_ERROR_OUT_OF_MEMORY", driver_full),
    ask("hipErrorOutOfMemory", driver_full),
    ask("hipErrorMemoryAllocation", driver_full),
    ask("cudaMalloc failed", driver_full),
    ask("cudaMalloc error", driver_full),
    ask("cudaMalloc retry failed", driver_full),
    ask("hipMalloc failed", driver_full),
    ask("cuMemAlloc failed", driver_full),
    ask("cuMemCreate failed", driver_full),
    ask("OUT_OF_DEVICE_MEMORY", driver_full),
    ask("ErrorOutOfDeviceMemory", driver_full),
    means(
        "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        Named,
        CudaOomExhausted,
        Detail::NoFigures,
    ),
    means(
        "kIOGPUCommandBufferCallbackErrorOutOfMemory",
        Named,
        CudaOomExhausted,
        Detail::NoFigures,
    ),
    means(
        "Failed to CUDA calloc",
        Named,
        CudaOomExhausted,
        Detail::NoFigures,
    ),
    means(
        "Maximum pool size exceeded",
        Named,
        CudaOomExhausted,
        Detail::NoFigures,
    ),
    means(
        "Error out of memory at line",
        Named,
        CudaOomExhausted,
        Detail::NoFigures,
    ),
    // Ascend.
    means(
        "drv malloc failed",
        Named,
        CudaOomExhausted,
        Detail::NoFigures,
    ),
    means(
        "EL0004: Failed to allocate memory",
        Named,
        CudaOomExhausted,
        Detail::NoFigures,
    ),
    // A pinned buffer on the host, refused with an error that does not speak of memory.
    ask("CUDA error: invalid argument", pinned_or_nothing),
    ask("HIP error: invalid argument", pinned_or_nothing),
    ask("cudaHostRegister", pinned_call),
    ask("cudaHostAlloc", pinned_call),
    ask("cudaMallocHost", pinned_call),
    ask("cuMemHostAlloc", pinned_call),
    ask("cuMemAllocHost", pinned_call),
    means(
        "could not allocate pinned host memory",
        Named,
        HostAllocFailed,
        Detail::PinnedMemory,
    ),
    means(
        "failed to allocate pinned memory",
        Named,
        HostAllocFailed,
        Detail::PinnedMemory,
    ),
    means(
        "failed to pin memory",
        Named,
        HostAllocFailed,
        Detail::PinnedMemory,
    ),
    // JAX and XLA.
    ask("RESOURCE_EXHAUSTED", resource_exhausted),
    means(
        "Ran out of memory in memory space",
        Named,
        CudaOomExhausted,
        Detail::Xla,
    ),
    means(
        "Exceeded hbm capacity",
        Named,
        CudaOomExhausted,
        Detail::Xla,
    ),
    ask("Resource exhausted:", resource_exhausted),
    means(
        "Out of memory while trying to allocate",
        Named,
        CudaOomExhausted,
        Detail::Xla,
    ),
    // TensorFlow.
    ask("OOM when allocating tensor", tensorflow),
    ask("ran out of memory trying to allocate", tensorflow_arena),
    ask("ResourceExhaustedError", resource_exhausted),
    // Paddle, ONNX Runtime, llama.cpp.
    means(
        "Out of memory error on GPU",
        Named,
        CudaOomExhausted,
        Detail::NoFigures,
    ),
    ask(
        "Failed to allocate memory for requested buffer",
        device_full,
    ),
    means(
        "unable to allocate CUDA",
        Named,
        CudaOomExhausted,
        Detail::NoFigures,
    ),
    means(
        "failed to allocate CUDA",
        Named,
        CudaOomExhausted,
        Detail::NoFigures,
    ),
    means(
        "failed to allocate compute buffers",
        Rank::Hinted,
        CudaOomExhausted,
        Detail::NoFigures,
    ),
    // Servers of language models, which budget the card before they begin.
    ask(
        "on startup is less than desired GPU memory utilization",
        budget_at_start,
    ),
    means(
        "No available memory for the cache blocks",
        Named,
        CudaOomExhausted,
        Detail::CacheBudget,
    ),
    means(
        "which is larger than the available KV cache memory",
        Named,
        CudaOomExhausted,
        Detail::CacheBudget,
    ),
    means(
        "is larger than the maximum number of tokens that can be stored in KV cache",
        Named,
        CudaOomExhausted,
        Detail::CacheBudget,
    ),
    means(
        "Not enough memory. Please try to increase --mem-fraction-static",
        Named,
        CudaOomExhausted,
        Detail::CacheBudget,
    ),
    means(
        "Not enough memory. Please try increasing --mem-fraction-static",
        Named,
        CudaOomExhausted,
        Detail::CacheBudget,
    ),
    means(
        "enough GPU RAM to fit the quantized model",
        Named,
        CudaOomExhausted,
        Detail::NoFigures,
    ),
    // A library was refused memory, or could not set itself up: too little of it on the card, or versions that do not
    // match, in the same words.
    means(
        "CUBLAS_STATUS_ALLOC_FAILED",
        Named,
        Ambiguous,
        Detail::LibraryAllocation,
    ),
    means(
        "CUBLAS_STATUS_NOT_INITIALIZED",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "HIPBLAS_STATUS_ALLOC_FAILED",
        Named,
        Ambiguous,
        Detail::LibraryAllocation,
    ),
    means(
        "HIPBLAS_STATUS_NOT_INITIALIZED",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "CUDNN_STATUS_ALLOC_FAILED",
        Named,
        Ambiguous,
        Detail::LibraryAllocation,
    ),
    means(
        "CUDNN_STATUS_NOT_INITIALIZED",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "CUDNN_STATUS_INTERNAL_ERROR",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "CUSOLVER_STATUS_ALLOC_FAILED",
        Named,
        Ambiguous,
        Detail::LibraryAllocation,
    ),
    means(
        "CUSOLVER_STATUS_NOT_INITIALIZED",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "CUSPARSE_STATUS_ALLOC_FAILED",
        Named,
        Ambiguous,
        Detail::LibraryAllocation,
    ),
    means(
        "CUFFT_ALLOC_FAILED",
        Named,
        Ambiguous,
        Detail::LibraryAllocation,
    ),
    means(
        "CURAND_STATUS_ALLOCATION_FAILED",
        Named,
        Ambiguous,
        Detail::LibraryAllocation,
    ),
    means(
        "when calling `cublasCreate(",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "when calling `cusolverDnCreate(",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "Blas GEMM launch failed",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "Blas xGEMM launch failed",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "Blas GEMV launch failed",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "Blas SGEMM launch failed",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "because cuDNN failed to initialize",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "failed to create cublas handle",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "Could not create cudnn handle",
        Rank::Raised,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "Unable to find a valid cuDNN algorithm",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "unable to find an engine to execute this computation",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "HSA_STATUS_ERROR_OUT_OF_RESOURCES",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "PI_ERROR_OUT_OF_RESOURCES",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
    means(
        "UR_RESULT_ERROR_OUT_OF_RESOURCES",
        Signaled,
        Ambiguous,
        Detail::LibrarySetupFailed,
    ),
];

/// Words of a traceback in which memory of the host was to be pinned.
const PINNED: &[&str] = &[
    "pin_memory=true",
    ".pin_memory(",
    "pinmemorythread",
    "_utils/pin_memory.py",
    "pinnedmemory",
    "pinned_memory",
    "pinnedhost",
    "bytesonhost",
    "cudahostalloc",
    "cudahostregister",
    "cudamallochost",
    "cumemhostalloc",
    "cumemallochost",
    "cachinghostallocator",
    "hosttensorallocator",
];

/// Words for making the context, the first thing a process does on a card: it holds nothing there yet.
const CONTEXT: &[&str] = &[
    "cuctxcreate",
    "primaryctxretain",
    "cudadevicecontext",
    "createcudacontext",
    "creatingcontext",
    "createcontext",
    "_cuda_init()",
    "thcgeneral.cpp",
    "cudasetdevice",
];

/// A message of PyTorch's allocator, or one like it.
fn device_full(reading: &Reading, hit: Hit) -> Option<Sign> {
    if is_only_said(reading, hit) {
        return None;
    }
    let message = CudaMessage::read(&reading.flat, hit.at);
    let cause = message
        .as_ref()
        .map_or(CudaOomExhausted, CudaMessage::cause);
    let detail = match &message {
        Some(message) if message.allowed.is_some() => Detail::PerProcessCap,
        Some(_) => Detail::Figures,
        None => Detail::NoFigures,
    };
    if message.is_none() && !is_reported(reading, hit) {
        return Some(weak(hit));
    }
    if message.is_none() && near_words(reading, hit, 600, 100, PINNED) {
        return Some(hit.sign(Named, HostAllocFailed, Detail::PinnedMemory));
    }
    Some(with_message(hit, cause, detail, message))
}

/// The figures without the words before them: a report that was cut.
fn figures_alone(reading: &Reading, hit: Hit) -> Option<Sign> {
    let begin = hit.at.saturating_sub(100);
    let message =
        CudaMessage::read(&reading.flat, begin).filter(|message| message.total.is_some())?;
    Some(with_message(
        hit,
        message.cause(),
        Detail::Figures,
        Some(message),
    ))
}

/// `torch.OutOfMemoryError`, `cupy.cuda.memory.OutOfMemoryError`; other libraries use the same name.
fn error_class(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 60);
    // Without white space, other programs' words look the same.
    if !reading.has_word(hit.at, "OutOfMemoryError") {
        return None;
    }
    if reading.after(hit.end, 20).starts_with(":outofresource") {
        return None;
    }
    if before.ends_with("infunction'") || before.ends_with("cv::") || before.ends_with("java.lang.")
    {
        return None;
    }
    // Julia's, which is about the host.
    if reading.after(hit.end, 2) == "()" && reading.after(hit.end, 40).contains("stacktrace:") {
        return Some(hit.sign(Named, HostAllocFailed, Detail::Refused));
    }
    if before.ends_with("ray.exceptions.") || before.ends_with("ray") {
        return Some(hit.sign(Rank::Killer, Cause::HostOomKill, Detail::RayMemoryMonitor));
    }
    if reading.after(hit.end, 40).starts_with(":containerkilled") {
        return Some(hit.sign(Rank::Killer, Cause::HostOomKill, Detail::ContainerLimit));
    }
    device_full(reading, hit)
}

/// The driver's own error, without figures.
fn driver_full(reading: &Reading, hit: Hit) -> Option<Sign> {
    if is_only_said(reading, hit) {
        return None;
    }
    if !is_reported(reading, hit) {
        return Some(weak(hit));
    }
    if near_words(reading, hit, 600, 160, PINNED) {
        return Some(hit.sign(Named, HostAllocFailed, Detail::PinnedMemory));
    }
    if near_words(reading, hit, 600, 300, CONTEXT) {
        return Some(hit.sign(Named, CudaOomOtherProcess, Detail::FullBeforeTheStart));
    }
    Some(hit.sign(Named, CudaOomExhausted, Detail::NoFigures))
}

fn pinned_or_nothing(reading: &Reading, hit: Hit) -> Option<Sign> {
    if near_words(reading, hit, 600, 100, PINNED) {
        return Some(hit.sign(Named, HostAllocFailed, Detail::PinnedMemory));
    }
    Some(hit.sign(Named, Cause::NotMemory, Detail::CudaError))
}

/// `Free memory on device (3.50/39.39 GiB) on startup is less than …`: whether others hold most of it.
fn budget_at_start(reading: &Reading, hit: Hit) -> Option<Sign> {
    let before = reading.before(hit.at, 60);
    let sizes = before.rfind('(').map_or("", |at| &before[at + 1..]);
    let number = |text: &str| -> Option<f64> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
        text[..end.unwrap_or(text.len())].parse().ok()
    };
    let shares = sizes
        .split_once('/')
        .and_then(|(free, total)| Some((number(free)?, number(total)?)));
    let cause = match shares {
        Some((free, total)) if free >= total / 2.0 => CudaOomExhausted,
        _ => CudaOomOtherProcess,
    };
    Some(hit.sign(Named, cause, Detail::FullBeforeTheStart))
}

/// The call is named together with a failure.
fn pinned_call(reading: &Reading, hit: Hit) -> Option<Sign> {
    let near = reading.around(hit.at, 120, 160);
    [
        "fail",
        "error",
        "outofmemory",
        "cannot",
        "couldnot",
        "unable",
    ]
    .iter()
    .any(|word| near.contains(word))
    .then(|| hit.sign(Named, HostAllocFailed, Detail::PinnedMemory))
}

/// XLA's and gRPC's word for anything that there is not enough of.
fn resource_exhausted(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 300);
    if after.contains("largerthanmax") || after.contains("quota") {
        return Some(hit.sign(Named, Cause::NotMemory, Detail::Exception));
    }
    if after.contains("oomwhenallocatingtensor") {
        return None;
    }
    let speaks_of_memory = ["outofmemory", "allocat", "memory", "hbm", "reserve"]
        .iter()
        .any(|word| after.contains(word));
    if !speaks_of_memory {
        return Some(hit.sign(Rank::Raised, Ambiguous, Detail::ResourceExhausted));
    }
    let asked = after.match_indices("allocat").take(4).find_map(|(at, _)| {
        let rest = after[at..].trim_start_matches(|c: char| !c.is_ascii_digit());
        size_at_start(rest)
    });
    let mut sign = hit.sign(Named, CudaOomExhausted, Detail::Xla);
    sign.facts.asked = asked;
    Some(sign)
}

fn tensorflow(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 300);
    let is_host = after.contains("device:cpu")
        || after.contains("byallocatorcpu")
        || after.contains("byallocatormklcpu");
    Some(if is_host {
        hit.sign(Named, HostAllocFailed, Detail::TensorOnHost)
    } else {
        hit.sign(Named, CudaOomExhausted, Detail::NoFigures)
    })
}

/// A warning of the arena that is followed by another way of doing it is no failure.
fn tensorflow_arena(reading: &Reading, hit: Hit) -> Option<Sign> {
    if reading.after(hit.end, 200).contains("notafailure") {
        return Some(hit.sign(Rank::Aftermath, Cause::NotMemory, Detail::Warning));
    }
    if reading.before(hit.at, 40).contains("allocator(cpu")
        || reading.before(hit.at, 40).contains("mklcpu)")
    {
        return Some(hit.sign(Named, HostAllocFailed, Detail::TensorOnHost));
    }
    let mut sign = hit.sign(Named, CudaOomExhausted, Detail::NoFigures);
    sign.facts.asked = size_at_start(reading.after(hit.end, 30));
    Some(sign)
}

fn with_message(hit: Hit, cause: Cause, detail: Detail, message: Option<CudaMessage>) -> Sign {
    Sign {
        facts: Facts {
            asked: message.as_ref().and_then(|message| message.asked),
            cuda: message,
            ..Facts::default()
        },
        ..hit.sign(Named, cause, detail)
    }
}

/// Source code that handles the error, or advice about it.
fn is_only_said(reading: &Reading, hit: Hit) -> bool {
    let before = reading.before(hit.at, 40);
    let line = &reading.lines[reading.line_at(hit.at)];
    let is_code = ["except ", "if ", "elif ", "raise ", "#"]
        .iter()
        .any(|word| line.starts_with(word));
    // With figures after it, it happened.
    if reading.after(hit.at, 60).contains("triedtoallocate") {
        return false;
    }
    let is_advice = ["avoid", "prevent", "incaseof", "tofix", "ifyou", "reduce"]
        .iter()
        .any(|word| before.ends_with(word));
    is_code || is_advice
}

fn near_words(reading: &Reading, hit: Hit, before: usize, after: usize, words: &[&str]) -> bool {
    let near = reading.around(hit.at, before, after);
    words.iter().any(|word| near.contains(word))
}
