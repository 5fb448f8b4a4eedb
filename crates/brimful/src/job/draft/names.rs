//! How scripts name what brimful turns.

use crate::job::knobs;

/// What an option is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    MicroBatch,
    Accumulation,
    EvalBatch,
    Workers,
    Prefetch,
    PinMemory,
    PersistentWorkers,
    StartMethod,
    Checkpointing,
    Compile,
    Resume,
    Output,
    MaxSteps,
    Epochs,
    Examples,
}

impl Role {
    /// Names in the order in which they are believed, in lower case and with underscores. A name with dots, as
    /// LightningCLI has them, is also found by its last part.
    pub(super) const fn names(self) -> &'static [&'static str] {
        match self {
            Role::MicroBatch => &[
                "per_device_train_batch_size",
                "micro_batch_size",
                "micro_batch",
                "train_micro_batch_size_per_gpu",
                "train_batch_size",
                "batch_size_per_device",
                "batch_size_per_gpu",
                "batch_size",
                "batchsize",
                "batch",
                "bs",
            ],
            Role::Accumulation => &[
                "gradient_accumulation_steps",
                "accumulate_grad_batches",
                "accumulation_steps",
                "gradient_accumulation",
                "grad_accumulation_steps",
                "grad_accum_steps",
                "grad_accum",
                "accum_steps",
                "accum_iter",
                "accumulation",
                "accumulate",
                "accum",
            ],
            Role::EvalBatch => &[
                "per_device_eval_batch_size",
                "eval_batch_size",
                "val_batch_size",
                "validation_batch_size",
                "test_batch_size",
                "eval_batch",
            ],
            Role::Workers => &[
                "dataloader_num_workers",
                "num_workers",
                "n_workers",
                "workers",
                "num_data_workers",
                "loader_workers",
            ],
            Role::Prefetch => &["dataloader_prefetch_factor", "prefetch_factor", "prefetch"],
            Role::PinMemory => &[
                "dataloader_pin_memory",
                "pin_memory",
                "pin_mem",
                "no_pin_memory",
                "no_pin_mem",
            ],
            Role::PersistentWorkers => &["dataloader_persistent_workers", "persistent_workers"],
            Role::StartMethod => &[
                "start_method",
                "multiprocessing_context",
                "mp_start_method",
                "worker_start_method",
            ],
            Role::Checkpointing => &[
                "activation_checkpointing",
                "enable_activation_checkpointing",
                "gradient_checkpointing",
                "grad_checkpointing",
                "use_gradient_checkpointing",
                "use_checkpoint",
                "checkpointing",
            ],
            Role::Compile => &["torch_compile", "compile", "torchcompile"],
            Role::Resume => &[
                "resume_from_checkpoint",
                "ckpt_path",
                "resume_from",
                "resume",
                "resume_path",
                "checkpoint",
                "load_checkpoint",
            ],
            Role::Output => &[
                "output_dir",
                "out_dir",
                "outdir",
                "output",
                "save_dir",
                "checkpoint_dir",
                "ckpt_dir",
                "default_root_dir",
                "logdir",
                "log_dir",
                "out",
            ],
            Role::MaxSteps => &[
                "max_steps",
                "max_train_steps",
                "max_iters",
                "max_steps_per_epoch",
                "total_steps",
                "num_steps",
                "steps",
            ],
            Role::Epochs => &[
                "max_epochs",
                "num_train_epochs",
                "epochs",
                "num_epochs",
                "n_epochs",
            ],
            Role::Examples => EXAMPLES,
        }
    }

    /// The knob that it is, for those of the same science.
    pub(super) const fn knob(self) -> &'static str {
        match self {
            Role::MicroBatch => knobs::MICRO_BATCH,
            Role::Accumulation => knobs::ACCUMULATION,
            Role::EvalBatch => knobs::EVAL_BATCH,
            Role::Workers => knobs::WORKERS,
            Role::Prefetch => knobs::PREFETCH,
            Role::PinMemory => knobs::PIN_MEMORY,
            Role::PersistentWorkers => knobs::PERSISTENT_WORKERS,
            Role::StartMethod => knobs::START_METHOD,
            Role::Checkpointing => knobs::ACTIVATION_CHECKPOINTING,
            Role::Compile => knobs::COMPILE,
            Role::Resume | Role::Output | Role::MaxSteps | Role::Epochs | Role::Examples => "",
        }
    }
}

/// Options that change the result. They are drafted under their own name, as comments.
pub(super) fn other_science() -> impl Iterator<Item = &'static str> {
    [BEFORE_EXAMPLES, EXAMPLES, AFTER_EXAMPLES]
        .into_iter()
        .flatten()
        .copied()
}

/// How many samples the data has.
const EXAMPLES: &[&str] = &[
    "max_train_samples",
    "max_samples",
    "num_train_samples",
    "num_samples",
    "n_samples",
    "max_examples",
    "num_examples",
    "n_examples",
    "examples",
    "train_samples",
    "subset_size",
];

const BEFORE_EXAMPLES: &[&str] = &[
    "precision",
    "mixed_precision",
    "dtype",
    "bf16",
    "fp16",
    "amp",
    "resolution",
    "image_size",
    "img_size",
    "input_size",
    "crop_size",
    "voxel_size",
    "grid_size",
    "sequence_len",
    "sequence_length",
    "seq_len",
    "seq_length",
    "max_seq_length",
    "max_seq_len",
    "max_length",
    "block_size",
    "context_length",
    "context",
    "width",
    "hidden_size",
    "hidden_dim",
    "d_model",
    "embed_dim",
    "n_embd",
];

const AFTER_EXAMPLES: &[&str] = &[
    "model_size",
    "model",
    "arch",
    "model_name",
    "model_name_or_path",
];

/// Whether a key with dots lies in the section of an evaluation: `val_loader.batch_size`.
pub(super) fn is_for_evaluation(key: &str) -> bool {
    let Some((section, _)) = key.rsplit_once('.') else {
        return false;
    };
    let section = plain(section);
    section.split(['.', '_']).any(|part| {
        matches!(
            part,
            "eval"
                | "evaluation"
                | "val"
                | "valid"
                | "validation"
                | "test"
                | "dev"
                | "predict"
                | "inference"
        )
    })
}

/// An option's name without dashes at its front, in lower case and with underscores.
pub(super) fn plain(flag: &str) -> String {
    flag.trim_start_matches('-')
        .to_lowercase()
        .replace('-', "_")
}
