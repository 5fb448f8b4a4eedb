//! The command line of `torchrun`.

use std::path::Path;

use crate::env_vars;

/// Options of `torchrun` without a value. Every other one has a value.
const FLAGS: [&str; 8] = [
    "standalone",
    "module",
    "m",
    "no-python",
    "run-path",
    "virtual-local-rank",
    "use-env",
    "help",
];
/// Options that name other nodes, or say which one this is.
const OF_SEVERAL_NODES: [&str; 10] = [
    "nnodes",
    "node-rank",
    "master-addr",
    "master-port",
    "local-addr",
    "rdzv-backend",
    "rdzv-endpoint",
    "rdzv-id",
    "rdzv-conf",
    "standalone",
];
/// The module that `python -m` starts.
const MODULE: &str = "torch.distributed.run";
/// Words before torchrun that start it on this machine.
const PREFIXES: [&str; 8] = [
    "env", "uv", "run", "poetry", "pipenv", "nice", "time", "exec",
];
/// Its options, for those that are written in short.
const OPTIONS: [&str; 26] = [
    "nnodes",
    "nproc-per-node",
    "rdzv-backend",
    "rdzv-endpoint",
    "rdzv-id",
    "rdzv-conf",
    "standalone",
    "max-restarts",
    "monitor-interval",
    "start-method",
    "event-log-handler",
    "role",
    "module",
    "no-python",
    "run-path",
    "log-dir",
    "redirects",
    "tee",
    "local-ranks-filter",
    "node-rank",
    "master-addr",
    "master-port",
    "local-addr",
    "logs-specs",
    "numa-binding",
    "virtual-local-rank",
];

/// How `torchrun` is called: on how many nodes, and where its options end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torchrun {
    /// Nodes of the job: at least, and at most; `None` if that is not a number.
    pub nodes: Option<(u64, u64)>,
    /// Every rank of a node has the local rank 0.
    pub has_virtual_local_ranks: bool,
    /// Ranks of a node; `None` if it is one for each GPU, or not a number.
    pub ranks_per_node: Option<u64>,
    /// The words up to its options.
    options_at: usize,
    /// The script, module or program.
    rank_at: usize,
    kind: RankKind,
}

/// What `torchrun` starts for each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RankKind {
    Script,
    Module,
    Program,
}

/// The command of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankCommand {
    /// To be started with the Python of `torchrun`; otherwise it is a program of its own.
    pub with_python: bool,
    pub words: Vec<String>,
}

impl Torchrun {
    /// Finds `torchrun` in a command; `None` if it is not there, or starts nothing.
    ///
    /// `PET_NNODES` and `PET_NPROC_PER_NODE` are what `variable` returns: torchrun reads its options from there too.
    pub fn of(command: &[String], variable: impl Fn(&str) -> Option<String>) -> Option<Torchrun> {
        let options_at = options_at(command)?;
        let mut nodes = variable(env_vars::PET_NNODES);
        let mut ranks = variable(env_vars::PET_NPROC_PER_NODE);
        let mut kind = RankKind::Script;
        let (mut is_standalone, mut is_virtual) = (false, false);
        let mut at = options_at;
        while let Some(word) = command.get(at) {
            let Some(option) = LauncherOption::of(word) else {
                at += usize::from(word == "--");
                break;
            };
            let has_own_value = !FLAGS.contains(&option.name.as_str()) && option.value.is_none();
            let value = || {
                option
                    .value
                    .clone()
                    .or_else(|| command.get(at + 1).cloned())
            };
            match option.name.as_str() {
                "nnodes" => nodes = value(),
                "nproc-per-node" => ranks = value(),
                "standalone" => is_standalone = true,
                "virtual-local-rank" => is_virtual = true,
                "m" | "module" => kind = RankKind::Module,
                "no-python" => kind = RankKind::Program,
                _ => {}
            }
            at += if has_own_value { 2 } else { 1 };
        }
        command.get(at)?;
        let nodes = match nodes {
            Some(text) if !is_standalone => range(&text),
            _ => Some((1, 1)),
        };
        Some(Torchrun {
            nodes,
            has_virtual_local_ranks: is_virtual,
            ranks_per_node: ranks.map_or(Some(1), |text| text.parse().ok()),
            options_at,
            rank_at: at,
            kind,
        })
    }

    /// Whether several nodes train together, or may do so.
    pub fn has_several_nodes(&self) -> bool {
        self.nodes.is_none_or(|(_, most)| most > 1)
    }

