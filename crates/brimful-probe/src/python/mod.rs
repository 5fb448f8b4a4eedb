//! The Python that would run the job and its PyTorch, told from files: nothing is started or imported.

mod installation;
mod locate;
pub mod parse;
mod torch;

use brimful::fact::Fact;
use brimful::machine::Python;

use crate::environment::Environment;
use crate::files::Files;

pub use installation::PythonHint;

pub(crate) fn read(files: &Files, env: &Environment, hint: &PythonHint) -> Fact<Python> {
    let candidates = locate::candidates(files, env, hint);
    let mut described = candidates.into_iter().map(|installation| Python {
        torch: torch::read(files, &installation),
        executable: installation.executable,
        version: installation.version,
        found_by: installation.found_by,
    });
    let Some(first) = described.next() else {
        return Fact::unavailable("no python is on PATH");
    };
    if first.torch.known().is_some() {
        return Fact::Known(first);
    }
    // brimful is often called by its full path from an environment that is not activated: the Python beside it is
    // the better guess if that is where PyTorch is.
    Fact::Known(
        described
            .find(|python| python.torch.known().is_some())
            .unwrap_or(first),
    )
}
