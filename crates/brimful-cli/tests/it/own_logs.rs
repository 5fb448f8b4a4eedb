//! Logs that hold brimful's own words: what it says about one run is no evidence about another.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::context::program;

/// Ends that have nothing to do with memory, or say nothing about it.
const ENDS: [(&str, &str); 8] = [
    ("killed", "kill -KILL $$"),
    ("terminated", "kill -TERM $$"),
    ("segfault", "kill -SEGV $$"),
    ("code 1", "exit 1"),
    ("code 2", "exit 2"),
    ("code 137", "exit 137"),
    ("exception", "echo \"KeyError: 'x'\" >&2; exit 1"),
    ("finished", "echo done"),
];

struct Logs(tempfile::TempDir);

impl Logs {
    /// What `brimful run` prints around a command, and its own verdict. `depth` is how often it runs itself.
    fn run(&self, end: &str, depth: usize) -> (String, Value) {
        let mut words: Vec<String> = vec!["sh".into(), "-c".into(), end.into()];
        for level in 0..depth {
            let state = self.0.path().join(format!("state-{level}"));
            let mut outer: Vec<String> = vec![program().display().to_string(), "run".into()];
            outer.push("--state-dir".into());
            outer.push(state.display().to_string());
            outer.push("--".into());
            outer.append(&mut words);
            words = outer;
        }
        let output = Command::new(&words[0])
            .args(&words[1..])
            .env("NO_COLOR", "1")
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let log = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let state = self.0.path().join(format!("state-{}", depth - 1));
        let verdict = self.explain(&["--state-dir", &state.display().to_string()]);
        (log, verdict)
    }

    fn explain(&self, arguments: &[&str]) -> Value {
        let output = Command::new(program())
            .args(["explain", "--json"])
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn explain_text(&self, text: &str) -> Value {
        let path = self.0.path().join("a.log");
        std::fs::write(&path, text).unwrap();
        self.explain(&[&path.display().to_string()])
    }

    /// What `explain` prints about a log, as somebody appends it to the log.
    fn page_about(log: &Path) -> String {
        let mut command = Command::new(program());
        command.arg("explain").arg(log).env("NO_COLOR", "1");
        String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
    }
}

fn check(name: &str, document: &Value) {
    let verdict = &document["verdict"];
    let cause = verdict["cause"].as_str().unwrap();
    assert!(
        matches!(cause, "not_memory" | "ambiguous"),
        "{name}: {verdict:#}"
    );
}

#[test]
fn no_memory_verdict_rests_on_brimfuls_own_words() {
    let logs = Logs(tempfile::tempdir().unwrap());
    let mut n_logs = 0;
    for (name, end) in ENDS {
        for depth in 1..=3 {
            let (log, verdict) = logs.run(end, depth);
            check(&format!("{name}, {depth} deep"), &verdict);
            check(
                &format!("the log of {name}, {depth} deep"),
                &logs.explain_text(&log),
            );
            // With the page about the log behind it, and a launcher's prefix before every line.
            let page = Logs::page_about(&logs.0.path().join("a.log"));
            let appended = format!("{log}\n{page}");
            check(
                &format!("{name}, explained again"),
                &logs.explain_text(&appended),
            );
            let prefixed: String = appended
                .lines()
                .flat_map(|line| ["[rank0]: ", line, "\n"])
                .collect();
            check(
                &format!("{name}, with a prefix"),
                &logs.explain_text(&prefixed),
            );
            n_logs += 3;
        }
    }
    assert!(n_logs >= 30);
}

#[test]
fn what_the_training_printed_before_a_verdict_still_counts() {
    let logs = Logs(tempfile::tempdir().unwrap());
    let error = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 6.00 GiB \
                 already allocated; 1.00 GiB free; 6.20 GiB reserved in total by PyTorch)";
    for depth in 1..=2 {
        let (log, verdict) = logs.run(&format!("echo '{error}' >&2; exit 1"), depth);
        for document in [verdict, logs.explain_text(&log)] {
            assert_eq!(document["verdict"]["cause"], "cuda_oom_exhausted");
        }
    }
}
