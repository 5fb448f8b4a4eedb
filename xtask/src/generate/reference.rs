//! Reference pages in `docs/reference/`.

use std::fmt::Write;

use brimful::cards::{self, Figure};
use brimful::explain::rules;
use brimful::findings::CATALOGUE;
use brimful::watch::detectors;
use brimful::{env_vars, profiles};
use brimful_cli::exit::ExitStatus;

use crate::generate::Generated;

const NOTE: &str = "<!-- Made from code by `cargo xtask generate`: do not edit. -->\n\n";

pub(super) fn pages() -> Vec<Generated> {
    vec![
        page("docs/reference/command-line.md", &command_line()),
        page("docs/reference/findings.md", &findings()),
        page("docs/reference/detectors.md", &detectors()),
        page("docs/reference/verdicts.md", &verdicts()),
        page("docs/reference/machines.md", &machines()),
        page("docs/reference/cards.md", &card_table()),
        page("docs/reference/exit-codes.md", &exit_codes()),
        page("docs/reference/environment.md", &environment()),
    ]
}

fn page(path: &'static str, body: &str) -> Generated {
    Generated {
        path,
        content: format!("{NOTE}{body}"),
    }
}

fn command_line() -> String {
    let mut out = String::from("# The command line\n");
    let mut definition = brimful_cli::args::definition().term_width(80);
    definition.build();
    let mut commands = vec![definition.clone()];
    commands.extend(definition.get_subcommands().cloned());
    for mut command in commands {
        let name = command.get_bin_name().unwrap_or("brimful").to_owned();
        let help = command.render_long_help().to_string();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        let _ = write!(
            out,
            "\n## `{name}`\n\n```text\n{}\n```\n",
            lines.join("\n").trim_end()
        );
    }
    out
}

fn findings() -> String {
    let mut out = String::from(
        "# Findings\n\n\
         What `brimful probe` may report under \"Problems\".\n\
         Each finding is one file, `crates/brimful/src/findings/ID.rs`.\n\n\
         | Severity | Meaning |\n|---|---|\n\
         | fatal | a usual training run fails |\n\
         | risk | a usual training run may fail, depending on what it does |\n\
         | note | slower, smaller or other than one would think |\n",
    );
    for rule in CATALOGUE {
        let id = rule.id;
        let _ = write!(
            out,
            "\n## {id}\n\nSeverity: {}.\n{}\n",
            rule.severity.name(),
            rule.about
        );
        let _ = writeln!(
            out,
            "Code: [`findings/{id}.rs`](../../crates/brimful/src/findings/{id}.rs)."
        );
    }
    out
}

fn detectors() -> String {
    let mut out = String::from(
        "# Detectors\n\n\
         What `brimful run` may warn of while a training runs.\n\
         Each is one file, `crates/brimful/src/watch/detectors/ID.rs`.\n\
         An alarm is said once, and again when it gets worse or comes back.\n",
    );
    for detector in detectors::CATALOGUE {
        let id = detector.id;
        let _ = write!(
            out,
            "\n## {id}\n\n{}\n\
             Code: [`watch/detectors/{id}.rs`](../../crates/brimful/src/watch/detectors/{id}.rs).\n",
            detector.about
        );
    }
    out
}

fn verdicts() -> String {
    let mut out = String::from(
        "# Verdicts\n\n\
         How `brimful explain` comes to its verdict: rules, heaviest evidence first; the first that speaks is believed.\n\
         Each is one file, `crates/brimful/src/explain/rules/ID.rs`. \
         The causes stand in [why did it die](../guides/why-did-it-die.md).\n",
    );
    for rule in rules::CATALOGUE {
        let id = rule.id;
        let _ = write!(
            out,
            "\n## {id}\n\n{}\n\
             Code: [`explain/rules/{id}.rs`](../../crates/brimful/src/explain/rules/{id}.rs).\n",
            rule.about
        );
    }
    out
}

fn machines() -> String {
    let mut out = String::from(
        "# Recorded machines\n\n\
         What `brimful probe --as NAME` can describe.\n\
         What nobody published is not filled in.\n\n\
         | Name | Machine | Memory | /dev/shm | Processors | GPUs | Sources |\n|---|---|---|---|---|---|---|\n",
    );
    for profile in profiles::all() {
        let shown = |value: Option<String>| value.unwrap_or_else(|| "–".into());
        let gpus = profile.gpus.map(|ids| match ids {
            [first, ..] if ids.len() > 1 => format!("{} x {first}", ids.len()),
            _ => ids.concat(),
        });
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} | {} | {} |",
            profile.id,
            profile.title,
            shown(profile.memory.map(|bytes| bytes.to_string())),
            shown(profile.shm.map(|bytes| bytes.to_string())),
            shown(profile.cpus.map(|count| count.to_string())),
            shown(gpus),
            profile.sources.join("; "),
        );
    }
    out
}

fn card_table() -> String {
    let mut out = String::from(
        "# Cards\n\n\
         What `brimful probe --gpu NAME` knows.\n\
         \"Driver\" is the total of NVIDIA's management library (or of AMD's kernel driver), \"torch\" what PyTorch \
         reports as the card's total.\n\
         M: measured, somebody's machine printed it; D: data sheet; E: estimated.\n\
         The same card varies by 0.1 to 0.2 GiB with driver and host; the smallest figure that current drivers print \
         on native Linux is given.\n\n\
         | Name | Product name | Compute capability | Multiprocessors | Driver | torch |\n|---|---|---|---|---|---|\n",
    );
    for card in cards::all() {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} | {} |",
            card.id,
            card.name,
            card.compute_capability.map_or_else(
                || card.architecture.to_owned(),
                |capability| capability.to_string()
            ),
            figure(&card.multiprocessors),
            figure(&card.total),
            figure(&card.torch_visible),
        );
    }
    out.push_str("\n## Sources\n");
    for card in cards::all() {
        let _ = write!(
            out,
            "\n### {} (`{}`)\n\n- Multiprocessors: {}\n- Driver: {}\n- torch: {}\n",
            card.name,
            card.id,
            card.multiprocessors.source,
            card.total.source,
            card.torch_visible.source
        );
    }
    out
}

fn figure<T: std::fmt::Display>(figure: &Figure<T>) -> String {
    let how = figure
        .how
        .name()
        .chars()
        .next()
        .unwrap_or('?')
        .to_ascii_uppercase();
    format!("{} {how}", figure.value)
}

fn exit_codes() -> String {
    let mut out = String::from(
        "# Exit codes\n\n\
         brimful's own codes keep clear of a trainer's: 1 (an exception), 2 (bad arguments) and 128 + n (a signal).\n\n\
         | Code | Meaning |\n|---|---|\n",
    );
    for status in ExitStatus::ALL {
        let _ = writeln!(out, "| {} | {} |", status.code(), status.meaning());
    }
    out
}

fn environment() -> String {
    let mut out = String::from(
        "# Environment variables\n\n\
         Every variable that brimful reads.\n\n\
         | Variable | Read by | What for |\n|---|---|---|\n",
    );
    for variable in env_vars::ALL {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} |",
            variable.name, variable.read_by, variable.purpose
        );
    }
    out
}
