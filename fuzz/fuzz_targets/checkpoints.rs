//! A checkpoint of anyone's making, as a file of each kind and as a part of a folder: taken or skipped, and never a panic.
#![no_main]

use std::fs;

use brimful_supervise::checkpoints::{Criteria, choose};
use libfuzzer_sys::fuzz_target;

const NAMES: [&str; 7] = [
    "a.pt",
    "a.safetensors",
    "checkpoint-1/trainer_state.json",
    "checkpoint-1/model.safetensors",
    "checkpoint-2/model.safetensors.index.json",
    "dcp/.metadata",
    "ds/latest",
];

fuzz_target!(|data: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder can be made");
    for name in NAMES {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("it can be made");
        fs::write(path, data).expect("it can be written");
    }
    for pattern in ["*", "**"] {
        let found = choose(folder.path(), &[pattern.to_owned()], &Criteria::now());
        for (_, why) in &found.refused {
            assert!(!why.to_string().is_empty());
        }
    }
    if let Ok(pattern) = std::str::from_utf8(data)
        && !pattern.starts_with('/')
        && !pattern.contains("..")
    {
        let _ = choose(folder.path(), &[pattern.to_owned()], &Criteria::now());
    }
});
