//! What each node proposes for an attempt, and what all of its ranks do.

use serde::{Deserialize, Serialize};

use crate::job::Settings;

/// What a node proposes for the next attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// Tells this start of brimful from every other one.
    pub node: String,
    pub host_name: String,
    pub brimful_version: String,
    /// The run that the node has taken part in, or in which it was killed.
    pub run: Option<String>,
    /// It took part since brimful was started on it.
    pub is_member: bool,
    /// A digest of the job without the options of torchrun: what all nodes must have in common.
    pub job: String,
    /// Rungs below the first settings.
    pub rung: u32,
    pub settings: Settings,
    /// Estimated speed with these settings.
    pub samples_per_second: Option<f64>,
}

/// What all ranks of an attempt do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgreedRun {
    /// The name of the run, the same on all nodes.
    pub run: String,
    /// From 1; the same on all nodes, which the number of an attempt in a node's record is not.
    pub attempt: u32,
    /// Rungs below the first settings.
    pub rung: u32,
    pub settings: Settings,
    /// The settings of every attempt so far, the last being these.
    pub tried: Vec<Settings>,
    /// An attempt of this run has resumed from a checkpoint.
    pub has_resumed: bool,
}

/// Why there is no further attempt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    #[error("no rank has made a proposal")]
    NoProposal,
    #[error("the nodes run different versions of brimful: {0}")]
    Versions(String),
    #[error(
        "the nodes run different jobs: the job file, its overrides or a config file differ on {0}"
    )]
    Jobs(String),
    #[error(
        "the state of run {0} is missing from the directory of the checkpoints, which all nodes must share"
    )]
    StateMissing(String),
    #[error("the maximum of {0} attempts is reached (--attempts)")]
    MaxAttempts(u32),
}

/// The next attempt, from the proposals of all ranks in their order and the state that the last attempt left.
///
/// A run continues if a node that has taken part in it says so. Otherwise a run of the name `new_run` begins. Only a proposal of a lower rung than the last one changes the
/// settings: the lowest counts, and of equal ones that of the first rank. At the beginning, the slowest settings count,
/// which are those of the node with the least memory.
pub fn decide(
    proposals: &[Proposal],
    last: Option<&AgreedRun>,
    new_run: &str,
    max_attempts: u32,
) -> Result<AgreedRun, Disagreement> {
    let first = proposals.first().ok_or(Disagreement::NoProposal)?;
    let mut versions: Vec<&str> = proposals
        .iter()
        .map(|proposal| proposal.brimful_version.as_str())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() > 1 {
        return Err(Disagreement::Versions(versions.join(", ")));
    }
    let other = proposals.iter().find(|other| other.job != first.job);
    if let Some(other) = other {
        let hosts = format!("{} and {}", first.host_name, other.host_name);
        return Err(Disagreement::Jobs(hosts));
    }
    let members: Vec<&String> = proposals
        .iter()
        .filter(|proposal| proposal.is_member)
        .filter_map(|proposal| proposal.run.as_ref())
        .collect();
    let continued = match members.first() {
        Some(run) => {
            let known = last.filter(|last| members.contains(&&last.run));
            Some(known.ok_or_else(|| Disagreement::StateMissing((*run).clone()))?)
        }
        None => None,
    };
    let mut next = match continued {
        Some(last) => lowered(last, proposals),
        None => AgreedRun {
            run: new_run.to_owned(),
            settings: slowest(proposals).unwrap_or(first).settings.clone(),
            ..AgreedRun::default()
        },
    };
    next.attempt = next.attempt.saturating_add(1);
    if next.attempt > max_attempts {
        return Err(Disagreement::MaxAttempts(max_attempts));
    }
    next.tried.push(next.settings.clone());
    Ok(next)
}

/// The last attempt, with the settings of the lowest rung that is below it.
fn lowered(last: &AgreedRun, proposals: &[Proposal]) -> AgreedRun {
    let mut next = last.clone();
    for proposal in proposals {
        let is_of_run = proposal.run.as_ref() == Some(&last.run);
        if is_of_run && proposal.rung > next.rung && !last.tried.contains(&proposal.settings) {
            next.rung = proposal.rung;
            next.settings.clone_from(&proposal.settings);
        }
    }
    next
}

