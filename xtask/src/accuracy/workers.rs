//! Worker processes that train on the phantom, and what they found, kept for the next time.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use brimful::speed::CapturedStep;
use brimful_rehearse::stage::Stage;
use serde::{Deserialize, Serialize};

use super::text::hash;
use crate::shell::root;

/// The card on which a job runs, and whether cuDNN is asked for workspaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunOn {
    /// In the form of `BRIMFUL_PHANTOM_DEVICES`.
    pub device: String,
    pub workspaces: bool,
}

/// Something to train.
#[derive(Debug, Clone)]
pub(super) struct WorkerJob {
    pub place: RunOn,
    pub program: &'static str,
    pub settings: serde_json::Value,
}

/// The files in which each program is written.
const PROGRAMS: [(&str, &[&str]); 12] = [
    ("timm", &["images"]),
    ("timm_benchmark", &["images"]),
    ("timm_inference", &["images"]),
    ("nvidia_convnet", &["images"]),
    ("nvidia_bert", &["language"]),
    ("nvidia_example", &["nvidia"]),
    ("neusight", &["language"]),
    ("torchvision", &["images"]),
    ("transformers", &["language"]),
    ("attention", &["language"]),
    ("mlp", &["perceptrons"]),
    ("litgpt", &["litgpt", "litgpt_model"]),
];
/// Files that decide every answer.
const ALWAYS: [&str; 2] = ["worker", "quick"];

/// What a worker says about one job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    #[serde(default)]
    pub skip: Option<String>,
    #[serde(default)]
    pub oom: bool,
    #[serde(default)]
    pub allocated_bytes: u64,
    #[serde(default)]
    pub reserved_bytes: u64,
    #[serde(default)]
    pub allocated_now_bytes: u64,
    /// What the run must hold at the least, if the program knows.
    #[serde(default)]
    pub least_bytes: u64,
    #[serde(default)]
    pub retries: u64,
    #[serde(default)]
    pub kernels_over_one: u64,
    #[serde(default)]
    pub seconds: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<CapturedStep>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    key: String,
    answer: Answer,
}

/// A job that takes longer is given up, and its worker replaced.
const PATIENCE: Duration = Duration::from_mins(3);
/// Workers at a time.
const WORKERS: usize = 2;

/// Runs jobs, or remembers them.
pub(super) struct Workers<'a> {
    python: &'a Path,
    stage: &'a Stage,
    file: PathBuf,
    known: HashMap<String, Answer>,
    /// A number for the text of each program.
    texts: BTreeMap<&'static str, u64>,
    /// Of cuDNN, as `cudnnGetVersion` gives it; PyTorch refuses an older one than it was built for.
    cudnn: u32,
}

impl<'a> Workers<'a> {
    /// `versions` names everything besides the jobs that decides an answer.
    pub(super) fn new(python: &'a Path, stage: &'a Stage, versions: &str) -> Result<Workers<'a>> {
        let source = |name: &str| {
            let path = root()
                .join("benches/accuracy")
                .join(name)
                .with_extension("py");
            std::fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let mut text = versions.to_owned();
        for name in ALWAYS {
            text += &source(name)?;
        }
        let texts = PROGRAMS.iter().map(|(program, files)| {
            let texts = files.iter().map(|file| source(file));
            Ok((*program, hash(&texts.collect::<Result<String>>()?)))
        });
        let texts = texts.collect::<Result<BTreeMap<_, _>>>()?;
        let folder = crate::shell::cache().join("accuracy");
        std::fs::create_dir_all(&folder)?;
        let file = folder.join(format!("{:016x}.jsonl", hash(&text)));
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        let lines = kept
            .lines()
            .filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let known = lines.map(|line| (line.key, line.answer)).collect();
        Ok(Workers {
            python,
            stage,
            file,
            known,
            texts,
            cudnn: cudnn_version(versions),
        })
    }

    fn key(&self, job: &WorkerJob) -> String {
        let text = self.texts.get(job.program).copied().unwrap_or_default();
        format!(
            "{}|{}|{}|{text:016x}|{}",
            job.place.device, job.place.workspaces, job.program, job.settings
        )
    }

