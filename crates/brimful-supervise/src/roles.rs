//! What each process of a job is for.

use std::collections::{BTreeMap, BTreeSet};

use brimful::watch::Role;

/// A process as the system tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    /// Its command line.
    pub arguments: Vec<String>,
    /// `LOCAL_RANK` of the environment it was started with. Its children inherit it.
    pub local_rank: Option<u32>,
}

/// A worker of a DataLoader that the hook has told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownWorker {
    pub pid: u32,
    pub loader: u32,
    pub worker: u32,
}

/// Gives each process its role.
///
/// `root` is the process that was started. `known` are the workers that the hook has told of, `stepping` the
/// processes in which it has counted optimizer steps; both may be empty, and the rest is guessed from command lines.
///
/// - The main process is `root`, or where that is no Python (a shell, `uv run`) the first Python below it.
/// - A rank has a `LOCAL_RANK` that its parent does not have; or it is a Python that a launcher such as torchrun has
///   started; or a process of `multiprocessing` that makes steps.
/// - A worker is known; or, for a parent without known workers, it is a fork of it (it has its command line), or was
///   started by `multiprocessing`.
pub fn roles(
    root: u32,
    processes: &[Process],
    known: &[KnownWorker],
    stepping: &[u32],
) -> BTreeMap<u32, Role> {
    let tree = Tree::new(processes);
    let main = tree.main(root);
    let known: BTreeMap<u32, KnownWorker> = known.iter().map(|one| (one.pid, *one)).collect();
    let stepping: BTreeSet<u32> = stepping.iter().copied().collect();
    let mut roles: BTreeMap<u32, Role> = BTreeMap::new();
    // Parents come before their children, so that a child can ask for the role of its parent.
    for process in tree.parents_first() {
        let role = if Some(process.pid) == main {
            Role::Main
        } else if let Some(worker) = known.get(&process.pid) {
            Role::Worker {
                loader: worker.loader,
                worker: worker.worker,
            }
        } else if let Some(rank) = tree.rank(process, &stepping) {
            Role::Rank { rank }
        } else if let Some(worker) = tree.guessed_worker(process, &roles, &known) {
            Role::Worker { loader: 0, worker }
        } else {
            Role::Other
        };
        roles.insert(process.pid, role);
    }
    roles
}

struct Tree<'a> {
    processes: BTreeMap<u32, &'a Process>,
    children: BTreeMap<u32, Vec<u32>>,
}

impl<'a> Tree<'a> {
    fn new(processes: &'a [Process]) -> Tree<'a> {
        let by_pid: BTreeMap<u32, &Process> = processes.iter().map(|one| (one.pid, one)).collect();
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for process in by_pid.values() {
            children
                .entry(process.parent)
                .or_default()
                .push(process.pid);
        }
        Tree {
            processes: by_pid,
            children,
        }
    }

    /// Every process once, parents first. In a table that was read while processes came and went a process may be
    /// its own ancestor; those come last.
    fn parents_first(&self) -> Vec<&'a Process> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        let tops = self
            .processes
            .values()
            .filter(|one| !self.processes.contains_key(&one.parent) || one.parent == one.pid);
        let mut waiting: std::collections::VecDeque<u32> = tops.map(|one| one.pid).collect();
        while let Some(pid) = waiting.pop_front() {
            if seen.insert(pid) {
                order.push(self.processes[&pid]);
                waiting.extend(self.children_of(pid));
            }
        }
        let rest = self
            .processes
            .values()
            .filter(|one| !seen.contains(&one.pid));
        order.extend(rest);
        order
    }

    fn children_of(&self, pid: u32) -> &[u32] {
        self.children.get(&pid).map_or(&[], Vec::as_slice)
    }

