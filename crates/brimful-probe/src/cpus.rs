//! The processors that can really be used.

use brimful::fact::{Fact, Gap};
use brimful::machine::{CgroupVersion, Cpus};

use crate::cgroup::parse::{v1_cpu_quota, v2_cpu_quota};
use crate::cgroup::{Chain, Mounts};
use crate::files::Files;
use crate::files::parse::{field, list_length};

pub(crate) fn read(files: &Files, mounts: &Mounts) -> Cpus {
    Cpus {
        online: files.parsed("/sys/devices/system/cpu/online", list_length),
        affinity: files.parsed("/proc/self/status", |text| {
            list_length(field(text, "Cpus_allowed_list")?)
        }),
        cpuset: cpuset(files, mounts),
        quota: quota(files, mounts),
    }
}

fn in_sight(chain: Chain) -> Fact<Chain> {
    if chain.out_of_sight {
        return Fact::unavailable(
            "the cgroup of this process is outside the cgroup hierarchy mounted here",
        );
    }
    Fact::Known(chain)
}

/// The nearest group that has a list; groups without the controller have no such file.
fn cpuset(files: &Files, mounts: &Mounts) -> Fact<Option<u32>> {
    mounts.chain("cpuset").and_then(in_sight).map(|chain| {
        let names: &[&str] = match chain.version {
            CgroupVersion::V1 => &["cpuset.effective_cpus", "cpuset.cpus"],
            CgroupVersion::V2 => &["cpuset.cpus.effective"],
        };
        chain
            .groups
            .iter()
            .flat_map(|group| {
                names
                    .iter()
                    .map(|name| format!("{}/{name}", group.directory))
            })
            .find_map(|path| files.parsed(&path, list_length).known().copied())
            // An empty list is "not set here", never "no processor".
            .filter(|count| *count > 0)
    })
}

/// The tightest quota of all groups from this process to the root.
fn quota(files: &Files, mounts: &Mounts) -> Fact<Option<f64>> {
    mounts.chain("cpu").and_then(in_sight).and_then(|chain| {
        let mut tightest: Option<f64> = None;
        for group in &chain.groups {
            let found = match chain.version {
                CgroupVersion::V1 => v1_quota(files, &group.directory),
                CgroupVersion::V2 => {
                    files.parsed(&format!("{}/cpu.max", group.directory), v2_cpu_quota)
                }
            };
            match found {
                Fact::Known(quota) => {
                    tightest = [tightest, quota].into_iter().flatten().reduce(f64::min);
                }
                // The root, and groups without the controller, have no such file.
                Fact::Missing(Gap::FileMissing { .. }) => {}
                Fact::Missing(gap) => return Fact::Missing(gap),
            }
        }
        Fact::Known(tightest)
    })
}

fn v1_quota(files: &Files, directory: &str) -> Fact<Option<f64>> {
    files
        .number::<i64>(&format!("{directory}/cpu.cfs_quota_us"))
        .and_then(|quota| {
            files.parsed(&format!("{directory}/cpu.cfs_period_us"), |text| {
                v1_cpu_quota(quota, text.trim().parse().ok()?)
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_of_nested_quotas_counts() {
        for (outer, inner) in [
            ("200000 100000", "800000 100000"),
            ("800000 100000", "200000 100000"),
        ] {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in [
                ("proc/self/cgroup", "0::/job/step\n"),
                (
                    "proc/self/mountinfo",
                    "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
                ),
                ("sys/fs/cgroup/job/cpu.max", outer),
                ("sys/fs/cgroup/job/step/cpu.max", inner),
            ] {
                let path = root.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            let files = Files::new(root.path());
            let found = quota(&files, &Mounts::read(&files));
            assert_eq!(found, Fact::Known(Some(2.0)), "{outer} around {inner}");
        }
    }
}
