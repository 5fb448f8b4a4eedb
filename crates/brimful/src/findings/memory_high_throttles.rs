//! A soft limit that slows a run down before the hard limit kills it.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{LimitEffect, Machine};

pub(super) const RULE: Rule = Rule {
    id: "memory_high_throttles",
    severity: Severity::Risk,
    about: "A cgroup sets `memory.high` below the brim. Above it, the kernel throttles every allocation to reclaim memory: \
            the run becomes very slow, and systemd-oomd may kill it because of the memory pressure.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let brim = machine.host.brim();
    let brim_headroom = *brim.known()?.headroom.known()?;
    let throttle = machine
        .host
        .limits()
        .into_iter()
        .filter(|limit| limit.effect == LimitEffect::Throttles)
        .filter(|limit| {
            limit
                .headroom
                .known()
                .is_some_and(|left| *left < brim_headroom)
        })
        .min_by_key(|limit| limit.bytes)?;
    Some(Diagnosis {
        summary: format!(
            "the kernel throttles allocations above {}, before the limit that kills",
            throttle.bytes
        ),
        evidence: vec![format!(
            "memory.high of {} is {}",
            throttle.set_by, throttle.bytes
        )],
        remedies: vec![format!(
            "stay below {}, or raise `MemoryHigh=` of the systemd unit",
            throttle.bytes
        )],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet, group, set_groups};
    use crate::units::Bytes;

    #[test]
    fn a_throttle_below_the_limit() {
        let mut level = group("/user.slice", Some(16));
        level.high = Fact::Known(Some(Bytes::from_gib(4)));
        check(
            "memory_high_throttles",
            |m| set_groups(m, vec![level]),
            "4 GiB",
        );
        check_quiet("memory_high_throttles", |m| {
            set_groups(m, vec![group("/a", Some(16))]);
        });
    }
}
