//! A rank before it becomes the training: it agrees with all others on what to train.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use brimful::env_vars;
use brimful::nodes::{AgreedRun, Proposal, decide};
use brimful_rehearse::{ConfigFileError, ConfigFiles};
use brimful_supervise::checkpoints::Checkpoints;
use serde::{Deserialize, Serialize};

use crate::nodes::decision::{Agreed, Decision};
use crate::nodes::order::{Order, torchrun};
use crate::nodes::shared::{SharedDirectory, SharedState};
use crate::nodes::store::{Store, StoreError};

/// The first argument of a rank that has not agreed yet.
pub const RANK_ARGUMENT: &str = "__rank";

/// All ranks have started at once; what takes longer does not come.
const TIMEOUT: Duration = Duration::from_mins(1);
/// What the decision takes after all proposals are there: checkpoints are looked into.
const DECISION_TIMEOUT: Duration = Duration::from_mins(1);
/// A file on a network file system may be seen later on another node.
const VISIBLE_AFTER: Duration = Duration::from_secs(30);
const DECISION_KEY: &str = "brimful/decision";

/// Why a rank did not become the training.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    #[error("failed to read the order of this attempt")]
    Order(#[source] io::Error),
    #[error("failed to write to `{}`", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "torchrun has no store for its ranks: use PyTorch 2.4 or later with `--rdzv-backend=c10d` or `--master-addr`, and do not set TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    )]
    NoStore,
    #[error("the directory `{}` is not the one that rank 0 sees: write checkpoints to a directory that all nodes share", .0.display())]
    NotShared(PathBuf),
    #[error("torchrun did not set {0}")]
    Variable(&'static str),
    #[error("torchrun has started this rank again; all nodes start a new attempt instead")]
    Restarted,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the decision of rank 0 is not readable")]
    Decision(#[source] serde_json::Error),
    #[error("rank 0 has decided without this rank")]
    NotSeen,
    #[error("{0}")]
    Aborted(String),
    #[error("{0}")]
    Stopped(String),
    #[error(
        "the checkpoint `{0}`, which all ranks resume from, is not there on this node: write checkpoints to a directory that all nodes share"
    )]
    CheckpointNotHere(String),
    #[error(transparent)]
    Config(#[from] ConfigFileError),
    #[error("failed to start `{program}`")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
}

impl RankError {
    /// Whether another attempt would fail in the same way.
    fn is_final(&self) -> bool {
        match self {
            RankError::Order(_)
            | RankError::Write { .. }
            | RankError::Variable(_)
            | RankError::NoStore
            | RankError::NotShared(_)
            | RankError::CheckpointNotHere(_)
            | RankError::Config(_)
            | RankError::Start { .. } => true,
            RankError::Restarted
            | RankError::Store(_)
            | RankError::Decision(_)
            | RankError::NotSeen
            | RankError::Aborted(_)
            | RankError::Stopped(_) => false,
        }
    }
}

/// What a rank says, and rank 0 collects.
#[derive(Serialize, Deserialize)]
struct Message {
    number: u64,
    proposal: Proposal,
}

/// What torchrun tells a rank.
struct Place {
    rank: usize,
    world_size: usize,
    local_rank: String,
    host: String,
    port: u16,
}

/// Agrees with all other ranks and becomes the training. Returns only if that fails.
///
/// `python` is the interpreter of torchrun. `say` gets a line for the user from the first rank of each node.
pub fn become_rank(order: &Path, python: &Path, say: impl FnOnce(&str)) -> RankError {
    let error = match prepare(order, python, say) {
        Ok(mut command) => {
            let source = command.exec();
            RankError::Start {
                program: command.get_program().to_string_lossy().into_owned(),
                source,
            }
        }
        Err(error) => error,
    };
    if error.is_final() {
        let path = order.parent().unwrap_or(order).join(FAILED);
        let _ = brimful_private::write_new(&path, error.to_string().as_bytes());
    }
    error
}

fn prepare(order_path: &Path, python: &Path, say: impl FnOnce(&str)) -> Result<Command, RankError> {
    let order = Order::read(order_path).map_err(RankError::Order)?;
    let place = Place::of_environment()?;
    let directory = order_path.parent().unwrap_or(order_path);
    let started = directory.join(format!("started-{}", place.local_rank));
    match brimful_private::create_new(&started) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // The nodes would no longer know which attempt this is.
            let _ = brimful_private::create_new(&directory.join(RESTARTED));
            return Err(RankError::Restarted);
        }
        Err(error) => return Err(not_written(&started)(error)),
    }
    if std::env::var(env_vars::TORCHELASTIC_USE_AGENT_STORE).as_deref() != Ok("True") {
        return Err(RankError::NoStore);
    }
    let began = Instant::now();
    let decision = agree(&order, &place)?;
    if let Agreed::Abort { why } = decision.agreed {
        return Err(RankError::Aborted(why));
    }
    let text = serde_json::to_vec(&decision).map_err(RankError::Decision)?;
    let path = directory.join(DECISION);
    brimful_private::replace(&path, &text).map_err(not_written(&path))?;
    let (run, checkpoint, step) = match decision.agreed {
        Agreed::Attempt {
            run,
            checkpoint,
            checkpoint_step,
        } => (run, checkpoint, checkpoint_step),
        Agreed::Stop { why } | Agreed::Abort { why } => return Err(RankError::Stopped(why)),
    };
    if place.local_rank == "0" {
        say(&sentence(
            &run,
            &place,
            checkpoint.as_deref(),
            step,
            began.elapsed(),
        ));
    }
    let checkpoint = checkpoint.map(|path| order.working_directory.join(path));
    let shared = SharedDirectory::existing(&order.shared, &order.key);
    let is_same = || {
        shared
            .state()
            .is_some_and(|state| state.agreed.run == run.run && state.agreed.attempt == run.attempt)
    };
    if !becomes_true(is_same) {
        return Err(RankError::NotShared(order.shared));
    }
    if let Some(path) = &checkpoint
        && !becomes_true(|| path.exists())
    {
        return Err(RankError::CheckpointNotHere(path.display().to_string()));
    }
    let checkpoint = checkpoint.as_deref().and_then(Path::to_str);
    training(
        &order,
        &run,
        checkpoint,
        python,
        &directory.join(&place.local_rank),
    )
}