    /// The number of nodes, unless it may change.
    pub fn n_nodes(&self) -> Option<u64> {
        let (least, most) = self.nodes?;
        (least == most).then_some(most)
    }

    /// Ranks on all nodes, if both numbers are known.
    pub fn n_ranks(&self) -> Option<u64> {
        self.n_nodes()?.checked_mul(self.ranks_per_node?)
    }

    /// The same command with `start` in place of what a rank runs, and without restarts of torchrun's own.
    ///
    /// `start` is a Python script with its arguments, or a program where the command starts one.
    pub fn command_with(&self, command: &[String], start: &[String]) -> Vec<String> {
        let mut words = self.without(command, &["max-restarts", "m", "module", "run-path"]);
        words.push("--max-restarts=0".to_owned());
        words.extend(start.iter().cloned());
        words
    }

    /// The ranks of one node alone: the same command without the other nodes, which it does not look for.
    pub fn one_node(&self, command: &[String]) -> Vec<String> {
        let mut words = self.without(command, &OF_SEVERAL_NODES);
        words.push("--standalone".to_owned());
        words.extend(command[self.rank_at..].iter().cloned());
        words
    }

    /// The words before what a rank runs, without some options.
    fn without(&self, command: &[String], names: &[&str]) -> Vec<String> {
        let mut words = command[..self.options_at].to_vec();
        let mut at = self.options_at;
        while at < self.rank_at {
            let word = &command[at];
            let option = LauncherOption::of(word);
            let name = option.as_ref().map_or("", |option| option.name.as_str());
            let takes_next = option.as_ref().is_some_and(|option| {
                !FLAGS.contains(&option.name.as_str()) && option.value.is_none()
            });
            let n_words = if takes_next { 2 } else { 1 };
            if !names.contains(&name) {
                words.extend(command[at..self.rank_at.min(at + n_words)].iter().cloned());
            }
            at += n_words;
        }
        words
    }

    /// Whether a rank is a program that is not started with Python.
    pub fn starts_program(&self) -> bool {
        self.kind == RankKind::Program
    }

    /// What `torchrun` would start for each rank.
    pub fn rank_command(&self, command: &[String]) -> RankCommand {
        let mut words = Vec::new();
        if self.kind != RankKind::Program {
            words.push("-u".to_owned());
        }
        if self.kind == RankKind::Module {
            words.push("-m".to_owned());
        }
        words.extend(command.iter().skip(self.rank_at).cloned());
        RankCommand {
            with_python: self.kind != RankKind::Program,
            words,
        }
    }
}

/// One option, without its dashes and with `-` in place of `_`.
struct LauncherOption {
    name: String,
    value: Option<String>,
}

impl LauncherOption {
    fn of(word: &str) -> Option<LauncherOption> {
        let short = word.strip_prefix('-')?;
        let Some(rest) = short.strip_prefix('-') else {
            // `-t3` is `-t 3`.
            let name = short.chars().next().filter(char::is_ascii_alphabetic)?;
            let value = &short[1..];
            let value = value.strip_prefix('=').unwrap_or(value);
            return Some(LauncherOption {
                name: name.to_string(),
                value: (!value.is_empty()).then(|| value.to_owned()),
            });
        };
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return None;
        }
        let (name, value) = match rest.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (rest, None),
        };
        Some(LauncherOption {
            name: whole_name(name.replace('_', "-")),
            value,
        })
    }
}

/// The option that a name is the beginning of, if there is only one.
fn whole_name(name: String) -> String {
    let mut fitting = OPTIONS.iter().filter(|option| option.starts_with(&name));
    match (fitting.next(), fitting.next()) {
        (Some(option), None) => (*option).to_owned(),
        _ => name,
    }
}

/// The first word after `torchrun` or `-m torch.distributed.run`.
///
/// A word of that name counts only if nothing before it may start it elsewhere, as `srun` and `docker` do.
fn options_at(command: &[String]) -> Option<usize> {
    let at = command.iter().position(|word| {
        let name = Path::new(word).file_name().and_then(|name| name.to_str());
        let is_prefix = word.contains('=')
            || word.starts_with('-')
            || name.is_some_and(|name| PREFIXES.contains(&name) || name.starts_with("python"));
        !is_prefix
    })?;
    let is_program = Path::new(&command[at])
        .file_name()
        .is_some_and(|name| name == "torchrun");
    let is_module = at > 0 && command[at - 1] == "-m" && command[at] == MODULE;
    (is_program || is_module).then_some(at + 1)
}

