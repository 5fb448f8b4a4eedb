//! What brimful does on one node before and after each attempt of a job on several nodes.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brimful::explain::Detail;
use brimful::job::{Job, Settings};
use brimful::nodes::{AfterAttempt, AgreedRun, NodeEnd, NodeReport, Proposal, after_attempt};
use brimful::record::Outcome;
use brimful_private::TempDir;
use brimful_supervise::AttemptEnd;
use brimful_supervise::checkpoints::{Checkpoints, Excluded};

use crate::nodes::decision::{Agreed, Decision};
use crate::nodes::order::{Order, torchrun};
use crate::nodes::rank::{DECISION, FAILED, RANK_ARGUMENT, RESTARTED};
use crate::nodes::shared::{NoSharedDirectory, SharedDirectory, SharedState};

/// How long the reports of the other nodes are waited for. A node without one was killed, or is about to report.
const REPORTS_WITHIN: Duration = Duration::from_secs(15);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How long an attempt is tried to begin, from its first start on: a node that was lost may have to be started again by a scheduler.
const BEGIN_WITHIN: Duration = Duration::from_mins(20);
/// The same before the first attempt: what does not begin by then is called wrongly.
const FIRST_BEGINS_WITHIN: Duration = Duration::from_mins(15);
/// Before another try, and more from try to try.
const PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Started by torchrun for each rank, with the path of brimful and of the order.
const START_SCRIPT: &str = "\
import os
import sys

