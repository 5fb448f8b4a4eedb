//! What is refused, and with which words.

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
        "line 5: [config.\"a.yaml\"]: no word of the command names `a.yaml` | write the path as the command has it, as in \"--config\", \"a.yaml\"",
    );
    check_with(
        "[config.\"train.py\"]\nb = \"{wokers}\"\n",
        "line 5: expected a place for a knob or a mode's value, found `{wokers}` | there is `workers`: a place is spelt as its knob or value is",
    );
    check_with(
        "[config.\"train.py\"]\nb.c = \"{workers}\"\n",
        "line 6: `b`: expected one value, such as \"{micro_batch}\", found a table | a name with dots is written in quotes: \"data.width\" = 64",
    );
}

#[test]
fn tables_and_keys_that_nobody_knows() {
    check(
        "[jobs]\n",
        "line 1: expected a known table, found `jobs` | did you mean `job`?",
    );
    check(
        "\n[zzz]\n",
        "line 2: expected a known table, found `zzz` | known tables: job, keep, knobs, config, modes",
    );
    check(
        "[job]\ncomand = []\n",
        "line 2: expected a known key in [job], found `comand` | did you mean `command`?",
    );
    check_with(
        "[keep]\neffective_bach = 2\n",
        "line 6: expected a known key in [keep], found `effective_bach` | did you mean `effective_batch`?",
    );
    check(
        "command = [\"python\"]",
        "line 1: expected a known table, found `command` | known tables: job, keep, knobs, config, modes",
    );
}

#[test]
fn a_job_has_a_command_as_a_list() {
    check(
        "[job]\ncommand = \"python train.py\"",
        "line 2: `command`: expected a list of words, found one text | write a list, one word each: command = \
         [\"python\", \"train.py\", \"--workers\", \"{workers}\"]",
    );
    check(
        "[job]\ncommand = []",
        "line 2: `command`: expected a program and its arguments, found an empty one",
    );
    check(
        "[job]\ncommand = [\"python\", 3]",
        "line 2: `command`: expected a list of texts, found 3",
    );
    assert!(refused("").starts_with("expected `command` in [job], found none | write command = "));
    check(
        "[job]\ncommand = [",
        "line 2: expected TOML: unclosed array, expected `]`",
    );
    check("job = 3", "line 1: `job`: expected a table, found 3");
}

#[test]
fn knobs_of_the_wrong_kind() {
    let check = |line: &str, expected: &str| check_with(line, &format!("line 5: {expected}"));
    check(
        "prefetch = 0",
        "`prefetch`: expected \"auto\" or whole numbers from 1 to 4096, found 0",
    );
    check(
        "prefetch = [2, \"two\"]",
        "`prefetch`: expected \"auto\" or whole numbers from 1 to 4096, found \"two\"",
    );
    check(
        "pin_memory = 1",
        "`pin_memory`: expected \"auto\", true or false, found 1",
    );
    check(
        "start_method = \"frok\"",
        "`start_method`: expected \"auto\", \"fork\", \"forkserver\" or \"spawn\", found \"frok\"",
    );
    check(
        "allocator = \"max_split:1\"",
        &format!(
            "`allocator`: expected settings that PyTorch takes, found `max_split:1`: {}",
            allocator_problem()
        ),
    );
    check(
        "size = []",
        "`size`: expected at least one value, found a list",
    );
    check(
        "size = [1, 1]",
        "`size`: expected different values, found `1` twice | leave one out",
    );
    check(
        "size = 1979-05-27",
        "`size`: expected \"auto\", a value or a list of values, found a date",
    );
    check(
        "size = inf",
        "`size`: expected \"auto\", a value or a list of values, found inf",
    );
    check(
        "data.size = 3",
        "`data`: expected \"auto\", a value or a list of values, found a table | \
         a name with dots is written in quotes: \"data.width\" = 64",
    );
    check(
        "worker = \"auto\"",
        "`worker`: expected the values that are accepted, found \"auto\" | did you mean `workers`?",
    );
    check(
        "accumulation = 2",
        "`accumulation` is no knob: it follows from `effective_batch` and `micro_batch` | \
         leave it out; `{accumulation}` is a place in the command",
    );
    check(
        "\"a b\" = 2",
        "`a b`: expected a name of letters, digits, `_`, `-` and `.`, found another one",
    );
}

