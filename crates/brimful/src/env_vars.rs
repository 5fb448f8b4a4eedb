//! Every environment variable that brimful reads, in one list.
//!
//! A crate reads a variable through its constant here, so the reference page, which is made from [`ALL`], is complete.
//! The two C libraries, `brimful-phantom` and `brimful-redirect`, import nothing and repeat the names they need; a test
//! of the repository compares them.

/// A variable and what brimful does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvVar {
    pub name: &'static str,
    pub read_by: &'static str,
    pub purpose: &'static str,
}

/// Declares a constant for each variable, and [`ALL`] of them in the order of the reference page.
macro_rules! variables {
    ($($constant:ident = $name:literal, $read_by:literal, $purpose:literal;)*) => {
        $(
            #[doc = $purpose]
            pub const $constant: &str = $name;
        )*

        /// In the order of the reference page.
        pub const ALL: &[EnvVar] = &[
            $(EnvVar { name: $name, read_by: $read_by, purpose: $purpose },)*
        ];
    };
}

variables! {
    NO_COLOR = "NO_COLOR",
        "every command",
        "If not empty, print text without color. `--color` overrides it.";
    CLICOLOR = "CLICOLOR",
        "every command",
        "`0` turns color off. `--color` overrides it.";
    CLICOLOR_FORCE = "CLICOLOR_FORCE",
        "every command",
        "If set and not `0`, print color even into a pipe. `--color` overrides it.";
    TERM = "TERM",
        "every command",
        "`dumb` turns color off. With `dumb` or an empty value, `brimful run` shows no status line and `brimful top` prints one frame.";
    LC_ALL = "LC_ALL",
        "every command",
        "Locale: decides between block characters and plain ASCII on a terminal.";
    LC_CTYPE = "LC_CTYPE",
        "every command",
        "Locale, used if `LC_ALL` is not set.";
    LANG = "LANG",
        "every command",
        "Locale, used if neither `LC_ALL` nor `LC_CTYPE` is set.";
    PATH = "PATH",
        "`brimful probe`, `brimful predict`, `brimful run`",
        "Where the Python of the job, and the command of `brimful run`, is looked up.";
    HOME = "HOME",
        "every command",
        "Home directory: default location of the state directory, of caches and of the user's Python packages.";
    XDG_STATE_HOME = "XDG_STATE_HOME",
        "`brimful run`, `brimful explain`, `brimful runs`, `brimful top`, `brimful plan`",
        "The state directory is `brimful` in this directory unless `BRIMFUL_STATE_DIR` or `--state-dir` is set. Default: `~/.local/state`.";
    XDG_CACHE_HOME = "XDG_CACHE_HOME",
        "`brimful probe`, `brimful predict`, `brimful.data`",
        "Cache directory: a candidate for the files that a rehearsed script writes, and the location of dataset indexes. Default: `~/.cache`.";
    TMPDIR = "TMPDIR",
        "`brimful probe`, `brimful predict`",
        "Where a rehearsal keeps its files and what its script writes; used for the latter only if it is on a disk, else `/var/tmp`. A path with a space or a colon is ignored.";
    PYTHONPATH = "PYTHONPATH",
        "`brimful probe`, `brimful predict`, `brimful run`",
        "Directories in which the job's Python finds torch. Kept for the job, after the directory of brimful's hook.";
    PYTHONNOUSERSITE = "PYTHONNOUSERSITE",
        "`brimful probe`",
        "If set, the user's own package directory is not searched for torch.";
    PYENV_VERSION = "PYENV_VERSION",
        "`brimful probe`",
        "The Python version that pyenv starts.";
    CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES",
        "`brimful probe`, the phantom GPU",
        "Which NVIDIA GPUs torch sees, and in which order.";
    CUDA_DEVICE_ORDER = "CUDA_DEVICE_ORDER",
        "`brimful probe`",
        "Whether torch numbers GPUs as `nvidia-smi` does (`PCI_BUS_ID`).";
    HIP_VISIBLE_DEVICES = "HIP_VISIBLE_DEVICES",
        "`brimful probe`",
        "Which AMD GPUs torch sees.";
    ROCR_VISIBLE_DEVICES = "ROCR_VISIBLE_DEVICES",
        "`brimful probe`",
        "Which AMD GPUs the ROCm runtime shows to torch.";
    PYTORCH_CUDA_ALLOC_CONF = "PYTORCH_CUDA_ALLOC_CONF",
        "`brimful probe`, the rehearsal's hook",
        "Settings of torch's CUDA caching allocator.";
    PYTORCH_ALLOC_CONF = "PYTORCH_ALLOC_CONF",
        "`brimful probe`, the rehearsal's hook",
        "The same under its newer name.";
    PYTORCH_HIP_ALLOC_CONF = "PYTORCH_HIP_ALLOC_CONF",
        "`brimful probe`",
        "The same for AMD GPUs.";
    PYTORCH_NO_CUDA_MEMORY_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING",
        "`brimful probe`",
        "If set, torch's caching allocator is off.";
    SLURMD_NODENAME = "SLURMD_NODENAME",
        "`brimful probe`",
        "Identifies a Slurm job.";
    SLURM_JOB_ID = "SLURM_JOB_ID",
        "`brimful probe`",
        "The id of the Slurm job.";
    SLURM_MEM_PER_NODE = "SLURM_MEM_PER_NODE",
        "`brimful probe`",
        "The memory request of the Slurm job.";
    SLURM_MEM_PER_CPU = "SLURM_MEM_PER_CPU",
        "`brimful probe`",
        "The memory request of the Slurm job, per CPU.";
    SLURM_MEM_PER_GPU = "SLURM_MEM_PER_GPU",
        "`brimful probe`",
        "The memory request of the Slurm job, per GPU.";
    SLURM_CPUS_ON_NODE = "SLURM_CPUS_ON_NODE",
        "`brimful probe`",
        "The number of CPUs of the Slurm job on this node.";
    SLURM_GPUS_ON_NODE = "SLURM_GPUS_ON_NODE",
        "`brimful probe`",
        "The number of GPUs of the Slurm job on this node.";
    KUBERNETES_SERVICE_HOST = "KUBERNETES_SERVICE_HOST",
        "`brimful probe`, `brimful run`",
        "Identifies a Kubernetes pod. `brimful run` then appends the verdict of a failed run to `/dev/termination-log`, if that file exists.";
    BRIMFUL_TERMINATION_MESSAGE_PATH = "BRIMFUL_TERMINATION_MESSAGE_PATH",
        "`brimful run`",
        "The file to append the verdict to, if the pod sets another `terminationMessagePath`.";
    COLAB_RELEASE_TAG = "COLAB_RELEASE_TAG",
        "`brimful probe`",
        "Identifies Google Colab.";
    COLAB_GPU = "COLAB_GPU",
        "`brimful probe`",
        "Identifies Google Colab.";
    KAGGLE_KERNEL_RUN_TYPE = "KAGGLE_KERNEL_RUN_TYPE",
        "`brimful probe`",
        "Identifies a Kaggle notebook.";
    KAGGLE_URL_BASE = "KAGGLE_URL_BASE",
        "`brimful probe`",
        "Identifies a Kaggle notebook.";
    SM_CURRENT_INSTANCE_TYPE = "SM_CURRENT_INSTANCE_TYPE",
        "`brimful probe`",
        "Identifies Amazon SageMaker.";
    TRAINING_JOB_ARN = "TRAINING_JOB_ARN",
        "`brimful probe`",
        "Identifies Amazon SageMaker.";
    CONTAINER = "container",
        "`brimful probe`",
        "Set by Podman and LXC to their names.";
    HF_HOME = "HF_HOME",
        "`brimful predict`, `brimful plan`",
        "Downloads of a rehearsed script into this directory are kept for later rehearsals of the same command.";
    TORCH_HOME = "TORCH_HOME",
        "`brimful predict`, `brimful plan`",
        "The same for downloads of torch.";
    MLFLOW_TRACKING_URI = "MLFLOW_TRACKING_URI",
        "`brimful predict`",
        "The MLflow server of the job. A rehearsed script logs to a local directory instead.";
    LD_PRELOAD = "LD_PRELOAD",
        "`brimful predict`",
        "Kept for the rehearsed script, after the libraries of brimful.";
    LD_LIBRARY_PATH = "LD_LIBRARY_PATH",
        "the redirect library",
        "Kept for what a rehearsed script starts, after the directory of the phantom GPU if the script has it there.";
    BRIMFUL_STATE_DIR = "BRIMFUL_STATE_DIR",
        "`brimful run`, `brimful explain`, `brimful runs`, `brimful top`, `brimful plan`",
        "The state directory, which holds run records. `--state-dir` overrides it.";
    BRIMFUL_RECORDS = "BRIMFUL_RECORDS",
        "`brimful run`",
        "Directory or URL to which a run is recorded when it has ended, unless `--records` is given.";
    OTEL_EXPORTER_OTLP_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT",
        "`brimful run --otlp`",
        "URL of the collector, unless `--otlp` names one. Read by OpenTelemetry's library, as are its other `OTEL_EXPORTER_OTLP_*` variables (headers, timeout) and `OTEL_RESOURCE_ATTRIBUTES`.";
    OTEL_METRIC_EXPORT_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL",
        "`brimful run --otlp`",
        "Milliseconds between two exports. Default: 10000.";
    OTEL_SERVICE_NAME = "OTEL_SERVICE_NAME",
        "`brimful run --otlp`",
        "The attribute `service.name`. Default: `brimful`.";
    BRIMFUL_KEEP_RUNS = "BRIMFUL_KEEP_RUNS",
        "`brimful run`",
        "Number of run records to keep (default 200), or `all`. Records of the last day are always kept.";
    LOCAL_RANK = "LOCAL_RANK",
        "`brimful run`, the rehearsal's hook",
        "The rank of a training process on this machine, set by its launcher.";
    RANK = "RANK",
        "`brimful run`",
        "The rank of a training process on several nodes, set by torchrun.";
    WORLD_SIZE = "WORLD_SIZE",
        "`brimful run`",
        "The number of ranks, set by torchrun.";
    MASTER_ADDR = "MASTER_ADDR",
        "`brimful run`",
        "The host of the store in which the ranks on several nodes agree on an attempt, set by torchrun.";
    MASTER_PORT = "MASTER_PORT",
        "`brimful run`",
        "The port of that store, set by torchrun.";
    TORCHELASTIC_USE_AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE",
        "`brimful run`",
        "`True` if torchrun has opened that store, set by torchrun.";
    PET_NNODES = "PET_NNODES",
        "`brimful run`, `brimful plan`, `brimful predict`",
        "The number of nodes, which torchrun reads if `--nnodes` is not given.";
    PET_NPROC_PER_NODE = "PET_NPROC_PER_NODE",
        "`brimful run`, `brimful plan`",
        "The number of ranks on each node, which torchrun reads if `--nproc-per-node` is not given.";
    TORCHELASTIC_ERROR_FILE = "TORCHELASTIC_ERROR_FILE",
        "`brimful run`",
        "Where torchrun writes the exception of the worker that failed first, which is read as evidence. Set for the job if it is not set.";
    BRIMFUL_INSIDE = "BRIMFUL_INSIDE",
        "the hook of `brimful run`",
        "The directory to which the hook writes. Set by `brimful run`.";
    BRIMFUL_GAUGES = "BRIMFUL_GAUGES",
        "the hook of `brimful run`, `brimful.data`",
        "The directory of the gauges that the hook and brimful share. Set by `brimful run`.";
    BRIMFUL_STARTED_NS = "BRIMFUL_STARTED_NS",
        "the hook of `brimful run`",
        "The start of the attempt on the monotonic clock. Set by `brimful run`.";
    BRIMFUL_TRACE_ALLOCATIONS = "BRIMFUL_TRACE_ALLOCATIONS",
        "the hook of `brimful run`",
        "`1` makes PyTorch record every allocation. Set by `brimful run --trace-allocations`.";
    BRIMFUL_ISOLATION = "BRIMFUL_ISOLATION",
        "the rehearsal's hook",
        "How the script is isolated. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_CONNECTIONS = "BRIMFUL_CONNECTIONS",
        "the redirect library",
        "The file to which each network connection of the script is logged. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_KEEPER = "BRIMFUL_KEEPER",
        "the redirect library",
        "The process whose descendants the script may change in `/proc`. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_TRACKERS = "BRIMFUL_TRACKERS",
        "the rehearsal's hook",
        "The directory to which experiment trackers log. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_MLFLOW_URI = "BRIMFUL_MLFLOW_URI",
        "the rehearsal's hook",
        "The value of `MLFLOW_TRACKING_URI` outside the rehearsal. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_HOOK = "BRIMFUL_HOOK",
        "the phantom GPU, the redirect library",
        "The directory of the rehearsal's hook. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_ACCEPTS = "BRIMFUL_ACCEPTS",
        "the rehearsal's hook",
        "The file for the options that a script accepts. Set by `brimful init`.";
    BRIMFUL_REHEARSAL = "BRIMFUL_REHEARSAL",
        "the rehearsal's hook, the phantom GPU",
        "The directory for the results of the rehearsal. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_VERIFY = "BRIMFUL_VERIFY",
        "the rehearsal's hook, the redirect library",
        "The directory for what a run on a real GPU measures. Set by `brimful verify`.";
    BRIMFUL_REHEARSAL_NODES = "BRIMFUL_REHEARSAL_NODES",
        "the rehearsal's hook",
        "Number of nodes of a job of which one is rehearsed. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_REHEARSAL_STEPS = "BRIMFUL_REHEARSAL_STEPS",
        "the rehearsal's hook",
        "Number of steps to rehearse, or to make on a real GPU. Set by `brimful predict`, `brimful plan` and `brimful verify`.";
    BRIMFUL_REHEARSAL_CASE = "BRIMFUL_REHEARSAL_CASE",
        "the rehearsal's hook",
        "What to assume of values that only the model computes: `balanced` or `worst`. Set by `brimful predict`.";
    BRIMFUL_REHEARSAL_WITH = "BRIMFUL_REHEARSAL_WITH",
        "the rehearsal's hook",
        "What the rehearsal is to measure besides GPU memory. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_REHEARSAL_VARIANTS = "BRIMFUL_REHEARSAL_VARIANTS",
        "the rehearsal's hook",
        "The GPUs to rehearse for, beyond the first. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_REHEARSAL_VARIANT = "BRIMFUL_REHEARSAL_VARIANT",
        "the rehearsal's hook, the phantom GPU",
        "The variant of this process. Set by the hook.";
    BRIMFUL_REHEARSAL_ATTEMPT = "BRIMFUL_REHEARSAL_ATTEMPT",
        "the rehearsal's hook, the phantom GPU",
        "The number of times this process was started again. Set by the hook.";
    BRIMFUL_REHEARSAL_PROCESSORS = "BRIMFUL_REHEARSAL_PROCESSORS",
        "the rehearsal's hook",
        "`1` watches the steps of a script that sees no GPU. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_REHEARSAL_WITHOUT_CUDA = "BRIMFUL_REHEARSAL_WITHOUT_CUDA",
        "the rehearsal's hook",
        "`1` hides CUDA from torch. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_REHEARSAL_WITHOUT_SPEED = "BRIMFUL_REHEARSAL_WITHOUT_SPEED",
        "the rehearsal's hook",
        "`1` ends a rehearsal after the memory is known, without the step whose operators are captured: predictions then have no speed.";
    BRIMFUL_PHANTOM_DEVICES = "BRIMFUL_PHANTOM_DEVICES",
        "the phantom GPU, the rehearsal's hook",
        "The GPUs that the phantom shows. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_PHANTOM_CUDNN = "BRIMFUL_PHANTOM_CUDNN",
        "the phantom GPU",
        "A real cuDNN library to ask for workspace sizes. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_PHANTOM_CUDNN_VERSION = "BRIMFUL_PHANTOM_CUDNN_VERSION",
        "the phantom GPU, the rehearsal's hook",
        "The cuDNN version to report without one. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_PHANTOM_SHARED = "BRIMFUL_PHANTOM_SHARED",
        "the phantom GPU",
        "The directory in which processes record the GPU memory that they hold, so that each sees that of the others. For tests.";
    BRIMFUL_NVIDIA_SMI = "BRIMFUL_NVIDIA_SMI",
        "the redirect library",
        "The program that answers for `nvidia-smi`. Set by `brimful predict`, `brimful plan` and `brimful init`.";
    BRIMFUL_REDIRECT = "BRIMFUL_REDIRECT",
        "the redirect library",
        "The scratch directory for the script's writes. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_REDIRECT_PASS = "BRIMFUL_REDIRECT_PASS",
        "the redirect library",
        "Path prefixes whose writes are not redirected. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_REDIRECT_SHARED = "BRIMFUL_REDIRECT_SHARED",
        "the redirect library",
        "Scratch layers that all branches of a rehearsal share. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_REDIRECT_TOKEN = "BRIMFUL_REDIRECT_TOKEN",
        "the redirect library",
        "The argument that the seccomp filter expects from the library. Set by `brimful predict` and `brimful plan`.";
    BRIMFUL_REDIRECT_LAYERS = "BRIMFUL_REDIRECT_LAYERS",
        "the redirect library",
        "The scratch layers of this process. Set by the library.";
    BRIMFUL_FAULT = "BRIMFUL_FAULT",
        "debug builds",
        "Makes steps of a start fail. For tests.";
    BRIMFUL_FAULT_MARKS = "BRIMFUL_FAULT_MARKS",
        "debug builds",
        "The directory in which each injected fault leaves a file. For tests.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_listed_once() {
        let mut names: Vec<&str> = ALL.iter().map(|variable| variable.name).collect();
        names.sort_unstable();
        let n_names = names.len();
        names.dedup();
        assert_eq!(names.len(), n_names);
    }
}