os.execv(sys.argv[1], [sys.argv[1], \"__rank\", sys.argv[2], sys.executable])
";

/// What the nodes of a run agree on, as seen from one of them.
#[derive(Debug)]
pub(crate) struct NodesLadder {
    shared: SharedDirectory,
    shared_path: PathBuf,
    key: String,
    working_directory: PathBuf,
    config: Vec<(String, String)>,
    excluded: Excluded,
    max_attempts: u32,
    /// Holds the order of each attempt, and what its ranks leave beside it.
    directory: TempDir,
    n_orders: usize,
    pub(crate) proposal: Proposal,
    /// The last attempt that took place.
    pub(crate) agreed: Option<AgreedRun>,
    /// Since when no attempt has begun, and how often one was tried.
    waiting_since: Option<Instant>,
    n_tries: u32,
    /// How the last try failed, and how many tries in a row failed so within seconds.
    same_failure: (String, u32),
    /// The last attempt took place.
    pub(crate) has_begun: bool,
}

/// What a [`NodesLadder`] is made of.
pub(crate) struct NodesSetup<'a> {
    pub(crate) job: &'a Job,
    pub(crate) working_directory: PathBuf,
    pub(crate) config: Vec<(String, String)>,
    pub(crate) excluded: Excluded,
    pub(crate) max_attempts: usize,
    pub(crate) settings: Settings,
    pub(crate) samples_per_second: Option<f64>,
}

/// How the last attempt ended for all nodes.
#[derive(Debug)]
pub(crate) enum AttemptOnNodes {
    /// This node ran out of memory: it proposes other settings.
    OutOfMemory(AgreedRun),
    /// Start it again with the same proposal: why, in one sentence.
    Again(String),
    /// There is no further attempt: why, unless it finished or the node's own verdict says so.
    End(Option<String>),
}

impl NodesLadder {
    pub(crate) fn new(setup: NodesSetup<'_>) -> Result<NodesLadder, NoSharedDirectory> {
        let shared_path = SharedDirectory::place(&setup.working_directory, &setup.job.checkpoints);
        let key = job_name(&setup.job.command);
        let shared = SharedDirectory::create(&shared_path, &key)?;
        let places = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()];
        let directory =
            brimful_private::temporary_directory(&places, "brimful-nodes-").map_err(|source| {
                NoSharedDirectory {
                    path: std::env::temp_dir(),
                    source,
                }
            })?;
        let number = RandomState::new().hash_one(std::process::id());
        let job = digest(setup.job, &setup.config);
        Ok(NodesLadder {
            shared,
            shared_path,
            key,
            working_directory: setup.working_directory,
            config: setup.config,
            excluded: setup.excluded,
            max_attempts: u32::try_from(setup.max_attempts).unwrap_or(u32::MAX),
            directory,
            n_orders: 0,
            proposal: Proposal {
                node: format!("{number:016x}"),
                host_name: brimful_supervise::host_name(),
                brimful_version: env!("CARGO_PKG_VERSION").into(),
                job,
                settings: setup.settings,
                samples_per_second: setup.samples_per_second,
                ..Proposal::default()
            },
            agreed: None,
            waiting_since: None,
            n_tries: 0,
            same_failure: (String::new(), 0),
            has_begun: false,
        })
    }

    /// The name of the job in the shared directory, the same on all nodes.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The run that other nodes may still be in, if it has not ended.
    pub(crate) fn unfinished(&self) -> Option<SharedState> {
        let state = self.shared.state()?;
        self.shared
            .ended(&state.agreed.run)
            .is_none()
            .then_some(state)
    }

    /// Writes the order of the next attempt, and returns the command that starts torchrun with it.
    pub(crate) fn command(&mut self, job: &Job, command: &[String]) -> io::Result<Vec<String>> {
        self.n_orders += 1;
        self.has_begun = false;
        self.waiting_since.get_or_insert_with(Instant::now);
        let directory = self.order_directory();
        brimful_private::new_directory(&directory)?;
        let path = directory.join("order.json");
        Order {
            job: job.clone(),
            config: self.config.clone(),
            working_directory: self.working_directory.clone(),
            shared: self.shared_path.clone(),
            key: self.key.clone(),
            excluded: self.excluded.clone(),
            max_attempts: self.max_attempts,
            proposal: self.proposal.clone(),
        }
        .write(&path)?;
        let launcher = torchrun(command).ok_or(io::ErrorKind::InvalidInput)?;
        let program = std::env::current_exe()?.display().to_string();
        let order = path.display().to_string();
        let start = if launcher.starts_program() {
            vec![program, RANK_ARGUMENT.to_owned(), order, String::new()]
        } else {
            let script = directory.join("start.py");
            brimful_private::write_new(&script, START_SCRIPT.as_bytes())?;
            vec![script.display().to_string(), program, order]
        };
        Ok(launcher.command_with(command, &start))
    }

    fn order_directory(&self) -> PathBuf {
        self.directory.path().join(self.n_orders.to_string())
    }

    /// What the ranks of the last attempt agreed on; nothing if they did not come to it.
    fn decision(&self) -> Option<Decision> {
        const MAX_DECISION: u64 = 4 << 20;
        let path = self.order_directory().join(DECISION);
        serde_json::from_slice(&brimful_private::read(&path, MAX_DECISION).ok()?).ok()
    }

    /// How the last attempt ended for all nodes. Waits for what the others report.
    pub(crate) fn after(
        &mut self,
        ended: &AttemptEnd,
        pause: &mut dyn FnMut(Duration) -> bool,
    ) -> AttemptOnNodes {
        let Some(decision) = self.decision() else {
            return self.not_begun(ended, pause);
        };
        let run = match decision.agreed {
            Agreed::Attempt { run, .. } => *run,
            Agreed::Stop { why } | Agreed::Abort { why } => return AttemptOnNodes::End(Some(why)),
        };
        self.waiting_since = None;
        self.n_tries = 0;
        self.has_begun = true;
        self.proposal.run = Some(run.run.clone());
        self.proposal.is_member = true;
        self.proposal.rung = run.rung;
        self.proposal.settings.clone_from(&run.settings);
        self.agreed = Some(run.clone());
        if matches!(
            ended.outcome,
            Outcome::StoppedByUser { .. } | Outcome::NotStarted { .. }
        ) {
            return self.end("it was stopped");
        }
        let end = self.own_end(ended);
        if end == NodeEnd::Memory {
            return AttemptOnNodes::OutOfMemory(run);
        }
        self.report(end, ended);
        self.wait_for_others(&run, &decision.nodes, end, pause)
    }

    /// Reports to the others how the last attempt ended here. Without it they wait some seconds in vain.
    pub(crate) fn report(&self, end: NodeEnd, ended: &AttemptEnd) {
        if let Some(run) = &self.agreed {
            let _ = self.shared.report(run, &self.own_report(end, ended));
        }
    }

    /// The checkpoint that rank 0 would choose now. It chooses when all ranks have started.
    pub(crate) fn checkpoints(&self, patterns: &[String]) -> Checkpoints {
        let state = self.shared.state();
        let excluded = state.map_or_else(|| self.excluded.clone(), |state| state.excluded);
        excluded.choose(&self.working_directory, patterns)
    }

    /// Proposes settings one rung below an attempt.
    pub(crate) fn propose(&mut self, run: &AgreedRun, settings: Settings) {
        self.proposal.run = Some(run.run.clone());
        self.proposal.rung = run.rung.saturating_add(1);
        self.proposal.settings = settings;
        self.proposal.samples_per_second = None;
    }

    fn own_end(&self, ended: &AttemptEnd) -> NodeEnd {
        if ended.outcome == Outcome::Finished {
            NodeEnd::Finished
        } else if self.order_directory().join(RESTARTED).exists() {
            NodeEnd::PeerLost
        } else if self.failed().is_some() {
            NodeEnd::Failed
        } else {
            let by_signal = matches!(ended.outcome, Outcome::Killed { .. });
            NodeEnd::of(&ended.verdict, by_signal)
        }
    }

    /// Why brimful could not start a rank on this node.
    fn failed(&self) -> Option<String> {
        const MAX_BYTES: u64 = 64 << 10;
        let path = self.order_directory().join(FAILED);
        String::from_utf8(brimful_private::read(&path, MAX_BYTES).ok()?).ok()
    }

    fn own_report(&self, end: NodeEnd, ended: &AttemptEnd) -> NodeReport {
        NodeReport {
            node: self.proposal.node.clone(),
            host_name: self.proposal.host_name.clone(),
            end,
            summary: self
                .failed()
                .unwrap_or_else(|| ended.verdict.summary.clone()),
            at_unix_ms: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0)),
        }
    }

    fn wait_for_others(
        &self,
        run: &AgreedRun,
        nodes: &[String],
        end: NodeEnd,
        pause: &mut dyn FnMut(Duration) -> bool,
    ) -> AttemptOnNodes {
        let until = Instant::now() + REPORTS_WITHIN;
        loop {
            if let Some(why) = self.shared.ended(&run.run) {
                return AttemptOnNodes::End((end != NodeEnd::Finished).then_some(why));
            }
            let is_late = Instant::now() >= until;
            let reports = self.shared.reports(run, nodes);
            match after_attempt(&reports, nodes.len(), is_late) {
                AfterAttempt::Again if reports.len() < nodes.len() && is_late => {
                    let why = "another node was lost; the training continues when it is back";
                    return AttemptOnNodes::Again(why.into());
                }
                AfterAttempt::Again => {
                    return AttemptOnNodes::Again("the training ended on another node".into());
                }
                AfterAttempt::End(report) if report.end == NodeEnd::Finished => {
                    let why = self.shared.end(&run.run, "it finished");
                    return AttemptOnNodes::End((end != NodeEnd::Finished).then_some(why));
                }
                AfterAttempt::End(report) => {
                    let why = format!("on {}: {}", report.host_name, report.summary);
                    return self.end(&why);
                }
                AfterAttempt::Wait => {}
            }
            if !pause(LOOK_AGAIN_AFTER) {
                return AttemptOnNodes::End(None);
            }
        }
    }

    /// Ends the run for all nodes. The reason that was given first counts.
    pub(crate) fn end(&self, why: &str) -> AttemptOnNodes {
        let of_last = self.decision().and_then(|decision| match decision.agreed {
            Agreed::Attempt { run, .. } => Some(run.run),
            Agreed::Stop { .. } | Agreed::Abort { .. } => None,
        });
        let run = of_last.or_else(|| Some(self.agreed.as_ref()?.run.clone()));
        let why = match run {
            Some(run) => self.shared.end(&run, why),
            None => why.to_owned(),
        };
        AttemptOnNodes::End(Some(why))
    }

    /// Whether torchrun has failed in the same way again and again, and not because of another node: it cannot import
    /// torch, for example. A job that has begun is not given up so.
    fn fails_by_itself(&mut self, ended: &AttemptEnd) -> bool {
        let summary = &ended.verdict.summary;
        let is_of_other_node = OF_OTHER_NODES.iter().any(|words| summary.contains(words))
            || !matches!(ended.outcome, Outcome::Failed { .. })
            || Duration::from_millis(ended.wall_ms) > FAILS_AT_ONCE;
        if is_of_other_node || self.agreed.is_some() {
            self.same_failure.1 = 0;
            return false;
        }
        if self.same_failure.0 != *summary {
            self.same_failure = (summary.clone(), 0);
        }
        self.same_failure.1 += 1;
        self.same_failure.1 >= MAX_SAME_FAILURES
    }

    /// torchrun ended before its ranks agreed: it did not find the other nodes, or one of them was lost.
    fn not_begun(
        &mut self,
        ended: &AttemptEnd,
        pause: &mut dyn FnMut(Duration) -> bool,
    ) -> AttemptOnNodes {
        if let Some(run) = &self.agreed
            && let Some(why) = self.shared.ended(&run.run)
        {
            return AttemptOnNodes::End(Some(why));
        }
        let is_hopeless = matches!(
            ended.verdict.detail,
            Detail::Arguments | Detail::NoScript | Detail::MissingModule | Detail::NotStarted
        );
        if is_hopeless || ended.outcome == Outcome::Finished || self.fails_by_itself(ended) {
            return AttemptOnNodes::End(None);
        }
        if let Some(why) = self.failed() {
            return self.end(&why);
        }
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let limit = match &self.agreed {
            Some(_) => BEGIN_WITHIN,
            None => FIRST_BEGINS_WITHIN,
        };
        if since.elapsed() > limit {
            return self.end("no attempt began on all nodes");
        }
        self.n_tries = self.n_tries.saturating_add(1);
        if !pause((PAUSE * self.n_tries).min(LONGEST_PAUSE)) {
            return AttemptOnNodes::End(None);
        }
        AttemptOnNodes::Again("the attempt did not begin on all nodes".into())
    }
}

