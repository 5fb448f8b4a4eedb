//! Invalid job files and overrides, with their messages and hints.

use proptest::prelude::*;

use crate::job::tests::{SKETCH, file, job};
use crate::job::{JobProblem, Override, read, read_pyproject};

/// The message and the first hint.
fn refused(text: &str) -> String {
    let error = read(text).unwrap_err();
    match error.hints().first() {
        Some(hint) => format!("{error} | {hint}"),
        None => error.to_string(),
    }
}

fn check(text: &str, expected: &str) {
    assert_eq!(refused(text), expected, "{text}");
}

const JOB: &str =
    "[job]\ncommand = [\"python\", \"train.py\", \"{workers}\"]\n[knobs]\nworkers = 2\n";

/// The same with more lines, from line 5 on.
fn check_with(more: &str, expected: &str) {
    check(&format!("{JOB}{more}"), expected);
}

#[test]
fn config_files_that_cannot_be_used() {
    check_with(
        "[config.\"a.yaml\"]\nb = \"{workers}\"\n",
        "line 5: [config.\"a.yaml\"]: the command does not name `a.yaml` | write the path as it is in the command, for example \"--config\", \"a.yaml\"",
    );
    check_with(
        "[config.\"train.py\"]\nb = \"{wokers}\"\n",
        "line 5: unknown placeholder `{wokers}` (did you mean `{workers}`?) | valid placeholders are accumulation, checkpoint, effective_batch, workers",
    );
    check_with(
        "[config.\"train.py\"]\nb.c = \"{workers}\"\n",
        "line 6: `b` must be a single value, for example \"{micro_batch}\"; found a table | quote a name that contains dots: \"data.width\" = 64",
    );
}

#[test]
fn tables_and_keys_that_nobody_knows() {
    check(
        "[jobs]\n",
        "line 1: unknown table `jobs` (did you mean `job`?) | valid tables are job, keep, knobs, config, modes",
    );
    check(
        "\n[zzz]\n",
        "line 2: unknown table `zzz` | valid tables are job, keep, knobs, config, modes",
    );
    check(
        "[job]\ncomand = []\n",
        "line 2: unknown key `comand` in [job] (did you mean `command`?) | valid keys are command, checkpoints, resume",
    );
    check_with(
        "[keep]\neffective_bach = 2\n",
        "line 6: unknown key `effective_bach` in [keep] (did you mean `effective_batch`?) | the only valid key is effective_batch",
    );
    check(
        "command = [\"python\"]",
        "line 1: unknown table `command` | valid tables are job, keep, knobs, config, modes",
    );
}

#[test]
fn a_job_has_a_command_as_a_list() {
    check(
        "[job]\ncommand = \"python train.py\"",
        "line 2: `command` must be a list of arguments, not a string | for example: command = \
         [\"python\", \"train.py\", \"--workers\", \"{workers}\"]",
    );
    check(
        "[job]\ncommand = []",
        "line 2: `command` must be a program and its arguments; found an empty list",
    );
    check(
        "[job]\ncommand = [\"python\", 3]",
        "line 2: `command` must be a list of strings; found 3",
    );
    assert!(refused("").starts_with("`command` in [job] is missing | add command = "));
    check(
        "[job]\ncommand = [",
        "line 2: invalid TOML: unclosed array, expected `]`",
    );
    check("job = 3", "line 1: `job` must be a table; found 3");
}

#[test]
fn knobs_of_the_wrong_kind() {
    let check = |line: &str, expected: &str| check_with(line, &format!("line 5: {expected}"));
    check(
        "prefetch = 0",
        "`prefetch` must be \"auto\" or whole numbers from 1 to 4096; found 0",
    );
    check(
        "prefetch = [2, \"two\"]",
        "`prefetch` must be \"auto\" or whole numbers from 1 to 4096; found \"two\"",
    );
    check(
        "pin_memory = 1",
        "`pin_memory` must be \"auto\", true or false; found 1",
    );
    check(
        "start_method = \"frok\"",
        "`start_method` must be \"auto\", \"fork\", \"forkserver\" or \"spawn\"; found \"frok\"",
    );
    check(
        "allocator = \"max_split:1\"",
        &format!(
            "invalid `allocator` settings `max_split:1`: {}",
            allocator_problem()
        ),
    );
    check(
        "size = []",
        "`size` must be a list of at least one value; found an empty list",
    );
    check(
        "size = [1, 1]",
        "`size` lists `1` twice | remove one of them",
    );
    check(
        "size = 1979-05-27",
        "`size` must be \"auto\", a value or a list of values; found a date",
    );
    check(
        "size = inf",
        "`size` must be \"auto\", a value or a list of values; found inf",
    );
    check(
        "data.size = 3",
        "`data` must be \"auto\", a value or a list of values; found a table | \
         quote a name that contains dots: \"data.width\" = 64",
    );
    check(
        "worker = \"auto\"",
        "`worker` cannot be \"auto\": brimful does not know its values (did you mean `workers`?) | \
         list its values, preferred value first: `worker = [64, 32]`",
    );
    check(
        "accumulation = 2",
        "`accumulation` cannot be a knob: brimful computes it from `effective_batch` and `micro_batch` | \
         remove it, and use the placeholder `{accumulation}` in the command",
    );
    check(
        "\"a b\" = 2",
        "invalid name `a b`: a name starts with a letter or `_` and contains only letters, digits, `_`, `-` and `.`",
    );
}

