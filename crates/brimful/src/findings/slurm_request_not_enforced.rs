//! The memory requested from Slurm is below every visible limit.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "slurm_request_not_enforced",
    severity: Severity::Risk,
    about: "The job requested less memory from Slurm than every visible limit. Slurm then either polls the memory use of \
            the job and kills it, or has set the limit on a cgroup that is not visible in the container. The request \
            is the effective limit, not the brim shown.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let job = machine.platform.slurm.as_ref()?;
    let request = (*job.memory_request.known()?)?;
    let lowest = machine.host.lowest_limit()?;
    if request.share_of(lowest.bytes) > 0.95 {
        return None;
    }
    Some(Diagnosis {
        summary: format!(
            "Slurm may kill this job at the {request} it requested, although the lowest visible limit is {}",
            lowest.bytes
        ),
        evidence: vec![
            format!("Slurm job {}: memory request {request}", job.job_id),
            format!(
                "the lowest visible limit is {}, set by {}",
                lowest.bytes, lowest.set_by
            ),
        ],
        remedies: vec![
            format!("stay below {request}, or request more with `sbatch --mem`"),
            "after the run, check what Slurm measured: `sacct -j JOB -o MaxRSS,State`".into(),
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