fn allocator_problem() -> String {
    use brimful_allocsim::{settings::Settings, version::TorchVersion};
    Settings::parse("max_split:1", TorchVersion::NEWEST_CHECKED)
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
        "line 5: `micro_batch` may change: expected `effective_batch` in [keep], found none | write"
    ));
    assert!(batch("", "[4, 2]", "\"{micro_batch}\"").contains("effective_batch"));
    assert!(batch(kept, "\"auto\"", "\"{micro_batch}\"").starts_with(
        "line 6: `micro_batch` may change: expected a place for `{accumulation}` in the command or a config file, found none | name the"
    ));
    assert!(
        batch(kept, "[5, 7]", "\"{accumulation}\"")
            .contains("expected a divisor of the effective batch 12")
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
        "line 2: expected a place for a knob or a mode's value, found `{worker}` | there is `workers`: a place is \
         spelt as its knob or value is"
    );
    assert_eq!(
        command("{zzz}"),
        "line 2: expected a place for a knob or a mode's value, found `{zzz}` | places here: accumulation, \
         effective_batch, workers; a brace that is meant is written twice: {{"
    );
    assert_eq!(
        command("{\"lr\": 3}"),
        "line 2: expected places such as `{workers}` in `{\"lr\": 3}`, found something else between the braces | \
         a brace that is meant is written twice: {{ or }}"
    );
    assert!(command("{checkpoint}").contains("in `resume` only"));
}

#[test]
fn sacrifices_are_knobs_of_other_science() {
    check_with(
        "size = [2, 1]\nsacrifice = [\"sise\"]",
        "line 6: expected a known knob in `sacrifice`, found `sise` | did you mean `size`?",
    );
    check_with(
        "sacrifice = [\"workers\"]",
        "line 5: `sacrifice`: expected knobs that change the result, found `workers` | leave it out: it is turned freely",
    );
    check_with(
        "size = 2\nsacrifice = [\"size\", \"size\"]",
        "line 6: `sacrifice`: expected different values, found `size` twice | leave one out",
    );
}

#[test]
fn modes_are_checked_when_the_file_is_read() {
    check_with(
        "[modes.debug]\nworkers = -1",
        "line 6: `workers`: expected \"auto\" or whole numbers from 0 to 4096, found -1",
    );
    check_with(
        "[modes.debug]\nmax_steps = [1, 2]",
        "line 6: `max_steps`: expected one value, since it is no knob, found a list",
    );
    check_with(
        "[modes.debug]\nextra = [\"{wokers}\"]",
        "line 6: expected a place for a knob or a mode's value, found `{wokers}` | there is `workers`: a place is \
         spelt as its knob or value is",
    );
    let unknown = |mode: &str| {
        let error = file(SKETCH).job(Some(mode), &[]).unwrap_err();
        format!("{error} | {}", error.hints()[0])
    };
    assert_eq!(
        unknown("debgu"),
        "expected a mode of the job, found `debgu` | did you mean `debug`?"
    );
    assert_eq!(
        unknown("x"),
        "expected a mode of the job, found `x` | modes: debug"
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
        "expected a known knob in the job, found `worker` | did you mean `workers`?"
    );
    assert_eq!(
        refused("workers"),
        "expected `key=value`, such as `workers=2`, found `workers` | \
         several values are accepted in their order: resolution=24,16"
    );
    assert!(refused("workers=many").contains("whole numbers from 0 to 4096, found \"many\""));
    assert!(
        refused("effective_batch=0").contains("a whole number from 1 to 1000000000, found `0`")
    );
    assert_eq!(
        refused("micro_batch=3,7"),
        "`micro_batch`: expected a divisor of the effective batch 128, found 3, 7 | \
         list divisors, or write micro_batch = \"auto\""
    );
    assert!(refused("max_steps=1,2").contains("one value"));
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
    check_with(&many(64), "line 68: expected at most 64 knobs, found more");
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
        "line 5: expected at most 256 values of a knob, found more",
    );
    file(&format!("{JOB}{}", values(256)));
    assert!(
        refused(&" ".repeat((1 << 20) + 1))
            .starts_with("expected a file of at most 1 MB, found a larger one")
    );
    // Deep nesting ends in a message.
    let deep = format!("[knobs]\nx = {}", "[".repeat(100_000));
    assert!(refused(&deep).contains("expected TOML"));
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
        "line 1: expected a known table in [tool.brimful], found `jobs`"
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
