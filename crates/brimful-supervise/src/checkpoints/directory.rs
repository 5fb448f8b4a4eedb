//! Whether a directory is a whole checkpoint, as Hugging Face, PyTorch and DeepSpeed write them.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::checkpoints::checkpoint::{CheckpointKind, Incomplete};
use crate::checkpoints::file;
use crate::checkpoints::pickled::{self, MAX_PICKLE, Progress};
use crate::checkpoints::tensor_source::TensorSource;

/// Files of one directory that are looked at.
const MAX_FILES: usize = 4096;
const MAX_JSON: u64 = 64 << 20;
/// The list of a model of many tensors.
const MAX_METADATA: u64 = 256 << 20;

const TRAINER_STATE: &str = "trainer_state.json";
const METADATA: &str = ".metadata";
const LATEST: &str = "latest";
const LIGHTNING_META: &str = "meta.pt";
/// One file with the whole model, or with what was trained of it.
const MODELS: [&str; 5] = [
    "model.safetensors",
    "pytorch_model.bin",
    "adapter_model.safetensors",
    "adapter_model.bin",
    "model.pt",
];
/// A model in several files, which this one names.
const INDEXES: [&str; 3] = [
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "diffusion_pytorch_model.safetensors.index.json",
];
/// Where FSDP puts the model of each of Accelerate's models.
const SHARDED: &str = "pytorch_model_fsdp_";

/// Whether there is something in it that only a checkpoint has.
pub(super) fn looks_like_one(directory: &Path) -> bool {
    [TRAINER_STATE, METADATA, LATEST]
        .iter()
        .chain(&MODELS)
        .chain(&INDEXES)
        .any(|name| directory.join(name).is_file())
}

/// What kind of directory it is, if nothing of it is missing.
pub(super) fn check(directory: &Path) -> Result<CheckpointKind, Incomplete> {
    if directory.join(METADATA).exists() {
        distributed(directory)?;
        return Ok(CheckpointKind::Distributed);
    }
    let state = directory.join(TRAINER_STATE);
    let is_trainers = is_named_by_trainer(directory);
    if state.exists() || is_trainers {
        // Written last, so nothing is whole without it.
        trainer_step(&state)?;
        hugging_face(directory)?;
        return Ok(CheckpointKind::HuggingFace);
    }
    if directory.join(LATEST).exists() {
        deep_speed(directory)?;
        return Ok(CheckpointKind::DeepSpeed);
    }
    if looks_like_one(directory) {
        hugging_face(directory)?;
        return Ok(CheckpointKind::HuggingFace);
    }
    Err(Incomplete::UnknownDirectory)
}

/// The step that a directory holds, where it can be read.
pub(super) fn progress(directory: &Path) -> Progress {
    let by_trainer = trainer_step(&directory.join(TRAINER_STATE)).ok().flatten();
    let by_latest = || super::step::of_name(&latest(directory).ok()?);
    // Lightning has what is no tensor in a file of its own.
    let by_lightning = || {
        let mut n_left = MAX_PICKLE;
        file::progress(&directory.join(LIGHTNING_META), &mut n_left)
    };
    match by_trainer.or_else(by_latest) {
        None => by_lightning(),
        step => Progress { step, epoch: None },
    }
}

/// Where the model is: its files, or the parts of them, at most `max`. Nothing where that cannot be told.
pub(super) fn model_sources(directory: &Path, max: usize) -> Option<Vec<TensorSource>> {
    if directory.join(METADATA).exists() {
        return distributed_sources(directory, max);
    }
    let names = names_in(directory).ok()?;
    let mut sources = Vec::new();
    let file = |path: PathBuf| TensorSource::File(path);
    for name in MODELS.iter().filter(|name| names.contains(**name)) {
        sources.push(file(directory.join(name)));
    }
    for index in INDEXES.iter().filter(|name| names.contains(**name)) {
        let shards = shard_names(directory, index).ok()?;
        sources.extend(shards.iter().map(|name| file(directory.join(name))));
    }
    for name in names.iter().filter(|name| name.starts_with(SHARDED)) {
        let inner = directory.join(name);
        if inner.is_dir() {
            sources.extend(distributed_sources(&inner, max)?);
        }
    }
    if names.contains(LATEST) {
        let inner = latest(directory).ok()?;
        let names = names_in(&inner).ok()?;
        let states = names.iter().filter(|name| name.ends_with("_states.pt"));
        sources.extend(states.map(|name| file(inner.join(name))));
    }
    Some(sources)
}