fn allocator_problem() -> String {
    use brimful_allocsim::{settings::AllocatorSettings, version::TorchVersion};
    AllocatorSettings::parse("max_split:1", TorchVersion::NEWEST_CHECKED)
        .unwrap_err()
        .to_string()
}

#[test]
fn the_batch_must_be_kept() {
    let batch = |keep: &str, knob: &str, command: &str| {
        refused(&format!(
            "[job]\ncommand = [\"python\", {command}]\n{keep}\n[knobs]\nmicro_batch = {knob}\n"
        ))
    };
    let kept = "[keep]\neffective_batch = 12";
    assert!(batch("", "\"auto\"", "\"{micro_batch}\"").starts_with(
        "line 5: `micro_batch` has several values, but [keep] does not set `effective_batch` | set the number"
    ));
    assert!(batch("", "[4, 2]", "\"{micro_batch}\"").contains("effective_batch"));
    assert!(batch(kept, "\"auto\"", "\"{micro_batch}\"").starts_with(
        "line 6: `micro_batch` has several values, but neither the command nor a config file contains `{accumulation}` | pass it"
    ));
    assert!(
        batch(kept, "[5, 7]", "\"{accumulation}\"")
            .contains("no value of `micro_batch` (5, 7) divides the effective batch size of 12")
    );
    // One value needs no accumulation, and a script may find it by itself.
    for (keep, knob, place) in [
        ("", "8", "x"),
        (kept, "12", "x"),
        (kept, "\"auto\"", "{effective_batch}"),
    ] {
        file(&format!(
            "[job]\ncommand = [\"python\", \"{place}\"]\n{keep}\n[knobs]\nmicro_batch = {knob}\n"
        ));
    }
}

#[test]
fn places_are_known() {
    let command = |part: &str| {
        refused(&format!(
            "[job]\ncommand = [\"python\", '{part}']\n[knobs]\nworkers = 2\n"
        ))
    };
    assert_eq!(
        command("{worker}"),
        "line 2: unknown placeholder `{worker}` (did you mean `{workers}`?) | \
         valid placeholders are accumulation, effective_batch, workers"
    );
    assert_eq!(
        command("{zzz}"),
        "line 2: unknown placeholder `{zzz}` | valid placeholders are accumulation, effective_batch, workers"
    );
    assert_eq!(
        command("{\"lr\": 3}"),
        "line 2: invalid placeholder in `{\"lr\": 3}`: there is no name between the braces | \
         write a placeholder as {workers}"
    );
    assert!(command("{checkpoint}").contains("`{checkpoint}` is not allowed in `command`"));
}

#[test]
fn sacrifices_are_knobs_of_other_science() {
    check_with(
        "size = [2, 1]\nsacrifice = [\"sise\"]",
        "line 6: unknown knob `sise` in `sacrifice` (did you mean `size`?) | the only valid knob is size",
    );
    check_with(
        "sacrifice = [\"workers\"]",
        "line 5: `sacrifice` must not list `workers`, which does not change the training result | remove it; brimful may always change it",
    );
    check_with(
        "size = 2\nsacrifice = [\"size\", \"size\"]",
        "line 6: `sacrifice` lists `size` twice | remove one of them",
    );
}

#[test]
fn modes_are_checked_when_the_file_is_read() {
    check_with(
        "[modes.debug]\nworkers = -1",
        "line 6: `workers` must be \"auto\" or whole numbers from 0 to 4096; found -1",
    );
    check_with(
        "[modes.debug]\nmax_steps = [1, 2]",
        "line 6: `max_steps` must be a single value because it is not a knob; found a list",
    );
    check_with(
        "[modes.debug]\nextra = [\"{wokers}\"]",
        "line 6: unknown placeholder `{wokers}` (did you mean `{workers}`?) | \
         valid placeholders are accumulation, effective_batch, workers",
    );
    let unknown = |mode: &str| {
        let error = file(SKETCH).job(Some(mode), &[]).unwrap_err();
        format!("{error} | {}", error.hints()[0])
    };
    assert_eq!(
        unknown("debgu"),
        "unknown mode `debgu` (did you mean `debug`?) | the only valid mode is debug"
    );
    assert_eq!(
        unknown("x"),
        "unknown mode `x` | the only valid mode is debug"
    );
}

