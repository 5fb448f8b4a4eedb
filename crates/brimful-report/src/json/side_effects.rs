//! What a rehearsed script did or wanted to do beyond its own process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What became of a script's writes, uploads and connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideEffects {
    /// How the user's files were protected: `overlay`, `redirect` or `off`.
    pub isolation: String,
    /// How the GPUs of this machine were hidden: `devices`, `landlock` or `no_driver`.
    pub gpu_hidden: String,
    /// What the script asked of services and was not done.
    pub suppressed: Vec<String>,
    /// Hosts beyond this machine that the script connected to.
    pub connections: Vec<HostConnection>,
}

/// A host that the script connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostConnection {
    /// Its name, or its address where no name was looked up.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How many processes connected to it.
    pub count: u32,
}
