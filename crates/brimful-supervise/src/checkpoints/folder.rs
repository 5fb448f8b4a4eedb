//! Whether a folder is a whole checkpoint, as Hugging Face, PyTorch and DeepSpeed write them.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use serde_json::Value;

use crate::checkpoints::{CheckpointKind, Incomplete, file};

/// Files of one folder that are looked at.
const MOST_FILES: usize = 4096;
const LONGEST_JSON: u64 = 64 << 20;
/// The list of a model of many tensors.
const LONGEST_METADATA: u64 = 256 << 20;

const TRAINER_STATE: &str = "trainer_state.json";
const METADATA: &str = ".metadata";
const LATEST: &str = "latest";
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
pub(super) fn looks_like_one(folder: &Path) -> bool {
    [TRAINER_STATE, METADATA, LATEST]
        .iter()
        .chain(&MODELS)
        .chain(&INDEXES)
        .any(|name| folder.join(name).is_file())
}

/// What kind of folder it is and its step, if nothing of it is missing.
pub(super) fn check(folder: &Path) -> Result<(CheckpointKind, Option<u64>), Incomplete> {
    if folder.join(METADATA).exists() {
        distributed(folder)?;
        return Ok((CheckpointKind::Distributed, None));
    }
    let state = folder.join(TRAINER_STATE);
    let is_trainers = is_named_by_trainer(folder);
    if state.exists() || is_trainers {
        // Written last, so nothing is whole without it.
        let step = trainer_step(&state)?;
        hugging_face(folder)?;
        return Ok((CheckpointKind::HuggingFace, step));
    }
    if folder.join(LATEST).exists() {
        let step = deep_speed(folder)?;
        return Ok((CheckpointKind::DeepSpeed, step));
    }
    if looks_like_one(folder) {
        hugging_face(folder)?;
        return Ok((CheckpointKind::HuggingFace, None));
    }
    Err(Incomplete::UnknownFolder)
}

fn is_named_by_trainer(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.strip_prefix("checkpoint-"))
        .is_some_and(|step| !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit()))
}

fn trainer_step(state: &Path) -> Result<Option<u64>, Incomplete> {
    if !state.exists() {
        return Err(Incomplete::Missing(TRAINER_STATE.into()));
    }
    let bytes = file::read_small(state, LONGEST_JSON).map_err(Incomplete::part(TRAINER_STATE))?;
    let state: Value = serde_json::from_slice(&bytes)
        .map_err(|_| Incomplete::part(TRAINER_STATE)(Incomplete::CutShort("it is not JSON")))?;
    Ok(state.get("global_step").and_then(Value::as_u64))
}

fn hugging_face(folder: &Path) -> Result<(), Incomplete> {
    let names = names_in(folder)?;
    let mut has_model = MODELS.iter().any(|name| names.contains(*name));
    for index in INDEXES.iter().filter(|name| names.contains(**name)) {
        shards(folder, index)?;
        has_model = true;
    }
    for name in &names {
        if name.starts_with(SHARDED) && folder.join(name).is_dir() {
            distributed(&folder.join(name)).map_err(Incomplete::part(name.as_str()))?;
            has_model = true;
        }
    }
    if names.contains(LATEST) {
        deep_speed(folder)?;
        has_model = true;
    }
    if !has_model {
        return Err(Incomplete::Missing("model.safetensors".into()));
    }
    all_whole(folder, &names)
}

/// Every file of a kind that says where it ends: optimizer, scheduler, scaler, random numbers.
fn all_whole(folder: &Path, names: &BTreeSet<String>) -> Result<(), Incomplete> {
    for name in names {
        let path = folder.join(name);
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

fn shards(folder: &Path, index: &str) -> Result<(), Incomplete> {
    let bytes =
        file::read_small(&folder.join(index), LONGEST_JSON).map_err(Incomplete::part(index))?;
    let parsed: Option<Value> = serde_json::from_slice(&bytes).ok();
    let Some(Value::Object(map)) = parsed.as_ref().and_then(|index| index.get("weight_map")) else {
        return Err(Incomplete::part(index)(Incomplete::CutShort(
            "it names no files",
        )));
    };
    let files: BTreeSet<&str> = map.values().filter_map(Value::as_str).collect();
    if files.is_empty() || files.len() > MOST_FILES {
        return Err(Incomplete::part(index)(Incomplete::Damaged(
            "it names no files, or too many",
        )));
    }
    for name in files {
        if !is_plain(name) {
            return Err(Incomplete::part(index)(Incomplete::Damaged(
                "it names a file elsewhere",
            )));
        }
        let path = folder.join(name);
        if !path.exists() {
            return Err(Incomplete::Missing(name.into()));
        }
        file::check(&path).map_err(Incomplete::part(name))?;
    }
    Ok(())
}

/// `.metadata` is written last, by one rank, and names the files of all.
fn distributed(folder: &Path) -> Result<(), Incomplete> {
    let path = folder.join(METADATA);
    if !path.exists() {
        return Err(Incomplete::Missing(METADATA.into()));
    }
    let bytes = file::read_small(&path, LONGEST_METADATA).map_err(Incomplete::part(METADATA))?;
    if bytes.first() != Some(&0x80) || bytes.last() != Some(&b'.') {
        return Err(Incomplete::part(METADATA)(Incomplete::CutShort(
            "it is no whole pickle",
        )));
    }
    let mut wanted = files_named_in(&bytes);
    let names = names_in(folder)?;
    let there = names.iter().filter(|name| name.ends_with(".distcp"));
    wanted.extend(there.cloned());
    if wanted.is_empty() {
        return Err(Incomplete::Missing("__0_0.distcp".into()));
    }
    for name in wanted {
        let path = folder.join(&name);
        if !path.exists() {
            return Err(Incomplete::Missing(name));
        }
        file::open(&path).map_err(Incomplete::part(name))?;
    }
    all_whole(folder, &names)
}

/// `__0_0.distcp` and the like, as text inside of a pickle.
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
            && found.len() < MOST_FILES
        {
            found.insert(format!("{stem}.distcp"));
        }
        at = end + ENDING.len();
    }
    found
}

/// `latest` names the folder of the newest step.
fn deep_speed(folder: &Path) -> Result<Option<u64>, Incomplete> {
    let bytes = file::read_small(&folder.join(LATEST), 4096).map_err(Incomplete::part(LATEST))?;
    let text = String::from_utf8_lossy(&bytes);
    let name = text.trim();
    if !is_plain(name) {
        return Err(Incomplete::part(LATEST)(Incomplete::Damaged(
            "it names a folder elsewhere",
        )));
    }
    let inner = folder.join(name);
    if !inner.is_dir() {
        return Err(Incomplete::Missing(name.into()));
    }
    let names = names_in(&inner)?;
    if !names.iter().any(|name| name.ends_with("_states.pt")) {
        return Err(Incomplete::part(name)(Incomplete::Empty));
    }
    all_whole(&inner, &names).map_err(Incomplete::part(name))?;
    Ok(super::step::of_name(&inner))
}

fn names_in(folder: &Path) -> Result<BTreeSet<String>, Incomplete> {
    let entries = std::fs::read_dir(folder)?;
    Ok(entries
        .flatten()
        .take(MOST_FILES)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect())
}

/// One name, that leads nowhere else.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    )
}
