//! Little memory is left before the run starts.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::Machine;
use crate::units::Bytes;

pub(super) const RULE: Rule = Rule {
    id: "headroom_low",
    severity: Severity::Risk,
    about: "The headroom before the run starts is less than 2 GiB, or less than 8 GiB and less than 10 % of the brim. \
            `import torch` alone needs about 0.3 GiB of host memory, and a CUDA context 0.5 to 1 GiB.",
    check,
};

const LEAST: Bytes = Bytes::from_gib(2);
/// A tenth of a large server is still room for a training run.
const ROOMY: Bytes = Bytes::from_gib(8);

fn check(machine: &Machine) -> Option<Diagnosis> {
    let brim = machine.host.brim();
    let brim = brim.known()?;
    let headroom = *brim.headroom.known()?;
    let nearly_full = headroom.share_of(brim.limit) < 0.1 && headroom < ROOMY;
    if headroom >= LEAST && !nearly_full {
        return None;
    }
    let raise = "raise the limit, or request more memory";
    let end = "stop other processes; notebook kernels keep their memory until they are shut down";
    // A limit that is small in itself is not cured by ending anything.
    let mostly_free = headroom.share_of(brim.limit) > 0.8;
    let remedies = if mostly_free {
        vec![raise]
    } else {
        vec![end, raise]
    };
    Some(Diagnosis {
        summary: format!("only {headroom} of host memory is left before the kernel kills"),
        evidence: vec![format!(
            "the brim is {}, set by {}; {headroom} is free",
            brim.limit, brim.set_by
        )],
        remedies: remedies.into_iter().map(Into::into).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet};

    #[test]
    fn little_left_is_said_with_who_sets_the_limit() {
        check(
            "headroom_low",
            |m| m.host.available = Fact::Known(Bytes::from_gib(1)),
            "physical memory",
        );
        check(
            "headroom_low",
            |m| m.host.available = Fact::Known(Bytes::from_gib(6)),
            "6 GiB",
        );
    }

    #[test]
    fn unknown_is_not_low() {
        check_quiet("headroom_low", |m| {
            m.host.available = Fact::unavailable("hidden");
        });
    }
}
