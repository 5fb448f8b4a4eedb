//! How a script is rehearsed, whatever the rehearsal is for.

use std::time::Duration;

use brimful::units::Bytes;
use brimful_isolate::{Contained, Isolation, Network};
use brimful_rehearse::{Protection, ProtectionRequest, SideEffects};
use brimful_report::json;

use crate::error::WorkflowError;
use crate::libraries::Libraries;

/// Options of every rehearsal.
#[derive(Clone, Debug)]
pub struct RehearsalOptions {
    pub steps: u32,
    pub time_limit: Duration,
    pub libraries: Libraries,
    pub isolation: IsolationOptions,
}

/// How the script is kept from changing the user's files.
#[derive(Clone, Debug)]
pub struct IsolationOptions {
    /// The best available one without it.
    pub isolation: Option<Isolation>,
    /// No isolation: the script writes for real.
    pub allow_writes: bool,
    pub network: Network,
    pub scratch: Option<Bytes>,
}

impl Default for IsolationOptions {
    fn default() -> IsolationOptions {
        IsolationOptions {
            isolation: None,
            allow_writes: false,
            network: Network::Full,
            scratch: None,
        }
    }
}

impl IsolationOptions {
    /// Prepares the isolation, with its private directory. `checkpoints` are copied aside where writes are allowed.
    pub fn protection(
        &self,
        libraries: &Libraries,
        checkpoints: Vec<String>,
    ) -> Result<Protection, WorkflowError> {
        let request = ProtectionRequest {
            program: libraries.program.clone(),
            redirect_library: libraries.redirect.clone(),
            isolation: self.isolation,
            allow_writes: self.allow_writes,
            network: self.network,
            scratch_bytes: self.scratch.map(Bytes::get),
            guarded: checkpoints,
        };
        Protection::new(request).map_err(WorkflowError::NoScratch)
    }
}

/// Side effects as documents show them.
pub(crate) fn side_effects_document(found: SideEffects) -> json::SideEffects {
    json::SideEffects {
        isolation: found.isolation.name().to_owned(),
        gpu_hidden: found.gpu_hidden.name().to_owned(),
        containment: containment_document(&found),
        suppressed: found.suppressed,
        sockets: found
            .connections
            .sockets
            .into_iter()
            .map(|it| json::SocketConnection {
                path: it.path,
                refused: it.is_refused,
                count: it.count,
            })
            .collect(),
        connections: found
            .connections
            .hosts
            .into_iter()
            .map(|it| json::HostConnection {
                host: it.host,
                port: it.port,
                count: it.count,
            })
            .collect(),
    }
}

fn containment_document(found: &SideEffects) -> json::Containment {
    let files = match found.isolation {
        Isolation::Overlay => Contained::Namespace,
        Isolation::Redirect => Contained::Redirected,
        Isolation::Off => Contained::Open,
    };
    let network = match found.network {
        Network::None => Contained::Denied,
        Network::Full => Contained::Open,
    };
    json::Containment {
        files: files.name().to_owned(),
        shared_memory: found.containment.shared_memory.name().to_owned(),
        ipc: found.containment.ipc.name().to_owned(),
        processes: found.containment.processes.name().to_owned(),
        network: network.name().to_owned(),
        devices: found.gpu_hidden.name().to_owned(),
    }
}