/// A torchrun that waits for other nodes takes longer than this to fail.
const FAILS_AT_ONCE: Duration = Duration::from_secs(20);
/// Equal failures in a row after which another try is hopeless.
const MAX_SAME_FAILURES: u32 = 3;
/// What torchrun prints when it does not find, or loses, the other nodes.
const OF_OTHER_NODES: [&str; 6] = [
    "Rendezvous",
    "DistNetworkError",
    "DistStoreError",
    "Connection",
    "connection",
    "timed out",
];

/// A digest of what all nodes of a job must have in common: all but the options of torchrun.
fn digest(job: &Job, config: &[(String, String)]) -> String {
    let mut job = job.clone();
    if let Some(launcher) = torchrun(&job.command) {
        job.command = launcher.rank_command(&job.command).words;
    }
    let text = serde_json::to_string(&(job, config)).unwrap_or_default();
    brimful_supervise::job_file_stem(&text)
}

/// The name of a job in the shared directory: by what its ranks run. The options of torchrun, such as `--node-rank`, and
/// the path of the directory may differ between nodes.
fn job_name(command: &[String]) -> String {
    let words = torchrun(command).map_or_else(
        || command.to_vec(),
        |launcher| launcher.rank_command(command).words,
    );
    brimful_supervise::job_file_stem(&brimful_supervise::job_key(Path::new(""), &words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_the_same_name_on_every_node() {
        let name = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            job_name(&words)
        };
        let first = name("torchrun --nnodes=2 --node-rank=0 train.py --lr {lr}");
        let second = name("torchrun --nnodes=2 --node-rank 1 --local-addr b train.py --lr {lr}");
        assert_eq!(first, second);
        assert_ne!(first, name("torchrun --nnodes=2 other.py --lr {lr}"));
    }
}
