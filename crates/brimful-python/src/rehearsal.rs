//! Options of every rehearsal, for `brimful.predict()` and `brimful.plan()`.

use std::path::PathBuf;
use std::time::Duration;

use brimful::units::Bytes;
use brimful_isolate::Network;
use brimful_workflow::{IsolationOptions, Libraries, RehearsalOptions};
use pyo3::prelude::*;

use crate::border::Failure;

/// What Python passes: a dictionary with these keys.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct RehearsalArguments {
    steps: u32,
    /// Seconds.
    time_limit: f64,
    phantom: PathBuf,
    /// The native program of this package.
    program: PathBuf,
    redirect_library: PathBuf,
    allow_writes: bool,
    /// `full` or `none`.
    network: String,
    /// For example "20GiB".
    scratch: Option<String>,
}

impl RehearsalArguments {
    pub(crate) fn options(self) -> Result<RehearsalOptions, Failure> {
        let network = match self.network.as_str() {
            "full" => Network::Full,
            "none" => Network::None,
            other => {
                return Err(Failure::Input {
                    message: format!("network must be \"full\" or \"none\", not {other:?}"),
                    hints: Vec::new(),
                });
            }
        };
        let scratch = self
            .scratch
            .map(|text| text.parse::<Bytes>())
            .transpose()
            .map_err(|error| Failure::Input {
                message: format!("scratch: {error}"),
                hints: Vec::new(),
            })?;
        Ok(RehearsalOptions {
            steps: self.steps,
            time_limit: Duration::try_from_secs_f64(self.time_limit).unwrap_or(Duration::MAX),
            libraries: Libraries {
                program: self.program,
                phantom: Ok(self.phantom),
                redirect: self.redirect_library,
            },
            isolation: IsolationOptions {
                isolation: None,
                allow_writes: self.allow_writes,
                network,
                scratch,
            },
        })
    }
}
