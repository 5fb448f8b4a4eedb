//! More free space in /dev/shm than the memory limit allows.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "shm_larger_than_headroom",
    severity: Severity::Note,
    about: "/dev/shm shows at least 10 % more free space than the headroom. Its contents count against the memory limit \
            like any other memory, including batches in DataLoader queues, so the kernel kills before /dev/shm is full.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    if machine.shm.counts_against_brim.known() != Some(&true) {
        return None;
    }
    let free = *machine.shm.free.known()?;
    let brim = machine.host.brim();
    let brim = brim.known()?;
    let headroom = *brim.headroom.known()?;
    // A tmpfs as large as the memory of the machine is common; report only a real difference.
    (free.share_of(headroom) > 1.1).then(|| Diagnosis {
        summary: format!(
            "/dev/shm shows {free} free, but only {headroom} can be used before the kernel kills"
        ),
        evidence: vec![
            format!(
                "/dev/shm is a tmpfs: its pages count against {}",
                brim.set_by
            ),
            format!("headroom is {headroom}, free space in /dev/shm is {free}"),
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
