//! `brimful run --resume`: which checkpoint a job starts from, which are refused, and what that is answered with.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use brimful::record::{Line, Record};
use tempfile::TempDir;

use crate::context::program;

/// A directory with a job that prints how it was started.
struct Job(TempDir);

impl Job {
    fn new() -> Job {
        let job = Job(tempfile::tempdir().unwrap());
        job.write(
            "brimful.toml",
            b"[job]\ncommand = [\"sh\", \"train.sh\"]\ncheckpoints = \"out/*\"\nresume = [\"--from\", \"{checkpoint}\"]\n",
        );
        job.write("train.sh", b"echo started \"$@\"\n");
        job
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// A checkpoint at a step below 256, and its age in minutes.
    fn checkpoint(&self, name: &str, step: u8, age: u64) {
        let pickle = [b"\x80\x02}X\x04\x00\x00\x00stepK", &[step][..], b"s."].concat();
        self.write(name, &pickle);
        self.set_time(name, SystemTime::now() - Duration::from_mins(age));
    }

    /// A model in one tensor of zeros.
    fn zeros(&self, name: &str) {
        let header = br#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#;
        let length = (header.len() as u64).to_le_bytes();
        self.write(name, &[&length[..], header, &[0; 16]].concat());
    }

    fn set_time(&self, name: &str, time: SystemTime) {
        let file = File::options().append(true).open(self.at(name)).unwrap();
        file.set_modified(time).unwrap();
    }

    /// Exit code, standard output and standard error, without the path of the directory.
    fn run(&self, options: &[&str]) -> (Option<i32>, String, String) {
        let output = Command::new(program())
            .args(["run", "--as-wanted", "--gpu", "none", "--state-dir"])
            .arg(self.at("state"))
            .args(options)
            .env("NO_COLOR", "1")
            .current_dir(self.0.path())
            .output()
            .unwrap();
        let directory = self.0.path().canonicalize().unwrap();
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes).replace(&format!("{}/", directory.display()), "")
        };
        (
            output.status.code(),
            text(&output.stdout),
            // Long lines are wrapped at the width of the page.
            text(&output.stderr),
        )
    }

    fn gaps(&self) -> Vec<String> {
        let mut runs: Vec<PathBuf> = fs::read_dir(self.at("state/runs"))
            .unwrap()
            .map(|entry| entry.unwrap().path().join("record.jsonl"))
            .collect();
        runs.sort();
        let text = fs::read_to_string(runs.pop().unwrap()).unwrap();
        assert_eq!(Record::read(text.as_bytes()).unwrap().n_broken_lines, 0);
        text.lines()
            .filter_map(|line| match serde_json::from_str(line) {
                Ok(Line::Gap(gap)) => Some(gap.message),
                _ => None,
            })
            .collect()
    }
}

#[test]
fn the_furthest_checkpoint_is_resumed_from_and_a_newer_one_is_named() {
    let job = Job::new();
    job.checkpoint("out/a.pkl", 40, 90);
    job.checkpoint("out/b.pkl", 2, 1);
    let (code, out, said) = job.run(&["--resume"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("out/a.pkl"), "{out}");
    assert!(said.contains("resuming from"), "{said}");
    assert!(said.contains("step 40"), "{said}");
    assert!(said.contains("newer, but only at step 2"), "{said}");
    // Without --resume it starts from the beginning.
    let (code, out, said) = job.run(&[]);
    assert_eq!((code, out.as_str()), (Some(0), "started\n"), "{said}");
}

#[test]
fn a_refused_checkpoint_is_named_with_its_reason_and_the_next_one_is_used() {
    let job = Job::new();
    job.checkpoint("out/good.pkl", 40, 90);
    job.checkpoint("out/future.pkl", 99, 1);
    job.set_time(
        "out/future.pkl",
        SystemTime::now() + Duration::from_hours(3),
    );
    job.zeros("out/zeros.safetensors");
    job.write("out/cut.pkl", b"\x80\x02}");
    let (code, out, said) = job.run(&["--resume"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("out/good.pkl"), "{out}{said}");
    let reasons = [
        "future.pkl` is not used: its modification time is 3 hours in the future",
        "zeros.safetensors` is not used: its tensors are all zero",
        "cut.pkl` is not used: it is cut short",
    ];
    for reason in reasons {
        assert!(said.contains(reason), "{reason}: {said}");
        let gaps = job.gaps();
        assert!(gaps.iter().any(|gap| gap.contains(reason)), "{gaps:?}");
    }
    // --force accepts the one from the future, which has the highest step.
    let (code, out, said) = job.run(&["--resume", "--force"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("out/future.pkl"), "{out}{said}");
}

#[test]
fn a_job_whose_checkpoints_are_all_refused_is_not_started() {
    let job = Job::new();
    job.zeros("out/zeros.safetensors");
    job.write("out/cut.pkl", b"\x80\x02}");
    let (code, out, said) = job.run(&["--resume"]);
    assert_eq!((code, out.as_str()), (Some(96), ""), "{said}");
    assert!(
        said.contains("error: no checkpoint of this job is usable\n"),
        "{said}"
    );
    for line in [
        "out/zeros.safetensors: its tensors are all zero\n",
        "out/cut.pkl: it is cut short: the mark at its end is missing\n",
        "hint: to resume from one of them anyway, pass `--force`",
        "hint: to start from the beginning, move them away or omit `--resume`\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!job.at("state/runs").exists());
    let (code, out, said) = job.run(&["--resume", "--force"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("out/zeros.safetensors"), "{out}");
    // What is incomplete is not accepted by force either, and no option is offered for it.
    fs::remove_file(job.at("out/zeros.safetensors")).unwrap();
    let (code, out, said) = job.run(&["--resume", "--force"]);
    assert_eq!((code, out.as_str()), (Some(96), ""), "{said}");
    assert!(!said.contains("--force"), "{said}");
}

#[test]
fn a_job_without_checkpoints_starts_from_the_beginning() {
    let job = Job::new();
    // What a first run leaves behind that was killed in its first save, and what is no checkpoint.
    job.write("out/last.pkl.tmp", b"half");
    job.write("out/logs/events.txt", b"text");
    let (code, out, said) = job.run(&["--resume"]);
    assert_eq!((code, out.as_str()), (Some(0), "started\n"), "{said}");
    assert!(!said.contains("not used"), "{said}");
}

#[test]
fn a_link_to_the_newest_checkpoint_is_passed_on_as_it_is() {
    let job = Job::new();
    job.checkpoint("step40.pkl", 40, 1);
    fs::create_dir(job.at("out")).unwrap();
    std::os::unix::fs::symlink("../step40.pkl", job.at("out/last.pkl")).unwrap();
    let (code, out, said) = job.run(&["--resume"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        out.contains("--from") && out.contains("out/last.pkl"),
        "{out}"
    );
}
