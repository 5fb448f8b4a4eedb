//! How an attempt ended on each node, and what the others do then.

use serde::{Deserialize, Serialize};

use crate::explain::{Cause, Detail, Verdict};

/// How an attempt ended on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    pub node: String,
    pub host_name: String,
    pub end: NodeEnd,
    /// The verdict in one sentence.
    pub summary: String,
    pub at_unix_ms: u64,
}

/// Who has to do something about the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeEnd {
    /// The training failed here, and not because of memory.
    Failed,
    /// It ran out of memory here.
    Memory,
    /// Only the connection to a rank on another node was lost.
    PeerLost,
    Finished,
}

impl NodeEnd {
    /// How a training that did not finish ended on this node. `by_signal`: a signal ended it.
    pub fn of(verdict: &Verdict, by_signal: bool) -> NodeEnd {
        let is_about_peer = matches!(
            verdict.detail,
            Detail::ConnectionLost
                | Detail::NcclError
                | Detail::NcclTimeout
                | Detail::FailedElsewhere
                | Detail::MachineLost
        ) || by_signal && verdict.detail == Detail::NoEvidence;
        if verdict.cause.is_memory() {
            NodeEnd::Memory
        } else if is_about_peer && matches!(verdict.cause, Cause::NotMemory | Cause::Ambiguous) {
            NodeEnd::PeerLost
        } else {
            NodeEnd::Failed
        }
    }
}

/// What a node does after an attempt that did not end of its own memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterAttempt {
    /// Not all nodes have reported: look again.
    Wait,
    /// Train again, with the settings that the nodes agree on.
    Again,
    /// The run has ended with this report.
    End(NodeReport),
}

/// What a node does after an attempt, from the reports of all nodes so far.
///
/// If it ran out of memory anywhere, or if no node knows more than that another one was lost, everybody tries again.
/// Another failure ends the run: the earliest one, so that all nodes name the same. A training that finished on a node
/// has finished. `is_late`: no further report is waited for.
pub fn after_attempt(reports: &[NodeReport], n_nodes: usize, is_late: bool) -> AfterAttempt {
    let has = |end: NodeEnd| reports.iter().any(|report| report.end == end);
    if has(NodeEnd::Memory) {
        return AfterAttempt::Again;
    }
    if reports.len() < n_nodes && !is_late {
        return AfterAttempt::Wait;
    }
    let failed = reports
        .iter()
        .filter(|report| report.end == NodeEnd::Failed)
        .min_by_key(|report| (report.at_unix_ms, &report.node));
    let finished = reports
        .iter()
        .find(|report| report.end == NodeEnd::Finished);
    match failed.or(finished) {
        Some(report) => AfterAttempt::End(report.clone()),
        None => AfterAttempt::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(node: &str, end: NodeEnd, at_unix_ms: u64) -> NodeReport {
        NodeReport {
            node: node.into(),
            host_name: node.into(),
            end,
            summary: String::new(),
            at_unix_ms,
        }
    }

    #[test]
    fn a_lost_connection_is_no_failure_of_this_node() {
        for message in [
            "Read error [10.99.0.2]:35491: Connection reset by peer. This is typically caused by a remote worker",
            "Write error [10.99.0.2]:35491: Broken pipe",
            "Connection closed by peer [10.99.0.2]:1234",
        ] {
            let verdict = crate::explain::explain(&crate::explain::Evidence {
                text: format!(
                    "Traceback (most recent call last):\n  File \"train.py\", line 77, in <module>\n    \
                     dist.all_reduce(total)\nRuntimeError: [../gloo/transport/tcp/pair.cc:537] {message}\n"
                ),
                ..crate::explain::Evidence::default()
            });
            assert_eq!(
                NodeEnd::of(&verdict, false),
                NodeEnd::PeerLost,
                "{verdict:#?}"
            );
        }
    }

    #[test]
    fn memory_anywhere_means_another_attempt() {
        let reports = [
            report("a", NodeEnd::Failed, 1),
            report("b", NodeEnd::Memory, 9),
        ];
        assert_eq!(after_attempt(&reports, 3, false), AfterAttempt::Again);
        assert_eq!(after_attempt(&reports[..1], 3, false), AfterAttempt::Wait);
        let late = after_attempt(&reports[..1], 3, true);
        assert_eq!(late, AfterAttempt::End(reports[0].clone()));
        assert_eq!(after_attempt(&[], 3, true), AfterAttempt::Again);
    }

    #[test]
    fn the_earliest_failure_is_the_one_verdict() {
        let (a, b) = (
            report("a", NodeEnd::Failed, 7),
            report("b", NodeEnd::Failed, 5),
        );
        let lost = report("c", NodeEnd::PeerLost, 3);
        for order in [
            [a.clone(), b.clone(), lost.clone()],
            [lost.clone(), b.clone(), a],
        ] {
            assert_eq!(
                after_attempt(&order, 3, false),
                AfterAttempt::End(b.clone())
            );
        }
        assert_eq!(after_attempt(&vec![lost; 3], 3, false), AfterAttempt::Again);
        let mut ends = vec![report("a", NodeEnd::Finished, 1); 2];
        ends.push(report("c", NodeEnd::PeerLost, 2));
        assert!(matches!(
            after_attempt(&ends, 3, false),
            AfterAttempt::End(_)
        ));
        let done = vec![report("a", NodeEnd::Finished, 1); 3];
        assert!(matches!(
            after_attempt(&done, 3, false),
            AfterAttempt::End(_)
        ));
    }
}