fn distributed_sources(directory: &Path, max: usize) -> Option<Vec<TensorSource>> {
    let bytes = file::read_small(&directory.join(METADATA), MAX_PICKLE).ok()?;
    let parts = pickled::distributed_parts(&bytes, max)?;
    parts
        .into_iter()
        .map(|part| {
            is_plain(&part.file).then(|| TensorSource::Part {
                path: directory.join(&part.file),
                offset: part.offset,
                length: part.length,
            })
        })
        .collect()
}

fn is_named_by_trainer(directory: &Path) -> bool {
    let name = directory.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.strip_prefix("checkpoint-"))
        .is_some_and(|step| !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit()))
}

fn trainer_step(state: &Path) -> Result<Option<u64>, Incomplete> {
    if !state.exists() {
        return Err(Incomplete::Missing(TRAINER_STATE.into()));
    }
    let bytes = file::read_small(state, MAX_JSON).map_err(Incomplete::part(TRAINER_STATE))?;
    let state: Value = serde_json::from_slice(&bytes)
        .map_err(|_| Incomplete::part(TRAINER_STATE)(Incomplete::CutShort("it is not JSON")))?;
    Ok(state.get("global_step").and_then(Value::as_u64))
}

fn hugging_face(directory: &Path) -> Result<(), Incomplete> {
    let names = names_in(directory)?;
    let mut has_model = MODELS.iter().any(|name| names.contains(*name));
    for index in INDEXES.iter().filter(|name| names.contains(**name)) {
        shards(directory, index)?;
        has_model = true;
    }
    for name in &names {
        if name.starts_with(SHARDED) && directory.join(name).is_dir() {
            distributed(&directory.join(name)).map_err(Incomplete::part(name.as_str()))?;
            has_model = true;
        }
    }
    if names.contains(LATEST) {
        deep_speed(directory)?;
        has_model = true;
    }
    if !has_model {
        return Err(Incomplete::Missing("model.safetensors".into()));
    }
    all_whole(directory, &names)
}

/// Every file of a kind that says where it ends: optimizer, scheduler, scaler, random numbers.
fn all_whole(directory: &Path, names: &BTreeSet<String>) -> Result<(), Incomplete> {
    for name in names {
        let path = directory.join(name);
        let ending = path.extension().and_then(|ending| ending.to_str());
        let is_checked = matches!(
            ending,
            Some("pt" | "pth" | "bin" | "ckpt" | "safetensors" | "pkl")
        );
        if is_checked && path.is_file() {
            file::check(&path).map_err(Incomplete::part(name.as_str()))?;
        }
    }
    Ok(())
}

fn shards(directory: &Path, index: &str) -> Result<(), Incomplete> {
    for name in shard_names(directory, index)? {
        let path = directory.join(&name);
        if !path.exists() {
            return Err(Incomplete::Missing(name));
        }
        file::check(&path).map_err(Incomplete::part(name))?;
    }
    Ok(())
}

fn shard_names(directory: &Path, index: &str) -> Result<BTreeSet<String>, Incomplete> {
    let bytes =
        file::read_small(&directory.join(index), MAX_JSON).map_err(Incomplete::part(index))?;
    let parsed: Option<Value> = serde_json::from_slice(&bytes).ok();
    let Some(Value::Object(map)) = parsed.as_ref().and_then(|index| index.get("weight_map")) else {
        return Err(Incomplete::part(index)(Incomplete::CutShort(
            "it names no files",
        )));
    };
    let files: BTreeSet<String> = map
        .values()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    if files.is_empty() || files.len() > MAX_FILES {
        return Err(Incomplete::part(index)(Incomplete::Damaged(
            "it names no files, or too many",
        )));
    }
    if !files.iter().all(|name| is_plain(name)) {
        return Err(Incomplete::part(index)(Incomplete::Damaged(
            "it names a file elsewhere",
        )));
    }
    Ok(files)
}