    fn parent(&self, process: &Process) -> Option<&'a Process> {
        let parent = self.processes.get(&process.parent)?;
        (parent.pid != process.pid).then_some(*parent)
    }

    fn main(&self, root: u32) -> Option<u32> {
        let mut level = vec![root];
        let mut seen = BTreeSet::new();
        while !level.is_empty() {
            let is_python = |pid: &&u32| {
                let process = self.processes.get(pid);
                process.is_some_and(|process| is_python(process))
            };
            if let Some(pid) = level.iter().filter(is_python).min() {
                return Some(*pid);
            }
            seen.extend(level.iter().copied());
            level = level
                .iter()
                .flat_map(|pid| self.children_of(*pid))
                .copied()
                .filter(|pid| !seen.contains(pid))
                .collect();
        }
        self.processes.contains_key(&root).then_some(root)
    }

    fn rank(&self, process: &Process, stepping: &BTreeSet<u32>) -> Option<u32> {
        let parent = self.parent(process)?;
        if let Some(rank) = process.local_rank {
            // Whatever a rank starts inherits its number.
            return (parent.local_rank != Some(rank)).then_some(rank);
        }
        if is_launcher(parent) && is_python(process) && !is_helper(process) {
            return self.place(process, |one| is_python(one) && !is_helper(one));
        }
        let is_spawned_rank = |one: &Process| {
            stepping.contains(&one.pid)
                && (is_started_by_multiprocessing(one) || is_fork(one, parent))
        };
        if is_spawned_rank(process) && !stepping.contains(&parent.pid) {
            return self.place(process, is_spawned_rank);
        }
        None
    }

    fn guessed_worker(
        &self,
        process: &Process,
        roles: &BTreeMap<u32, Role>,
        known: &BTreeMap<u32, KnownWorker>,
    ) -> Option<u32> {
        let parent = self.parent(process)?;
        if is_helper(process) && !is_fork(process, parent) {
            return None;
        }
        // A fork server stands between a process and its workers, which are forks of the server.
        let is_served = is_fork_server(parent) && is_fork(process, parent);
        let owner = if is_served {
            self.parent(parent)?
        } else {
            parent
        };
        let trains = matches!(roles.get(&owner.pid), Some(Role::Main | Role::Rank { .. }));
        let has_known = self
            .children_of(owner.pid)
            .iter()
            .chain(self.children_of(parent.pid))
            .any(|pid| known.contains_key(pid));
        if !trains || has_known || is_launcher(owner) {
            return None;
        }
        let is_worker = |one: &Process| {
            is_served && is_fork(one, parent)
                || !is_served
                    && !is_helper(one)
                    && is_python(one)
                    && one.local_rank == parent.local_rank
                    && (is_fork(one, parent) || is_started_by_multiprocessing(one))
        };
        is_worker(process).then(|| self.place(process, is_worker))?
    }

    /// Which of its parent's children of a kind a process is. They are started in the order of their numbers.
    fn place(&self, process: &Process, is_of_the_kind: impl Fn(&Process) -> bool) -> Option<u32> {
        let siblings = self.children_of(process.parent).iter();
        let mut kind = siblings.filter(|pid| is_of_the_kind(self.processes[pid]));
        u32::try_from(kind.position(|pid| *pid == process.pid)?).ok()
    }
}

fn is_python(process: &Process) -> bool {
    let program = process.arguments.first().map_or("", String::as_str);
    let name = program.rsplit('/').next().unwrap_or_default();
    name.starts_with("python") || name.starts_with("pypy")
}

/// A copy of its parent: a command line says the same unless a program was started again.
fn is_fork(process: &Process, parent: &Process) -> bool {
    !process.arguments.is_empty() && process.arguments == parent.arguments
}

/// Starts the ranks and trains nothing itself.
fn is_launcher(process: &Process) -> bool {
    // The command as a program, as a script of that name, or as a module after `-m`.
    const NAMES: [&str; 5] = [
        "torchrun",
        "torch.distributed.run",
        "torch.distributed.launch",
        "torch.distributed.elastic",
        "deepspeed",
    ];
    let mut first = process.arguments.iter().take(6);
    let names = |argument: &String| {
        let name = argument.rsplit('/').next().unwrap_or_default();
        NAMES.contains(&name)
    };
    let is_accelerate = process.arguments.windows(2).take(6).any(|pair| {
        let command = pair[0].rsplit('/').next().unwrap_or_default();
        command == "accelerate" && pair[1] == "launch" || command == "accelerate.commands.launch"
    });
    is_python(process) && (first.any(names) || is_accelerate)
}

