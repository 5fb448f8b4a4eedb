//! `brimful plan` without torch. With torch it is tested in `python/torch_tests`.

use crate::context::Sandbox;

const JOB: &str = "[job]\ncommand = [\"python3\", \"train.py\", \"--workers\", \"{workers}\"]\n[knobs]\nworkers = [2, 0]\n";

#[test]
fn a_script_that_exits_at_once_is_shown_with_its_output() {
    let sandbox = Sandbox::with("brimful.toml", JOB);
    sandbox.write("train.py", "raise SystemExit('no data here')\n");
    insta::assert_snapshot!(sandbox.told(&["plan", "--gpu", "none"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    last lines of the script's output:
      | no data here

    error: the script ended with exit code 1 before its first optimizer step

    hint: see the end of its output for the reason; a rehearsal needs the script to reach its first steps
    ");
}

#[test]
fn a_probable_mistake_in_the_job_file_is_reported() {
    let job = format!("{JOB}resolution = [64, 32]\nworkerss = 3\n");
    let sandbox = Sandbox::with("brimful.toml", job);
    sandbox.write("train.py", "raise SystemExit('no data here')\n");
    insta::assert_snapshot!(sandbox.told(&["plan", "--gpu", "none"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    note: only the first value of `resolution` is used: it changes the training result and `sacrifice` does not list it
    hint: see docs/reference/job-file.md
    note: `workerss` is not a known knob and is passed to the script as an option (did you mean `workers`?)
    hint: see docs/reference/job-file.md
    last lines of the script's output:
      | no data here

    error: the script ended with exit code 1 before its first optimizer step

    hint: see the end of its output for the reason; a rehearsal needs the script to reach its first steps
    ");
}
