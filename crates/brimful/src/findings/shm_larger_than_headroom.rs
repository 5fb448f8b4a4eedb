//! Room in /dev/shm that is not there.

use crate::findings::{Rule, Severity, Told};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "shm_larger_than_headroom",
    severity: Severity::Note,
    about: "/dev/shm shows at least 10 % more room than the memory limit leaves. What is written there fills the limit like \
            any other memory, so the kernel kills before it is full. Batches waiting in DataLoader queues count.",
    check,
};

fn check(machine: &Machine) -> Option<Told> {
    if machine.shm.counts_against_brim.known() != Some(&true) {
        return None;
    }
    let free = *machine.shm.free.known()?;
    let brim = machine.host.brim();
    let brim = brim.known()?;
    let headroom = *brim.headroom.known()?;
    // A tmpfs of the machine's own size is the rule; only a real gap is worth a word.
    (free.share_of(headroom) > 1.1).then(|| Told {
        summary: format!(
            "/dev/shm shows {free} free, but only {headroom} can be filled before the kernel kills"
        ),
        evidence: vec![
            format!(
                "/dev/shm is a tmpfs: its pages count against {}",
                brim.set_by
            ),
            format!("headroom {headroom}, free in /dev/shm {free}"),
        ],
        remedies: vec![
            "count prefetched batches (workers x prefetch x batch) as host memory".into(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet, group, set_groups};

    const ID: &str = "shm_larger_than_headroom";

    #[test]
    fn a_host_sized_shm_in_a_small_container() {
        check(ID, |m| set_groups(m, vec![group("/a", Some(8))]), "7 GiB");
        check_quiet(ID, |m| {
            set_groups(m, vec![group("/a", Some(8))]);
            m.shm.counts_against_brim = Fact::Known(false);
        });
    }
}