fn slowest(proposals: &[Proposal]) -> Option<&Proposal> {
    let speed = |proposal: &&Proposal| proposal.samples_per_second.unwrap_or(f64::INFINITY);
    proposals
        .iter()
        .min_by(|a, b| speed(a).total_cmp(&speed(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(count: u64) -> Settings {
        Settings::default().with("workers", count)
    }

    fn proposal(run: Option<&str>, rung: u32, n_workers: u64) -> Proposal {
        Proposal {
            run: run.map(str::to_owned),
            is_member: run.is_some(),
            rung,
            settings: workers(n_workers),
            ..Proposal::default()
        }
    }

    fn last() -> AgreedRun {
        AgreedRun {
            run: "r".into(),
            attempt: 1,
            settings: workers(4),
            tried: vec![workers(4)],
            ..AgreedRun::default()
        }
    }

    #[test]
    fn a_new_run_begins_with_the_settings_of_the_slowest_node() {
        let mut proposals = vec![proposal(None, 0, 4); 3];
        let next = decide(&proposals, None, "r", 5).expect("agreed");
        assert_eq!(next, last());
        proposals[0].samples_per_second = Some(9.0);
        proposals[2].samples_per_second = Some(3.0);
        proposals[2].settings = workers(1);
        let next = decide(&proposals, None, "r", 5).expect("agreed");
        assert_eq!(next.settings, workers(1));
    }

    #[test]
    fn the_lowest_rung_counts_and_of_equal_ones_the_first_rank() {
        let run = Some("r");
        let proposals = [
            proposal(run, 0, 4),
            proposal(run, 1, 2),
            proposal(run, 1, 3),
        ];
        let next = decide(&proposals, Some(&last()), "new", 5).expect("agreed");
        assert_eq!((next.attempt, next.rung), (2, 1));
        assert_eq!(next.settings, workers(2));
        assert_eq!(next.tried, [workers(4), workers(2)]);
        // Nobody died of memory: the same again.
        let same = decide(&vec![proposal(run, 0, 4); 3], Some(&last()), "new", 5);
        let same = same.expect("agreed");
        assert_eq!((same.attempt, same.rung, same.settings), (2, 0, workers(4)));
        // Settings that were tried are not tried as another rung.
        let repeated = decide(&vec![proposal(run, 1, 4); 3], Some(&last()), "new", 5);
        assert_eq!(repeated.expect("agreed").rung, 0);
    }

    #[test]
    fn a_node_that_was_restarted_joins_the_run() {
        let mut killed = proposal(Some("r"), 1, 2);
        killed.is_member = false;
        let others = proposal(Some("r"), 0, 4);
        let next = decide(&[killed.clone(), others], Some(&last()), "new", 5).expect("agreed");
        assert_eq!((next.run.as_str(), next.rung), ("r", 1));
        // Without anybody who took part it is a new run.
        let alone = decide(&[killed], Some(&last()), "new", 5).expect("agreed");
        assert_eq!((alone.run.as_str(), alone.attempt), ("new", 1));
    }

    #[test]
    fn what_cannot_be_agreed_on_has_a_reason() {
        assert_eq!(decide(&[], None, "r", 5), Err(Disagreement::NoProposal));
        let run = Some("r");
        let mut other = proposal(run, 0, 4);
        other.brimful_version = "2".into();
        let versions = decide(&[proposal(run, 0, 4), other], Some(&last()), "new", 5);
        assert!(matches!(versions, Err(Disagreement::Versions(_))));
        let mut edited = proposal(run, 0, 4);
        edited.job = "edited".into();
        let jobs = decide(&[proposal(run, 0, 4), edited], Some(&last()), "new", 5);
        assert!(matches!(jobs, Err(Disagreement::Jobs(_))));
        let lost = decide(&[proposal(run, 0, 4)], None, "new", 5);
        assert_eq!(lost, Err(Disagreement::StateMissing("r".into())));
        let many = decide(&[proposal(run, 0, 4)], Some(&last()), "new", 1);
        assert_eq!(many, Err(Disagreement::MaxAttempts(1)));
    }
}
