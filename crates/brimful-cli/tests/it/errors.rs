//! Common errors: what failed, the value, why, and a hint, with the exit code.

use crate::context::{Sandbox, brimful, told};

const JOB: &str = "[job]\ncommand = [\"python3\", \"train.py\", \"--workers\", \"{workers}\"]\n[knobs]\nworkers = [2, 0]\n";

/// `brimful plan` with a job file.
fn plan(job: &str, arguments: &[&str]) -> String {
    let sandbox = Sandbox::with("brimful.toml", job);
    sandbox.told(&[&["plan"], arguments].concat())
}

#[test]
fn invalid_arguments() {
    insta::assert_snapshot!(told(&brimful(&["prob"])), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: unrecognized subcommand 'prob'

      tip: a similar subcommand exists: 'probe'

    Usage: brimful [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(told(&brimful(&["probe", "--jsn"])), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: unexpected argument '--jsn' found

      tip: a similar argument exists: '--json'

    Usage: brimful probe --json

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(told(&brimful(&["run", "--on-pressure", "panic", "--", "true"])), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: invalid value 'panic' for '--on-pressure <ACTION>'
      [possible values: warn, checkpoint, stop]

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(told(&brimful(&["predict"])), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: the following required arguments were not provided:
      <COMMAND>...

    Usage: brimful predict -- <COMMAND>...

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(told(&brimful(&["predict", "--steps", "0", "--", "true"])), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: invalid value '0' for '--steps <N>': 0 is not in 1..=1000

    For more information, try '--help'.
    ");
}

#[test]
fn invalid_sizes() {
    insta::assert_snapshot!(told(&brimful(&["probe", "--memory", "16"])), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: memory limit 16 B is out of range (1 MiB to 1024 TiB)

    hint: add a unit, for example `--memory 16GiB`
    ");
    insta::assert_snapshot!(told(&brimful(&["plan", "--shm", "-1GiB"])), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: invalid value '-1GiB' for '--shm <SIZE>': `-1GiB` is not a size; write for example `16GiB`, `512MiB` or `8GB`

    For more information, try '--help'.
    ");
}

#[test]
fn no_job_file() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.told(&["plan"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: no job file found: the current directory has no brimful.toml and no [tool.brimful] in pyproject.toml

    hint: run `brimful init -- python train.py` to create one, or pass `--job FILE`
    hint: `run`, `predict` and `compare` also take a command: `brimful run -- python train.py`
    ");
    insta::assert_snapshot!(sandbox.told(&["run"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: no job file found: the current directory has no brimful.toml and no [tool.brimful] in pyproject.toml

    hint: run `brimful init -- python train.py` to create one, or pass `--job FILE`
    hint: `run`, `predict` and `compare` also take a command: `brimful run -- python train.py`
    ");
    insta::assert_snapshot!(sandbox.told(&["plan", "--job", "other.toml"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: failed to read `other.toml`
      caused by: No such file or directory (os error 2)
    ");
}

#[test]
fn malformed_job_files() {
    insta::assert_snapshot!(plan("[job]\ncommand = [\"python3\"\n", &[]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: invalid job file `brimful.toml`
      caused by: line 2: invalid TOML: unclosed array, expected `]`
    ");
    insta::assert_snapshot!(plan("[job]\ncommand = \"python3 train.py\"\n", &[]), @r#"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: invalid job file `brimful.toml`
      caused by: line 2: `command` must be a list of arguments, not a string

    hint: for example: command = ["python", "train.py", "--workers", "{workers}"]
    "#);
    insta::assert_snapshot!(plan("[job]\ncomand = []\n", &[]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: invalid job file `brimful.toml`
      caused by: line 2: unknown key `comand` in [job] (did you mean `command`?)

    hint: valid keys are command, checkpoints, resume
    ");
    insta::assert_snapshot!(plan(&JOB.replace("{workers}", "{wokers}"), &[]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: invalid job file `brimful.toml`
      caused by: line 2: unknown placeholder `{wokers}` (did you mean `{workers}`?)

    hint: valid placeholders are accumulation, effective_batch, workers
    hint: to write a literal brace, double it: {{ or }}
    ");
    insta::assert_snapshot!(plan(&JOB.replace("[2, 0]", "\"many\""), &[]), @r#"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: invalid job file `brimful.toml`
      caused by: line 4: `workers` must be "auto" or whole numbers from 0 to 4096; found "many"
    "#);
    insta::assert_snapshot!(plan(&format!("{JOB}micro_batch = [8, 4]\n"), &[]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: invalid job file `brimful.toml`
      caused by: line 5: `micro_batch` has several values, but [keep] does not set `effective_batch`

    hint: set the number of samples per optimizer step, for example `effective_batch = 128`
    ");
}

#[test]
fn control_characters_of_a_job_file_do_not_reach_the_terminal() {
    let shown = plan("[job]\ncommand = [\"t\"]\n[\"a\\u001b[31m\"]\n", &[]);
    insta::assert_snapshot!(shown, @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: invalid job file `brimful.toml`
      caused by: line 3: unknown table `a [31m`

    hint: valid tables are job, keep, knobs, config, modes
    ");
}

#[test]
fn unknown_knobs_and_modes() {
    insta::assert_snapshot!(plan(JOB, &["worker=2"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: unknown knob `worker` in the job (did you mean `workers`?)

    hint: valid knobs are accumulation, effective_batch, workers
    ");
    insta::assert_snapshot!(plan(JOB, &["workers"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: invalid override `workers`: expected KNOB=VALUE, for example `workers=2`

    hint: separate several values with commas, preferred value first: resolution=24,16
    ");
    insta::assert_snapshot!(plan(JOB, &["--mode", "debug"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: unknown mode `debug`

    hint: this job file has no modes; add a table, for example [modes.debug]
    ");
}

#[test]
fn commands_that_cannot_be_started() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.told(&["run", "--", "no-such-program"]), @r"
    exit code: 127
    ----- stdout -----
    ----- stderr -----
    error: failed to start `no-such-program`
      caused by: No such file or directory (os error 2)

    hint: check that it is installed and on PATH
    ");
    insta::assert_snapshot!(sandbox.told(&["run", "--", "no-such-program train.py"]), @r"
    exit code: 127
    ----- stdout -----
    ----- stderr -----
    error: failed to start `no-such-program train.py`
      caused by: No such file or directory (os error 2)

    hint: check that it is installed and on PATH
    hint: this command contains spaces; write it as a list of arguments
    ");
    insta::assert_snapshot!(sandbox.told(&["run", "--", "/etc/passwd"]), @r"
    exit code: 126
    ----- stdout -----
    ----- stderr -----
    error: failed to start `/etc/passwd`
      caused by: Permission denied (os error 13)

    hint: make the file executable, or name its interpreter, for example `brimful run -- python train.py`
    ");
}

#[test]
fn nothing_to_explain() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.told(&["explain"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: no run has been recorded in `[DIR]/state`

    hint: record one with `brimful run -- python train.py`, or explain a log with `brimful explain train.log`
    ");
    insta::assert_snapshot!(sandbox.told(&["explain", "missing.log"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: file `missing.log` does not exist

    hint: pass a log, a snapshot or a run ID, or no argument to explain the last run
    hint: run `brimful runs` to list recorded runs
    ");
    sandbox.told(&["run", "-q", "--", "true"]);
    insta::assert_snapshot!(sandbox.told(&["explain", "2001"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: no run `2001` in `[DIR]/state`

    hint: run `brimful runs` to list recorded runs
    ");
}

#[test]
fn files_that_are_not_snapshots() {
    let sandbox = Sandbox::with("train.log", "step 1\n");
    insta::assert_snapshot!(sandbox.told(&["replay", "train.log"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: cannot replay `train.log`: neither a trace nor a CUDA memory snapshot: expected a value on the stack, found none at byte 0

    hint: pass a file written by `torch.cuda.memory._dump_snapshot` or `pickle.dump`
    ");
    insta::assert_snapshot!(sandbox.told(&["replay", "missing.pickle"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: failed to read `missing.pickle`
      caused by: No such file or directory (os error 2)
    ");
    sandbox.write("code.pickle", b"\x80\x04cos\nsystem\n(S'true'\ntR.");
    insta::assert_snapshot!(sandbox.told(&["explain", "code.pickle"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: cannot explain `code.pickle`: not a CUDA memory snapshot: expected plain data, found the class or function `os.system` at byte 2

    hint: nothing of it was run; if you do not know who made this file, do not load it in Python either
    ");
}

#[test]
fn a_state_directory_that_is_a_file() {
    let sandbox = Sandbox::with("file", "");
    insta::assert_snapshot!(sandbox.told(&["runs", "--state-dir", "file"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: cannot use the state directory `file`
      caused by: Not a directory (os error 20)

    hint: choose a directory with `--state-dir` or BRIMFUL_STATE_DIR
    ");
}
