//! Which options become knobs, and with which values.

use std::path::Path;

use crate::job::draft::given::{Given, GivenIn, long_flag};
use crate::job::draft::names::{Role, other_science};
use crate::job::draft::{Accepts, Framework, Takes};
use crate::job::render::Style;
use crate::job::rules;
use crate::job::value::Value;
use crate::job::{Choices, ConfigKey, knobs};

/// What goes into the file.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) parts: Vec<Vec<String>>,
    pub(super) checkpoints: Checkpoints,
    pub(super) resume: Vec<String>,
    pub(super) batch: Batch,
    pub(super) knobs: Vec<ChosenKnob>,
    pub(super) sciences: Vec<Science>,
    /// Config files, with keys and templates.
    pub(super) configs: Vec<(String, Vec<(String, String)>)>,
    /// A key of a config file takes the checkpoint to resume from.
    pub(super) resumes_by_config: bool,
    /// `debug` and `quick`: steps, epochs or examples, and how many.
    pub(super) modes: Vec<(&'static str, Vec<(String, u64)>)>,
    /// What was not found.
    pub(super) missing: Vec<&'static str>,
}

#[derive(Debug, Default)]
pub(super) enum Checkpoints {
    #[default]
    Unknown,
    /// From the script's own directory, with the option that names it.
    Below(String, String),
    Framework(String, &'static str),
}

/// What is known of the batch.
#[derive(Debug, Default)]
pub(super) enum Batch {
    #[default]
    None,
    /// Samples, accumulation and ranks.
    Kept(u64, u64, u64),
    NoAccumulation(String),
    /// The option for it, or for the ranks, has no number.
    NotKnown(String),
}

#[derive(Debug)]
pub(super) struct ChosenKnob {
    pub(super) name: &'static str,
    pub(super) choices: Choices,
    /// The script's option.
    pub(super) flag: String,
}

/// A knob that changes the result: left to the user.
#[derive(Debug)]
pub(super) struct Science {
    pub(super) name: String,
    pub(super) values: Vec<Value>,
    pub(super) flag: String,
    pub(super) help: String,
    /// How the command would hold it.
    pub(super) place: Vec<String>,
    /// The config file and the key that would hold it.
    pub(super) config: Option<(usize, String)>,
    /// An option appended under its name would not be the script's.
    pub(super) needs_place: bool,
}

pub(super) fn choose(command: &[String], accepts: &Accepts) -> Chosen {
    let mut given = Given::read(command, accepts);
    let mut chosen = Chosen::default();
    let framework = framework(command, accepts);
    batch(&mut given, &mut chosen);
    loader(&mut given, &mut chosen);
    model(&mut given, &mut chosen);
    checkpoints(&mut given, &mut chosen, framework);
    let modes = modes(&mut given);
    let sciences = sciences(&mut given, framework);
    // Which style appended options have is known when all places are.
    let style = Style::of(&given.parts.concat());
    for short in &modes {
        let is_own = given.source(short.option) == GivenIn::Flag
            && long_flag(&given.options[short.option]) == Some(style.option(&short.name).as_str());
        if !is_own {
            given.append(short.option, &short.name);
        }
    }
    for (mode, counts) in [("debug", [20, 1, 100]), ("quick", [200, 1, 1000])] {
        let values: Vec<(String, u64)> = modes
            .iter()
            .map(|short| (short.name.clone(), counts[short.kind].min(short.wanted)))
            .collect();
        let is_new = chosen.modes.iter().all(|(_, others)| *others != values);
        if is_new && !values.is_empty() {
            chosen.modes.push((mode, values));
        }
    }
    let style = Style::of(&given.parts.concat());
    chosen.sciences = sciences
        .into_iter()
        .map(|science| {
            let is_placed = modes.iter().any(|short| short.name == science.name);
            Science {
                needs_place: !is_placed
                    && (science.needs_place || style.option(&science.name) != science.flag),
                config: science.config.filter(|_| !is_placed),
                ..science
            }
        })
        .collect();
    chosen.parts = given.parts;
    chosen.parts.retain(|group| !group.is_empty());
    chosen.configs = given.configs;
    chosen
}

/// Whose trainer it is, by its parser, by the name of the program, or by a key that only one trainer has.
fn framework(command: &[String], accepts: &Accepts) -> Framework {
    let is_axolotl = |word: &String| {
        let name = Path::new(word).file_name().and_then(|name| name.to_str());
        name == Some("axolotl") || word.starts_with("axolotl.cli")
    };
    let mut keys = accepts.configs.iter().flat_map(|file| &file.keys);
    let is_trainers = |key: &ConfigKey| key.key.ends_with("per_device_train_batch_size");
    if command.iter().take(6).any(is_axolotl) || keys.any(is_trainers) {
        return Framework::HuggingFace;
    }
    accepts.framework
}

fn batch(given: &mut Given, chosen: &mut Chosen) {
    let batch = given.take(Role::MicroBatch);
    let accumulation = given.take(Role::Accumulation);
    if batch.is_none() {
        chosen.missing.push("the batch size");
    }
    if accumulation.is_none() {
        chosen.missing.push("gradient accumulation");
    }
    let Some(batch) = batch else {
        return;
    };
    let flag = given.label(batch);
    let Some(accumulation) = accumulation else {
        chosen.batch = Batch::NoAccumulation(flag);
        return;
    };
    let counts = || {
        let (samples, steps) = (given.count(batch)?, given.count(accumulation)?);
        let ranks = given.ranks?;
        let all = samples.checked_mul(steps)?.checked_mul(ranks)?;
        rules::effective_batch(i64::try_from(all).ok()?)?;
        Some((samples, steps, ranks))
    };
    let Some((samples, steps, ranks)) = counts() else {
        chosen.batch = Batch::NotKnown(flag);
        return;
    };
    chosen.batch = Batch::Kept(samples, steps, ranks);
    given.place(batch, knobs::MICRO_BATCH);
    given.place(accumulation, knobs::ACCUMULATION);
    chosen.knobs.push(ChosenKnob {
        name: knobs::MICRO_BATCH,
        choices: Choices::Auto,
        flag,
    });
}

fn loader(given: &mut Given, chosen: &mut Chosen) {
    // Before the workers: a smaller evaluation batch is the cheaper change.
    if let Some(option) = given.take(Role::EvalBatch)
        && let Some(count) = given
            .count(option)
            .filter(|count| (1..=1_000_000_000).contains(count))
    {
        turn(given, chosen, Role::EvalBatch, option, halves(count, 1));
    }
    let workers = given.take(Role::Workers);
    if workers.is_none() {
        chosen.missing.push("DataLoader workers");
    }
    if let Some(option) = workers {
        let choices = match given.count(option).filter(|_| given.is_typed(option)) {
            Some(count) if count <= 4096 => halves(count, 0),
            _ => Choices::Auto,
        };
        turn(given, chosen, Role::Workers, option, choices);
    }
    if let Some(option) = given.take(Role::Prefetch).filter(|_| workers.is_some()) {
        let choices = match given.count(option).filter(|_| given.is_typed(option)) {
            Some(count) if (1..=4096).contains(&count) => halves(count, 1),
            _ => Choices::Auto,
        };
        turn(given, chosen, Role::Prefetch, option, choices);
    }
    for role in [Role::PinMemory, Role::PersistentWorkers] {
        if let Some(option) = given.take(role)
            && is_switch(given, option)
            && given.value(option) == Some(Value::Flag(true))
        {
            let both = Choices::Listed(vec![true.into(), false.into()]);
            turn(given, chosen, role, option, both);
        }
    }
    if let Some(option) = given.take(Role::StartMethod)
        && let Some(Value::Text(wanted)) = given.value(option)
    {
        const METHODS: [&str; 3] = ["fork", "forkserver", "spawn"];
        let accepted = &given.options[option].choices;
        let others = METHODS
            .into_iter()
            .filter(|method| *method != wanted && accepted.contains(&Value::from(*method)));
        if METHODS.contains(&wanted.as_str()) {
            let all = std::iter::once(wanted.as_str())
                .chain(others)
                .map(Value::from);
            let choices = Choices::Listed(all.collect());
            turn(given, chosen, Role::StartMethod, option, choices);
        }
    }
}

fn model(given: &mut Given, chosen: &mut Chosen) {
    for (role, saves) in [(Role::Checkpointing, true), (Role::Compile, false)] {
        let Some(option) = given.take(role) else {
            if saves {
                chosen.missing.push("activation checkpointing");
            }
            continue;
        };
        let Some(Value::Flag(wanted)) = given.value(option).filter(|_| is_switch(given, option))
        else {
            continue;
        };
        // Checkpointing may be turned on to save memory; compiling may be turned off.
        let choices = match (wanted, saves) {
            (false, true) => vec![false.into(), true.into()],
            (true, true) => vec![true.into()],
            (true, false) => vec![true.into(), false.into()],
            (false, false) => continue,
        };
        turn(given, chosen, role, option, Choices::Listed(choices));
    }
}

fn checkpoints(given: &mut Given, chosen: &mut Chosen, framework: Framework) {
    let output = given.take(Role::Output);
    let directory = output.and_then(|option| match given.value(option) {
        Some(Value::Text(directory)) if !directory.is_empty() => Some((
            directory.trim_end_matches('/').to_owned(),
            given.label(option),
        )),
        _ => None,
    });
    chosen.checkpoints = match (framework, directory) {
        (Framework::HuggingFace, Some((directory, _))) => {
            Checkpoints::Framework(format!("{directory}/checkpoint-*"), "the Trainer's")
        }
        (Framework::HuggingFace, None) => {
            Checkpoints::Framework("**/checkpoint-*".into(), "the Trainer's")
        }
        (Framework::Lightning, Some((directory, _))) => {
            Checkpoints::Framework(format!("{directory}/**/*.ckpt"), "Lightning's")
        }
        (Framework::Lightning, None) => Checkpoints::Framework("**/*.ckpt".into(), "Lightning's"),
        (Framework::Argparse | Framework::Hydra, Some((directory, flag))) => {
            Checkpoints::Below(format!("{directory}/**/*.pt"), flag)
        }
        (Framework::Argparse | Framework::Hydra, None) => Checkpoints::Unknown,
    };
    if let Some(option) = given.take(Role::Resume) {
        let takes = given.options[option].takes;
        let flag = match given.source(option) {
            GivenIn::Flag => given.label(option),
            _ if takes != Takes::Value => return,
            GivenIn::Override => {
                chosen.resume = given.template(option, rules::CHECKPOINT);
                return;
            }
            GivenIn::Config(_) => {
                given.place(option, rules::CHECKPOINT);
                chosen.resumes_by_config = true;
                return;
            }
        };
        chosen.resume = match takes {
            Takes::Value => vec![flag, "{checkpoint}".into()],
            Takes::Nothing | Takes::Both => vec![flag],
            _ => Vec::new(),
        };
    }
}

/// An option that makes a run shorter.
struct Short {
    option: usize,
    name: String,
    /// Its place in the counts of a mode.
    kind: usize,
    /// What the user has now: a mode never has more.
    wanted: u64,
}

const STEPS: usize = 0;
const EPOCHS: usize = 1;
const EXAMPLES: usize = 2;

fn modes(given: &mut Given) -> Vec<Short> {
    let mut found: Vec<Short> = Vec::new();
    for (role, kind) in [
        (Role::MaxSteps, STEPS),
        (Role::Epochs, EPOCHS),
        (Role::Examples, EXAMPLES),
    ] {
        // Steps alone are enough to end a run, whatever the epochs are.
        if kind == EPOCHS && !found.is_empty() {
            continue;
        }
        // Not taken: fewer examples may be a knob as well.
        if let Some(option) = given.find_named(role.names(), false)
            && given.options[option].takes == Takes::Value
        {
            let wanted = given.count(option).filter(|count| *count > 0);
            found.push(Short {
                option,
                name: given.own_name(option),
                kind,
                wanted: wanted.unwrap_or(u64::MAX),
            });
        }
    }
    found
}

fn sciences(given: &mut Given, framework: Framework) -> Vec<Science> {
    let mut sciences: Vec<Science> = Vec::new();
    // Of bf16, fp16 and the like one is enough, and none where one is on already.
    let mut has_switch = false;
    for name in other_science() {
        // A class and its arguments there.
        if framework == Framework::Lightning && name == "model" {
            continue;
        }
        let Some(option) = given.take_named(&[name]) else {
            continue;
        };
        let own = &given.options[option];
        let wanted = match given.value(option) {
            Some(Value::Text(text)) if text.is_empty() => continue,
            Some(value) => value,
            None if framework == Framework::Lightning && name == "precision" => "32-true".into(),
            None => continue,
        };
        let values = match &wanted {
            Value::Flag(on) => {
                if std::mem::replace(&mut has_switch, true) || *on {
                    continue;
                }
                vec![false.into(), true.into()]
            }
            Value::Whole(number) if *number >= 4 && own.choices.is_empty() => smaller(*number),
            // `bf16: auto` is what the framework finds out by itself.
            Value::Text(_) if matches!(name, "bf16" | "fp16" | "amp") => continue,
            Value::Text(_) if own.choices.is_empty() => {
                let other = match (name, framework) {
                    ("precision", Framework::Lightning) => "bf16-mixed",
                    ("precision" | "mixed_precision" | "dtype", _) => "bf16",
                    _ => "a smaller one",
                };
                with_others(wanted, &[other.into()])
            }
            _ => with_others(wanted, &own.choices),
        };
        if values.len() < 2 {
            continue;
        }
        let name = given.own_name(option);
        let flag = given.label(option);
        sciences.push(Science {
            values,
            config: match given.source(option) {
                GivenIn::Config(file) => Some((file, given.options[option].dest.clone())),
                _ => None,
            },
            help: given.options[option].help.clone(),
            place: given.template(option, &name),
            // What would be appended is not what such an option takes.
            needs_place: given.options[option].takes == Takes::AnyText,
            name,
            flag,
        });
    }
    sciences
}

/// Makes a knob of an option.
fn turn(given: &mut Given, chosen: &mut Chosen, role: Role, option: usize, choices: Choices) {
    given.place(option, role.knob());
    chosen.knobs.push(ChosenKnob {
        name: role.knob(),
        choices,
        flag: given.label(option),
    });
}

fn is_switch(given: &Given, option: usize) -> bool {
    given.options[option].takes != Takes::Value
}

/// The number and its halves down to the least.
fn halves(number: u64, least: u64) -> Choices {
    let mut values = vec![Value::from(number)];
    let mut next = number;
    while next > least {
        next = (next / 2).max(least);
        values.push(next.into());
    }
    Choices::Listed(values)
}

/// What is wanted and what else is accepted, as many as somebody would read.
fn with_others(wanted: Value, others: &[Value]) -> Vec<Value> {
    let mut values = vec![wanted];
    for other in others {
        if values.len() < 8 && !values.contains(other) {
            values.push(other.clone());
        }
    }
    values
}

/// Three quarters and a half of it, in steps that such sizes have.
fn smaller(number: i64) -> Vec<Value> {
    let step = if number >= 32 { 8 } else { 1 };
    let mut values = vec![Value::Whole(number)];
    for next in [number / 4 * 3, number / 2] {
        let next = Value::Whole((next / step * step).max(1));
        if !values.contains(&next) {
            values.push(next);
        }
    }
    values
}