    /// An answer for each job, in order.
    pub(super) fn answers(&mut self, jobs: &[WorkerJob]) -> Result<Vec<Answer>> {
        let keys: Vec<String> = jobs.iter().map(|job| self.key(job)).collect();
        let mut by_place: BTreeMap<&RunOn, Vec<(&WorkerJob, &str)>> = BTreeMap::new();
        for (job, key) in jobs
            .iter()
            .zip(&keys)
            .filter(|(_, key)| !self.known.contains_key(*key))
        {
            by_place.entry(&job.place).or_default().push((job, key));
        }
        let total: usize = by_place.values().map(Vec::len).sum();
        let mut done = 0;
        let start = Instant::now();
        for (place, jobs) in by_place {
            let queue = Mutex::new(jobs.into_iter());
            let (sender, receiver) = mpsc::channel();
            let mut out = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.file)?;
            std::thread::scope(|scope| -> Result<()> {
                for _ in 0..WORKERS {
                    let (queue, sender) = (&queue, sender.clone());
                    let start = || Worker::start(self.python, self.stage, place, self.cudnn);
                    scope.spawn(move || serve(start, queue, &sender));
                }
                drop(sender);
                for found in receiver {
                    let line: Line = found?;
                    writeln!(out, "{}", serde_json::to_string(&line)?)?;
                    self.known.insert(line.key, line.answer);
                    done += 1;
                    show_progress(done, total, start);
                }
                Ok(())
            })?;
        }
        keys.iter()
            .map(|key| {
                self.known
                    .get(key)
                    .cloned()
                    .context("a job without an answer")
            })
            .collect()
    }
}

#[expect(
    clippy::print_stderr,
    reason = "progress, beside the figures on standard output"
)]
fn show_progress(done: usize, total: usize, start: Instant) {
    let seconds = start.elapsed().as_secs();
    if std::io::stderr().is_terminal() {
        eprint!("\r{done} of {total} rows, {seconds} s ");
    } else if done.is_multiple_of(100) {
        eprintln!("{done} of {total} rows, {seconds} s");
    }
}

/// `9.20.0.48` is 92000.
fn cudnn_version(versions: &str) -> u32 {
    const USUAL: u32 = 92_000;
    let found = versions.split("cuDNN ").nth(1).unwrap_or_default();
    let mut parts = found.split('.').map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next(), parts.next()) {
        (Some(major), Some(minor), Some(patch)) => major * 10_000 + minor * 100 + patch,
        _ => USUAL,
    }
}

/// One worker's life: jobs from the queue until it is empty.
fn serve<'j>(
    start: impl Fn() -> Result<Worker>,
    queue: &Mutex<impl Iterator<Item = (&'j WorkerJob, &'j str)>>,
    sender: &mpsc::Sender<Result<Line>>,
) {
    let next = || queue.lock().ok().and_then(|mut queue| queue.next());
    let mut worker: Option<Worker> = None;
    while let Some((job, key)) = next() {
        let mut running = match worker.take().map_or_else(&start, Ok) {
            Ok(running) => running,
            Err(error) => {
                let _ = sender.send(Err(error));
                return;
            }
        };
        let answer = match running.ask(job) {
            Ok(answer) => {
                worker = Some(running);
                answer
            }
            // A crash or a hang is a row left out; the next job gets a new process.
            Err(error) => Answer {
                skip: Some(format!("the worker ended: {error}")),
                ..Answer::default()
            },
        };
        if sender
            .send(Ok(Line {
                key: key.to_owned(),
                answer,
            }))
            .is_err()
        {
            return;
        }
    }
}

/// One process.
struct Worker {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Worker {
    fn start(python: &Path, stage: &Stage, place: &RunOn, cudnn: u32) -> Result<Worker> {
        let mut command = Command::new(python);
        stage.apply(&mut command);
        if !place.workspaces {
            command
                .env_remove("BRIMFUL_PHANTOM_CUDNN")
                .env("BRIMFUL_PHANTOM_CUDNN_VERSION", cudnn.to_string());
        }
        let mut child = command
            .current_dir(root())
            .args(["-B", "benches/accuracy/worker.py"])
            .env("BRIMFUL_PHANTOM_DEVICES", &place.device)
            .env_remove("PYTORCH_CUDA_ALLOC_CONF")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{} could not be started", python.display()))?;
        let output = child.stdout.take().context("no output of the worker")?;
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut worker = Worker { child, lines };
        worker.line().context(
            "the worker did not start; does it have torch, timm, transformers and torchvision?",
        )?;
        Ok(worker)
    }

    fn line(&mut self) -> Result<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Ok(line),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                bail!("no answer within {} s", PATIENCE.as_secs())
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => match self.child.wait() {
                Ok(status) => bail!("{status}"),
                Err(error) => bail!(error),
            },
        }
    }

    fn ask(&mut self, job: &WorkerJob) -> Result<Answer> {
        let request =
            serde_json::json!({ "id": 0, "program": job.program, "settings": job.settings });
        let input = self
            .child
            .stdin
            .as_mut()
            .context("no input of the worker")?;
        writeln!(input, "{request}")?;
        input.flush()?;
        Ok(serde_json::from_str(&self.line()?)?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