/// Left beside the order: what was decided, and whether torchrun has started a rank again.
pub(super) const DECISION: &str = "decision.json";
pub(super) const RESTARTED: &str = "restarted";
/// Why no attempt can begin on this node.
pub(super) const FAILED: &str = "failed";

impl Place {
    fn of_environment() -> Result<Place, RankError> {
        let text = |name| std::env::var(name).map_err(|_| RankError::Variable(name));
        let number = |name| text(name)?.parse().map_err(|_| RankError::Variable(name));
        let port = text(env_vars::MASTER_PORT)?;
        let place = Place {
            rank: number(env_vars::RANK)?,
            world_size: number(env_vars::WORLD_SIZE)?,
            local_rank: number(env_vars::LOCAL_RANK)?.to_string(),
            host: text(env_vars::MASTER_ADDR)?,
            port: port
                .parse()
                .map_err(|_| RankError::Variable(env_vars::MASTER_PORT))?,
        };
        if place.rank >= place.world_size {
            return Err(RankError::Variable(env_vars::WORLD_SIZE));
        }
        Ok(place)
    }

    fn key(rank: usize) -> String {
        format!("brimful/proposal/{rank}")
    }
}

fn agree(order: &Order, place: &Place) -> Result<Decision, RankError> {
    let deadline = Instant::now() + TIMEOUT;
    let mut store = Store::connect(&place.host, place.port, deadline + DECISION_TIMEOUT)?;
    let message = Message {
        // Differs in every process.
        number: RandomState::new().hash_one(place.rank),
        proposal: order.proposal.clone(),
    };
    let text = serde_json::to_vec(&message).map_err(RankError::Decision)?;
    store.set(&Place::key(place.rank), &text)?;
    if place.rank == 0 {
        let decision = coordinate(order, place, deadline)?;
        let text = serde_json::to_vec(&decision).map_err(RankError::Decision)?;
        store.set(DECISION_KEY, &text)?;
    }
    store.wait(&[DECISION_KEY.to_owned()])?;
    let text = store.get(DECISION_KEY)?;
    let decision: Decision = serde_json::from_slice(&text).map_err(RankError::Decision)?;
    let is_aborted = matches!(decision.agreed, Agreed::Abort { .. });
    if !is_aborted && decision.seen.get(place.rank) != Some(&message.number) {
        return Err(RankError::NotSeen);
    }
    Ok(decision)
}

