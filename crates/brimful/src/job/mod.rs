//! A job as its user describes it: the command, what must be kept, and which knobs may be turned.
//!
//! Read first: [`Job`]. It comes from a `brimful.toml` ([`read()`], [`JobFile`]); a [`Settings`] makes a command line of
//! it ([`Job::render`]) or one of the [`forms`] that others take.

mod value;

mod bounds;
mod config;
mod description;
mod error;
mod file;
mod knob;
mod located;
mod overrides;
mod read;
mod rules;
mod template;

mod problems;
mod render;

pub mod draft;
pub mod forms;

#[cfg(test)]
mod tests;

pub use config::{
    ConfigError, ConfigFile, ConfigKey, ConfigOverrides, MAX_CONFIG_BYTES, config_keys, with_values,
};
pub use description::Job;
pub use error::{JobError, Mistake};
pub use file::JobFile;
pub use knob::{Choices, Knob, Science, knobs};
pub use located::MAX_JOB_FILE_BYTES;
pub use overrides::Override;
pub use problems::JobProblem;
pub use read::{read, read_pyproject};
pub use render::{ALLOCATOR_VARIABLE, Rendered};
pub use template::BraceProblem;
pub use value::{Settings, Value};
