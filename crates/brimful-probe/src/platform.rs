//! Recognizes where the process runs, from variables and marker files.

use brimful::env_vars;
use brimful::fact::{Fact, Gap};
use brimful::machine::{Layer, Platform, PlatformName, SlurmJob};
use brimful::units::Bytes;

use crate::environment::Environment;
use crate::files::Files;

/// What gives a platform away.
#[derive(Clone, Copy, Debug)]
enum Mark {
    /// The variable is set, even to nothing.
    Variable(&'static str),
    /// The variable has this value.
    VariableIs(&'static str, &'static str),
    File(&'static str),
    /// The file holds this word.
    FileHolds(&'static str, &'static str),
    /// A file system of this kind covers a file below this directory.
    MountOver(&'static str, &'static str),
}

/// Every mark that is looked for, in the order in which a platform names the whole.
///
/// Kaggle's images are built on Colab's and keep its variables, so Kaggle is asked first and hides Colab.
/// Colab's `COLAB_GPU` is set but empty on a runtime without a GPU. Apptainer's variables alone prove nothing:
/// people set them outside containers as an input. lxcfs on a host mounts only `/var/lib/lxcfs`.
const MARKS: &[(PlatformName, &[Mark])] = &[
    (
        PlatformName::Kaggle,
        &[
            Mark::Variable(env_vars::KAGGLE_KERNEL_RUN_TYPE),
            Mark::Variable(env_vars::KAGGLE_URL_BASE),
        ],
    ),
    (
        PlatformName::Colab,
        &[
            Mark::Variable(env_vars::COLAB_RELEASE_TAG),
            Mark::Variable(env_vars::COLAB_GPU),
        ],
    ),
    (
        PlatformName::SageMaker,
        &[
            Mark::Variable(env_vars::SM_CURRENT_INSTANCE_TYPE),
            Mark::Variable(env_vars::TRAINING_JOB_ARN),
            Mark::File("/opt/ml/input/config/resourceconfig.json"),
            Mark::File("/opt/ml/metadata/resource-metadata.json"),
        ],
    ),
    (
        // `SLURM_JOB_ID` alone is no proof: `salloc` sets it in a shell on the login node, outside the job.
        PlatformName::Slurm,
        &[
            Mark::Variable(env_vars::SLURMD_NODENAME),
            Mark::FileHolds("/proc/self/cgroup", "/slurm"),
            Mark::FileHolds("/proc/self/cgroup", "slurmstepd.scope"),
        ],
    ),
    (
        PlatformName::Kubernetes,
        &[
            Mark::Variable(env_vars::KUBERNETES_SERVICE_HOST),
            Mark::File("/var/run/secrets/kubernetes.io"),
        ],
    ),
    (
        PlatformName::Podman,
        &[
            Mark::File("/run/.containerenv"),
            Mark::VariableIs(env_vars::CONTAINER, "podman"),
        ],
    ),
    (
        PlatformName::Docker,
        &[
            Mark::File("/.dockerenv"),
            Mark::FileHolds("/proc/self/cgroup", "/docker"),
        ],
    ),
    (PlatformName::Apptainer, &[Mark::File("/.singularity.d")]),
    (
        PlatformName::Lxc,
        &[
            Mark::VariableIs(env_vars::CONTAINER, "lxc"),
            Mark::MountOver("/proc/", "fuse.lxcfs"),
        ],
    ),
    (
        PlatformName::Wsl,
        &[
            Mark::FileHolds("/proc/version", "microsoft-standard-WSL2"),
            Mark::File("/dev/dxg"),
        ],
    ),
];

pub(crate) fn read(files: &Files, env: &Environment) -> Platform {
    let mut layers: Vec<Layer> = MARKS
        .iter()
        .filter_map(|(name, marks)| {
            let evidence = marks.iter().find_map(|mark| evidence(files, env, mark))?;
            Some(Layer {
                name: *name,
                evidence,
            })
        })
        .collect();
    if layers
        .iter()
        .any(|layer| layer.name == PlatformName::Kaggle)
    {
        layers.retain(|layer| layer.name != PlatformName::Colab);
    }
    let in_slurm = layers.iter().any(|layer| layer.name == PlatformName::Slurm);
    Platform {
        layers,
        system: system(files),
        slurm: env
            .get(env_vars::SLURM_JOB_ID)
            .filter(|_| in_slurm)
            .map(|id| slurm(id, env)),
    }
}

fn evidence(files: &Files, env: &Environment, mark: &Mark) -> Option<String> {
    match *mark {
        Mark::Variable(name) => env.contains_key(name).then(|| format!("{name} is set")),
        Mark::VariableIs(name, value) => {
            (env.get(name)? == value).then(|| format!("{name} is {value:?}"))
        }
        Mark::File(path) => files.exists(path).then(|| format!("{path} is there")),
        Mark::FileHolds(path, word) => files
            .text(path)
            .known()?
            .contains(word)
            .then(|| format!("{path} holds {word:?}")),
        Mark::MountOver(directory, kind) => {
            let mounts = files.text("/proc/self/mountinfo");
            crate::cgroup::parse::mounts(mounts.known()?)
                .iter()
                .find(|mount| mount.kind == kind && mount.mount_point.starts_with(directory))
                .map(|mount| format!("{kind} is mounted on {}", mount.mount_point))
        }
    }
}

/// `Linux 6.1.0 (Debian GNU/Linux 12)`, as far as it can be told.
fn system(files: &Files) -> Fact<String> {
    files
        .parsed("/proc/sys/kernel/osrelease", |text| {
            let release = text.trim();
            (!release.is_empty()).then(|| format!("Linux {release}"))
        })
        .map(|kernel| match files.text_up_to("/etc/os-release", 16_384) {
            Fact::Known(text) => match quoted_value(&text, "PRETTY_NAME") {
                Some(name) => format!("{kernel} ({name})"),
                None => kernel,
            },
            Fact::Missing(_) => kernel,
        })
}

fn quoted_value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
        .map(|value| value.trim().trim_matches('"'))
}

fn slurm(job_id: &str, env: &Environment) -> SlurmJob {
    let number = |name: &str| -> Fact<u64> {
        match env.get(name).map(|value| value.trim().parse()) {
            Some(Ok(value)) => Fact::Known(value),
            Some(Err(_)) => Fact::unavailable(format!("{name} is not a number")),
            None => Fact::unavailable(format!("{name} is not set")),
        }
    };
    let cpus_on_node = number(env_vars::SLURM_CPUS_ON_NODE);
    // Whole MiB without a unit; 0 asks for the whole node, and never means "no memory".
    let whole_node_or = |mib: u64| (mib > 0).then(|| Bytes::from_mib(mib));
    let memory_request = number(env_vars::SLURM_MEM_PER_NODE)
        .map(whole_node_or)
        .or_else(|| {
            number(env_vars::SLURM_MEM_PER_CPU).and_then(|mib| {
                cpus_on_node
                    .clone()
                    .map(|cpus| whole_node_or(mib.saturating_mul(cpus)))
            })
        })
        .or_else(|| {
            number(env_vars::SLURM_MEM_PER_GPU).and_then(|mib| {
                number(env_vars::SLURM_GPUS_ON_NODE)
                    .map(|gpus| whole_node_or(mib.saturating_mul(gpus)))
            })
        })
        .or_else(|| {
            Fact::Missing(Gap::Unavailable {
                reason:
                    "none of SLURM_MEM_PER_NODE, SLURM_MEM_PER_CPU and SLURM_MEM_PER_GPU is set"
                        .into(),
            })
        });
    SlurmJob {
        job_id: job_id.chars().take(40).collect(),
        memory_request,
        cpus_on_node: cpus_on_node.and_then(|count| match u32::try_from(count) {
            Ok(count) => Fact::Known(count),
            Err(_) => Fact::unavailable("SLURM_CPUS_ON_NODE is out of range"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_request(variables: &[(&str, &str)], expected: Option<Option<Bytes>>) {
        let env = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(slurm("1", &env).memory_request.known().copied(), expected);
    }

    #[test]
    fn memory_requests_of_slurm() {
        check_request(
            &[("SLURM_MEM_PER_NODE", "51200")],
            Some(Some(Bytes::from_gib(50))),
        );
        check_request(&[("SLURM_MEM_PER_NODE", "0")], Some(None));
        check_request(
            &[("SLURM_MEM_PER_CPU", "3420"), ("SLURM_CPUS_ON_NODE", "4")],
            Some(Some(Bytes::from_mib(13_680))),
        );
        check_request(&[("SLURM_MEM_PER_CPU", "3420")], None);
        check_request(
            &[("SLURM_MEM_PER_GPU", "1024"), ("SLURM_GPUS_ON_NODE", "2")],
            Some(Some(Bytes::from_gib(2))),
        );
        check_request(&[("SLURM_MEM_PER_NODE", "50G")], None);
        check_request(&[], None);
    }
}
