//! From the text of a `brimful.toml` to a [`JobFile`].

use crate::job::bounds::{MAX_KNOBS, MAX_VALUES};
use crate::job::error::{JobError, Mistake};
use crate::job::file::{Assigned, JobFile, Mode, Placed};
use crate::job::located::{Entry, Node, Text, parse};
use crate::job::rules;
use crate::job::template::is_name;
use crate::job::value::Value;
use crate::job::{Choices, ConfigOverrides, Knob};
use crate::suggest;

const MAX_MODES: usize = 64;
const MAX_ARGUMENTS: usize = 1024;
const MAX_CONFIGS: usize = 16;

const TABLES: [&str; 5] = ["job", "keep", "knobs", "config", "modes"];

/// Reads the text of a `brimful.toml`.
///
/// ```
/// let file = brimful::job::read(r#"
///     [job]
///     command = ["python", "train.py", "--workers", "{workers}"]
///     [knobs]
///     workers = [4, 2, 0]
/// "#)?;
/// let job = file.job(None, &["workers=2".parse()?])?;
/// let command = job.render(&Default::default(), None).command;
/// assert_eq!(command, ["python", "train.py", "--workers", "2"]);
/// # Ok::<(), brimful::job::JobError>(())
/// ```
pub fn read(text: &str) -> Result<JobFile, JobError> {
    let (lines, table) = parse(text)?;
    file(&lines, Node::root(&table), "")
}

/// Reads `[tool.brimful]` of a `pyproject.toml`; nothing where it has none.
pub fn read_pyproject(text: &str) -> Result<Option<JobFile>, JobError> {
    let (lines, table) = parse(text)?;
    let found = lines
        .get(Node::root(&table), "tool")
        .and_then(|tool| lines.get(tool, "brimful"));
    found
        .map(|node| file(&lines, node, "[tool.brimful]"))
        .transpose()
}

fn file(lines: &Text, root: Node<'_>, name: &str) -> Result<JobFile, JobError> {
    let mut read = JobFile::default();
    let entries = lines.entries("tool.brimful", root)?;
    // The modes last: what they mean depends on the knobs.
    for entry in &entries {
        match entry.key {
            "job" => job(lines, entry, &mut read)?,
            "keep" => keep(lines, entry, &mut read)?,
            "knobs" => knobs(lines, entry, &mut read)?,
            "config" => configs(lines, entry, &mut read)?,
            "modes" => {}
            _ => return Err(unknown("table", name, entry, &TABLES)),
        }
    }
    for entry in entries.iter().filter(|entry| entry.key == "modes") {
        modes(lines, entry, &mut read)?;
    }
    if read.command.what.is_empty() {
        return Err(JobError::nowhere(Mistake::Missing {
            key: "`command` in [job]",
            example: "command = [\"python\", \"train.py\", \"--workers\", \"{workers}\"] under [job]",
        }));
    }
    // Mistakes in a mode are reported when the file is read, not when the mode is first used.
    read.job(None, &[])?;
    for mode in &read.modes {
        read.job(Some(&mode.name), &[])?;
    }
    Ok(read)
}

fn job(lines: &Text, entry: &Entry<'_>, read: &mut JobFile) -> Result<(), JobError> {
    for entry in lines.entries("job", entry.node)? {
        match entry.key {
            "command" => {
                if entry.node.text().is_some() {
                    return Err(JobError::at(entry.line, Mistake::CommandIsString));
                }
                read.command = words(lines, &entry)?;
                if read.command.what.first().is_none_or(String::is_empty) {
                    return Err(JobError::at(
                        entry.line,
                        Mistake::WrongType {
                            key: "command".into(),
                            expected: "a program and its arguments",
                            found: "an empty list".into(),
                        },
                    ));
                }
            }
            "checkpoints" => {
                read.checkpoints = match entry.node.text() {
                    Some(pattern) => vec![pattern.to_owned()],
                    None => words(lines, &entry)?.what,
                };
            }
            "resume" => read.resume = words(lines, &entry)?,
            _ => {
                let known = ["command", "checkpoints", "resume"];
                return Err(unknown("key", "[job]", &entry, &known));
            }
        }
    }
    Ok(())
}

