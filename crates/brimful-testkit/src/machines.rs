//! Recorded machines: one TOML file each, laid out as a real tree of files when a test asks for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use brimful::fact::Fact;
use brimful::machine::{ComputeCapability, Landlock};
use brimful::units::Bytes;
use brimful_probe::{
    Environment, FilesystemSpace, NvmlDevice, NvmlMigInstance, NvmlProcess, NvmlSnapshot,
    PythonHint, Surroundings,
};
use serde::Deserialize;
use tempfile::TempDir;

/// A recorded machine, laid out below a temporary folder.
#[derive(Debug)]
pub struct FakeMachine {
    recording: Recording,
    root: TempDir,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recording {
    title: String,
    /// Where the contents come from, part by part.
    origin: Vec<String>,
    #[serde(default)]
    env: Environment,
    shm: Option<RecordedSpace>,
    nvml: Option<RecordedNvml>,
    landlock: Option<RecordedLandlock>,
    files: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedSpace {
    total_bytes: u64,
    free_bytes: u64,
}

/// The kernel's answer: a version, or the name of an error.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum RecordedLandlock {
    Abi(u32),
    Error(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedNvml {
    driver_version: String,
    cuda_version: (u32, u32),
    devices: Vec<RecordedDevice>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedDevice {
    name: String,
    uuid: String,
    compute_capability: (u32, u32),
    total_mib: u64,
    used_mib: u64,
    reserved_mib: Option<u64>,
    ecc: Option<bool>,
    #[serde(default)]
    processes: Vec<RecordedProcess>,
    mig: Option<Vec<RecordedInstance>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedProcess {
    pid: u32,
    used_mib: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedInstance {
    name: String,
    uuid: String,
    total_mib: u64,
    used_mib: u64,
}

/// The names of all recorded machines, sorted.
pub fn machine_names() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder())
        .expect("fixtures/machines is part of the repository")
        .filter_map(|entry| {
            let path = entry.expect("a readable folder").path();
            let is_recording = path
                .extension()
                .is_some_and(|extension| extension == "toml");
            is_recording.then(|| path.file_stem()?.to_str().map(Into::into))?
        })
        .collect();
    names.sort();
    names
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/machines")
}

impl FakeMachine {
    /// Lays out `fixtures/machines/{name}.toml`.
    ///
    /// # Panics
    /// Where there is no such recording, or it is not in its form.
    pub fn load(name: &str) -> FakeMachine {
        let path = folder().join(format!("{name}.toml"));
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let recording: Recording =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let root = TempDir::new().expect("a temporary folder");
        for (path, content) in &recording.files {
            write(root.path(), path, content);
        }
        FakeMachine { recording, root }
    }

    pub fn title(&self) -> &str {
        &self.recording.title
    }

    pub fn origin(&self) -> &[String] {
        &self.recording.origin
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The files of the recording, by absolute name.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.recording.files.keys().map(String::as_str)
    }

    /// Replaces or adds one file.
    pub fn write(&self, path: &str, content: &str) {
        write(self.root.path(), path, content);
    }

    pub fn remove(&self, path: &str) {
        fs::remove_file(self.root.path().join(path.trim_start_matches('/')))
            .expect("a file of the recording");
    }

    /// What a probe of this machine looks at.
    pub fn surroundings(&self) -> Surroundings {
        let mut surroundings = Surroundings::recorded(self.root.path(), self.recording.env.clone());
        if let Some(space) = &self.recording.shm {
            surroundings.shm_space = Fact::Known(FilesystemSpace {
                total: Bytes(space.total_bytes),
                free: Bytes(space.free_bytes),
            });
        }
        if let Some(nvml) = &self.recording.nvml {
            surroundings.nvml = Fact::Known(snapshot(nvml));
        }
        if let Some(recorded) = &self.recording.landlock {
            surroundings.landlock = Fact::Known(landlock(recorded));
        }
        surroundings.python = PythonHint {
            working_directory: Some("/".into()),
            ..PythonHint::default()
        };
        surroundings
    }
}

fn write(root: &Path, path: &str, content: &str) {
    let target = root.join(path.trim_start_matches('/'));
    let parent = target.parent().expect("a file below the root");
    fs::create_dir_all(parent).expect("a writable temporary folder");
    fs::write(target, content).expect("a writable temporary folder");
}

fn landlock(recorded: &RecordedLandlock) -> Landlock {
    match recorded {
        RecordedLandlock::Abi(abi) => Landlock::Abi(*abi),
        RecordedLandlock::Error(name) => match name.as_str() {
            "ENOSYS" => Landlock::Unknown,
            "EOPNOTSUPP" => Landlock::Disabled,
            "EPERM" => Landlock::Refused,
            other => panic!("the kernel does not answer with {other}"),
        },
    }
}

fn snapshot(nvml: &RecordedNvml) -> NvmlSnapshot {
    NvmlSnapshot {
        driver_version: Fact::Known(nvml.driver_version.clone()),
        cuda_version: Fact::Known(nvml.cuda_version),
        devices: nvml.devices.iter().map(device).collect(),
    }
}

fn device(device: &RecordedDevice) -> NvmlDevice {
    NvmlDevice {
        name: Fact::Known(device.name.clone()),
        uuid: Fact::Known(device.uuid.clone()),
        compute_capability: Fact::Known(ComputeCapability::new(
            device.compute_capability.0,
            device.compute_capability.1,
        )),
        total: Fact::Known(Bytes::from_mib(device.total_mib)),
        used: Fact::Known(Bytes::from_mib(device.used_mib)),
        reserved: match device.reserved_mib {
            Some(mib) => Fact::Known(Bytes::from_mib(mib)),
            None => Fact::unavailable("the NVIDIA driver is too old to answer this"),
        },
        multiprocessors: Fact::unavailable("the driver does not say without a CUDA context"),
        ecc: match device.ecc {
            Some(on) => Fact::Known(on),
            None => Fact::unavailable("the NVIDIA driver answered: not supported"),
        },
        processes: Fact::Known(
            device
                .processes
                .iter()
                .map(|process| NvmlProcess {
                    pid: process.pid,
                    used: match process.used_mib {
                        Some(mib) => Fact::Known(Bytes::from_mib(mib)),
                        None => Fact::unavailable("the driver does not say it for this process"),
                    },
                })
                .collect(),
        ),
        mig: Fact::Known(device.mig.as_ref().map(|instances| {
            instances
                .iter()
                .map(|instance| NvmlMigInstance {
                    uuid: Fact::Known(instance.uuid.clone()),
                    name: Fact::Known(instance.name.clone()),
                    total: Fact::Known(Bytes::from_mib(instance.total_mib)),
                    used: Fact::Known(Bytes::from_mib(instance.used_mib)),
                })
                .collect()
        })),
    }
}
