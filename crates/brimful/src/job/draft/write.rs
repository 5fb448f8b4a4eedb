//! The text of a drafted job file.

use std::fmt::Write;

use crate::job::draft::choose::{Batch, Checkpoints, Chosen, ChosenKnob, Science};
use crate::job::forms::{toml_key, toml_text, toml_value};
use crate::job::{Choices, knobs};

/// A job file that was drafted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub text: String,
    /// Knobs that it turns, in its order.
    pub knobs: Vec<String>,
    /// What neither the script's options nor its config files have, for people.
    pub missing: Vec<&'static str>,
}
use crate::printable::is_printable;

const HEAD: &str = "\
# Job file: how the training command is started, and which settings brimful may change so that it fits in memory.
# Created by `brimful init`. Check it before you use it with `brimful plan` or `brimful run`.
";

pub(super) fn write(chosen: &Chosen) -> Draft {
    let mut out = String::from(HEAD);
    job(&mut out, chosen);
    keep(&mut out, &chosen.batch);
    knob_table(&mut out, chosen);
    configs(&mut out, chosen);
    modes(&mut out, chosen);
    Draft {
        text: out,
        knobs: chosen
            .knobs
            .iter()
            .map(|knob| knob.name.to_owned())
            .collect(),
        missing: chosen.missing.clone(),
    }
}

fn job(out: &mut String, chosen: &Chosen) {
    out.push_str(
        "\n[job]\n\
         # {name} is replaced by the value of a knob. {name?text} is replaced by the text if the knob is true, else removed.\n\
         # A knob without a placeholder is added at the end, as --name value.\n\
         command = [\n",
    );
    for group in &chosen.parts {
        let words: Vec<String> = group.iter().map(|word| toml_text(word)).collect();
        let _ = writeln!(out, "  {},", words.join(", "));
    }
    out.push_str("]\n");
    match &chosen.checkpoints {
        Checkpoints::Unknown => out.push_str(
            "# Where the script writes checkpoints. Without this, a job that failed restarts from the beginning.\n\
             # checkpoints = \"outputs/**/*.pt\"\n",
        ),
        Checkpoints::Below(pattern, flag) => {
            let _ = writeln!(
                out,
                "# Where the script writes checkpoints, guessed from {}. brimful resumes from the last complete one.\n\
                 checkpoints = {}",
                one_line(flag),
                toml_text(pattern)
            );
        }
        Checkpoints::Framework(pattern, whose) => {
            let _ = writeln!(
                out,
                "# Where the script writes checkpoints: {whose} default. brimful resumes from the last complete one.\n\
                 checkpoints = {}",
                toml_text(pattern)
            );
        }
    }
    if chosen.resumes_by_config {
        out.push_str("# The checkpoint to resume from is written into the config file: see [config] below.\n");
    } else if chosen.resume.is_empty() {
        out.push_str(
            "# Arguments that are added to resume from a checkpoint.\n\
             # resume = [\"--resume\", \"{checkpoint}\"]\n",
        );
    } else {
        let words: Vec<String> = chosen.resume.iter().map(|word| toml_text(word)).collect();
        let _ = writeln!(
            out,
            "# Arguments that are added to resume from a checkpoint.\n\
             resume = [{}]",
            words.join(", ")
        );
    }
}

fn keep(out: &mut String, batch: &Batch) {
    if let Batch::Kept(samples, steps, ranks) = batch {
        let product = samples * steps * ranks;
        let ranks = match ranks {
            1 => String::new(),
            ranks => format!(" x {ranks} ranks"),
        };
        let _ = write!(
            out,
            "\n[keep]\n\
             # Samples per optimizer step, never changed: {samples} per forward pass x {steps} accumulated{ranks}.\n\
             effective_batch = {product}\n"
        );
    }
}

fn knob_table(out: &mut String, chosen: &Chosen) {
    out.push_str(
        "\n[knobs]\n\
         # \"auto\" lets brimful choose. In a list, the first value is preferred and the others are allowed.\n",
    );
    match &chosen.batch {
        Batch::NoAccumulation(flag) => {
            let _ = writeln!(
                out,
                "# {} stays fixed: the script has no option for gradient accumulation, which a smaller micro-batch needs.",
                one_line(flag)
            );
        }
        Batch::NotKnown(flag) => {
            let _ = writeln!(
                out,
                "# {0} stays fixed: the number of samples per optimizer step is unknown. To let brimful change it,\n\
                 # use \"{{micro_batch}}\" and \"{{accumulation}}\" in the command and set\n\
                 # micro_batch = \"auto\"\n\
                 # and above it: [keep] effective_batch = 128",
                one_line(flag)
            );
        }
        Batch::None | Batch::Kept(..) => {}
    }
    for knob in &chosen.knobs {
        one_knob(out, knob);
    }
    if chosen.sciences.is_empty() {
        return;
    }
    out.push_str(
        "\n# These knobs change the training result. Uncomment them to let brimful change them, in the order of `sacrifice`.\n",
    );
    for science in &chosen.sciences {
        other_science(out, science);
    }
    let names: Vec<String> = chosen
        .sciences
        .iter()
        .map(|science| toml_text(&science.name))
        .collect();
    let _ = writeln!(out, "# sacrifice = [{}]", names.join(", "));
}

