//! The cuDNN beside the torch that a command will use: asked for workspace sizes, in its mode without a device.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What lies beside torch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Cudnn {
    pub library: Option<PathBuf>,
    /// The version that torch was built with, in cuDNN's form: 92600 for 9.26.0.
    pub wanted_version: Option<String>,
}

/// More than any METADATA that is read here.
const MAX_TEXT_BYTES: u64 = 1 << 20;

impl Cudnn {
    /// Looks into the environment of the Python that `program` is, or is a script of (`torchrun`).
    pub(crate) fn beside(program: &OsStr) -> Cudnn {
        let Some(program) = found(program) else {
            return Cudnn::default();
        };
        let interpreter = interpreter_of(&program).unwrap_or(program);
        let mut found = Cudnn::default();
        for folder in package_folders(&interpreter) {
            let library = folder.join("nvidia/cudnn/lib/libcudnn.so.9");
            if library.is_file() && found.library.is_none() {
                found.library = Some(library);
            }
            if let Some(version) = wanted_version(&folder) {
                found.wanted_version = Some(version);
                break;
            }
        }
        found
    }
}

/// The path of a program that was named by path or as on PATH.
fn found(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return std::path::absolute(path).ok().filter(|path| path.is_file());
    }
    let folders = std::env::var_os(brimful::env_vars::PATH)?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(path))
        .find(|path| path.is_file())
}

/// The interpreter in the first line of a script.
fn interpreter_of(program: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    fs::File::open(program)
        .ok()?
        .take(512)
        .read_to_end(&mut start)
        .ok()?;
    let line = String::from_utf8_lossy(&start)
        .lines()
        .next()?
        .strip_prefix("#!")?
        .trim()
        .to_owned();
    let mut words = line.split_whitespace();
    match words.next()? {
        "/usr/bin/env" => found(OsStr::new(words.next()?)),
        path => Some(PathBuf::from(path)).filter(|path| path.is_file()),
    }
}

/// Folders in which that interpreter looks for packages, the nearest first.
fn package_folders(interpreter: &Path) -> Vec<PathBuf> {
    let mut prefixes = Vec::new();
    let real = interpreter.canonicalize().ok();
    for program in [Some(interpreter), real.as_deref()].into_iter().flatten() {
        prefixes.extend(program.parent().and_then(Path::parent).map(Path::to_owned));
    }
    prefixes.push("/usr/local".into());
    prefixes.extend(
        std::env::var_os(brimful::env_vars::HOME).map(|home| PathBuf::from(home).join(".local")),
    );
    let mut folders = Vec::new();
    for prefix in prefixes {
        for library in ["lib", "lib64"] {
            let versions = fs::read_dir(prefix.join(library))
                .into_iter()
                .flatten()
                .flatten();
            let versions =
                versions.filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"));
            for version in versions {
                folders.extend(
                    ["site-packages", "dist-packages"].map(|name| version.path().join(name)),
                );
            }
        }
    }
    folders
}

/// `nvidia-cudnn-cu13==9.26.0.51` in torch's METADATA, as 92600.
fn wanted_version(folder: &Path) -> Option<String> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let torch = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .find(|name| name.starts_with("torch-") && name.ends_with(".dist-info"))?;
    let mut text = String::new();
    let file = fs::File::open(folder.join(torch).join("METADATA")).ok()?;
    file.take(MAX_TEXT_BYTES).read_to_string(&mut text).ok()?;
    cudnn_number(
        text.lines()
            .find(|line| line.starts_with("Requires-Dist: nvidia-cudnn-cu"))?,
    )
}

fn cudnn_number(requirement: &str) -> Option<String> {
    let version = requirement.split("==").nth(1)?;
    let mut parts = version
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    let (major, minor, patch) = (
        parts.next()?.ok()?,
        parts.next()?.ok()?,
        parts.next()?.ok()?,
    );
    Some((major.checked_mul(10_000)? + minor.checked_mul(100)? + patch).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_torch_asks_for() {
        let line = "Requires-Dist: nvidia-cudnn-cu13==9.26.0.51; platform_system == \"Linux\"";
        assert_eq!(cudnn_number(line).as_deref(), Some("92600"));
        assert_eq!(
            cudnn_number("Requires-Dist: nvidia-cudnn-cu12").as_deref(),
            None
        );
    }
}
