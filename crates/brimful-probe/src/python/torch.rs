//! An installed PyTorch, from its own version file and its package metadata.

use brimful::fact::{Fact, Gap};
use brimful::machine::{Torch, TorchVersion};

use crate::files::{Files, malformed};
use crate::python::installation::Installation;
use crate::python::parse::{metadata_version, torch_version_file};

/// `torch/version.py` says more than the metadata: only it names the CUDA build on every index.
pub(super) fn read(files: &Files, installation: &Installation) -> Fact<Torch> {
    if installation.import_directories.is_empty() {
        return Fact::unavailable(format!(
            "the packages of {} could not be found",
            installation.executable
        ));
    }
    for directory in &installation.import_directories {
        let path = format!("{directory}/torch/version.py");
        match files.text_up_to(&path, 65_536) {
            Fact::Known(text) => return from_version_file(&path, &text),
            Fact::Missing(Gap::FileMissing { .. }) => {}
            Fact::Missing(gap) => return Fact::Missing(gap),
        }
        if let Some(torch) = from_metadata(files, directory) {
            return torch;
        }
    }
    Fact::unavailable(format!(
        "{} has no torch installed",
        installation.executable
    ))
}

fn from_version_file(path: &str, text: &str) -> Fact<Torch> {
    let parsed = torch_version_file(text).and_then(|(version_text, accelerator)| {
        Some(Torch {
            version: TorchVersion::parse(&version_text)?,
            version_text,
            accelerator: Fact::Known(accelerator),
        })
    });
    match parsed {
        Some(torch) => Fact::Known(torch),
        None => Fact::Missing(malformed(path, text)),
    }
}

fn from_metadata(files: &Files, directory: &str) -> Option<Fact<Torch>> {
    let names = files.names(directory, 20_000);
    let name = names
        .known()?
        .iter()
        .find(|name| name.starts_with("torch-") && name.ends_with(".dist-info"))?;
    let path = format!("{directory}/{name}/METADATA");
    Some(files.text_up_to(&path, 262_144).and_then(|text| {
        let version_text = metadata_version(&text).unwrap_or_default().to_owned();
        match TorchVersion::parse(&version_text) {
            Some(version) => Fact::Known(Torch {
                version,
                version_text,
                accelerator: Fact::unavailable("torch/version.py is not there to name the build"),
            }),
            None => Fact::Missing(malformed(&path, &text)),
        }
    }))
}
