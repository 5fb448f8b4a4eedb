//! /dev/shm too small for DataLoader workers.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{Machine, PlatformName};
use crate::units::Bytes;

pub(super) const RULE: Rule = Rule {
    id: "shm_too_small_for_workers",
    severity: Severity::Fatal,
    about: "/dev/shm is smaller than 1 GiB, or has less than 1 GiB free. DataLoader workers pass every batch through it: \
            a batch of 128 images of 3x224x224 floats is 74 MiB, and each worker prefetches two. The default of Docker \
            and Kubernetes is 64 MiB; the run then dies with `Bus error`.",
    check,
};

const ENOUGH: Bytes = Bytes::from_gib(1);

fn check(machine: &Machine) -> Option<Diagnosis> {
    let total = *machine.shm.total.known()?;
    let free = *machine.shm.free.known().unwrap_or(&total);
    if total >= ENOUGH && free >= ENOUGH {
        return None;
    }
    if total >= ENOUGH {
        return Some(Diagnosis {
            summary: format!(
                "/dev/shm has only {free} free: DataLoader workers will crash with `Bus error`"
            ),
            evidence: vec![format!("{} has {free} free of {total}", machine.shm.path)],
            remedies: vec![
                "find what fills it with `ls -l /dev/shm`; killed workers leave `torch_*` files behind"
                    .into(),
            ],
        });
    }
    let first = if machine.platform.is(PlatformName::Kubernetes) {
        "mount an `emptyDir` with `medium: Memory` on /dev/shm; it counts against the pod's limit"
    } else if machine.platform.is(PlatformName::Podman) {
        "`podman run --shm-size=8g`"
    } else if machine.platform.is(PlatformName::Docker) {
        "`docker run --shm-size=8g` (or `--ipc=host`)"
    } else {
        "`mount -o remount,size=8G /dev/shm` (needs root)"
    };
    Some(Diagnosis {
        summary: format!(
            "/dev/shm is only {total}: DataLoader workers will crash with `Bus error`"
        ),
        evidence: vec![format!("the size of {} is {total}", machine.shm.path)],
        remedies: vec![
            first.into(),
            "set `num_workers=0` to load data in the training process instead".into(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet};
    use crate::machine::Layer;

    #[test]
    fn the_default_of_containers() {
        let layer = Layer {
            name: PlatformName::Kubernetes,
            evidence: "a variable".into(),
        };
        check(
            "shm_too_small_for_workers",
            |m| {
                m.shm.total = Fact::Known(Bytes::from_mib(64));
                m.platform.layers.push(layer);
            },
            "emptyDir",
        );
    }

    #[test]
    fn a_large_one_may_be_full() {
        check(
            "shm_too_small_for_workers",
            |m| m.shm.free = Fact::Known(Bytes::from_mib(12)),
            "killed workers",
        );
    }

    #[test]
    fn unknown_is_not_small() {
        check_quiet("shm_too_small_for_workers", |m| {
            m.shm.total = Fact::unavailable("hidden");
        });
    }
}
