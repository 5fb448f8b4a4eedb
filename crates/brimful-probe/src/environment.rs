//! Environment variables, read once.

use std::collections::BTreeMap;

/// Environment variables by name.
pub type Environment = BTreeMap<String, String>;

/// The variables of this process. Taken apart from the rest: in a Python process only the thread that holds Python's
/// lock may read them safely.
pub fn current_environment() -> Environment {
    std::env::vars_os()
        .map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        })
        .collect()
}
