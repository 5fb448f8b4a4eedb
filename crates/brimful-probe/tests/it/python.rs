//! Finding the Python of the job in the layouts people have.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use brimful::fact::Fact;
use brimful::machine::Python;
use brimful_probe::{Environment, PythonHint, Surroundings, probe};
use tempfile::TempDir;

const VERSION_FILE: &str =
    "__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n";

struct Layout {
    root: TempDir,
    env: Environment,
    hint: PythonHint,
}

impl Layout {
    fn new(path: &str) -> Layout {
        Layout {
            root: TempDir::new().unwrap(),
            env: Environment::from([
                ("PATH".to_owned(), path.to_owned()),
                ("HOME".to_owned(), "/home/me".to_owned()),
            ]),
            hint: PythonHint::default(),
        }
    }

    fn file(self, path: &str, content: &str) -> Layout {
        let target = self.root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, content).unwrap();
        self
    }

    fn link(self, from: &str, to: &str) -> Layout {
        let from = self.root.path().join(from.trim_start_matches('/'));
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        symlink(Path::new(to), from).unwrap();
        self
    }

    fn read(&self) -> Fact<Python> {
        let mut surroundings = Surroundings::recorded(self.root.path(), self.env.clone());
        surroundings.python = self.hint.clone();
        probe(&surroundings).python
    }

    fn check(&self, executable: &str, version: &str, torch: Option<&str>) {
        let python = self.read();
        let python = python.known().expect("a Python is there");
        assert_eq!(python.executable, executable);
        assert_eq!(python.version.known().unwrap().to_string(), version);
        let found = python
            .torch
            .known()
            .map(|torch| torch.version_text.as_str());
        assert_eq!(found, torch, "{:?}", python.torch);
    }
}

#[test]
fn a_virtual_environment_whose_python_is_a_link() {
    Layout::new("/job/.venv/bin:/usr/bin")
        .file("/usr/bin/python3.11", "")
        .file("/usr/lib/python3.11/os.py", "")
        .link("/job/.venv/bin/python", "../../../usr/bin/python3.11")
        .file(
            "/job/.venv/pyvenv.cfg",
            "home = /usr/bin\nversion = 3.11.2\n",
        )
        .file(
            "/job/.venv/lib/python3.11/site-packages/torch/version.py",
            VERSION_FILE,
        )
        .check("/job/.venv/bin/python", "3.11", Some("2.9.1+cu128"));
}

#[test]
fn an_environment_of_uv_names_its_version_otherwise() {
    Layout::new("/job/.venv/bin")
        .file("/job/.venv/bin/python", "")
        .file(
            "/job/.venv/pyvenv.cfg",
            "home = /usr/bin\nversion_info = 3.12.7\n",
        )
        .file(
            "/job/.venv/lib/python3.12/site-packages/torch/version.py",
            VERSION_FILE,
        )
        .check("/job/.venv/bin/python", "3.12", Some("2.9.1+cu128"));
}

#[test]
fn an_environment_that_sees_the_systems_packages() {
    Layout::new("/job/.venv/bin")
        .file("/job/.venv/bin/python", "")
        .file("/job/.venv/lib/python3.11/site-packages/x.py", "")
        .file(
            "/job/.venv/pyvenv.cfg",
            "home = /usr/bin\nversion = 3.11.2\ninclude-system-site-packages = true\n",
        )
        .file("/usr/bin/python3", "")
        .file("/usr/lib/python3.11/os.py", "")
        .file(
            "/usr/lib/python3/dist-packages/torch/version.py",
            VERSION_FILE,
        )
        .check("/job/.venv/bin/python", "3.11", Some("2.9.1+cu128"));
}

#[test]
fn conda_and_other_prefixes() {
    Layout::new("/opt/conda/bin")
        .file("/opt/conda/bin/python3.10", "")
        .link("/opt/conda/bin/python", "python3.10")
        .file(
            "/opt/conda/lib/python3.10/site-packages/torch/version.py",
            VERSION_FILE,
        )
        .check("/opt/conda/bin/python", "3.10", Some("2.9.1+cu128"));
}

#[test]
fn a_users_own_packages_of_a_system_python() {
    Layout::new("/usr/bin")
        .file("/usr/bin/python3", "")
        .file("/usr/lib/python3.11/os.py", "")
        .file(
            "/home/me/.local/lib/python3.11/site-packages/torch/version.py",
            VERSION_FILE,
        )
        .check("/usr/bin/python3", "3.11", Some("2.9.1+cu128"));
}

#[test]
fn pyenv_is_followed_to_the_version_it_would_start() {
    let mut layout = Layout::new("/home/me/.pyenv/shims:/usr/bin")
        .file("/home/me/.pyenv/shims/python", "#!/bin/sh\n")
        .file("/home/me/.pyenv/version", "3.10.13\n")
        .file("/home/me/.pyenv/versions/3.10.13/bin/python", "")
        .file("/home/me/.pyenv/versions/3.10.13/lib/python3.10/os.py", "")
        .file("/home/me/.pyenv/versions/3.12.1/bin/python", "")
        .file("/home/me/.pyenv/versions/3.12.1/lib/python3.12/os.py", "")
        .file("/srv/job/.python-version", "3.12\n");
    layout.check("/home/me/.pyenv/versions/3.10.13/bin/python", "3.10", None);
    layout.hint.working_directory = Some("/srv/job/src".into());
    layout.check("/home/me/.pyenv/versions/3.12.1/bin/python", "3.12", None);
    layout.env.insert("PYENV_VERSION".into(), "3.10.13".into());
    layout.check("/home/me/.pyenv/versions/3.10.13/bin/python", "3.10", None);
}

#[test]
fn the_python_beside_the_program_wins_if_only_it_has_torch() {
    let mut layout = Layout::new("/usr/bin")
        .file("/usr/bin/python3", "")
        .file("/usr/lib/python3.11/os.py", "")
        .file("/x/bin/python", "")
        .file("/x/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.2\n")
        .file(
            "/x/lib/python3.11/site-packages/torch/version.py",
            VERSION_FILE,
        );
    layout.hint.program_directory = Some("/x/bin".into());
    layout.check("/x/bin/python", "3.11", Some("2.9.1+cu128"));
}

#[test]
fn metadata_alone_gives_the_version_without_the_build() {
    let layout = Layout::new("/opt/conda/bin")
        .file("/opt/conda/bin/python", "")
        .file(
            "/opt/conda/lib/python3.10/site-packages/torch-2.8.0.dist-info/METADATA",
            "Name: torch\nVersion: 2.8.0\n\n",
        );
    layout.check("/opt/conda/bin/python", "3.10", Some("2.8.0"));
    let python = layout.read();
    assert!(
        python
            .known()
            .unwrap()
            .torch
            .known()
            .unwrap()
            .accelerator
            .gap()
            .is_some()
    );
}

#[test]
fn no_python_at_all_is_said() {
    let python = Layout::new("/usr/bin").read();
    assert_eq!(python.gap().unwrap().to_string(), "no python is on PATH");
}
