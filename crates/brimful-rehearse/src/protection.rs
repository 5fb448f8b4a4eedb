//! How a script is kept from the user's files while it is rehearsed.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use brimful_isolate::{
    Isolated, Isolation, IsolationSettings, Network, Scratch, SharedDirectory, StartError, start,
};

use crate::guard::Guard;

/// How early the kernel picks a rehearsal when memory runs out: 1000 is first.
const OOM_SCORE_ADJ: i32 = 800;

/// Where libraries keep what they download, by variable and by the default below the home directory.
const DOWNLOADS: [(&str, &str); 2] = [
    (brimful::env_vars::HF_HOME, ".cache/huggingface"),
    (brimful::env_vars::TORCH_HOME, ".cache/torch"),
];

/// More directories than any command line names.
const MAX_DIRECTORIES: usize = 256;

/// What is asked of the protection.
#[derive(Clone, Debug, Default)]
pub struct ProtectionRequest {
    /// The program that is started as the keeper of a script: brimful itself.
    pub program: PathBuf,
    /// `libbrimful_redirect.so`; where it is missing, writes cannot be redirected.
    pub redirect_library: PathBuf,
    /// Only this isolation.
    pub isolation: Option<Isolation>,
    /// Rehearse without isolation.
    pub allow_writes: bool,
    pub network: Network,
    /// How much scripts may write; a tenth of the free space where it is not given.
    pub scratch_bytes: Option<u64>,
    /// Patterns of checkpoints, which are copied aside where writes are allowed, and put back.
    pub guarded: Vec<String>,
}

/// The protection of all rehearsals of one command.
#[derive(Clone, Debug)]
pub struct Protection {
    request: ProtectionRequest,
    scratch: Arc<Scratch>,
    shared: Vec<SharedDirectory>,
}

impl Protection {
    /// Creates the private directory that takes what scripts write.
    pub fn new(mut request: ProtectionRequest) -> io::Result<Protection> {
        let scratch = Scratch::create(&Scratch::usual_parents(), request.scratch_bytes)?;
        // LD_PRELOAD is cut at blanks and colons, which the path of an installation may have.
        let library = scratch.path().join("libbrimful_redirect.so");
        if request.redirect_library.is_file() {
            brimful_private::copy_new(&request.redirect_library, &library)?;
        }
        request.redirect_library = library;
        let home = std::env::var_os(brimful::env_vars::HOME).map(PathBuf::from);
        let shared = DOWNLOADS
            .iter()
            .filter_map(|(variable, default)| {
                let path = std::env::var_os(variable)
                    .map(PathBuf::from)
                    .or_else(|| Some(home.as_ref()?.join(default)))
                    .filter(|path| path.is_absolute())?;
                Some(SharedDirectory {
                    layer: scratch.shared_layer(&variable.to_lowercase()),
                    // What does not exist yet is created in the overlay.
                    path: path.canonicalize().unwrap_or(path),
                })
            })
            .collect();
        Ok(Protection {
            request,
            scratch: Arc::new(scratch),
            shared,
        })
    }

    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// The program of brimful.
    pub(crate) fn program(&self) -> &Path {
        &self.request.program
    }

    /// What network scripts have.
    pub(crate) fn network(&self) -> Network {
        self.request.network
    }

    /// Copies the job's checkpoints aside where the script's writes reach them. They are put back when the guard goes.
    pub(crate) fn guard(&self) -> io::Result<Guard> {
        if !self.request.allow_writes {
            return Ok(Guard::default());
        }
        // Not inside scratch, which is removed: a copy that cannot be put back is kept.
        let scratch = self.scratch.path();
        Guard::copy(
            &self.request.guarded,
            &std::env::current_dir()?,
            scratch.parent().unwrap_or(scratch),
            self.scratch.budget(),
        )
    }

    /// Whether a script that died with this output may be started once more with its writes redirected: an overlay cannot
    /// do everything that the file system below can. The other way can, and costs more time.
    pub(crate) fn may_redirect_after(&self, output: &str) -> bool {
        self.request.isolation.is_none()
            && !self.request.allow_writes
            && overlay_was_in_the_way(output)
    }

    /// Starts a command whose two output streams go to `output`. Its writes go through below `writable`.
    pub(crate) fn start(
        &self,
        command: &Command,
        output: &File,
        writable: &[PathBuf],
        isolation: Option<Isolation>,
    ) -> Result<Isolated, StartError> {
        self.start_with(command, output, writable, isolation, false)
    }

