//! A job whose knobs are in a config file: every attempt gets a copy of it, and the file itself stays as it is.

use std::fs;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::context::program;

const CONFIG: &str =
    "# mine\ntrain:\n  batch_size: 32 # wanted\n  grad_accum: 1\n  resume:\nname: on\n";

const JOB: &str = r#"
[job]
command = ["sh", "train.sh", "--config=conf/train.yaml"]
[keep]
effective_batch = 32
[knobs]
micro_batch = "auto"
[config."conf/train.yaml"]
"train.batch_size" = "{micro_batch}"
"train.grad_accum" = "{accumulation}"
"train.resume" = "{checkpoint}"
"#;

/// It does not fit above 8 samples.
const SCRIPT: &str = r#"
file="${1#--config=}"
echo "$(basename "$file"):"
cat "$file"
size=$(sed -n 's/.*batch_size: \([0-9]*\).*/\1/p' "$file")
[ "$size" -le 8 ] && exit 0
echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.56 GiB of which 1.00 GiB is free. Process 1 has 13.50 GiB memory in use. Of the allocated memory 13.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated." >&2
exit 1
"#;

fn job() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("conf")).unwrap();
    fs::write(at("conf/train.yaml"), CONFIG).unwrap();
    fs::write(at("train.sh"), SCRIPT).unwrap();
    fs::write(at("brimful.toml"), JOB).unwrap();
    directory
}

fn run(directory: &TempDir) -> Output {
    Command::new(program())
        .args(["run", "--as-wanted", "--state-dir", "state"])
        .current_dir(directory.path())
        .env("NO_COLOR", "1")
        .env("TMPDIR", directory.path())
        .output()
        .unwrap()
}

#[test]
fn a_job_comes_back_with_smaller_values_in_a_copy() {
    let directory = job();
    let done = run(&directory);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert!(said.contains("starting attempt 3 of 8"), "{said}");
    let copy = |size: u32, accumulation: u32| {
        let text = CONFIG
            .replace("batch_size: 32", &format!("batch_size: {size}"))
            .replace("grad_accum: 1", &format!("grad_accum: {accumulation}"));
        format!("train.yaml:\n{text}")
    };
    assert_eq!(
        String::from_utf8_lossy(&done.stdout),
        [copy(32, 1), copy(16, 2), copy(8, 4)].concat()
    );
    let original = fs::read_to_string(directory.path().join("conf/train.yaml")).unwrap();
    assert_eq!(original, CONFIG);
    // The copies are gone with the run.
    let left = fs::read_dir(directory.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().contains("brimful-config")),
        "{left:?}"
    );
}

#[test]
fn a_key_that_the_file_does_not_have_is_named_before_anything_starts() {
    let directory = job();
    let path = directory.path().join("conf/train.yaml");
    fs::write(path, CONFIG.replace("batch_size", "batchsize")).unwrap();
    let done = run(&directory);
    assert_eq!(done.status.code(), Some(96));
    insta::assert_snapshot!(String::from_utf8_lossy(&done.stderr), @r"
    error: invalid config file `conf/train.yaml`
      caused by: it has no key `train.batch_size`

    hint: did you mean `train.batchsize`?
    ");
}