#[test]
fn overrides_are_checked() {
    let refused = |text: &str| {
        let error = text
            .parse::<Override>()
            .and_then(|given| file(SKETCH).job(None, &[given]))
            .unwrap_err();
        format!(
            "{error} | {}",
            error.hints().first().cloned().unwrap_or_default()
        )
    };
    assert_eq!(
        refused("worker=2"),
        "unknown knob `worker` in the job (did you mean `workers`?) | \
         valid knobs are accumulation, activation_checkpointing, effective_batch, max_steps, micro_batch, model, resolution, workers"
    );
    assert_eq!(
        refused("workers"),
        "invalid override `workers`: expected KNOB=VALUE, for example `workers=2` | \
         separate several values with commas, preferred value first: resolution=24,16"
    );
    assert!(refused("workers=many").contains("whole numbers from 0 to 4096; found \"many\""));
    assert!(
        refused("effective_batch=0").contains("a whole number from 1 to 1000000000; found `0`")
    );
    assert_eq!(
        refused("micro_batch=3,7"),
        "no value of `micro_batch` (3, 7) divides the effective batch size of 128 | \
         list divisors of it, or set micro_batch = \"auto\""
    );
    assert!(refused("max_steps=1,2").contains("a single value"));
}

#[test]
fn bounds_hold() {
    let many = |n: usize| {
        (0..n)
            .map(|idx| format!("k{idx} = {idx}"))
            .collect::<Vec<_>>()
            .join("\n")
            + "\n"
    };
    check_with(&many(64), "line 68: too many knobs: the maximum is 64");
    file(&format!("{JOB}{}", many(63)));
    let values = |n: usize| {
        format!(
            "size = [{}]",
            (0..n)
                .map(|idx| idx.to_string())
                .collect::<Vec<_>>()
                .join(",")
        )
    };
    check_with(
        &values(257),
        "line 5: too many values of a knob: the maximum is 256",
    );
    file(&format!("{JOB}{}", values(256)));
    assert!(refused(&" ".repeat((1 << 20) + 1)).starts_with("the job file is larger than 1 MB"));
    // Deep nesting ends in a message.
    let deep = format!("[knobs]\nx = {}", "[".repeat(100_000));
    assert!(refused(&deep).contains("invalid TOML"));
}

#[test]
fn a_pyproject_may_hold_the_job() {
    assert_eq!(read_pyproject("[project]\nname = \"x\"").unwrap(), None);
    assert_eq!(
        read_pyproject("[tool.ruff]\nline-length = 100").unwrap(),
        None
    );
    let own = SKETCH
        .replace("\n[job]", "\n[tool.brimful.job]")
        .replace("\n[keep]", "\n[tool.brimful.keep]")
        .replace("\n[knobs]", "\n[tool.brimful.knobs]")
        .replace("\n[modes.", "\n[tool.brimful.modes.");
    assert_eq!(read_pyproject(&own).unwrap(), Some(file(SKETCH)));
    let error = read_pyproject("[tool.brimful.jobs]\nx = 1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1: unknown table `jobs` in [tool.brimful] (did you mean `job`?)"
    );
}

#[test]
fn what_is_odd_is_told() {
    let problems = |text: &str| job(text, None, &[]).problems();
    assert_eq!(problems(SKETCH), []);
    assert_eq!(
        problems(&format!(
            "{JOB}size = [2, 1]\nmodel = \"big\"\nworkerss = 3\nsacrifice = [\"model\"]"
        )),
        [
            JobProblem::NeverGivenUp {
                knob: "size".into()
            },
            JobProblem::NothingToGiveUp {
                knob: "model".into()
            },
            JobProblem::NearMiss {
                name: "workerss".into(),
                close: "workers".into()
            },
        ]
    );
    assert_eq!(
        job(SKETCH, None, &["micro_batch=32,24"]).problems(),
        [JobProblem::NotADivisor {
            micro_batch: 24,
            effective_batch: 128
        }]
    );
}

proptest! {
    #[test]
    fn no_file_is_a_surprise(text in r#"(\[(job|keep|knobs|modes\.[a-z]|tool\.brimful)\]
|(command|resume|extra|workers|micro_batch|sacrifice|effective_batch|x) = ("auto"|"\{x\}"|\["[{}?a-z]{0,6}", ?"x"\]|\[2, ?1\]|[0-9]{1,3}|true|\{a = 1\})
){0,12}"#) {
        for result in [read(&text).map(Some), read_pyproject(&text)] {
            match result {
                Ok(Some(file)) => {
                    for mode in std::iter::once(None).chain(file.modes().map(Some)) {
                        let job = file.job(mode, &[]).unwrap();
                        job.problems();
                        job.render(&crate::job::Settings::default(), Some("c.pt"));
                    }
                }
                Ok(None) => {}
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }

    #[test]
    fn no_override_is_a_surprise(text in "([a-z_]{1,8}|workers|micro_batch|resolution|model)=[a-z0-9,.-]{0,8}") {
        if let Ok(given) = text.parse::<Override>() {
            let _ = file(SKETCH).job(None, &[given]);
        }
    }
}