fn keep(lines: &Text, entry: &Entry<'_>, read: &mut JobFile) -> Result<(), JobError> {
    for entry in lines.entries("keep", entry.node)? {
        match entry.key {
            "effective_batch" => read.effective_batch = Some(effective_batch(&entry)?),
            _ => return Err(unknown("key", "[keep]", &entry, &["effective_batch"])),
        }
    }
    Ok(())
}

fn knobs(lines: &Text, entry: &Entry<'_>, read: &mut JobFile) -> Result<(), JobError> {
    for entry in lines.entries("knobs", entry.node)? {
        if entry.key == "sacrifice" {
            read.sacrifice = words(lines, &entry)?;
            continue;
        }
        if read.knobs.len() == MAX_KNOBS {
            return Err(JobError::at(
                entry.line,
                Mistake::TooMany {
                    what: "knobs",
                    limit: MAX_KNOBS,
                },
            ));
        }
        named(&entry)?;
        let choices = choices(lines, &entry)?;
        let choices =
            rules::knob(entry.key, choices).map_err(|mistake| JobError::at(entry.line, mistake))?;
        read.knobs.push(Placed {
            line: entry.line,
            what: Knob {
                name: entry.key.to_owned(),
                choices,
            },
        });
    }
    Ok(())
}

/// Tables such as `[config."train.yaml"]`.
fn configs(lines: &Text, entry: &Entry<'_>, read: &mut JobFile) -> Result<(), JobError> {
    const EXPECTED: &str = "a single value, for example \"{micro_batch}\"";
    let too_many = |line, what, limit| JobError::at(line, Mistake::TooMany { what, limit });
    for file in lines.entries("config", entry.node)? {
        if read.configs.len() == MAX_CONFIGS {
            return Err(too_many(file.line, "config files", MAX_CONFIGS));
        }
        let mut what = ConfigOverrides {
            path: file.key.to_owned(),
            ..ConfigOverrides::default()
        };
        for entry in lines.entries(file.key, file.node)? {
            if what.entries.len() == MAX_KNOBS {
                return Err(too_many(entry.line, "keys of a config file", MAX_KNOBS));
            }
            let value = entry.node.value();
            let value = value.ok_or_else(|| entry.node.unlike(entry.key, EXPECTED))?;
            what.entries.push((entry.key.to_owned(), value));
        }
        read.configs.push(Placed {
            line: file.line,
            what,
        });
    }
    Ok(())
}

fn modes(lines: &Text, entry: &Entry<'_>, read: &mut JobFile) -> Result<(), JobError> {
    for entry in lines.entries("modes", entry.node)? {
        if read.modes.len() == MAX_MODES {
            return Err(JobError::at(
                entry.line,
                Mistake::TooMany {
                    what: "modes",
                    limit: MAX_MODES,
                },
            ));
        }
        named(&entry)?;
        let mode = mode(lines, &entry, read)?;
        read.modes.push(mode);
    }
    Ok(())
}

