//! The command as it was typed, read with what its script accepts and what its config files hold.

use std::path::Path;

use crate::job::ConfigKey;
use crate::job::draft::names::{Role, is_for_evaluation, plain};
use crate::job::draft::{Accepts, ScriptOption, Takes};
use crate::job::knobs;
use crate::job::overrides;
use crate::job::template::{is_name, literal};
use crate::job::value::Value;

/// A command whose words may become places.
#[derive(Debug)]
pub(super) struct Given {
    /// Options of the script, and what was typed beside them.
    pub(super) options: Vec<ScriptOption>,
    /// Where each option is set.
    sources: Vec<GivenIn>,
    /// Config files, and what is written into their copies: keys and templates.
    pub(super) configs: Vec<(String, Vec<(String, String)>)>,
    /// Parts of the template, grouped: an option and its value stand on one line.
    pub(super) parts: Vec<Vec<String>>,
    found: Vec<Found>,
    /// Ranks that a launcher starts; nothing where it finds out by itself.
    pub(super) ranks: Option<u64>,
    /// Options that have a role already.
    taken: Vec<usize>,
}

/// Where an option is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenIn {
    /// `--batch-size 8`.
    Flag,
    /// `train.batch_size=8`, as hydra takes it.
    Override,
    /// A key of a config file.
    Config(usize),
}

/// Where an option stands.
#[derive(Clone, Debug)]
struct Found {
    option: usize,
    group: usize,
    value: Option<String>,
}