/// `3` or `2:4`.
fn range(text: &str) -> Option<(u64, u64)> {
    let (least, most) = text.split_once(':').unwrap_or((text, text));
    Some((least.trim().parse().ok()?, most.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn of(text: &str) -> Option<Torchrun> {
        Torchrun::of(&words(text), |_| None)
    }

    #[test]
    fn nodes_and_ranks_are_read_in_every_spelling() {
        for text in [
            "torchrun --nnodes=3 --nproc-per-node=2 train.py --nnodes 9",
            "torchrun --nnodes 3 --nproc_per_node 2 train.py",
            "/opt/venv/bin/torchrun --nnodes 3:3 --nproc-per-node 2 -m pkg.train",
            "python -m torch.distributed.run --nproc_per_node=2 --nnodes=3 train.py",
            "env A=1 torchrun --no-python --nnodes=3 --nproc-per-node=2 ./train.sh",
            "torchrun -t3 -r 3 --nnode 3 --nproc-per-node=2 -- train.py out",
        ] {
            let found = of(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(found.n_nodes(), Some(3), "{text}");
            assert_eq!(found.ranks_per_node, Some(2), "{text}");
        }
        let elastic = of("torchrun --nnodes=2:4 train.py").expect("torchrun");
        assert_eq!(elastic.n_nodes(), None);
        assert!(elastic.has_several_nodes());
        let gpus = of("torchrun --nnodes=2 --nproc-per-node=gpu train.py").expect("torchrun");
        assert_eq!(gpus.ranks_per_node, None);
    }

    #[test]
    fn one_node_and_other_programs_are_told_apart() {
        assert_eq!(of("python train.py --nnodes 3"), None);
        assert_eq!(of("torchrun --nnodes 3"), None);
        assert_eq!(of("srun torchrun --nnodes 3 train.py"), None);
        assert_eq!(of("python train.py --launcher torchrun data"), None);
        let unknown = of("torchrun --nnodes={n} train.py").expect("torchrun");
        assert!(unknown.has_several_nodes() && unknown.n_nodes().is_none());
        assert!(
            !of("torchrun train.py")
                .expect("torchrun")
                .has_several_nodes()
        );
        let standalone = of("torchrun --standalone --nnodes=3 train.py").expect("torchrun");
        assert!(!standalone.has_several_nodes());
    }

    #[test]
    fn variables_of_kubeflow_count_unless_an_option_is_there() {
        let variable = |name: &str| (name == "PET_NNODES").then(|| "4".to_owned());
        let found = Torchrun::of(&words("torchrun train.py"), variable).expect("torchrun");
        assert_eq!(found.n_nodes(), Some(4));
        let found = Torchrun::of(&words("torchrun --nnodes 2 train.py"), variable);
        assert_eq!(found.expect("torchrun").n_nodes(), Some(2));
    }

    #[test]
    fn one_node_does_not_look_for_the_others() {
        let text = "torchrun --nnodes=3 --nproc-per-node 2 --node_rank 1 --rdzv-endpoint=a:1 --rdzv-conf x=1 \
                    --rdzv_backend c10d --rdzv-id j --log-dir d -m pkg.train --nnodes 3";
        let command = words(text);
        let found = of(text).expect("torchrun");
        assert_eq!(
            found.one_node(&command),
            words("torchrun --nproc-per-node 2 --log-dir d -m --standalone pkg.train --nnodes 3")
        );
    }

    #[test]
    fn a_rank_starts_what_torchrun_would_start() {
        let start = words("start.py order.json");
        for (text, expected, rank) in [
            (
                "torchrun --nnodes=3 --max-restarts 5 --rdzv-id j train.py --lr 1",
                "torchrun --nnodes=3 --rdzv-id j --max-restarts=0 start.py order.json",
                "-u train.py --lr 1",
            ),
            (
                "torchrun --nnodes=3 --max_restarts=5 -m pkg.train --lr 1",
                "torchrun --nnodes=3 --max-restarts=0 start.py order.json",
                "-u -m pkg.train --lr 1",
            ),
            (
                "torchrun --nnodes=3 --no-python ./train.sh --lr 1",
                "torchrun --nnodes=3 --no-python --max-restarts=0 start.py order.json",
                "./train.sh --lr 1",
            ),
        ] {
            let command = words(text);
            let found = of(text).expect("torchrun");
            assert_eq!(found.command_with(&command, &start), words(expected));
            let command = found.rank_command(&command);
            assert_eq!(command.words, words(rank));
            assert_eq!(command.with_python, !found.starts_program());
        }
    }
}
