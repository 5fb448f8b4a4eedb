//! What a verdict says beyond its cause.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares [`Detail`] and the name of each detail in JSON, from one list.
macro_rules! details {
    ($($variant:ident = $id:literal,)+) => {
        /// A closer description of a cause, such as a leak or a missing script.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Detail {
            $(#[serde(rename = $id)] $variant,)+
            /// No detail, or one that this release does not know.
            #[serde(rename = "", other)]
            Unspecified,
        }

        impl Detail {
            /// The name in JSON; empty if no detail is known.
            pub fn id(self) -> &'static str {
                match self {
                    $(Detail::$variant => $id,)+
                    Detail::Unspecified => "",
                }
            }
        }
    };
}

details! {
    // How host memory ran out.
    Leak = "leak",
    Burst = "burst",
    WorkerCopies = "worker_copies",
    CheckpointSaveSpike = "checkpoint_save_spike",
    Full = "full",
    FullBeforeTheStart = "full_before_the_start",
    // Who killed a process for memory, or which limit it reached.
    Kernel = "kernel",
    GroupLimit = "group_limit",
    MachineFull = "machine_full",
    ContainerLimit = "container_limit",
    SchedulerLimit = "scheduler_limit",
    Slurm = "slurm",
    Evicted = "evicted",
    Notebook = "notebook",
    SystemdOomd = "systemd_oomd",
    Earlyoom = "earlyoom",
    Nohang = "nohang",
    UserspaceKiller = "userspace_killer",
    RayMemoryMonitor = "ray_memory_monitor",
    DaskMemoryLimit = "dask_memory_limit",
    LimitTouched = "limit_touched",
    // A kill whose reason is not recorded.
    Sigkill = "sigkill",
    NoCounter = "no_counter",
    KilledBySomeone = "killed_by_someone",
    EverythingKilled = "everything_killed",
    WorkerKilled = "worker_killed",
    WorkerVanished = "worker_vanished",
    // Shared memory and disks.
    BusError = "bus_error",
    DiskFull = "disk_full",
    ObjectStore = "object_store",
    // An allocation on a GPU.
    Figures = "figures",
    NoFigures = "no_figures",
    PerProcessCap = "per_process_cap",
    CacheBudget = "cache_budget",
    ResourceExhausted = "resource_exhausted",
    LibraryAllocation = "library_allocation",
    LibrarySetupFailed = "library_setup_failed",
    SingleAllocationLimit = "single_allocation_limit",
    TensorOnHost = "tensor_on_host",
    Xla = "xla",
    Nccl = "nccl",
    NcclHidesIt = "nccl_hides_it",
    // An allocation on the host.
    Refused = "refused",
    Fork = "fork",
    PinnedMemory = "pinned_memory",
    CommitLimit = "commit_limit",
    AddressSpaceLimit = "address_space_limit",
    LockedMemoryLimit = "locked_memory_limit",
    JavaHeap = "java_heap",
    UnknownWords = "unknown_words",
    // A limit other than memory.
    OpenFiles = "open_files",
    Mappings = "mappings",
    InotifyWatches = "inotify_watches",
    SystemVObjects = "system_v_objects",
    ProcessLimit = "process_limit",
    // Errors of CUDA, NCCL and the hardware.
    CudaError = "cuda_error",
    IllegalAccess = "illegal_access",
    DeviceAssert = "device_assert",
    NcclError = "nccl_error",
    NcclTimeout = "nccl_timeout",
    ConnectionLost = "connection_lost",
    Hardware = "hardware",
    MachineLost = "machine_lost",
    KernelNeedsTooMuch = "kernel_needs_too_much",
    // Crashes.
    Segfault = "segfault",
    Crash = "crash",
    Aborted = "aborted",
    HeapCorruption = "heap_corruption",
    // Errors of the script or its environment.
    Exception = "exception",
    Timeout = "timeout",
    NotStarted = "not_started",
    NoScript = "no_script",
    MissingModule = "missing_module",
    BuildFailed = "build_failed",
    Arguments = "arguments",
    NoMainGuard = "no_main_guard",
    ForkedCuda = "forked_cuda",
    PersistentWorkers = "persistent_workers",
    PrefetchFactor = "prefetch_factor",
    StaticTls = "static_tls",
    Warning = "warning",
    // Ended from outside or on purpose.
    Finished = "finished",
    StoppedByUser = "stopped_by_user",
    StoppedBeforeTheKernel = "stopped_before_the_kernel",
    TimeLimit = "time_limit",
    Preempted = "preempted",
    Cancelled = "cancelled",
    Terminated = "terminated",
    // Not enough evidence.
    FailedElsewhere = "failed_elsewhere",
    OwnLines = "own_lines",
    NoEvidence = "no_evidence",
}

impl fmt::Display for Detail {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.id())
    }
}
