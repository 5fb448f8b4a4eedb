//! Where runs, measurements and rehearsals are kept.

use std::path::PathBuf;

use brimful::env_vars;
use brimful_supervise::StateDir;

/// The state directory: the one that was named, else `BRIMFUL_STATE_DIR`, else the one of the XDG convention.
///
/// Reads environment variables. A caller in a process with other threads that may change them (Python) calls it while
/// nothing else can run.
pub fn state_dir(named: Option<PathBuf>) -> Option<StateDir> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    StateDir::choose(
        named.or_else(|| variable(env_vars::BRIMFUL_STATE_DIR)),
        variable(env_vars::XDG_STATE_HOME),
        // As that of a service's user may be: it names a directory that nobody has made, and nor does brimful.
        variable(env_vars::HOME).filter(|home| home.is_dir()),
    )
}

/// The directory that a job's measurements belong to.
pub fn working_directory() -> PathBuf {
    std::env::current_dir().unwrap_or_default()
}
