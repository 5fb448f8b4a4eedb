//! What the Python writes is what the supervisor reads. With a torch of a few lines: the real one is met in
//! `python/torch_tests`.

use std::path::Path;
use std::process::{Command, Output};

use brimful::record::HookLine;
use brimful_supervise::gauge::{self, Reading};
use brimful_supervise::hook::Staged;

const TORCH: &[(&str, &str)] = &[
    (
        "__init__.py",
        r#"
__version__ = "2.0"
class version:
    cuda = None
class cuda:
    is_initialized = staticmethod(lambda: False)
    _lazy_call = staticmethod(lambda call: None)
from torch import optim, utils
"#,
    ),
    ("optim/__init__.py", "from torch.optim import optimizer\n"),
    (
        "optim/optimizer.py",
        r"
hooks = []
register_optimizer_step_post_hook = hooks.append
",
    ),
    ("utils/__init__.py", "from torch.utils import data\n"),
    (
        "utils/data/__init__.py",
        r"
class IterableDataset: pass
class Worker:
    def __init__(self, pid): self.pid, self._start_method = pid, 'spawn'
class Iterator:
    def __init__(self): self._workers = [Worker(71), Worker(72)]
    def __iter__(self): return self
    def __next__(self): raise StopIteration
class DataLoader:
    num_workers, batch_size, prefetch_factor = 2, 4, 2
    pin_memory = persistent_workers = False
    def __init__(self): self.dataset = list(range(100))
    def __iter__(self): return Iterator()
def get_worker_info(): return None
",
    ),
];

/// Runs a script with the hook; `None` and a word about it where there is no Python.
fn run(staged: &Staged, directory: &Path, script: &str) -> Option<Output> {
    for (name, text) in TORCH {
        let path = directory.join("torch").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let output = Command::new("python3")
        .args(["-c", script])
        .current_dir(directory)
        .envs(staged.environment(None, 0, false))
        .output();
    if output.is_err() {
        println!("skipped: this machine has no python3");
    }
    output.ok()
}

#[test]
fn what_the_hook_writes_is_what_the_supervisor_reads() {
    let directory = tempfile::tempdir().unwrap();
    let mut staged = Staged::new(&directory.path().join("run")).unwrap();
    let script = "
import sys, torch
kept = iter(torch.utils.data.DataLoader())
for _ in range(5):
    for hook in torch.optim.optimizer.hooks:
        hook(None, (), {})
raise RuntimeError('that is it')
";
    let Some(output) = run(&staged, directory.path(), script) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.ends_with("RuntimeError: that is it\n"), "{said}");
    assert!(!said.contains("brimful"), "{said}");

    let readings = gauge::read_with_workers(&staged.gauges());
    let [Reading { gauge, workers }] = &readings[..] else {
        panic!("{readings:?}");
    };
    assert_eq!((gauge.steps, gauge.epochs, gauge.device), (5, 1, None));
    let workers = workers.iter().map(|one| (one.pid, one.loader, one.worker));
    assert_eq!(workers.collect::<Vec<_>>(), [(71, 0, 0), (72, 0, 1)]);

    let lines = staged.new_lines();
    let [
        HookLine::Torch { version, .. },
        HookLine::Loader(loader),
        HookLine::Exception {
            type_name, message, ..
        },
    ] = &lines[..]
    else {
        panic!("{lines:?}");
    };
    assert_eq!(version, "2.0");
    assert_eq!(loader.pid, gauge.pid);
    assert_eq!(loader.worker_pids, [71, 72]);
    assert_eq!(loader.start_method.as_deref(), Some("spawn"));
    assert_eq!((loader.batch_size, loader.n_samples), (Some(4), Some(100)));
    assert_eq!(
        (&type_name[..], &message[..]),
        ("RuntimeError", "that is it")
    );

    let gauges = staged.gauges();
    staged.remove();
    assert!(!gauges.exists());
    assert!(!directory.path().join("run/inside").exists());
}

#[test]
fn a_python_without_torch_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut staged = Staged::new(&directory.path().join("run")).unwrap();
    let Some(output) = run(&staged, directory.path(), "print('done')") else {
        return;
    };
    assert_eq!(output.stdout, b"done\n");
    assert_eq!(output.stderr, b"");
    assert_eq!(staged.new_lines(), []);
    assert_eq!(gauge::read_all(&staged.gauges()), []);
    staged.remove();
}