/// `.metadata` is written last, by one rank, and names the files of all.
fn distributed(directory: &Path) -> Result<(), Incomplete> {
    let path = directory.join(METADATA);
    if !path.exists() {
        return Err(Incomplete::Missing(METADATA.into()));
    }
    let bytes = file::read_small(&path, MAX_METADATA).map_err(Incomplete::part(METADATA))?;
    if bytes.first() != Some(&0x80) || bytes.last() != Some(&b'.') {
        return Err(Incomplete::part(METADATA)(Incomplete::CutShort(
            "it is no whole pickle",
        )));
    }
    let mut wanted = files_named_in(&bytes);
    let names = names_in(directory)?;
    let there = names.iter().filter(|name| name.ends_with(".distcp"));
    wanted.extend(there.cloned());
    if wanted.is_empty() {
        return Err(Incomplete::Missing("__0_0.distcp".into()));
    }
    for name in wanted {
        let path = directory.join(&name);
        if !path.exists() {
            return Err(Incomplete::Missing(name));
        }
        file::open(&path).map_err(Incomplete::part(name))?;
    }
    all_whole(directory, &names)
}

/// `__0_0.distcp` and the like, as text inside a pickle.
fn files_named_in(bytes: &[u8]) -> BTreeSet<String> {
    const ENDING: &[u8] = b".distcp";
    let mut found = BTreeSet::new();
    let mut at = 0;
    while let Some(next) = bytes[at..]
        .windows(ENDING.len())
        .position(|window| window == ENDING)
    {
        let end = at + next;
        let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b'_';
        let n_before = bytes[at..end]
            .iter()
            .rev()
            .take_while(|byte| is_part(byte))
            .count();
        let stem = &bytes[end - n_before..end];
        // The length before a text in a pickle may look like a digit: the name begins with two bars.
        if let Some(from) = stem.windows(2).position(|pair| pair == b"__")
            && let Ok(stem) = std::str::from_utf8(&stem[from..])
            && found.len() < MAX_FILES
        {
            found.insert(format!("{stem}.distcp"));
        }
        at = end + ENDING.len();
    }
    found
}

fn deep_speed(directory: &Path) -> Result<(), Incomplete> {
    let inner = latest(directory)?;
    let shown = inner
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let names = names_in(&inner)?;
    if !names.iter().any(|name| name.ends_with("_states.pt")) {
        return Err(Incomplete::part(shown)(Incomplete::Empty));
    }
    all_whole(&inner, &names).map_err(Incomplete::part(shown))
}

/// `latest` names the directory of the newest step.
fn latest(directory: &Path) -> Result<PathBuf, Incomplete> {
    let bytes =
        file::read_small(&directory.join(LATEST), 4096).map_err(Incomplete::part(LATEST))?;
    let text = String::from_utf8_lossy(&bytes);
    let name = text.trim();
    if !is_plain(name) {
        return Err(Incomplete::part(LATEST)(Incomplete::Damaged(
            "it names a directory elsewhere",
        )));
    }
    let inner = directory.join(name);
    if !inner.is_dir() {
        return Err(Incomplete::Missing(name.into()));
    }
    Ok(inner)
}

fn names_in(directory: &Path) -> Result<BTreeSet<String>, Incomplete> {
    let entries = std::fs::read_dir(directory)?;
    Ok(entries
        .flatten()
        .take(MAX_FILES)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect())
}

/// One name, that leads nowhere else and is no longer than a file system allows: it is shown in messages.
fn is_plain(name: &str) -> bool {
    const MAX_NAME: usize = 255;
    let mut parts = Path::new(name).components();
    name.len() <= MAX_NAME
        && matches!(
            (parts.next(), parts.next()),
            (Some(Component::Normal(_)), None)
        )
}
