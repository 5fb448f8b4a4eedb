//! Checkpoints whose tensors are zero, all of them or some, in every form that is sampled.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use super::tests::{Entry, TestDir, zip_of};
use super::*;

/// The persistent ids of some storages in a tuple, with `{"step": 40}` at the end of it.
fn pickle(storages: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        let mut bytes = b"X".to_vec();
        bytes.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes
    };
    let mut bytes = b"\x80\x02}(".to_vec();
    for (class, key) in storages {
        bytes.extend(text(&format!("tensor {key}")));
        bytes.extend(b"(");
        bytes.extend(text("storage"));
        bytes.extend(format!("ctorch\n{class}\n").as_bytes());
        bytes.extend(text(key));
        bytes.extend(text("cpu"));
        bytes.extend(b"K\x01tQ");
    }
    bytes.extend(text("step"));
    bytes.extend(b"K(u.");
    bytes
}

/// What `torch.save` writes of storages with a type and bytes.
fn torch_of(storages: &[(&str, &[u8])]) -> Vec<u8> {
    let keys: Vec<String> = (0..storages.len()).map(|idx| idx.to_string()).collect();
    let names: Vec<String> = keys.iter().map(|key| format!("last/data/{key}")).collect();
    let ids: Vec<(&str, &str)> = storages
        .iter()
        .zip(&keys)
        .map(|((class, _), key)| (*class, key.as_str()))
        .collect();
    let pickle = pickle(&ids);
    let mut entries = vec![
        Entry::plain("last/data.pkl", &pickle),
        Entry::plain("last/version", b"3\n"),
        Entry::plain("last/.data/serialization_id", b"123"),
    ];
    for (name, (_, data)) in names.iter().zip(storages) {
        entries.push(Entry::plain(name, data));
    }
    zip_of(&entries, true)
}

const ZEROS: &[u8] = &[0; 10_000];
const WEIGHTS: &[u8] = &[7; 10_000];