/// Collects the proposals of all ranks, and decides.
fn coordinate(order: &Order, place: &Place, deadline: Instant) -> Result<Decision, RankError> {
    let keys: Vec<String> = (0..place.world_size).map(Place::key).collect();
    let mut store = Store::connect(&place.host, place.port, deadline)?;
    if let Err(StoreError::TimedOut) = store.wait(&keys) {
        let missing = missing(&keys, place)?;
        return Ok(Decision {
            seen: Vec::new(),
            nodes: Vec::new(),
            agreed: Agreed::Abort {
                why: format!(
                    "ranks without a proposal after {} s: {missing}",
                    TIMEOUT.as_secs()
                ),
            },
        });
    }
    let messages: Vec<Message> = store
        .get_all(&keys)?
        .iter()
        .map(|text| serde_json::from_slice(text))
        .collect::<Result<_, _>>()
        .map_err(RankError::Decision)?;
    let proposals: Vec<Proposal> = messages
        .iter()
        .map(|message| message.proposal.clone())
        .collect();
    let nodes: BTreeSet<String> = proposals
        .iter()
        .map(|proposal| proposal.node.clone())
        .collect();
    Ok(Decision {
        seen: messages.iter().map(|message| message.number).collect(),
        nodes: nodes.into_iter().collect(),
        agreed: decide_and_store(order, &proposals),
    })
}

fn missing(keys: &[String], place: &Place) -> Result<String, RankError> {
    let deadline = Instant::now() + DECISION_TIMEOUT / 2;
    let mut store = Store::connect(&place.host, place.port, deadline)?;
    let mut ranks = Vec::new();
    for (rank, key) in keys.iter().enumerate() {
        if !store.has(std::slice::from_ref(key))? {
            ranks.push(rank.to_string());
        }
    }
    Ok(ranks.join(", "))
}

/// Decides, chooses the checkpoint, and stores both where all nodes find them.
fn decide_and_store(order: &Order, proposals: &[Proposal]) -> Agreed {
    let shared = SharedDirectory::existing(&order.shared, &order.key);
    let last = shared.state();
    let agreed = last.as_ref().map(|state| &state.agreed);
    let new_run = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
    let mut run = match decide(proposals, agreed, &new_run, order.max_attempts) {
        Ok(run) => run,
        Err(why) => {
            // Only a run that one of these nodes is in, and not another one that has begun in this directory.
            let is_theirs = |run: &&AgreedRun| {
                let mut members = proposals.iter().filter(|proposal| proposal.is_member);
                members.any(|proposal| proposal.run.as_ref() == Some(&run.run))
            };
            return stop(&shared, agreed.filter(is_theirs), why.to_string());
        }
    };
    let excluded = last
        .filter(|state| state.agreed.run == run.run)
        .map_or_else(|| order.excluded.clone(), |state| state.excluded);
    let found = excluded.choose(&order.working_directory, &order.job.checkpoints);
    if let Some(why) = starting_over_loses(&run, &found) {
        return stop(&shared, Some(&run), why);
    }
    run.has_resumed |= found.chosen.is_some();
    if run.attempt == 1 {
        shared.clean(&run.run);
    }
    if let Err(error) = shared.store(&SharedState::new(run.clone(), excluded)) {
        let why = format!(
            "failed to write to `{}`, which all nodes share: {error}",
            order.shared.display()
        );
        return Agreed::Stop { why };
    }
    let path = found.chosen.as_ref();
    Agreed::Attempt {
        run: Box::new(run),
        checkpoint: path.and_then(|chosen| {
            // Other nodes may have the directory under another path.
            let path = chosen.path.strip_prefix(&order.working_directory);
            let path = path.unwrap_or(&chosen.path);
            path.to_str().map(str::to_owned)
        }),
        checkpoint_step: path.and_then(|chosen| chosen.step),
    }
}