/// What multiprocessing runs in a process that it starts again.
fn runs_of_multiprocessing<'a>(process: &'a Process, module: &str) -> Option<&'a String> {
    let code = process
        .arguments
        .iter()
        .take(12)
        .skip_while(|argument| *argument != "-c");
    code.take(2).find(|code| code.contains(module))
}

fn is_started_by_multiprocessing(process: &Process) -> bool {
    runs_of_multiprocessing(process, "multiprocessing.spawn").is_some()
}

fn is_fork_server(process: &Process) -> bool {
    runs_of_multiprocessing(process, "multiprocessing.forkserver").is_some()
}

/// Helpers of Python and PyTorch that train nothing and load nothing.
fn is_helper(process: &Process) -> bool {
    let is_tracker = [
        "multiprocessing.resource_tracker",
        "multiprocessing.semaphore_tracker",
    ]
    .iter()
    .any(|module| runs_of_multiprocessing(process, module).is_some());
    let compiles = process
        .arguments
        .iter()
        .take(3)
        .any(|argument| argument.contains("torch/_inductor/compile_worker"));
    is_tracker || compiles || is_fork_server(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: Role = Role::Main;
    const OTHER: Role = Role::Other;
    const SPAWNED: &str = "python -c from~multiprocessing.spawn~import~spawn_main;~spawn_main(tracker_fd=5,pipe_handle=7) \
         --multiprocessing-fork";
    const SERVER: &str =
        "python -c from~multiprocessing.forkserver~import~main;~main(10,~11,['__main__'])";
    const TRACKER: &str = "python -c from~multiprocessing.resource_tracker~import~main;main(5)";

    fn process(pid: u32, parent: u32, command: &str) -> Process {
        Process {
            pid,
            parent,
            arguments: command
                .split_whitespace()
                .map(|word| word.replace('~', " "))
                .collect(),
            local_rank: None,
        }
    }

    fn ranked(pid: u32, parent: u32, command: &str, local_rank: u32) -> Process {
        Process {
            local_rank: Some(local_rank),
            ..process(pid, parent, command)
        }
    }

    const fn rank(rank: u32) -> Role {
        Role::Rank { rank }
    }

    const fn worker(loader: u32, worker: u32) -> Role {
        Role::Worker { loader, worker }
    }

    const fn known(pid: u32, loader: u32, worker: u32) -> KnownWorker {
        KnownWorker {
            pid,
            loader,
            worker,
        }
    }

    /// The first process is the one that was started; the expected roles are in the order of the processes.
    fn check(processes: &[Process], expected: &[Role]) {
        check_hooked(processes, &[], &[], expected);
    }

    fn check_hooked(
        processes: &[Process],
        known: &[KnownWorker],
        stepping: &[u32],
        expected: &[Role],
    ) {
        let found = roles(processes[0].pid, processes, known, stepping);
        let found: Vec<Role> = processes.iter().map(|one| found[&one.pid]).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn forks_are_workers() {
        check(
            &[
                process(10, 1, "python train.py"),
                process(12, 10, "python train.py"),
                process(11, 10, "python train.py"),
                process(13, 10, "nvidia-smi"),
                process(14, 10, "python other.py"),
                process(15, 11, "python train.py"),
            ],
            &[MAIN, worker(0, 1), worker(0, 0), OTHER, OTHER, OTHER],
        );
    }

    #[test]
    fn spawned_processes_are_workers_and_the_tracker_is_not() {
        check(
            &[
                process(10, 1, "/venv/bin/python3.11 train.py"),
                process(11, 10, TRACKER),
                process(12, 10, SPAWNED),
                process(13, 10, SPAWNED),
            ],
            &[MAIN, OTHER, worker(0, 0), worker(0, 1)],
        );
    }

    #[test]
    fn a_fork_server_is_not_a_worker_but_its_children_are() {
        check(
            &[
                process(10, 1, "python train.py"),
                process(11, 10, TRACKER),
                process(12, 10, SERVER),
                process(13, 12, SERVER),
                process(14, 12, SERVER),
            ],
            &[MAIN, OTHER, OTHER, worker(0, 0), worker(0, 1)],
        );
    }

    #[test]
    fn what_the_hook_knows_is_not_guessed() {
        check_hooked(
            &[
                process(10, 1, "python train.py"),
                process(11, 10, "python train.py"),
                process(12, 10, "python train.py"),
                process(13, 10, "python train.py"),
            ],
            &[known(11, 2, 0), known(13, 2, 1), known(99, 0, 0)],
            &[10],
            &[MAIN, worker(2, 0), OTHER, worker(2, 1)],
        );
    }

    #[test]
    fn the_python_below_a_shell_is_the_main_process() {
        check(
            &[
                process(10, 1, "bash train.sh"),
                process(11, 10, "uv run train.py"),
                process(12, 11, "python train.py"),
                process(13, 12, "python train.py"),
                process(14, 10, "tee log"),
            ],
            &[OTHER, OTHER, MAIN, worker(0, 0), OTHER],
        );
        check(&[process(10, 1, "sleep 5")], &[MAIN]);
        check(&[process(10, 1, "")], &[MAIN]);
    }

    #[test]
    fn ranks_have_the_number_their_launcher_gave_them() {
        check(
            &[
                process(
                    10,
                    1,
                    "python /venv/bin/torchrun --nproc-per-node 2 train.py",
                ),
                ranked(12, 10, "python -u train.py", 0),
                ranked(11, 10, "python -u train.py", 1),
                ranked(13, 11, "python -u train.py", 1),
                ranked(14, 12, TRACKER, 0),
                ranked(15, 12, SPAWNED, 0),
            ],
            &[MAIN, rank(0), rank(1), worker(0, 0), OTHER, worker(0, 0)],
        );
    }

    #[test]
    fn without_their_environment_ranks_are_counted() {
        check(
            &[
                process(
                    10,
                    1,
                    "python -m torch.distributed.run --nproc-per-node 2 train.py",
                ),
                process(11, 10, TRACKER),
                process(12, 10, "python -u train.py"),
                process(13, 10, "python -u train.py"),
                process(14, 13, "python -u train.py"),
            ],
            &[MAIN, OTHER, rank(0), rank(1), worker(0, 0)],
        );
        check(
            &[
                process(10, 1, "python /venv/bin/accelerate launch train.py"),
                process(12, 10, "python train.py"),
            ],
            &[MAIN, rank(0)],
        );
    }

    #[test]
    fn a_main_process_that_trains_too_keeps_its_name() {
        check(
            &[
                process(10, 1, "python train.py"),
                ranked(11, 10, "python train.py", 1),
                process(12, 10, "python train.py"),
            ],
            &[MAIN, rank(1), worker(0, 0)],
        );
    }

    #[test]
    fn spawned_processes_that_step_are_ranks() {
        check_hooked(
            &[
                process(10, 1, "python train.py"),
                process(11, 10, TRACKER),
                process(12, 10, SPAWNED),
                process(13, 10, SPAWNED),
                process(14, 13, SPAWNED),
            ],
            &[],
            &[12, 13],
            &[MAIN, OTHER, rank(0), rank(1), worker(0, 0)],
        );
    }

    #[test]
    fn a_job_that_runs_inside_of_a_rank_has_a_main_process() {
        check(
            &[
                ranked(10, 1, "python train.py", 3),
                ranked(11, 10, "python train.py", 3),
            ],
            &[MAIN, worker(0, 0)],
        );
    }

    #[test]
    fn a_table_that_makes_no_sense_is_survived() {
        check(
            &[
                process(10, 11, "python train.py"),
                process(11, 10, "python train.py"),
                process(12, 12, ""),
            ],
            &[MAIN, worker(0, 0), OTHER],
        );
        assert!(roles(5, &[], &[], &[]).is_empty());
        assert_eq!(
            roles(5, &[process(7, 6, "python")], &[], &[])[&7],
            Role::Other
        );
    }
}
