//! A limit far below the memory that psutil, `free` and notebooks show.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{LimitSetter, Machine, PlatformName};

pub(super) const RULE: Rule = Rule {
    id: "container_limit_below_host_memory",
    severity: Severity::Risk,
    about: "A cgroup allows less than 80 % of the machine's memory. `psutil`, `free` and `top` \
            read /proc/meminfo and show the whole machine, so a script that sizes its caches from them is killed.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let lowest = machine.host.lowest_limit()?;
    let physical = *machine.host.physical.known()?;
    let by_group = !matches!(lowest.set_by, LimitSetter::PhysicalMemory);
    if !by_group || lowest.bytes.share_of(physical) > 0.8 {
        return None;
    }
    Some(Diagnosis {
        summary: format!(
            "psutil reports {physical}, but the kernel kills at the cgroup limit of {}",
            lowest.bytes
        ),
        evidence: vec![
            format!("/proc/meminfo shows {physical} of physical memory"),
            format!("{} allows {}", lowest.set_by, lowest.bytes),
        ],
        remedies: vec![
            "size caches, workers and datasets from `brimful.probe().host.headroom_bytes` instead of psutil".into(),
            raise(machine).into(),
        ],
    })
}

fn raise(machine: &Machine) -> &'static str {
    if machine.platform.is(PlatformName::Slurm) {
        "request more memory: `sbatch --mem=64G`"
    } else if machine.platform.is(PlatformName::Kubernetes) {
        "raise the pod's `resources.limits.memory`"
    } else if machine.platform.is(PlatformName::Podman) {
        "raise the limit: `podman run --memory=16g`"
    } else if machine.platform.is(PlatformName::Docker) {
        "raise the limit: `docker run --memory=16g`"
    } else {
        "raise the limit where it is set"
    }
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{check, check_quiet, group, set_groups};

    const ID: &str = "container_limit_below_host_memory";

    #[test]
    fn a_small_container_on_a_large_machine() {
        check(
            ID,
            |m| set_groups(m, vec![group("/docker/0123456789ab", Some(8))]),
            "Docker",
        );
    }

    #[test]
    fn a_limit_near_the_machine_is_no_surprise() {
        check_quiet(ID, |m| set_groups(m, vec![group("/a", Some(60))]));
        check_quiet(ID, |m| set_groups(m, vec![group("/a", None)]));
    }
}