impl Given {
    pub(super) fn read(command: &[String], accepts: &Accepts) -> Given {
        let script = script_at(command);
        let options: Vec<ScriptOption> = accepts.options.iter().filter_map(usable).collect();
        let source = |option: &ScriptOption| match option.flags.first() {
            Some(flag) if !is_flag(flag) => GivenIn::Override,
            _ => GivenIn::Flag,
        };
        let mut given = Given {
            sources: options.iter().map(source).collect(),
            options,
            configs: Vec::new(),
            parts: vec![command[..script].iter().map(|word| literal(word)).collect()],
            found: Vec::new(),
            ranks: ranks(launcher(command, script)),
            taken: Vec::new(),
        };
        let mut at = script;
        while let Some(word) = command.get(at) {
            at += 1;
            let (flag, inline) = match word.split_once('=') {
                // Hydra's prefixes add a key or replace one.
                Some((flag, value)) => (flag.trim_start_matches('+'), Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let next = command.get(at).filter(|next| !is_flag(next));
            let Some(option) = given.option(flag, inline.is_some() || next.is_some()) else {
                let group = vec![literal(word)];
                // The script's name and its subcommand stand beside the program.
                match given.parts.as_mut_slice() {
                    [first] if !is_flag(word) => first.extend(group),
                    _ => given.parts.push(group),
                }
                continue;
            };
            let takes = given.options[option].takes;
            let mut group = vec![literal(word)];
            let value = match (inline, takes) {
                (Some(value), _) => Some(value),
                (None, Takes::Value | Takes::AnyText) => next.cloned(),
                (None, Takes::Word) => next
                    .filter(|next| {
                        matches!(next.to_lowercase().as_str(), "true" | "false" | "1" | "0")
                    })
                    .cloned(),
                (None, _) => None,
            };
            if !word.contains('=')
                && let Some(value) = &value
            {
                group.push(literal(value));
                at += 1;
            }
            given.found.push(Found {
                option,
                group: given.parts.len(),
                value,
            });
            given.parts.push(group);
        }
        for file in &accepts.configs {
            let number = given.configs.len();
            given.configs.push((file.path.clone(), Vec::new()));
            for key in file.keys.iter().filter(|key| is_settable(key)) {
                given.options.push(ScriptOption {
                    dest: key.key.clone(),
                    takes: match key.value {
                        Some(Value::Flag(_)) => Takes::Word,
                        _ => Takes::Value,
                    },
                    default: key.value.clone(),
                    ..ScriptOption::default()
                });
                given.sources.push(GivenIn::Config(number));
            }
        }
        given
    }

    /// The option of that flag. One that the script's parser did not tell of is taken as it is typed.
    fn option(&mut self, flag: &str, has_value: bool) -> Option<usize> {
        let known = self
            .options
            .iter()
            .position(|option| option.flags.iter().any(|own| own == flag));
        if known.is_some() || !flag.starts_with("--") || !is_name(&flag[2..]) {
            return known;
        }
        self.options.push(ScriptOption {
            flags: vec![flag.to_owned()],
            takes: if has_value {
                Takes::Value
            } else {
                Takes::Nothing
            },
            ..ScriptOption::default()
        });
        self.sources.push(GivenIn::Flag);
        Some(self.options.len() - 1)
    }

    /// The option that plays a role, if there is one and it plays no other.
    pub(super) fn take(&mut self, role: Role) -> Option<usize> {
        let evaluates = role == Role::EvalBatch;
        let found = self.find_named(role.names(), evaluates).or_else(|| {
            // In a config, the evaluation's batch is often a `batch_size` in a section of its own.
            let names = if evaluates {
                Role::MicroBatch.names()
            } else {
                &[]
            };
            self.find(names, |source, for_evaluation| {
                source != GivenIn::Flag && for_evaluation
            })
        })?;
        self.taken.push(found);
        Some(found)
    }

    pub(super) fn take_named(&mut self, names: &[&str]) -> Option<usize> {
        let found = self.find_named(names, false)?;
        self.taken.push(found);
        Some(found)
    }

    /// What was typed goes before a config, which goes before the defaults of the script.
    pub(super) fn find_named(&self, names: &[&str], evaluates: bool) -> Option<usize> {
        let flag = self.find(names, |source, _| source == GivenIn::Flag);
        if flag.is_some_and(|idx| self.is_typed(idx)) {
            return flag;
        }
        let in_config = |source, for_evaluation: bool| {
            source != GivenIn::Flag && (evaluates || !for_evaluation)
        };
        self.find(names, in_config).or(flag)
    }

    /// The first option of these names, by whole names and then by the last part of names with dots.
    fn find(&self, names: &[&str], is_wanted: impl Fn(GivenIn, bool) -> bool) -> Option<usize> {
        let last_part = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
        let whole = |name: &str| name.to_owned();
        let passes: [&dyn Fn(&str) -> String; 2] = [&whole, &last_part];
        for pass in passes {
            for name in names {
                let found = self.options.iter().enumerate().position(|(idx, option)| {
                    !self.taken.contains(&idx)
                        && is_wanted(self.sources[idx], is_for_evaluation(&option.dest))
                        && option
                            .flags
                            .iter()
                            .chain([&option.dest])
                            .any(|own| pass(&plain(own)) == *name)
                });
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    pub(super) fn source(&self, option: usize) -> GivenIn {
        self.sources[option]
    }

    /// How it is named to people.
    pub(super) fn label(&self, option: usize) -> String {
        let own = &self.options[option];
        match self.sources[option] {
            GivenIn::Flag | GivenIn::Override => long_flag(own).unwrap_or_default().to_owned(),
            GivenIn::Config(file) => format!("{} in {}", own.dest, self.configs[file].0),
        }
    }

    /// The name of a knob that is called as the option is.
    pub(super) fn own_name(&self, option: usize) -> String {
        match self.sources[option] {
            GivenIn::Flag => self.label(option).trim_start_matches('-').replace('-', "_"),
            GivenIn::Override | GivenIn::Config(_) => {
                let key = self.key(option);
                let last = key.rsplit('.').next().unwrap_or(key);
                let same = |other: &ScriptOption| {
                    let key = other.flags.first().unwrap_or(&other.dest);
                    key.rsplit('.').next() == Some(last)
                };
                let is_unique = self.options.iter().filter(|other| same(other)).count() == 1;
                if is_unique && is_name(last) && !knobs::SAME_SCIENCE.contains(&last) {
                    last.to_owned()
                } else {
                    key.to_owned()
                }
            }
        }
    }

    /// The key of an override or a config file.
    fn key(&self, option: usize) -> &str {
        let own = &self.options[option];
        own.flags.first().unwrap_or(&own.dest)
    }

    /// Whether somebody wrote its value: into the command or a config file.
    pub(super) fn is_typed(&self, option: usize) -> bool {
        self.sources[option] != GivenIn::Flag
            || self.found.iter().any(|found| found.option == option)
    }

    /// What was typed, else the script's default.
    pub(super) fn value(&self, option: usize) -> Option<Value> {
        let own = &self.options[option];
        let Some(found) = self.found.iter().rev().find(|found| found.option == option) else {
            return match own.takes {
                Takes::Value => own.default.clone(),
                _ => Some(Value::Flag(own.default == Some(Value::Flag(true)))),
            };
        };
        match (own.takes, &found.value) {
            (Takes::Value, value) => value.as_deref().map(overrides::value),
            (Takes::NothingOff, _) => Some(Value::Flag(false)),
            (Takes::Both, _) => {
                let typed = self.parts[found.group].first();
                Some(Value::Flag(
                    !typed.is_some_and(|word| plain(word).starts_with("no_")),
                ))
            }
            (Takes::AnyText, Some(text)) => Some(Value::Flag(!text.is_empty())),
            (_, Some(text)) => {
                let off = matches!(text.to_lowercase().as_str(), "false" | "0" | "no" | "off");
                Some(Value::Flag(!off))
            }
            (_, None) => Some(Value::Flag(true)),
        }
    }

    pub(super) fn count(&self, option: usize) -> Option<u64> {
        self.value(option)?.count()
    }

    /// The words that give an option the value of a place.
    pub(super) fn template(&self, option: usize, name: &str) -> Vec<String> {
        let flag = match self.sources[option] {
            GivenIn::Flag => long_flag(&self.options[option]).unwrap_or_default(),
            GivenIn::Override => return vec![format!("{}={{{name}}}", self.key(option))],
            GivenIn::Config(_) => return Vec::new(),
        };
        match self.options[option].takes {
            Takes::Value | Takes::Word => vec![flag.to_owned(), format!("{{{name}}}")],
            Takes::Nothing => vec![format!("{{{name}?{flag}}}")],
            Takes::NothingOff => vec![format!("{{{name}?|{flag}}}")],
            Takes::Both => {
                let off = format!("--no-{}", flag.trim_start_matches('-'));
                vec![format!("{{{name}?{flag}|{off}}}")]
            }
            Takes::AnyText => vec![format!("{{{name}?{flag}=1|{flag}=}}")],
        }
    }

    /// Puts a place for a value at the end, wherever the option stands.
    pub(super) fn append(&mut self, option: usize, name: &str) {
        if self.sources[option] != GivenIn::Flag {
            self.place(option, name);
        } else if let Some(flag) = long_flag(&self.options[option]) {
            self.parts
                .push(vec![flag.to_owned(), format!("{{{name}}}")]);
        }
    }

    /// Puts a place where the option stands, or at the end.
    pub(super) fn place(&mut self, option: usize, name: &str) {
        if let GivenIn::Config(file) = self.sources[option] {
            let key = self.options[option].dest.clone();
            self.configs[file].1.push((key, format!("{{{name}}}")));
            return;
        }
        let template = self.template(option, name);
        let typed: Vec<usize> = self
            .found
            .iter()
            .filter(|found| found.option == option)
            .map(|found| found.group)
            .collect();
        let Some((&last, earlier)) = typed.split_last() else {
            self.parts.push(template);
            return;
        };
        // The last one holds where an option was typed twice.
        for &group in earlier {
            self.parts[group].clear();
        }
        let typed_flag = self.parts[last].first().cloned().unwrap_or_default();
        self.parts[last] = match (self.options[option].takes, typed_flag.split_once('=')) {
            (Takes::Value, Some((flag, _))) => vec![format!("{flag}={{{name}}}")],
            (Takes::Value, None) => vec![typed_flag, format!("{{{name}}}")],
            _ => template,
        };
    }
}

/// Whether a key of a config file can be named in a job file. Items of lists belong together: none is changed alone.
fn is_settable(key: &ConfigKey) -> bool {
    let is_index = |part: &str| part.parse::<usize>().is_ok();
    let refers = matches!(&key.value, Some(Value::Text(text)) if text.contains("${"));
    is_name(&key.key) && !refers && !key.key.split('.').any(is_index)
}

/// An option with the flags that can stand in a template.
fn usable(option: &ScriptOption) -> Option<ScriptOption> {
    if let [key] = option.flags.as_slice()
        && is_name(key)
    {
        return Some(option.clone());
    }
    let is_usable = |flag: &&String| is_flag(flag) && is_name(flag.trim_start_matches('-'));
    let flags: Vec<String> = option.flags.iter().filter(is_usable).cloned().collect();
    (!flags.is_empty()).then(|| ScriptOption {
        flags,
        ..option.clone()
    })
}

/// The first long flag; the one with a dash otherwise; else the key of an override.
pub(super) fn long_flag(option: &ScriptOption) -> Option<&str> {
    option
        .flags
        .iter()
        .find(|flag| flag.starts_with("--"))
        .or_else(|| option.flags.iter().find(|flag| flag.starts_with('-')))
        .or_else(|| option.flags.first())
        .map(String::as_str)
}

fn is_flag(word: &str) -> bool {
    word.strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c == '-' || c.is_ascii_alphabetic()))
}

/// The words that may say how many ranks there are.
fn launcher(command: &[String], script: usize) -> &[String] {
    let program = command.first().and_then(|word| Path::new(word).file_name());
    match program.and_then(|name| name.to_str()) {
        // Its own options come after its subcommand.
        Some("tune") => command,
        _ => &command[..script],
    }
}

/// Where the script's own arguments begin.
pub(super) fn script_at(command: &[String]) -> usize {
    let script = command.iter().position(|word| {
        Path::new(word).extension().is_some_and(|end| end == "py") && !is_flag(word)
    });
    let module = || {
        command
            .windows(2)
            .rposition(|words| words[0] == "-m")
            .map(|at| at + 1)
    };
    script
        .or_else(module)
        .map_or(command.len().min(1), |at| at + 1)
}

/// Ranks by a launcher's arguments.
fn ranks(launcher: &[String]) -> Option<u64> {
    let value = |names: &[&str]| {
        launcher.iter().enumerate().find_map(|(at, word)| {
            let (flag, inline) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                None => (word.as_str(), None),
            };
            names
                .contains(&plain(flag).as_str())
                .then(|| inline.or_else(|| launcher.get(at + 1).map(String::as_str)))
                .flatten()
        })
    };
    let per_node = value(&["nproc_per_node", "num_processes", "num_gpus"]);
    let nodes = value(&["nnodes"]);
    let count = |text: Option<&str>| text.map_or(Some(1), |text| text.parse::<u64>().ok());
    count(per_node)?.checked_mul(count(nodes)?)
}
