//! How a rehearsed script is kept from the user's files, for `brimful.predict()` and `brimful.plan()`.

use std::path::PathBuf;

use brimful::units::Bytes;
use brimful_isolate::Network;
use brimful_rehearse::{Protection, ProtectionRequest, SideEffects};
use brimful_report::json;
use pyo3::prelude::*;

use crate::border::Failure;

/// What Python hands over, a dictionary with these keys.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct AskedProtection {
    /// The native program of this package.
    program: PathBuf,
    redirect_library: PathBuf,
    allow_writes: bool,
    /// `full` or `none`.
    network: String,
    /// As in "20GiB".
    scratch: Option<String>,
}

impl AskedProtection {
    pub(crate) fn create(self, guarded: Vec<String>) -> Result<Protection, Failure> {
        let network = match self.network.as_str() {
            "full" => Network::Full,
            "none" => Network::None,
            other => {
                return Err(Failure::Input {
                    message: format!(
                        "expected network to be \"full\" or \"none\", found {other:?}"
                    ),
                    hints: Vec::new(),
                });
            }
        };
        let scratch_bytes = self
            .scratch
            .map(|text| text.parse::<Bytes>())
            .transpose()
            .map_err(|error| Failure::Input {
                message: format!("scratch: {error}"),
                hints: vec!["write a size such as \"20GiB\"".into()],
            })?;
        Protection::new(ProtectionRequest {
            program: self.program,
            redirect_library: self.redirect_library,
            isolation: None,
            allow_writes: self.allow_writes,
            network,
            scratch_bytes: scratch_bytes.map(Bytes::get),
            guarded,
        })
        .map_err(|error| Failure::Machine {
            message: format!("there is no directory for what a rehearsed script writes: {error}"),
            hints: vec!["set TMPDIR to a directory on a disk that can be written".into()],
        })
    }
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
