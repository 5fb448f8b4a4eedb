//! The stage: a folder and an environment in which the phantom answers for every NVIDIA library.
//!
//! The folder holds the library and one link to it for each library name that PyTorch asks for. It is preloaded, and
//! while it is loaded it opens those links, so that the loader knows it under all of their names; a later request for
//! `libcudart.so.13` finds it loaded, whatever the requesting library's own search path says. Nothing of the machine is
//! changed: the environment is that of one child process.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cudnn::Cudnn;

/// Library names that the phantom answers to.
const NAMES: &str = include_str!("../../brimful-phantom/sonames.txt");

const LIBRARY: &str = "libbrimful_phantom.so";

/// The first argument with which brimful answers for `nvidia-smi`; the second is the phantom. Not for people.
pub const NVIDIA_SMI_ARGUMENT: &str = "__nvidia-smi";

/// The Python that runs inside of the script.
const HOOK: &[(&str, &str)] = &[
    ("sitecustomize.py", include_str!("hook/sitecustomize.py")),
    (
        "brimful_accepts.py",
        include_str!("hook/brimful_accepts.py"),
    ),
    (
        "brimful_assumptions.py",
        include_str!("hook/brimful_assumptions.py"),
    ),
    (
        "brimful_attention.py",
        include_str!("hook/brimful_attention.py"),
    ),
    (
        "brimful_autotune.py",
        include_str!("hook/brimful_autotune.py"),
    ),
    (
        "brimful_branches.py",
        include_str!("hook/brimful_branches.py"),
    ),
    (
        "brimful_capture.py",
        include_str!("hook/brimful_capture.py"),
    ),
    ("brimful_common.py", include_str!("hook/brimful_common.py")),
    (
        "brimful_composition.py",
        include_str!("hook/brimful_composition.py"),
    ),
    (
        "brimful_dispatch.py",
        include_str!("hook/brimful_dispatch.py"),
    ),
    ("brimful_fake.py", include_str!("hook/brimful_fake.py")),
    (
        "brimful_fake_cuda.py",
        include_str!("hook/brimful_fake_cuda.py"),
    ),
    (
        "brimful_fallback.py",
        include_str!("hook/brimful_fallback.py"),
    ),
    ("brimful_guard.py", include_str!("hook/brimful_guard.py")),
    ("brimful_host.py", include_str!("hook/brimful_host.py")),
    (
        "brimful_isolation.py",
        include_str!("hook/brimful_isolation.py"),
    ),
    ("brimful_hub.py", include_str!("hook/brimful_hub.py")),
    (
        "brimful_imports.py",
        include_str!("hook/brimful_imports.py"),
    ),
    (
        "brimful_inductor.py",
        include_str!("hook/brimful_inductor.py"),
    ),
    ("brimful_input.py", include_str!("hook/brimful_input.py")),
    ("brimful_ledger.py", include_str!("hook/brimful_ledger.py")),
    (
        "brimful_literals.py",
        include_str!("hook/brimful_literals.py"),
    ),
    ("brimful_mended.py", include_str!("hook/brimful_mended.py")),
    (
        "brimful_objects.py",
        include_str!("hook/brimful_objects.py"),
    ),
    ("brimful_onward.py", include_str!("hook/brimful_onward.py")),
    (
        "brimful_operators.py",
        include_str!("hook/brimful_operators.py"),
    ),
    ("brimful_ops.py", include_str!("hook/brimful_ops.py")),
    (
        "brimful_parsers.py",
        include_str!("hook/brimful_parsers.py"),
    ),
    (
        "brimful_plausible.py",
        include_str!("hook/brimful_plausible.py"),
    ),
    (
        "brimful_processors.py",
        include_str!("hook/brimful_processors.py"),
    ),
    ("brimful_reduce.py", include_str!("hook/brimful_reduce.py")),
    (
        "brimful_rehearsal.py",
        include_str!("hook/brimful_rehearsal.py"),
    ),
    (
        "brimful_shadows.py",
        include_str!("hook/brimful_shadows.py"),
    ),
    ("brimful_stack.py", include_str!("hook/brimful_stack.py")),
    ("brimful_steps.py", include_str!("hook/brimful_steps.py")),
    (
        "brimful_substitutes.py",
        include_str!("hook/brimful_substitutes.py"),
    ),
    (
        "brimful_suppress.py",
        include_str!("hook/brimful_suppress.py"),
    ),
    ("brimful_torch.py", include_str!("hook/brimful_torch.py")),
    (
        "brimful_trackers.py",
        include_str!("hook/brimful_trackers.py"),
    ),
    ("brimful_values.py", include_str!("hook/brimful_values.py")),
    ("brimful_verify.py", include_str!("hook/brimful_verify.py")),
];

