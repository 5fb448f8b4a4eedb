//! Every environment variable that brimful reads, in one list. The reference page is made from it.

/// A variable and what brimful does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvVar {
    pub name: &'static str,
    pub read_by: &'static str,
    pub purpose: &'static str,
}

/// In the order of the reference page.
pub const ALL: &[EnvVar] = &[
    EnvVar {
        name: "NO_COLOR",
        read_by: "every command",
        purpose: "Not empty: text without color. `--color` wins over it.",
    },
    EnvVar {
        name: "CLICOLOR_FORCE",
        read_by: "every command",
        purpose: "Not `0`: color even into a pipe. `CLICOLOR=0` and `TERM=dumb` turn it off. `--color` wins over all.",
    },
    EnvVar {
        name: "LC_ALL",
        read_by: "every command",
        purpose: "With `LC_CTYPE` and `LANG`: whether a terminal is sent block characters or plain ASCII.",
    },
    EnvVar {
        name: "PATH",
        read_by: "`brimful probe`, `brimful predict`",
        purpose: "Where the Python that would run the job is looked for.",
    },
    EnvVar {
        name: "PYTHONPATH",
        read_by: "`brimful probe`",
        purpose: "Further folders in which that Python would find torch.",
    },
    EnvVar {
        name: "PYENV_VERSION",
        read_by: "`brimful probe`",
        purpose: "The version a pyenv script on PATH would start.",
    },
    EnvVar {
        name: "HOME",
        read_by: "`brimful probe`, `brimful predict`",
        purpose: "The user's own package folder, unless `PYTHONNOUSERSITE` is set.",
    },
    EnvVar {
        name: "CUDA_VISIBLE_DEVICES",
        read_by: "`brimful probe`",
        purpose: "Which NVIDIA GPUs torch will see, and in which order.",
    },
    EnvVar {
        name: "CUDA_DEVICE_ORDER",
        read_by: "`brimful probe`",
        purpose: "Whether torch numbers GPUs as `nvidia-smi` does (`PCI_BUS_ID`).",
    },
    EnvVar {
        name: "HIP_VISIBLE_DEVICES",
        read_by: "`brimful probe`",
        purpose: "Which AMD GPUs torch will see; so does `ROCR_VISIBLE_DEVICES`.",
    },
    EnvVar {
        name: "PYTORCH_CUDA_ALLOC_CONF",
        read_by: "`brimful probe`, the rehearsed script",
        purpose: "Settings of torch's allocator; also `PYTORCH_ALLOC_CONF` and `PYTORCH_HIP_ALLOC_CONF`.",
    },
    EnvVar {
        name: "PYTORCH_NO_CUDA_MEMORY_CACHING",
        read_by: "`brimful probe`",
        purpose: "Turns torch's caching allocator off.",
    },
    EnvVar {
        name: "SLURMD_NODENAME",
        read_by: "`brimful probe`",
        purpose: "A Slurm job; its request: `SLURM_JOB_ID`, `SLURM_MEM_PER_NODE`, `SLURM_MEM_PER_CPU`, \
                  `SLURM_MEM_PER_GPU`, `SLURM_CPUS_ON_NODE`, `SLURM_GPUS_ON_NODE`.",
    },
    EnvVar {
        name: "KUBERNETES_SERVICE_HOST",
        read_by: "`brimful probe`",
        purpose: "A Kubernetes pod.",
    },
    EnvVar {
        name: "COLAB_RELEASE_TAG",
        read_by: "`brimful probe`",
        purpose: "Google Colab; so does `COLAB_GPU`.",
    },
    EnvVar {
        name: "KAGGLE_KERNEL_RUN_TYPE",
        read_by: "`brimful probe`",
        purpose: "A Kaggle notebook; so does `KAGGLE_URL_BASE`.",
    },
    EnvVar {
        name: "SM_CURRENT_INSTANCE_TYPE",
        read_by: "`brimful probe`",
        purpose: "Amazon SageMaker; so does `TRAINING_JOB_ARN`.",
    },
    EnvVar {
        name: "container",
        read_by: "`brimful probe`",
        purpose: "Podman and LXC name themselves here.",
    },
    EnvVar {
        name: "TMPDIR",
        read_by: "`brimful predict`",
        purpose: "Where a rehearsal is staged, and where what its script writes is kept until its end (there only on a disk, \
                  else `/var/tmp`); a path with a blank or a colon is passed over.",
    },
    EnvVar {
        name: "HF_HOME",
        read_by: "`brimful predict`, `brimful plan`",
        purpose: "What a script downloads there, or into `TORCH_HOME`, is kept for all rehearsals of one command.",
    },
    EnvVar {
        name: "BRIMFUL_ISOLATION",
        read_by: "the rehearsed script",
        purpose: "How the script is isolated. `brimful predict` sets this, `BRIMFUL_CONNECTIONS`, `BRIMFUL_TRACKERS`, \
                  `BRIMFUL_MLFLOW_URI` and the variables that begin with `BRIMFUL_REDIRECT`; nobody else needs to.",
    },
    EnvVar {
        name: "LD_PRELOAD",
        read_by: "`brimful predict`",
        purpose: "Kept for the script, after the phantom GPU; `PYTHONPATH` likewise, after the rehearsal's hook.",
    },
    EnvVar {
        name: "BRIMFUL_PHANTOM_DEVICES",
        read_by: "the phantom GPU",
        purpose: "The cards it shows. `brimful predict` sets this and the other variables that begin with `BRIMFUL_PHANTOM` or `BRIMFUL_REHEARSAL` for the script, `brimful init` sets `BRIMFUL_ACCEPTS`; nobody else needs to.",
    },
    EnvVar {
        name: "BRIMFUL_STATE_DIR",
        read_by: "`brimful run`, `brimful explain`, `brimful runs`",
        purpose: "Where records of runs are kept. `--state-dir` wins over it; without either it is `brimful` in \
                  `XDG_STATE_HOME`, else `~/.local/state/brimful`.",
    },
    EnvVar {
        name: "BRIMFUL_KEEP_RUNS",
        read_by: "`brimful run`",
        purpose: "How many records of runs are kept, 200 without it; `all` keeps every one. The last day's are always kept.",
    },
    EnvVar {
        name: "TORCHELASTIC_ERROR_FILE",
        read_by: "`brimful run`",
        purpose: "Where torchrun writes what the worker that failed first raised: read as evidence. Set for the training where \
                  it is not set already.",
    },
    EnvVar {
        name: "KUBERNETES_SERVICE_HOST",
        read_by: "`brimful run`",
        purpose: "Set in a pod: the verdict on a death is added to `/dev/termination-log`, if it is there.",
    },
    EnvVar {
        name: "BRIMFUL_TERMINATION_MESSAGE_PATH",
        read_by: "`brimful run`",
        purpose: "That file, where a pod's `terminationMessagePath` is another one.",
    },
    EnvVar {
        name: "TERM",
        read_by: "`brimful run`",
        purpose: "`dumb` or empty: no status line. `PYTHONPATH` is kept for the training, after the folder of the hook.",
    },
];
