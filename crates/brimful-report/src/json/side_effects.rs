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
    /// How each kind of thing that the script could have reached was kept from it.
    pub containment: Containment,
    /// What the script asked of services and was not done.
    pub suppressed: Vec<String>,
    /// Hosts, and services on this machine, that the script connected to.
    pub connections: Vec<HostConnection>,
    /// Local sockets that the script connected to, or could not.
    pub sockets: Vec<SocketConnection>,
}

/// How each kind of thing that a script can reach was kept from it: what was set up, and proved before the script started.
///
/// `namespace`: the script had its own. `redirected`: a library redirected it to its own, and the kernel denied the rest.
/// `denied`: the kernel denied it. `open`: the script could reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Containment {
    /// Files and directories: `namespace` (isolation `overlay`), `redirected` or `open`.
    pub files: String,
    /// Shared memory and semaphores by name: `namespace`, `redirected` or `open`.
    pub shared_memory: String,
    /// System V shared memory, semaphores and queues, and POSIX message queues: `namespace`, `denied` or `open`.
    pub ipc: String,
    /// Signals to other processes, their priorities and limits: `namespace`, `denied`, `signals_denied` (priorities and
    /// limits could be changed) or `open`.
    pub processes: String,
    /// Other hosts and services on this machine: `denied` (`--network none`) or `open`, with what was connected to in
    /// `connections` and `sockets`.
    pub network: String,
    /// GPUs: as `gpu_hidden`.
    pub devices: String,
}

/// A local socket that the script connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketConnection {
    /// Its path, or `@` and its name if it has no path.
    pub path: String,
    /// Whether the connection was refused: because of `--network none`, or because the isolation does not reach it.
    pub refused: bool,
    /// How many processes connected to it.
    pub count: u32,
}

/// A host that the script connected to; this machine for its services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostConnection {
    /// Its name, or its address where no name was looked up.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How many processes connected to it.
    pub count: u32,
}
