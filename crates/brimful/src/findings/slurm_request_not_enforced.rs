//! Slurm's memory request and the limit that is really there disagree.

use crate::findings::{Rule, Severity, Told};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "slurm_request_not_enforced",
    severity: Severity::Risk,
    about: "The job asked Slurm for less memory than any limit that can be seen here. Slurm then either watches the \
            job itself and kills it by polling, or the limit is on a group that a container hides; the request, \
            not the brim shown, is what counts.",
    check,
};

fn check(machine: &Machine) -> Option<Told> {
    let job = machine.platform.slurm.as_ref()?;
    let request = (*job.memory_request.known()?)?;
    let lowest = machine.host.lowest_limit()?;
    if request.share_of(lowest.bytes) > 0.95 {
        return None;
    }
    Some(Told {
        summary: format!(
            "the job asked Slurm for {request}, and may be killed there although the lowest limit seen is {}",
            lowest.bytes
        ),
        evidence: vec![
            format!("Slurm job {}: memory request {request}", job.job_id),
            format!(
                "the lowest limit visible is {}, set by {}",
                lowest.bytes, lowest.set_by
            ),
        ],
        remedies: vec![
            format!("stay below {request}, or ask for more with `sbatch --mem`"),
            "see what Slurm counted after the end: `sacct -j JOB -o MaxRSS,State`".into(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet, group, set_groups};
    use crate::machine::SlurmJob;
    use crate::units::Bytes;

    const ID: &str = "slurm_request_not_enforced";

    fn job(gib: Option<u64>) -> SlurmJob {
        SlurmJob {
            job_id: "42".into(),
            memory_request: Fact::Known(gib.map(Bytes::from_gib)),
            cpus_on_node: Fact::Known(4),
        }
    }

    #[test]
    fn a_request_without_a_limit() {
        check(ID, |m| m.platform.slurm = Some(job(Some(8))), "8 GiB");
    }

    #[test]
    fn a_full_node_does_not_hide_the_limit_of_the_job() {
        check_quiet(ID, |m| {
            m.platform.slurm = Some(job(Some(8)));
            set_groups(m, vec![group("/slurm/job_42", Some(8))]);
            m.host.available = Fact::Known(Bytes::from_gib(3));
        });
    }

    #[test]
    fn a_limit_that_matches_or_the_whole_node_is_fine() {
        check_quiet(ID, |m| {
            m.platform.slurm = Some(job(Some(8)));
            set_groups(m, vec![group("/slurm/job_42", Some(8))]);
        });
        check_quiet(ID, |m| m.platform.slurm = Some(job(None)));
    }
}
