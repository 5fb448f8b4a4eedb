//! From a job and its settings to a command line.

use std::collections::{BTreeMap, BTreeSet};

use crate::job::rules::{CHECKPOINT, EFFECTIVE_BATCH_PLACE, names_file};
use crate::job::template::{Filled, Template};
use crate::job::value::{Settings, Value};
use crate::job::{Choices, ConfigOverrides, Job, knobs};

/// The variable that holds the knob `allocator`. The newer `PYTORCH_ALLOC_CONF` is not read by every release.
pub const ALLOCATOR_VARIABLE: &str = crate::env_vars::PYTORCH_CUDA_ALLOC_CONF;

/// A job as it can be started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rendered {
    pub command: Vec<String>,
    /// To be set in its environment.
    pub variables: Vec<(String, String)>,
    /// Config files whose values change: the command must name a copy of each, with these values.
    pub config: Vec<ConfigOverrides>,
}

impl Rendered {
    /// The command with the paths of copies in place of the config files' own.
    pub fn command_with(&self, copies: &[(String, String)]) -> Vec<String> {
        let renamed = |word: &String| {
            copies
                .iter()
                .find_map(|(path, copy)| Some(format!("{}{copy}", names_file(word, path)?)))
                .unwrap_or_else(|| word.clone())
        };
        self.command.iter().map(renamed).collect()
    }
}

impl Job {
    /// The command line for these settings, going on from a checkpoint if there is one.
    ///
    /// A knob without a value, such as one that is `"auto"` and was not planned, is left out with its option: the
    /// script's own default holds. So are `prefetch` and `persistent_workers` where there are no workers: a DataLoader
    /// refuses them.
    pub fn render(&self, settings: &Settings, checkpoint: Option<&str>) -> Rendered {
        let mut values = self.all_values(settings).0;
        let allocator = values.get(knobs::ALLOCATOR).map(ToString::to_string);
        if let Some(checkpoint) = checkpoint {
            values.insert(CHECKPOINT.to_owned(), checkpoint.into());
        }
        let mut command = fill(&self.command, &values);
        let style = Style::of(&self.command);
        let placed = self.placed();
        let own = self.knobs.iter().map(|knob| &knob.name);
        for name in own.chain(self.values.keys().filter(|name| self.knob(name).is_none())) {
            if placed.contains(name) || name == knobs::ALLOCATOR {
                continue;
            }
            if let Some(value) = values.get(name) {
                append(&mut command, style.option(name), value);
            }
        }
        command.extend(fill(&self.extra, &values));
        if checkpoint.is_some() {
            command.extend(fill(&self.resume, &values));
        }
        let config = self.config.iter().map(|file| ConfigOverrides {
            path: file.path.clone(),
            entries: file
                .entries
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), config_value(value, &values)?)))
                .collect(),
        });
        Rendered {
            command,
            config: config.filter(|file| !file.entries.is_empty()).collect(),
            variables: allocator
                // Nothing is wanted: what the environment has holds.
                .filter(|text| !text.is_empty())
                .map(|text| (ALLOCATOR_VARIABLE.to_owned(), text))
                .into_iter()
                .collect(),
        }
    }

    /// One value for everything that has one: of the settings, else what is wanted.
    ///
    /// The accumulation follows from the effective batch where the settings do not have it, for a single rank.
    pub fn all_values(&self, settings: &Settings) -> Settings {
        let mut all = Settings::default();
        for knob in &self.knobs {
            if let Choices::Listed(values) = &knob.choices
                && let Some(wanted) = values.first()
            {
                all.0.insert(knob.name.clone(), wanted.clone());
            }
        }
        all.0.extend(self.values.clone());
        all.0.extend(settings.0.clone());
        if let Some(effective_batch) = self.effective_batch {
            all.set(EFFECTIVE_BATCH_PLACE, effective_batch);
            if all.get(knobs::ACCUMULATION).is_none()
                && let Some(micro_batch) = all.count(knobs::MICRO_BATCH)
                && micro_batch > 0
                && effective_batch.is_multiple_of(micro_batch)
            {
                all.set(knobs::ACCUMULATION, effective_batch / micro_batch);
            }
        }
        all.sound()
    }

    /// Places that its command and its config files have, apart from `resume`.
    fn placed(&self) -> BTreeSet<String> {
        self.command
            .iter()
            .chain(&self.extra)
            .map(String::as_str)
            .chain(self.config.iter().flat_map(ConfigOverrides::templates))
            .filter_map(|part| Template::parse(part).ok())
            .flat_map(|template| template.places().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }
}

impl Settings {
    /// The same without what a DataLoader refuses: `prefetch_factor` or `persistent_workers` without workers.
    #[must_use]
    pub fn sound(mut self) -> Settings {
        if self.count(knobs::WORKERS) == Some(0) {
            self.0.remove(knobs::PREFETCH);
            if self.get(knobs::PERSISTENT_WORKERS).is_some() {
                self.set(knobs::PERSISTENT_WORKERS, false);
            }
        }
        self
    }
}

/// Puts values into the parts. A part without its value is left out, and the option before it if it was its value.
fn fill(parts: &[String], values: &BTreeMap<String, Value>) -> Vec<String> {
    let value = |name: &str| {
        let value = values.get(name)?;
        Some((value.to_string(), *value != Value::Flag(false)))
    };
    let mut words = Vec::new();
    let mut option_before = false;
    for part in parts {
        // Every part was checked when the job was read.
        let Ok(template) = Template::parse(part) else {
            words.push(part.clone());
            continue;
        };
        match template.fill(value) {
            Filled::Word(word) => words.push(word),
            Filled::Empty => {}
            Filled::Unknown => {
                if option_before && template.is_only_a_place() {
                    words.pop();
                }
            }
        }
        option_before = template.places().next().is_none() && is_option(part);
    }
    words
}

/// The value of a key in a config file. One place alone keeps the type of its value; nothing where it has none.
fn config_value(value: &Value, values: &BTreeMap<String, Value>) -> Option<Value> {
    let Value::Text(text) = value else {
        return Some(value.clone());
    };
    let template = Template::parse(text).ok()?;
    if template.is_only_a_place() {
        return values.get(template.places().next()?).cloned();
    }
    let filled = template.fill(|name| {
        let value = values.get(name)?;
        Some((value.to_string(), *value != Value::Flag(false)))
    });
    match filled {
        Filled::Word(word) => Some(Value::Text(word)),
        Filled::Empty | Filled::Unknown => None,
    }
}

fn is_option(word: &str) -> bool {
    let name = word.trim_start_matches('-');
    name.len() < word.len()
        && !word.contains('=')
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn append(command: &mut Vec<String>, option: String, value: &Value) {
    match value {
        Value::Flag(true) => command.push(option),
        Value::Flag(false) => {}
        value => command.extend([option, value.to_string()]),
    }
}

/// How the options of a command are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Dashes,
    Underscores,
}

impl Style {
    /// Underscores only if some option has them and none has dashes.
    pub(crate) fn of(command: &[String]) -> Style {
        let names = || {
            command.iter().filter_map(|part| {
                let name = part.strip_prefix("--")?;
                Some(name.split(['=', '{']).next().unwrap_or(name))
            })
        };
        let has = |what: char| names().any(|name| name.contains(what));
        if has('_') && !has('-') {
            Style::Underscores
        } else {
            Style::Dashes
        }
    }

    /// The option of that name.
    pub(crate) fn option(self, name: &str) -> String {
        match self {
            Style::Dashes => format!("--{}", name.replace('_', "-")),
            Style::Underscores => format!("--{name}"),
        }
    }
}