fn one_knob(out: &mut String, knob: &ChosenKnob) {
    let choices = match &knob.choices {
        Choices::Auto => "\"auto\"".to_owned(),
        Choices::Listed(values) => match values.as_slice() {
            [value] => toml_value(value),
            values => {
                let values: Vec<String> = values.iter().map(toml_value).collect();
                format!("[{}]", values.join(", "))
            }
        },
    };
    let _ = writeln!(
        out,
        "# {}: {}\n{} = {choices}",
        one_line(&knob.flag),
        purpose(knob.name),
        knob.name
    );
}

fn purpose(knob: &str) -> &'static str {
    match knob {
        knobs::MICRO_BATCH => {
            "samples per forward pass; smaller values accumulate gradients over more passes"
        }
        knobs::WORKERS => "DataLoader worker processes; each needs host memory",
        knobs::PREFETCH => "batches that each worker prepares in advance",
        knobs::PIN_MEMORY => {
            "page-locked batches; faster to copy to the GPU, cannot be swapped out"
        }
        knobs::PERSISTENT_WORKERS => "workers that stay alive between epochs",
        knobs::START_METHOD => "how workers are started; fork shares loaded data, spawn copies it",
        knobs::ACTIVATION_CHECKPOINTING => {
            "recompute activations in the backward pass; slower, but needs far less GPU memory"
        }
        knobs::COMPILE => "torch.compile",
        _ => "samples per evaluation batch; does not change the result",
    }
}

fn other_science(out: &mut String, science: &Science) {
    let values: Vec<String> = science.values.iter().map(toml_value).collect();
    let mut comment = one_line(&science.flag);
    let help = one_line(&science.help);
    if !help.is_empty() {
        comment = format!("{comment}: {help}");
    }
    if science.config.is_some() {
        comment.push_str(" (and its line in [config])");
    } else if science.needs_place {
        let place: Vec<String> = science.place.iter().map(|word| toml_text(word)).collect();
        let _ = write!(comment, " (and in the command: {})", place.join(", "));
    }
    let _ = writeln!(
        out,
        "# {} = [{}]  # {comment}",
        toml_key(&science.name),
        values.join(", ")
    );
}

fn configs(out: &mut String, chosen: &Chosen) {
    let mut has_head = false;
    for (idx, (path, entries)) in chosen.configs.iter().enumerate() {
        let keys = chosen.sciences.iter().filter_map(|science| {
            let (file, key) = science.config.as_ref()?;
            (*file == idx).then(|| (key, format!("{{{}}}", science.name)))
        });
        let lines: Vec<String> = entries
            .iter()
            .map(|(key, template)| format!("{} = {}\n", toml_key(key), toml_text(template)))
            .chain(
                keys.map(|(key, place)| format!("# {} = {}\n", toml_key(key), toml_text(&place))),
            )
            .collect();
        if lines.is_empty() {
            continue;
        }
        if !std::mem::replace(&mut has_head, true) {
            out.push_str(
                "\n# Values in config files. brimful passes a copy with these values to the command; your file is never changed.\n",
            );
        }
        // A table without a line would be a file that is copied for nothing.
        let table = format!("[config.{}]\n", toml_text(path));
        out.push_str(if entries.is_empty() { "# " } else { "" });
        out.push_str(&table);
        out.extend(lines);
    }
}

fn modes(out: &mut String, chosen: &Chosen) {
    out.push_str(
        "\n# A mode sets other values: `brimful plan --mode debug`, `brimful run --mode debug`.\n",
    );
    let mut is_first = true;
    for (mode, values) in &chosen.modes {
        if !std::mem::take(&mut is_first) {
            out.push('\n');
        }
        let _ = writeln!(out, "[modes.{mode}]");
        for (name, count) in values {
            let _ = writeln!(out, "{} = {count}", toml_key(name));
        }
    }
    if is_first {
        out.push_str("# [modes.debug]\n# extra = [\"--some-option\", \"of the script\"]\n");
    }
}

/// What a script says of itself, as a comment of one short line.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line: String = words
        .join(" ")
        .chars()
        .filter(|c| is_printable(*c))
        .collect();
    if line.chars().count() <= 80 {
        return line;
    }
    let cut: String = line.chars().take(79).collect();
    format!("{cut}…")
}
