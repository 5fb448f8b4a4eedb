//! Job files from the text to the command line.

mod forms;
mod mistakes;
mod rendering;

use crate::job::{Job, JobFile, Override, Settings, Value, read};

/// As the design has it.
pub(crate) const SKETCH: &str = r#"# brimful.toml
[job]
command = ["python", "train.py", "--batch-size", "{micro_batch}", "--accumulate", "{accumulation}", "--workers", "{workers}"]
checkpoints = "outputs/**/last.pt"
resume = ["--resume", "{checkpoint}"]

[keep]
effective_batch = 128

[knobs]                                  # first = wanted, later = accepted
micro_batch = "auto"
workers = "auto"
activation_checkpointing = [false, true]
resolution = [32, 24, 16]
model = ["full", "small", "tiny"]
sacrifice = ["resolution", "model"]      # order in which science may be given up; absent = never

[modes.debug]
max_steps = 20
"#;

fn file(text: &str) -> JobFile {
    read(text).unwrap()
}

fn job(text: &str, mode: Option<&str>, overrides: &[&str]) -> Job {
    let overrides: Vec<Override> = overrides.iter().map(|text| text.parse().unwrap()).collect();
    file(text).job(mode, &overrides).unwrap()
}

/// `key=value` words as settings.
fn settings(words: &str) -> Settings {
    let mut settings = Settings::default();
    for word in words.split_whitespace() {
        let given: Override = word.parse().unwrap();
        settings.0.insert(given.key, given.values[0].clone());
    }
    settings
}

fn whole(numbers: &[i64]) -> Vec<Value> {
    numbers.iter().map(|number| Value::Whole(*number)).collect()
}