fn stop(shared: &SharedDirectory, run: Option<&AgreedRun>, why: String) -> Agreed {
    let why = match run {
        Some(run) => shared.end(&run.run, &why),
        None => why,
    };
    Agreed::Stop { why }
}

/// Why the attempt must not start from the beginning: it would write over what this run has done.
fn starting_over_loses(run: &AgreedRun, found: &Checkpoints) -> Option<String> {
    let refused = found
        .refused
        .iter()
        .find(|(_, why)| why.may_hold_progress());
    if found.chosen.is_some() || !(run.has_resumed || refused.is_some()) {
        return None;
    }
    let reason = refused.map_or_else(
        || "no checkpoint of this run is left".to_owned(),
        |(path, why)| format!("`{}` is not used: {why}", path.display()),
    );
    let force = match refused {
        Some((_, why)) if why.is_lifted_by_force() => {
            "; run `brimful run --resume --force` to accept it"
        }
        _ => "",
    };
    Some(format!(
        "the next attempt would start from the beginning; {reason}{force}"
    ))
}

/// One line for the user.
fn sentence(
    run: &AgreedRun,
    place: &Place,
    checkpoint: Option<&str>,
    step: Option<u64>,
    took: Duration,
) -> String {
    let step = step.map_or_else(String::new, |step| format!(" (step {step})"));
    let from = checkpoint.map_or_else(
        || "from the beginning".to_owned(),
        |path| format!("from `{path}`{step}"),
    );
    let settings: Vec<String> = run
        .settings
        .0
        .iter()
        .map(|(knob, value)| format!("{knob} {value}"))
        .collect();
    let settings = if settings.is_empty() {
        String::new()
    } else {
        format!(" with {}", settings.join(", "))
    };
    format!(
        "attempt {} on all {} ranks{settings}, {from} (agreed in {} ms)",
        run.attempt,
        place.world_size,
        took.as_millis()
    )
}

/// Whether something becomes true within the time that a network file system may take.
fn becomes_true(is_true: impl Fn() -> bool) -> bool {
    let until = Instant::now() + VISIBLE_AFTER;
    while !is_true() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    true
}

fn not_written(path: &Path) -> impl FnOnce(io::Error) -> RankError {
    let path = path.to_owned();
    move |source| RankError::Write { path, source }
}

/// The command of the training, with copies of the config files.
fn training(
    order: &Order,
    run: &AgreedRun,
    checkpoint: Option<&str>,
    python: &Path,
    copies: &Path,
) -> Result<Command, RankError> {
    let rendered = order.job.render(&run.settings, checkpoint);
    let words = if order.config.is_empty() {
        rendered.command.clone()
    } else {
        let directory: PathBuf = copies.to_owned();
        brimful_private::new_directory(&directory).map_err(not_written(&directory))?;
        ConfigFiles::with_texts(order.config.clone(), directory).write(&rendered)?
    };
    let launcher = torchrun(&words).ok_or(RankError::Variable("the command"))?;
    let rank = launcher.rank_command(&words);
    let mut command = if rank.with_python {
        let mut command = Command::new(python);
        command.args(&rank.words);
        command
    } else {
        let (program, arguments) = rank
            .words
            .split_first()
            .ok_or(RankError::Variable("the command"))?;
        let mut command = Command::new(program);
        command.args(arguments);
        command
    };
    command.envs(rendered.variables);
    Ok(command)
}
