//! What `predict`, `plan`, `run` and `init` share: how a rehearsed script is kept from the user's files.

use std::path::{Path, PathBuf};

use brimful::job::Job;
use brimful::units::Bytes;
use brimful_isolate::{Isolation, Network};
use brimful_rehearse::{Protection, ProtectionRequest, SideEffects, job_file};
use brimful_report::json;

use crate::args::{IsolationChoice, NetworkChoice, ProtectionArguments};
use crate::error::CommandError;

const PHANTOM: &str = "libbrimful_phantom.so";
const REDIRECT: &str = "libbrimful_redirect.so";

/// The protection that was asked for, with its private directory.
pub(crate) fn protection(
    arguments: &ProtectionArguments,
    job: Option<&Job>,
) -> Result<Protection, CommandError> {
    let request = ProtectionRequest {
        program: PathBuf::from("/proc/self/exe"),
        // Without it there is one way less to isolate a script; which one is used is reported.
        redirect_library: installed(REDIRECT).unwrap_or_else(|_| PathBuf::from(REDIRECT)),
        isolation: arguments.isolation.map(|choice| match choice {
            IsolationChoice::Overlay => Isolation::Overlay,
            IsolationChoice::Redirect => Isolation::Redirect,
        }),
        allow_writes: arguments.allow_writes,
        network: match arguments.network {
            NetworkChoice::Full => Network::Full,
            NetworkChoice::None => Network::None,
        },
        scratch_bytes: arguments.scratch.map(Bytes::get),
        guarded: match job {
            Some(job) => job.checkpoints.clone(),
            None => job_file::checkpoints_here(),
        },
    };
    Protection::new(request).map_err(CommandError::NoScratch)
}

/// The phantom GPU: the library that was named, or the one that came with brimful.
pub(crate) fn phantom_library(named: Option<&Path>) -> Result<PathBuf, CommandError> {
    match named {
        Some(named) => Ok(named.to_owned()),
        None => installed(PHANTOM).map_err(|looked| CommandError::NoPhantom { looked }),
    }
}

/// A library beside the program, or where the wheel puts it; or where it was looked for.
fn installed(name: &str) -> Result<PathBuf, String> {
    let program = std::env::current_exe()
        .ok()
        .and_then(|program| program.canonicalize().ok());
    let candidates: Vec<PathBuf> = program
        .as_deref()
        .and_then(Path::parent)
        .map(|directory| {
            vec![
                directory.join(name),
                directory.join("../lib/brimful").join(name),
            ]
        })
        .unwrap_or_default();
    candidates
        .iter()
        .find(|path| path.is_file())
        .and_then(|path| path.canonicalize().ok())
        .ok_or_else(|| {
            candidates
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
                .join(", ")
        })
}

/// As the documents hold it.
pub(crate) fn side_effects(found: SideEffects) -> json::SideEffects {
    json::SideEffects {
        isolation: found.isolation.name().to_owned(),
        suppressed: found.suppressed,
        connections: found
            .connections
            .into_iter()
            .map(|it| json::HostConnection {
                host: it.host,
                port: it.port,
                count: it.count,
            })
            .collect(),
    }
}