/// A temporary folder, removed at the end.
#[derive(Debug)]
pub struct Stage {
    folder: brimful_private::TempDir,
}

impl Stage {
    /// Prepares the folder for the library at `phantom`.
    pub fn new(phantom: &Path) -> io::Result<Stage> {
        let stage = Stage::without_card()?;
        let libraries = stage.libraries();
        brimful_private::new_directory(&libraries)?;
        // A copy: the links must lie beside it, and the folder of the original may be read-only.
        brimful_private::copy_new(phantom, &libraries.join(LIBRARY))?;
        for name in names() {
            link(Path::new(LIBRARY), &libraries.join(name))?;
        }
        Ok(stage)
    }

    /// Prepares the folder for a script that trains on the processors.
    pub fn without_card() -> io::Result<Stage> {
        let folder = temporary_folder()?;
        write_hook(&folder.path().join("hook"))?;
        brimful_private::new_directory(&folder.path().join("results"))?;
        Ok(Stage { folder })
    }

    /// Lets `program`, which is brimful, answer for `nvidia-smi`: the first one on the path of a command on the stage.
    pub fn add_nvidia_smi(&self, program: &Path) -> io::Result<()> {
        // `/proc/self/exe` is another program where the script starts it.
        let program = program.canonicalize()?;
        let library = self.libraries().join(LIBRARY);
        let mut script = b"#!/bin/sh\nexec ".to_vec();
        for word in [
            program.as_os_str(),
            NVIDIA_SMI_ARGUMENT.as_ref(),
            library.as_os_str(),
        ] {
            let quoted = word.as_encoded_bytes().split(|byte| *byte == b'\'');
            script.push(b'\'');
            script.extend(quoted.collect::<Vec<_>>().join(&b"'\\''"[..]));
            script.extend(b"' ");
        }
        script.extend(b"\"$@\"\n");
        let path = self.nvidia_smi();
        brimful_private::new_directory(&self.programs())?;
        brimful_private::write_new(&path, &script)?;
        make_executable(&path)
    }

    /// The directory: libraries, hook and results.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn libraries(&self) -> PathBuf {
        self.folder.path().join("libraries")
    }

    fn programs(&self) -> PathBuf {
        self.folder.path().join("programs")
    }

    fn nvidia_smi(&self) -> PathBuf {
        self.programs().join("nvidia-smi")
    }

    /// Where the processes on the stage write.
    pub fn results(&self) -> PathBuf {
        self.folder.path().join("results")
    }

    /// Puts a command on the stage: the phantom is its GPU.
    pub fn apply(&self, command: &mut Command) {
        let libraries = self.libraries();
        let mut preload = libraries.join(LIBRARY).into_os_string();
        for other in others_preloaded(std::env::var_os(brimful::env_vars::LD_PRELOAD)) {
            preload.push(":");
            preload.push(other);
        }
        command
            .env("LD_PRELOAD", preload)
            // For programs that are linked with the driver: their libraries are loaded before those that are preloaded
            // have run.
            .env(
                brimful::env_vars::LD_LIBRARY_PATH,
                before(libraries.as_os_str(), brimful::env_vars::LD_LIBRARY_PATH),
            )
            // Triton looks for the driver in the system's folders unless it is told.
            .env("TRITON_LIBCUDA_PATH", &libraries)
            // The cards of this machine are not the cards of the stage.
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env_remove("NVIDIA_VISIBLE_DEVICES")
            // Of a phantom that stands for one of them in a test.
            .env_remove("BRIMFUL_PHANTOM_SHARED");
        if self.nvidia_smi().exists() {
            // Another PATH would hide the programs that are found without one.
            let usual = || "/usr/local/bin:/usr/bin:/bin".into();
            let mut path = self.programs().into_os_string();
            path.push(":");
            path.push(std::env::var_os(brimful::env_vars::PATH).unwrap_or_else(usual));
            command
                .env("PATH", path)
                .env("BRIMFUL_NVIDIA_SMI", self.nvidia_smi());
        }
        let cudnn = Cudnn::beside(command.get_program());
        if let Some(path) = cudnn.library {
            command.env("BRIMFUL_PHANTOM_CUDNN", path);
        } else if let Some(version) = cudnn.wanted_version {
            command.env("BRIMFUL_PHANTOM_CUDNN_VERSION", version);
        }
    }

    /// Puts a command on the stage and watches its optimizer steps.
    pub fn apply_hook(&self, command: &mut Command) {
        self.apply(command);
        self.put_hook(command);
    }

    /// Watches the optimizer steps of a command that sees no card.
    pub fn apply_hook_without_card(&self, command: &mut Command) {
        self.put_hook(command);
        command
            .env("CUDA_VISIBLE_DEVICES", "")
            .env("BRIMFUL_REHEARSAL_PROCESSORS", "1");
    }

    fn put_hook(&self, command: &mut Command) {
        self.put_python(command);
        command.env("BRIMFUL_REHEARSAL", self.results());
    }

    /// Watches and times the optimizer steps of a command on the real GPUs, and ends it after the last one.
    pub(crate) fn apply_hook_for_real(&self, command: &mut Command) {
        self.put_python(command);
        command
            .env("BRIMFUL_VERIFY", self.results())
            .env_remove("BRIMFUL_REHEARSAL");
    }

    /// Watches how a command reads its arguments, and writes what it accepts to `results`.
    pub(crate) fn put_hook_for_arguments(&self, command: &mut Command, results: &Path) {
        self.put_python(command);
        command
            .env("BRIMFUL_ACCEPTS", results)
            .env_remove("BRIMFUL_REHEARSAL");
    }

    fn put_python(&self, command: &mut Command) {
        let hook = self.folder.path().join("hook");
        command
            .env(
                "PYTHONPATH",
                before(hook.as_os_str(), brimful::env_vars::PYTHONPATH),
            )
            // For the phantom, which puts the hook back where a script sets PYTHONPATH itself.
            .env("BRIMFUL_HOOK", &hook);
    }
}