fn mode(lines: &Text, entry: &Entry<'_>, read: &JobFile) -> Result<Mode, JobError> {
    let mut mode = Mode {
        name: entry.key.to_owned(),
        ..Mode::default()
    };
    for entry in lines.entries(entry.key, entry.node)? {
        match entry.key {
            "extra" => mode.extra = words(lines, &entry)?,
            "effective_batch" => mode.effective_batch = Some(effective_batch(&entry)?),
            "sacrifice" => mode.sacrifice = Some(words(lines, &entry)?),
            key => {
                if mode.assigned.len() == MAX_KNOBS {
                    return Err(JobError::at(
                        entry.line,
                        Mistake::TooMany {
                            what: "keys in a mode",
                            limit: MAX_KNOBS,
                        },
                    ));
                }
                named(&entry)?;
                let what = if read.has_knob(key) {
                    let choices = choices(lines, &entry)?;
                    let choices = rules::knob(key, choices)
                        .map_err(|mistake| JobError::at(entry.line, mistake))?;
                    Assigned::Knob(Knob {
                        name: key.to_owned(),
                        choices,
                    })
                } else {
                    let value = entry.node.value().ok_or_else(|| {
                        entry
                            .node
                            .unlike(key, "a single value because it is not a knob")
                    })?;
                    Assigned::Value(key.to_owned(), value)
                };
                mode.assigned.push(Placed {
                    line: entry.line,
                    what,
                });
            }
        }
    }
    Ok(mode)
}

/// `"auto"`, one value, or a list of them.
fn choices(lines: &Text, entry: &Entry<'_>) -> Result<Choices, JobError> {
    const EXPECTED: &str = "\"auto\", a value or a list of values";
    if entry.node.text() == Some("auto") {
        return Ok(Choices::Auto);
    }
    let value = |node: Node<'_>| node.value().ok_or_else(|| node.unlike(entry.key, EXPECTED));
    let Some(items) = lines.items(entry.node) else {
        return Ok(Choices::Listed(vec![value(entry.node)?]));
    };
    if items.len() > MAX_VALUES {
        return Err(JobError::at(
            entry.line,
            Mistake::TooMany {
                what: "values of a knob",
                limit: MAX_VALUES,
            },
        ));
    }
    let values: Vec<Value> = items.into_iter().map(value).collect::<Result<_, _>>()?;
    if values.is_empty() {
        return Err(JobError::at(
            entry.line,
            Mistake::WrongType {
                key: entry.key.to_owned(),
                expected: "a list of at least one value",
                found: "an empty list".into(),
            },
        ));
    }
    Ok(Choices::Listed(values))
}

/// A list of texts that can stand in a command line.
fn words(lines: &Text, entry: &Entry<'_>) -> Result<Placed<Vec<String>>, JobError> {
    const EXPECTED: &str = "a list of strings";
    let items = lines
        .items(entry.node)
        .ok_or_else(|| entry.node.unlike(entry.key, EXPECTED))?;
    if items.len() > MAX_ARGUMENTS {
        return Err(JobError::at(
            entry.line,
            Mistake::TooMany {
                what: "list items",
                limit: MAX_ARGUMENTS,
            },
        ));
    }
    let text = |node: Node<'_>| match node.value() {
        Some(Value::Text(text)) => Ok(text),
        _ => Err(node.unlike(entry.key, EXPECTED)),
    };
    Ok(Placed {
        line: entry.line,
        what: items.into_iter().map(text).collect::<Result<_, _>>()?,
    })
}

fn effective_batch(entry: &Entry<'_>) -> Result<Placed<u64>, JobError> {
    let count = entry
        .node
        .whole()
        .and_then(rules::effective_batch)
        .ok_or_else(|| entry.node.unlike(entry.key, rules::EFFECTIVE_BATCH))?;
    Ok(Placed {
        line: entry.line,
        what: count,
    })
}

/// A key that may become a knob, a place or a mode.
fn named(entry: &Entry<'_>) -> Result<(), JobError> {
    if is_name(entry.key) {
        return Ok(());
    }
    Err(JobError::at(
        entry.line,
        Mistake::InvalidName {
            name: entry.key.to_owned(),
        },
    ))
}

fn unknown(what: &'static str, table: &str, entry: &Entry<'_>, known: &[&str]) -> JobError {
    JobError::at(
        entry.line,
        Mistake::Unknown {
            what,
            found: entry.key.to_owned(),
            table: table.to_owned(),
            close: suggest::closest(entry.key, known.iter().copied())
                .into_iter()
                .map(str::to_owned)
                .collect(),
            known: known.iter().map(|name| (*name).to_owned()).collect(),
        },
    )
}