    /// The same for a command that uses the GPUs of this machine.
    pub(crate) fn start_for_real(
        &self,
        command: &Command,
        output: &File,
        writable: &[PathBuf],
        isolation: Option<Isolation>,
    ) -> Result<Isolated, StartError> {
        self.start_with(command, output, writable, isolation, true)
    }

    fn start_with(
        &self,
        command: &Command,
        output: &File,
        writable: &[PathBuf],
        isolation: Option<Isolation>,
        uses_gpus: bool,
    ) -> Result<Isolated, StartError> {
        let isolation = if self.request.allow_writes {
            Some(Isolation::Off)
        } else {
            isolation.or(self.request.isolation)
        };
        // Where writes go through, no canary is caught.
        let mut checked = directories_of(command);
        checked.retain(|path| !writable.iter().any(|own| path.starts_with(own)));
        let settings = IsolationSettings {
            program: self.request.program.clone(),
            isolation,
            network: self.request.network,
            uses_gpus,
            writable: writable.to_vec(),
            shared: self.shared.clone(),
            checked,
            redirect_library: self.request.redirect_library.clone(),
            oom_score_adj: OOM_SCORE_ADJ,
        };
        start(command, output, &self.scratch, &settings)
    }
}

/// Directories that the command will probably write to: its working directory, and what its arguments and variables name,
/// `HOME` and `TMPDIR` among them.
fn directories_of(command: &Command) -> Vec<PathBuf> {
    let current = match command.get_current_dir() {
        Some(directory) => directory.to_owned(),
        None => std::env::current_dir().unwrap_or_default(),
    };
    let variables = std::env::vars_os()
        .map(|(_, value)| PathBuf::from(value))
        .filter(|path| path.is_absolute());
    let named = command
        .get_args()
        .filter_map(path_candidates)
        .map(|path| current.join(path));
    let mut found: Vec<PathBuf> = Vec::new();
    let paths = std::iter::once(current.clone()).chain(named);
    // The first directory that exists: what is named may have to be created.
    let existing = paths.filter_map(|path| {
        let directory = path.ancestors().find(|ancestor| ancestor.is_dir())?;
        Some(directory.to_owned())
    });
    for directory in existing.chain(variables).take(MAX_DIRECTORIES) {
        let Ok(directory) = directory.canonicalize() else {
            continue;
        };
        if directory.is_dir() && directory != Path::new("/") && !found.contains(&directory) {
            found.push(directory);
        }
    }
    found
}

/// `out/run`, and the part behind `=` of `--output-dir=out/run`; nothing that has no slash.
fn path_candidates(word: &OsStr) -> Option<&Path> {
    let bytes = word.as_encoded_bytes();
    let start = bytes
        .iter()
        .position(|byte| *byte == b'=')
        .map_or(0, |at| at + 1);
    let text = word.to_str()?.get(start..)?;
    (text.contains('/') && !text.contains("://")).then(|| Path::new(text))
}

/// Whether the script's last words are about what only an overlay without privileges refuses: files of an owner or group
/// that cannot be mapped, mount points that cannot be written or replaced, directories that cannot be renamed.
fn overlay_was_in_the_way(output: &str) -> bool {
    [
        "Value too large for defined data type",
        "Read-only file system",
        "Invalid cross-device link",
        "Device or resource busy",
    ]
    .iter()
    .any(|words| output.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_arguments() {
        let found =
            |word: &str| path_candidates(OsStr::new(word)).map(|path| path.display().to_string());
        assert_eq!(
            found("--output-dir=/data/out").as_deref(),
            Some("/data/out")
        );
        assert_eq!(found("runs/a").as_deref(), Some("runs/a"));
        assert_eq!(found("--lr=0.1"), None);
        assert_eq!(found("s3://bucket/key"), None);
    }

    #[test]
    fn the_working_directory_and_existing_parents_of_arguments_are_checked() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("out")).unwrap();
        let mut command = Command::new("python");
        command.arg("--to").arg("out/new/run").current_dir(&root);
        let found = directories_of(&command);
        assert_eq!(found[0], root);
        assert!(found.contains(&root.join("out")), "{found:?}");
    }
}