fn safetensors_of(dtype: &str, data: &[u8]) -> Vec<u8> {
    let header = format!(
        r#"{{"a":{{"dtype":"{dtype}","shape":[1],"data_offsets":[0,{}]}}}}"#,
        data.len()
    );
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

/// Whether a file of these storages is accepted.
fn accepts(storages: &[(&str, &[u8])]) -> bool {
    let place = TestDir::new();
    place.put("a.pt", &torch_of(storages), 1);
    let found = place.find("a.pt");
    if let Some(chosen) = found.chosen {
        assert_eq!(chosen.step, Some(40));
        return true;
    }
    assert_eq!(found.refused[0].1, Refusal::AllZero);
    let forced = choose(place.0.path(), &["a.pt".into()], &Criteria::forced());
    assert!(forced.chosen.is_some());
    false
}

#[test]
fn a_file_whose_tensors_are_all_zero_is_refused() {
    assert!(!accepts(&[("FloatStorage", ZEROS)]));
    assert!(!accepts(&[
        ("FloatStorage", ZEROS),
        ("HalfStorage", &ZEROS[..64])
    ]));
    assert!(accepts(&[("FloatStorage", WEIGHTS)]));
    let place = TestDir::new();
    place.put("a.pt", &torch_of(&[("FloatStorage", ZEROS)]), 1);
    assert_eq!(place.refused("a.pt"), "its tensors are all zero");
}

#[test]
fn some_tensors_of_zeros_are_usual() {
    assert!(accepts(&[
        ("FloatStorage", ZEROS),
        ("FloatStorage", WEIGHTS)
    ]));
    // One value other than zero in the last of the sampled blocks.
    let mut nearly = ZEROS.to_vec();
    nearly[9_999] = 1;
    assert!(accepts(&[
        ("FloatStorage", ZEROS),
        ("FloatStorage", &nearly)
    ]));
    // Nothing but a step.
    assert!(accepts(&[]));
    assert!(accepts(&[("FloatStorage", b"")]));
}

#[test]
fn step_counters_and_random_states_say_nothing_of_the_weights() {
    // AdamW has a step per parameter, torch.get_rng_state() is bytes.
    assert!(!accepts(&[
        ("FloatStorage", ZEROS),
        ("FloatStorage", &2_f32.to_le_bytes()),
        ("ByteStorage", WEIGHTS),
        ("LongStorage", WEIGHTS),
    ]));
    // Where there is nothing else, they decide.
    assert!(accepts(&[("LongStorage", WEIGHTS)]));
    assert!(!accepts(&[("LongStorage", ZEROS)]));
}

#[test]
fn what_cannot_be_sampled_is_not_claimed_to_be_zero() {
    let place = TestDir::new();
    let pickle = pickle(&[("FloatStorage", "0")]);
    let packed = Entry {
        name: "a/data/0",
        data: ZEROS,
        method: 8,
    };
    let bytes = zip_of(&[Entry::plain("a/data.pkl", &pickle), packed], true);
    place.put("a.pt", &bytes, 1);
    assert!(place.chosen("a.pt").is_some());
    // A pickle that cannot be read leaves every storage a tensor like any other.
    let cut = &pickle[..20];
    let entries = |data| {
        [
            Entry::plain("a/data.pkl", cut),
            Entry::plain("a/data/0", data),
        ]
    };
    place.put("a.pt", &zip_of(&entries(ZEROS), true), 1);
    assert_eq!(place.refused("a.pt"), "its tensors are all zero");
    place.put("a.pt", &zip_of(&entries(&[0, 0, 1]), true), 1);
    assert!(place.chosen("a.pt").is_some());
    // A header that points past the end of its entry.
    let mut lying = torch_of(&[("FloatStorage", ZEROS)]);
    let at = lying
        .windows(11)
        .position(|name| name == b"last/data/0")
        .unwrap();
    lying[at - 4] = 0xff;
    lying[at - 3] = 0xff;
    place.put("a.pt", &lying, 1);
    assert!(place.chosen("a.pt").is_some());
}

#[test]
fn safetensors_are_sampled_by_their_types() {
    let place = TestDir::new();
    for (dtype, data, is_refused) in [
        ("F32", ZEROS, true),
        ("BF16", ZEROS, true),
        ("F8_E4M3", ZEROS, true),
        ("F32", WEIGHTS, false),
        ("I64", WEIGHTS, false),
        ("BOOL", ZEROS, true),
        ("F32", b"", false),
    ] {
        place.put("a.safetensors", &safetensors_of(dtype, data), 1);
        assert_eq!(
            place.chosen("a.safetensors").is_none(),
            is_refused,
            "{dtype}"
        );
    }
}

#[test]
fn a_directory_is_judged_by_its_model() {
    let place = TestDir::new();
    let put = |name: &str, bytes: &[u8]| place.put(&format!("checkpoint-2/{name}"), bytes, 1);
    put("model.safetensors", &safetensors_of("F32", ZEROS));
    put("optimizer.pt", &torch_of(&[("FloatStorage", WEIGHTS)]));
    put("rng_state.pth", &torch_of(&[("ByteStorage", WEIGHTS)]));
    put("trainer_state.json", br#"{"global_step": 2}"#);
    assert_eq!(place.refused("checkpoint-*"), "its tensors are all zero");
    put("model.safetensors", &safetensors_of("F32", WEIGHTS));
    assert_eq!(place.chosen("checkpoint-*").unwrap().2, Some(2));

    let index = br#"{"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}}"#;
    let put = |name: &str, bytes: &[u8]| place.put(&format!("sharded/{name}"), bytes, 1);
    put("model.safetensors.index.json", index);
    put("model-1.safetensors", &safetensors_of("F32", ZEROS));
    put("model-2.safetensors", &safetensors_of("F32", ZEROS));
    assert_eq!(place.refused("sharded"), "its tensors are all zero");
    put("model-2.safetensors", &safetensors_of("F32", WEIGHTS));
    assert!(place.chosen("sharded").is_some());

    let put = |name: &str, bytes: &[u8]| place.put(&format!("ds/{name}"), bytes, 1);
    put("latest", b"global_step30");
    put(
        "global_step30/mp_rank_00_model_states.pt",
        &torch_of(&[("HalfStorage", ZEROS)]),
    );
    assert_eq!(place.refused("ds"), "its tensors are all zero");
    // With ZeRO 3 the weights are the optimizer's.
    put(
        "global_step30/zero_pp_rank_0_mp_rank_00_optim_states.pt",
        &torch_of(&[("FloatStorage", WEIGHTS)]),
    );
    assert_eq!(place.chosen("ds").unwrap().2, Some(30));
}

/// A `.metadata` as `torch.distributed.checkpoint` pickles it: an object per part, with its state.
fn metadata(parts: &[(usize, usize)]) -> Vec<u8> {
    let mut bytes = b"\x80\x02(".to_vec();
    for (offset, length) in parts {
        bytes.extend(b"cm\n_StorageInfo\n)\x81}(X\x0d\x00\x00\x00relative_path");
        bytes.extend(b"X\x0c\x00\x00\x00__0_0.distcp");
        for (name, value) in [("offset", offset), ("length", length)] {
            bytes.extend(b"X\x06\x00\x00\x00");
            bytes.extend(name.as_bytes());
            bytes.push(b'J');
            bytes.extend(i32::try_from(*value).unwrap().to_le_bytes());
        }
        bytes.extend(b"ub");
    }
    bytes.extend(b"t.");
    bytes
}

#[test]
fn a_distributed_checkpoint_is_judged_by_the_archives_in_its_files() {
    let place = TestDir::new();
    let check = |storages: &[(&str, &[u8])]| {
        let mut file = Vec::new();
        let mut parts = Vec::new();
        for storage in storages {
            let archive = torch_of(&[*storage]);
            parts.push((file.len(), archive.len()));
            file.extend(archive);
        }
        place.put("dcp/__0_0.distcp", &file, 1);
        place.put("dcp/.metadata", &metadata(&parts), 1);
        place.chosen("dcp").is_some()
    };
    assert!(!check(&[("FloatStorage", ZEROS), ("FloatStorage", ZEROS)]));
    assert!(!check(&[("FloatStorage", ZEROS), ("ByteStorage", WEIGHTS)]));
    assert!(check(&[("FloatStorage", ZEROS), ("FloatStorage", WEIGHTS)]));
    // Lightning's own values lie beside the shards.
    place.put("dcp/meta.pt", &torch_of(&[]), 1);
    assert_eq!(place.chosen("dcp").unwrap().2, Some(40));
    // Parts that are not there, or elsewhere.
    place.put("dcp/.metadata", &metadata(&[(5, 1 << 30)]), 1);
    assert!(place.chosen("dcp").is_some());
}

/// 50 GB of zeros that take no room on the disk.
#[test]
fn a_huge_file_of_zeros_is_settled_within_a_second() {
    const LENGTH: u64 = 50 << 30;
    let place = TestDir::new();
    let path = place.at("a.safetensors");
    let n = 100;
    let each = LENGTH / n;
    let tensors: Vec<String> = (0..n)
        .map(|idx| {
            format!(
                r#""t{idx}":{{"dtype":"BF16","shape":[1],"data_offsets":[{},{}]}}"#,
                idx * each,
                (idx + 1) * each
            )
        })
        .collect();
    let header = format!("{{{}}}", tensors.join(","));
    let mut file = File::create(&path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes())
        .unwrap();
    file.write_all(header.as_bytes()).unwrap();
    let end = 8 + header.len() as u64 + n * each;
    file.set_len(end).unwrap();
    let started = Instant::now();
    assert!(zeros::are_all(&path, CheckpointKind::Safetensors));
    let took = started.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    // A value at the very end is within the last block of the last tensor.
    file.seek(SeekFrom::Start(end - 1)).unwrap();
    file.write_all(&[1]).unwrap();
    assert!(!zeros::are_all(&path, CheckpointKind::Safetensors));
}

#[test]
fn no_damage_makes_the_sampling_panic() {
    let place = TestDir::new();
    let whole = torch_of(&[("FloatStorage", &[0; 16]), ("LongStorage", &[1; 8])]);
    for at in 0..whole.len() {
        for value in [0x00, 0x7f, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            fs::write(place.at("a.pt"), &bytes).unwrap();
            let _ = zeros::are_all(&place.at("a.pt"), CheckpointKind::TorchZip);
            let _ = file::progress(&place.at("a.pt"), &mut 1000);
        }
    }
    for length in 0..whole.len() {
        fs::write(place.at("a.pt"), &whole[..length]).unwrap();
        assert!(!zeros::are_all(&place.at("a.pt"), CheckpointKind::TorchZip));
    }
}
