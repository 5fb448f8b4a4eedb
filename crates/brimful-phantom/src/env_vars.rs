//! The environment variables that the phantom reads. `brimful::env_vars` documents them: this library imports nothing.

pub(crate) const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
pub(crate) const PYTHONPATH: &str = "PYTHONPATH";
pub(crate) const BRIMFUL_HOOK: &str = "BRIMFUL_HOOK";
pub(crate) const BRIMFUL_REHEARSAL: &str = "BRIMFUL_REHEARSAL";
pub(crate) const BRIMFUL_REHEARSAL_ATTEMPT: &str = "BRIMFUL_REHEARSAL_ATTEMPT";
pub(crate) const BRIMFUL_REHEARSAL_VARIANT: &str = "BRIMFUL_REHEARSAL_VARIANT";
pub(crate) const BRIMFUL_PHANTOM_DEVICES: &str = "BRIMFUL_PHANTOM_DEVICES";
pub(crate) const BRIMFUL_PHANTOM_CUDNN: &str = "BRIMFUL_PHANTOM_CUDNN";
pub(crate) const BRIMFUL_PHANTOM_CUDNN_VERSION: &str = "BRIMFUL_PHANTOM_CUDNN_VERSION";
pub(crate) const BRIMFUL_PHANTOM_SHARED: &str = "BRIMFUL_PHANTOM_SHARED";
