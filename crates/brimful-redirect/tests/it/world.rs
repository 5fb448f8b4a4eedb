//! A tree of files, a scratch directory, and programs that run with the one redirected into the other.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// What the seccomp filter of the sandbox asks for.
const TOKEN: &str = "5eed0123456789ab";

/// `libbrimful_redirect.so`, which cargo has built beside the tests. The one in the directory above is older, if it was
/// not asked for.
pub(crate) fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let library = tests.with_file_name("libbrimful_redirect.so");
    assert!(library.exists(), "expected {}", library.display());
    library
}

/// A file beside this one.
pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it")
        .join(name)
}

/// Two equal trees, a scratch directory, and a layer for shared memory.
pub(crate) struct World {
    directory: TempDir,
    shared_memory: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = Self {
            directory: TempDir::new().unwrap(),
            shared_memory: TempDir::new_in("/dev/shm").unwrap(),
        };
        for tree in [world.copy(), world.real()] {
            for directory in ["data/inner", "out/best"] {
                std::fs::create_dir_all(tree.join(directory)).unwrap();
            }
            for (name, content) in [
                ("notes.txt", "line 1\nline 2\n"),
                ("data/values.bin", "0123456789"),
                ("data/inner/deep.txt", "deep"),
                ("out/results.csv", "1,0.9\n2,0.7\n"),
                ("out/last.pt", "step 40"),
                ("out/best/model.pt", "best"),
            ] {
                let path = tree.join(name);
                std::fs::write(&path, content).unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
            }
        }
        std::fs::create_dir(world.scratch()).unwrap();
        world
    }

    /// The tree on which programs run as they are.
    pub(crate) fn copy(&self) -> PathBuf {
        self.directory.path().join("copy")
    }

    /// The tree that must not change.
    pub(crate) fn real(&self) -> PathBuf {
        self.directory.path().join("real")
    }

    pub(crate) fn scratch(&self) -> PathBuf {
        self.directory.path().join("scratch")
    }

    /// Runs a program as it is.
    pub(crate) fn run_plain(&self, command: &[OsString]) -> String {
        let mut program = Command::new(&command[0]);
        program.args(&command[1..]);
        shown(&finish(&mut program), &self.copy())
    }

    /// Runs a program under the library, where the kernel denies all other writes.
    pub(crate) fn run_redirected(&self, command: &[OsString]) -> String {
        let before = fingerprint(&self.real());
        let output = finish(&mut self.redirected(command));
        assert_eq!(
            fingerprint(&self.real()),
            before,
            "the real tree has changed"
        );
        shown(&output, &self.real())
    }

    pub(crate) fn redirected(&self, command: &[OsString]) -> Command {
        let mut program = Command::new("python3");
        program
            .arg(script("sandbox.py"))
            .arg(TOKEN)
            .arg(self.scratch())
            .arg(self.shared_memory.path())
            .arg("--")
            .args(command)
            .env("SANDBOX_PRELOAD", library())
            .env("BRIMFUL_REDIRECT", self.scratch())
            .env("BRIMFUL_REDIRECT_TOKEN", TOKEN)
            .env(
                "BRIMFUL_REDIRECT_SHARED",
                format!("/dev/shm={}", self.shared_memory.path().display()),
            );
        program
    }
}

fn finish(program: &mut Command) -> Output {
    program
        .env("LC_ALL", "C.UTF-8")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap()
}

fn shown(output: &Output, tree: &Path) -> String {
    let text =
        |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(tree.to_str().unwrap(), "TREE");
    format!(
        "{}\n{}\nexit {:?}",
        text(&output.stdout),
        text(&output.stderr),
        output.status.code()
    )
}

/// Names, kinds, modes, owners, times, attributes and content of a tree.
pub(crate) fn fingerprint(tree: &Path) -> String {
    let program = "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import differential; \
                   print(differential.fingerprint(pathlib.Path(sys.argv[2])))";
    let output = Command::new("python3")
        .args(["-B", "-c", program])
        .arg(script(""))
        .arg(tree)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A command from words and paths.
macro_rules! command {
    ($($word:expr),* $(,)?) => { [$(::std::ffi::OsString::from($word)),*] };
}
pub(crate) use command;