/// What the user has preloaded. Without another phantom, of a rehearsal around this one: the hook would ask that one.
fn others_preloaded(variable: Option<OsString>) -> Vec<OsString> {
    let list = variable.unwrap_or_default();
    let entries = list.as_bytes().split(|byte| matches!(byte, b':' | b' '));
    entries
        .filter(|entry| !entry.is_empty() && !entry.ends_with(LIBRARY.as_bytes()))
        .map(|entry| OsStr::from_bytes(entry).to_owned())
        .collect()
}

/// Makes a folder with the Python that runs inside of the script.
fn write_hook(folder: &Path) -> io::Result<()> {
    brimful_private::new_directory(folder)?;
    // Python would make its cache by the umask.
    brimful_private::new_directory(&folder.join("__pycache__"))?;
    for (name, text) in HOOK {
        brimful_private::write_new(&folder.join(name), text.as_bytes())?;
    }
    Ok(())
}

/// LD_PRELOAD is cut at blanks and colons, so the folder's path may have neither.
fn temporary_folder() -> io::Result<brimful_private::TempDir> {
    let usable = |path: &Path| {
        !path
            .as_os_str()
            .as_encoded_bytes()
            .iter()
            .any(|byte| matches!(byte, b' ' | b':' | b'\t' | b'\n'))
    };
    let places = [
        std::env::temp_dir(),
        "/tmp".into(),
        "/var/tmp".into(),
        "/dev/shm".into(),
    ];
    let mut failed = io::Error::new(
        io::ErrorKind::InvalidInput,
        "the path of the temporary directory contains a space or a colon",
    );
    for place in places.iter().filter(|place| usable(place)) {
        match brimful_private::temporary_directory(&[place], "brimful-") {
            Ok(folder) if usable(folder.path()) => return Ok(folder),
            Ok(_) => {}
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn names() -> impl Iterator<Item = &'static str> {
    NAMES
        .lines()
        .map(str::trim)
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
}

/// `first` in front of what the variable holds already.
fn before(first: &OsStr, variable: &str) -> OsString {
    let mut all = first.to_owned();
    if let Some(own) = std::env::var_os(variable).filter(|own| !own.is_empty()) {
        all.push(":");
        all.push(own);
    }
    all
}

#[cfg(unix)]
fn make_executable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn link(original: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(original, link)
}

#[cfg(not(unix))]
fn link(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "the phantom GPU needs Linux",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_preloads_stays_but_for_another_phantom() {
        let others = |list: &str| others_preloaded(Some(list.into())).join(OsStr::new(" "));
        assert_eq!(
            others("/usr/lib/libtcmalloc.so.4:/tmp/a/libbrimful_phantom.so:/b.so /c.so"),
            "/usr/lib/libtcmalloc.so.4 /b.so /c.so"
        );
        assert_eq!(others(""), "");
        assert!(others_preloaded(None).is_empty());
    }
}
