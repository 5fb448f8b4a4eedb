//! Tools that the checks need: Python's in a virtual environment of their own, cargo's in a folder of theirs.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result};

use crate::shell::{cache, cargo, program, root, run};

/// A virtual environment.
#[derive(Clone, Debug)]
pub(crate) struct PythonEnvironment {
    folder: PathBuf,
}

/// Makes what later steps need and what may take long to download, in the order in which they need it. What fails here
/// fails there again, and is reported there.
pub(crate) fn prepare_environments() {
    let _ = docs_tools();
    let _ = cargo_deny();
    let _ = python_tools();
    let _ = tests_environment();
    let _ = torch_environment();
}

/// The environment with the tools that build and check.
pub(crate) fn python_tools() -> Result<PythonEnvironment> {
    pinned("tools", &[&["-r", "python/requirements-dev.txt"]])
}

/// The environment with the tools that build the documentation site.
pub(crate) fn docs_tools() -> Result<PythonEnvironment> {
    pinned("docs-tools", &[&["-r", "docs/site/requirements.txt"]])
}

/// The environment of the tests that need no torch, without the wheel.
pub(crate) fn tests_environment() -> Result<PythonEnvironment> {
    pinned("wheel-tests", &[&["-r", "python/requirements-test.txt"]])
}

/// The environment with the CUDA build of PyTorch and none of NVIDIA's packages.
pub(crate) fn torch_environment() -> Result<PythonEnvironment> {
    pinned(
        "torch",
        &[
            &["--no-deps", "-r", "python/requirements-torch.txt"],
            &["-r", "python/requirements-torch-needs.txt"],
        ],
    )
}

/// The environment into which pip has installed what these lists name, made once for each of their contents. Each list
/// is the last of pip's arguments, as a path below the root.
fn pinned(name: &str, installs: &[&[&str]]) -> Result<PythonEnvironment> {
    static MAKING: Mutex<()> = Mutex::new(());
    let mut hasher = DefaultHasher::new();
    for install in installs {
        let list = install.last().context("no requirements")?;
        let text = fs::read_to_string(root().join(list)).with_context(|| (*list).to_owned())?;
        text.hash(&mut hasher);
    }
    let folder = cache().join(format!("{name}-{:016x}", hasher.finish()));
    let done = folder.join("installed");
    let environment = PythonEnvironment { folder };
    if !done.exists() {
        let _one_at_a_time = MAKING.lock();
        if !done.exists() {
            environment.create()?;
            for install in installs {
                let arguments: Vec<&OsStr> = install.iter().map(AsRef::as_ref).collect();
                environment.install(&arguments)?;
            }
            fs::write(&done, "")?;
        }
    }
    Ok(environment)
}

/// A new, empty environment, in place of an older one of that name.
pub(crate) fn fresh_environment(name: &str) -> Result<PythonEnvironment> {
    let environment = PythonEnvironment {
        folder: cache().join(name),
    };
    environment.create()?;
    Ok(environment)
}

impl PythonEnvironment {
    fn create(&self) -> Result<()> {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        run(program("python3", &["-m", "venv"]).arg(&self.folder))
    }

    pub(crate) fn bin(&self) -> PathBuf {
        self.folder.join("bin")
    }

    /// Its Python, started in the repository's root.
    pub(crate) fn python(&self, arguments: &[&str]) -> Command {
        program(self.bin().join("python"), arguments)
    }

    /// A program of this environment, with the environment's folder first on PATH.
    pub(crate) fn tool(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = program(self.bin().join(name), arguments);
        command.env("PATH", self.path_variable());
        command
    }

    fn path_variable(&self) -> std::ffi::OsString {
        let mut path = self.bin().into_os_string();
        path.push(":");
        path.push(std::env::var_os(crate::env_vars::PATH).unwrap_or_default());
        path
    }

    /// Installs what pip is told to.
    pub(crate) fn install(&self, what: &[&OsStr]) -> Result<()> {
        run(self
            .python(&[
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .args(what))
    }

    /// Installs one wheel and nothing else.
    pub(crate) fn install_wheel(&self, wheel: &Path) -> Result<()> {
        self.install(&["--no-index".as_ref(), wheel.as_os_str()])
    }

    /// The wheel in place of one that is there already, perhaps of the same version.
    pub(crate) fn replace_wheel(&self, wheel: &Path) -> Result<()> {
        let options = ["--no-index", "--force-reinstall", "--no-deps"];
        let mut arguments: Vec<&OsStr> = options.iter().map(AsRef::as_ref).collect();
        arguments.push(wheel.as_os_str());
        self.install(&arguments)
    }
}

/// The version that passes here; a newer one may bring rules of its own.
const CARGO_DENY: &str = "0.20.2";

/// cargo-deny, built once. Without optimization: it runs for a second, and builds in one minute instead of five.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock();
    let folder = cache().join(format!("cargo-deny-{CARGO_DENY}"));
    let binary = folder.join("bin/cargo-deny");
    if !binary.exists() {
        run(cargo(&[
            "install",
            "cargo-deny",
            "--version",
            CARGO_DENY,
            "--locked",
            "--debug",
            "--quiet",
        ])
        .arg("--no-default-features")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .arg("--root")
        .arg(&folder)
        .arg("--target-dir")
        .arg(folder.join("target")))?;
        fs::remove_dir_all(folder.join("target"))?;
    }
    Ok(binary)
}
