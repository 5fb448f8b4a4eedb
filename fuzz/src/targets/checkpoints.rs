//! A checkpoint of anyone's making, as a file of each kind and as a part of a directory: chosen or refused, and never a
//! panic.
//!
//! The input is also put into an archive of `torch.save`, half of it as the pickle, half as a tensor, so that the step
//! and the samples are reached without an archive that the fuzzer would have to invent.
use std::fs;

use brimful_supervise::checkpoints::{Checkpoints, Criteria, Refusal, choose};

const NAMES: [&str; 10] = [
    "a.pt",
    "a.pkl",
    "a.safetensors",
    "checkpoint-1/trainer_state.json",
    "checkpoint-1/model.safetensors",
    "checkpoint-2/model.safetensors.index.json",
    "dcp/.metadata",
    "dcp/__0_0.distcp",
    "dcp/meta.pt",
    "ds/latest",
];

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    for name in NAMES {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("below the directory")).expect("it can be made");
        fs::write(path, data).expect("it can be written");
    }
    let find = |pattern: &str| {
        let found = choose(directory.path(), &[pattern.to_owned()], &Criteria::now());
        check(&found);
        found
    };
    find("*");
    find("**");
    if let Ok(pattern) = std::str::from_utf8(data)
        && !pattern.starts_with('/')
        && !pattern.contains("..")
    {
        find(pattern);
    }
    let (pickle, tensor) = data.split_at(data.len() / 2);
    let archive = zip(&[("a/data.pkl", pickle), ("a/data/0", tensor)]);
    fs::write(directory.path().join("wrapped.pt"), archive).expect("it can be written");
    let found = find("wrapped.pt");
    let is_zero = !tensor.is_empty() && tensor.iter().all(|byte| *byte == 0);
    match &found.refused[..] {
        [] => assert!(found.chosen.is_some(), "the archive is whole"),
        [(_, why)] => {
            assert_eq!(*why, Refusal::AllZero, "the archive is whole");
            assert!(is_zero, "it has a value other than zero");
        }
        more => panic!("one file is refused {} times", more.len()),
    }
}

fn check(found: &Checkpoints) {
    for (_, why) in &found.refused {
        let message = why.to_string();
        assert!(!message.is_empty() && message.len() < 2000);
    }
}

/// A zip archive of entries that are not compressed.
fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut list = Vec::new();
    let narrow = |length: usize| {
        u32::try_from(length)
            .expect("inputs are short")
            .to_le_bytes()
    };
    let name_length = |name: &str| {
        u16::try_from(name.len())
            .expect("names are short")
            .to_le_bytes()
    };
    for (name, data) in entries {
        let offset = out.len();
        out.extend(b"PK\x03\x04");
        out.extend([0; 14]);
        out.extend(narrow(data.len()));
        out.extend(narrow(data.len()));
        out.extend(name_length(name));
        out.extend([0; 2]);
        out.extend(name.as_bytes());
        out.extend(*data);
        list.extend(b"PK\x01\x02");
        list.extend([0; 16]);
        list.extend(narrow(data.len()));
        list.extend(narrow(data.len()));
        list.extend(name_length(name));
        list.extend([0; 12]);
        list.extend(narrow(offset));
        list.extend(name.as_bytes());
    }
    let start = out.len();
    let n_entries = u16::try_from(entries.len())
        .expect("two entries")
        .to_le_bytes();
    out.extend(&list);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(n_entries);
    out.extend(n_entries);
    out.extend(narrow(list.len()));
    out.extend(narrow(start));
    out.extend([0; 2]);
    out
}
