//! Checkpoints of every kind, whole and cut at every place, made by hand byte by byte.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::*;

/// A zip file as `torch.save` lays it out; `wide` as all of PyTorch's are, with the second ending.
fn zip(names: &[&str], wide: bool) -> Vec<u8> {
    let entries: Vec<Entry<'_>> = names
        .iter()
        .map(|name| Entry::plain(name, b"\x80\x02}q\x00."))
        .collect();
    zip_of(&entries, wide)
}

pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) data: &'a [u8],
    /// 0 is not compressed, 8 is.
    pub(super) method: u16,
}

impl<'a> Entry<'a> {
    pub(super) fn plain(name: &'a str, data: &'a [u8]) -> Entry<'a> {
        Entry {
            name,
            data,
            method: 0,
        }
    }
}

pub(super) fn zip_of(entries: &[Entry<'_>], wide: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut list = Vec::new();
    for Entry { name, data, method } in entries {
        let offset = out.len() as u64;
        out.extend_from_slice(b"PK\x03\x04");
        out.extend_from_slice(&[0; 14]);
        out.extend_from_slice(&u32::try_from(data.len()).unwrap().to_le_bytes());
        out.extend_from_slice(&u32::try_from(data.len()).unwrap().to_le_bytes());
        out.extend_from_slice(&u16::try_from(name.len()).unwrap().to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(data);

        list.extend_from_slice(b"PK\x01\x02");
        list.extend_from_slice(&[0; 6]);
        list.extend_from_slice(&method.to_le_bytes());
        list.extend_from_slice(&[0; 8]);
        let narrow = |value: u64| {
            if wide {
                u32::MAX
            } else {
                u32::try_from(value).unwrap()
            }
        };
        let length = data.len() as u64;
        list.extend_from_slice(&narrow(length).to_le_bytes());
        list.extend_from_slice(&narrow(length).to_le_bytes());
        list.extend_from_slice(&u16::try_from(name.len()).unwrap().to_le_bytes());
        let mut extra = Vec::new();
        if wide {
            // Another field first, as padding is.
            extra.extend_from_slice(b"FB\x02\x00ZZ\x01\x00\x18\x00");
            for value in [length, length, offset] {
                extra.extend_from_slice(&value.to_le_bytes());
            }
        }
        list.extend_from_slice(&u16::try_from(extra.len()).unwrap().to_le_bytes());
        list.extend_from_slice(&[0; 10]);
        list.extend_from_slice(&narrow(offset).to_le_bytes());
        list.extend_from_slice(name.as_bytes());
        list.extend_from_slice(&extra);
    }
    let (start, length, n) = (out.len() as u64, list.len() as u64, entries.len() as u64);
    out.extend_from_slice(&list);
    if wide {
        let end = out.len() as u64;
        out.extend_from_slice(b"PK\x06\x06");
        out.extend_from_slice(&44_u64.to_le_bytes());
        out.extend_from_slice(&[0; 12]);
        for value in [n, n, length, start] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(b"PK\x06\x07\0\0\0\0");
        out.extend_from_slice(&end.to_le_bytes());
        out.extend_from_slice(&1_u32.to_le_bytes());
    }
    out.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    let narrow = |value: u64| u32::try_from(value).unwrap().to_le_bytes();
    out.extend_from_slice(&u16::try_from(n).unwrap().to_le_bytes());
    out.extend_from_slice(&u16::try_from(n).unwrap().to_le_bytes());
    out.extend_from_slice(&if wide { [0xff; 4] } else { narrow(length) });
    out.extend_from_slice(&if wide { [0xff; 4] } else { narrow(start) });
    out.extend_from_slice(&[0; 2]);
    out
}

pub(super) fn torch() -> Vec<u8> {
    zip(&["archive/data.pkl", "archive/data/0"], true)
}

fn safetensors() -> Vec<u8> {
    let header = br#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}"#;
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(header);
    out.extend_from_slice(&[7; 11]);
    out
}

pub(super) struct TestDir(pub(super) tempfile::TempDir);

impl TestDir {
    pub(super) fn new() -> TestDir {
        TestDir(tempfile::tempdir().unwrap())
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file that was written `minutes` after 1970.
    pub(super) fn put(&self, name: &str, bytes: &[u8], minutes: u64) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::from_mins(minutes);
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(then)
            .unwrap();
    }

    pub(super) fn find(&self, pattern: &str) -> Checkpoints {
        choose(self.0.path(), &[pattern.to_owned()], &Criteria::now())
    }

    pub(super) fn chosen(&self, pattern: &str) -> Option<(String, CheckpointKind, Option<u64>)> {
        let chosen = self.find(pattern).chosen?;
        let path = chosen.path.strip_prefix(self.0.path()).unwrap();
        Some((path.display().to_string(), chosen.kind, chosen.step))
    }

    /// Why the only candidate is not taken.
    pub(super) fn refused(&self, pattern: &str) -> String {
        let found = self.find(pattern);
        assert_eq!(found.chosen, None);
        assert_eq!(found.refused.len(), 1, "{found:?}");
        found.refused[0].1.to_string()
    }
}

#[test]
fn the_newest_that_is_whole_is_chosen_and_newer_ones_are_told() {
    let place = TestDir::new();
    place.put("out/step-100.pt", &torch(), 1);
    place.put("out/step-200.pt", &torch(), 2);
    place.put("out/step-300.pt", &torch()[..200], 3);
    place.put("out/step-400.pt.tmp", &torch(), 4);
    place.put("out/step-500.pt", b"", 5);
    let found = place.find("out/*");
    let chosen = found.chosen.clone().unwrap();
    assert_eq!(chosen.path, place.at("out/step-200.pt"));
    assert_eq!(chosen.step, Some(200));
    let skipped: Vec<String> = found
        .refused
        .iter()
        .map(|(path, why)| format!("{}: {why}", path.file_name().unwrap().display()))
        .collect();
    assert_eq!(
        skipped,
        [
            "step-500.pt: it is empty",
            "step-400.pt.tmp: its name says that it is still being written",
            "step-300.pt: it is cut short: the list of contents at its end is missing",
        ]
    );
    assert_eq!(
        chosen.age(SystemTime::UNIX_EPOCH + Duration::from_mins(3)),
        Some(Duration::from_mins(1))
    );
}

#[test]
fn patterns_go_down_as_far_as_they_say() {
    let place = TestDir::new();
    place.put("a/b/c/last.pt", &torch(), 2);
    place.put("a/last.pt", &torch(), 1);
    let path_of = |pattern: &str| place.chosen(pattern).map(|(path, ..)| path);
    assert_eq!(path_of("a/*.pt").as_deref(), Some("a/last.pt"));
    assert_eq!(path_of("**/last.pt").as_deref(), Some("a/b/c/last.pt"));
    assert_eq!(path_of("a/**/last.pt").as_deref(), Some("a/b/c/last.pt"));
    assert_eq!(path_of("a/last.pt").as_deref(), Some("a/last.pt"));
    assert_eq!(path_of("a/b/./c/last.p?").as_deref(), Some("a/b/c/last.pt"));
    assert_eq!(path_of("*.pt"), None);
    assert_eq!(path_of("nowhere/*.pt"), None);
    assert_eq!(path_of("[unclosed"), None);
    assert_eq!(path_of(""), None);
    assert_eq!(path_of(&"*".repeat(5000)), None);
    let absolute = place.at("a/*.pt").display().to_string();
    assert_eq!(path_of(&absolute).as_deref(), Some("a/last.pt"));
}

/// Writes each beginning of `whole` and holds that none is taken.
fn cut_everywhere(name: &str, whole: &[u8], kind: CheckpointKind) {
    let place = TestDir::new();
    for length in 0..whole.len() {
        fs::write(place.at(name), &whole[..length]).unwrap();
        assert_eq!(place.chosen(name), None, "{name} of {length} bytes");
    }
    fs::write(place.at(name), whole).unwrap();
    assert_eq!(
        place.chosen(name).map(|(_, kind, _)| kind),
        Some(kind),
        "{name}"
    );
}

#[test]
fn a_file_that_is_cut_anywhere_is_not_taken() {
    let narrow = zip(&["archive/data.pkl", "archive/data/0"], false);
    cut_everywhere("a.pt", &torch(), CheckpointKind::TorchZip);
    cut_everywhere("a.ckpt", &narrow, CheckpointKind::TorchZip);
    cut_everywhere("a.safetensors", &safetensors(), CheckpointKind::Safetensors);
    cut_everywhere(
        "a.pkl",
        b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00}\x94.",
        CheckpointKind::Pickle,
    );
}

#[test]
fn no_damage_makes_it_panic() {
    let place = TestDir::new();
    for (name, whole) in [
        ("a.pt", torch()),
        ("a.safetensors", safetensors()),
        ("b.pt", zip(&["x/data.pkl"], false)),
    ] {
        for at in 0..whole.len() {
            for value in [0x00, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                fs::write(place.at(name), &bytes).unwrap();
                let _ = place.find(name);
            }
        }
    }
}

#[test]
fn a_hole_in_a_zip_file_is_noticed() {
    let place = TestDir::new();
    let mut bytes = torch();
    bytes[50..80].fill(0);
    place.put("a.pt", &bytes, 1);
    assert_eq!(
        place.refused("a.pt"),
        "it is damaged: an entry is not where it should be"
    );
    place.put("a.pt", &zip(&["archive/version"], true), 1);
    assert_eq!(place.refused("a.pt"), "`data.pkl` is missing");
    let mut twice = torch();
    twice.extend(torch());
    place.put("a.pt", &[&twice[..], b"more"].concat(), 1);
    assert!(place.refused("a.pt").contains("cut short"));
}

#[test]
fn headers_that_lie_are_refused() {
    let place = TestDir::new();
    let with_header = |header: &str, n_data: usize| {
        let mut out = (header.len() as u64).to_le_bytes().to_vec();
        out.extend_from_slice(header.as_bytes());
        out.extend(vec![0; n_data]);
        out
    };
    for bytes in [
        u64::MAX.to_le_bytes().to_vec(),
        (1_u64 << 26).to_le_bytes().to_vec(),
        with_header("{", 0),
        with_header("[]", 0),
        with_header(r#"{"a":{}}"#, 0),
        with_header(r#"{"a":{"data_offsets":[8,0]}}"#, 8),
        with_header(r#"{"a":{"data_offsets":[0,-1]}}"#, 8),
        with_header(r#"{"a":{"data_offsets":[0,18446744073709551615]}}"#, 8),
        with_header(r#"{"a":{"data_offsets":[0,7]}}"#, 8),
        with_header(&"[".repeat(100_000), 8),
    ] {
        place.put("a.safetensors", &bytes, 1);
        place.refused("a.safetensors");
    }
    place.put("a.pt", b"\x00\x00\x00\x00 zeros of a file system", 1);
    place.refused("a.pt");
}

#[test]
fn pickles_and_other_files_are_taken_as_far_as_they_can_be_judged() {
    let place = TestDir::new();
    let mut legacy = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.".to_vec();
    place.put("a.pth", &legacy, 1);
    assert!(place.refused("a.pth").contains("cut short"));
    legacy.extend([1; 200]);
    place.put("a.pth", &legacy, 1);
    let (_, kind, _) = place.chosen("a.pth").unwrap();
    assert_eq!(kind, CheckpointKind::Pickle);
    assert!(!kind.proves_completeness());
    place.put("weights.npz", b"anything", 1);
    assert_eq!(place.chosen("*.npz").unwrap().1, CheckpointKind::Other);
    // A training of other tools, or a test, writes text.
    place.put("b.pt", b"step 12\n", 1);
    assert_eq!(place.chosen("b.pt").unwrap().1, CheckpointKind::Other);
}

#[test]
fn a_directory_of_hugging_face_needs_all_of_its_parts() {
    let place = TestDir::new();
    let write_all = |place: &TestDir| {
        place.put("out/checkpoint-500/model.safetensors", &safetensors(), 5);
        place.put("out/checkpoint-500/optimizer.pt", &torch(), 5);
        place.put("out/checkpoint-500/scheduler.pt", &torch(), 5);
        place.put("out/checkpoint-500/rng_state.pth", &torch(), 5);
        place.put(
            "out/checkpoint-500/trainer_state.json",
            br#"{"global_step": 501}"#,
            5,
        );
    };
    write_all(&place);
    assert_eq!(
        place.chosen("out/checkpoint-*"),
        Some((
            "out/checkpoint-500".into(),
            CheckpointKind::HuggingFace,
            Some(501)
        ))
    );
    // Whatever is named, a part of it is not a checkpoint.
    assert_eq!(place.chosen("out/**").unwrap().0, "out/checkpoint-500");
    let part = |name: &str| place.at("out/checkpoint-500").join(name);
    for (name, why) in [
        ("trainer_state.json", "`trainer_state.json` is missing"),
        ("model.safetensors", "`model.safetensors` is missing"),
    ] {
        fs::remove_file(part(name)).unwrap();
        assert_eq!(place.refused("out/checkpoint-*"), why);
        write_all(&place);
    }
    for name in [
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "model.safetensors",
        "trainer_state.json",
    ] {
        let whole = fs::read(part(name)).unwrap();
        fs::write(part(name), &whole[..whole.len() / 2]).unwrap();
        let why = place.refused("out/checkpoint-*");
        assert!(why.starts_with(&format!("`{name}` in it: ")), "{why}");
        write_all(&place);
    }
    fs::rename(
        place.at("out/checkpoint-500"),
        place.at("out/tmp-checkpoint-500"),
    )
    .unwrap();
    assert!(place.refused("out/*checkpoint-*").contains("being written"));
}

#[test]
fn every_shard_of_a_model_has_to_be_there() {
    let place = TestDir::new();
    let index =
        br#"{"metadata":{},"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}}"#;
    place.put("checkpoint-7/model.safetensors.index.json", index, 1);
    place.put("checkpoint-7/model-1.safetensors", &safetensors(), 1);
    place.put("checkpoint-7/trainer_state.json", b"{\"global_step\":7}", 1);
    assert_eq!(
        place.refused("checkpoint-*"),
        "`model-2.safetensors` is missing"
    );
    place.put("checkpoint-7/model-2.safetensors", &safetensors(), 1);
    assert_eq!(place.chosen("checkpoint-*").unwrap().2, Some(7));
    for hostile in [
        &br#"{"weight_map":{"a":"../../etc/passwd"}}"#[..],
        br#"{"weight_map":{"a":"/etc/passwd"}}"#,
        br#"{"weight_map":{}}"#,
        br#"{"weight_map":["#,
        b"[]",
    ] {
        place.put("checkpoint-7/model.safetensors.index.json", hostile, 1);
        place.refused("checkpoint-*");
    }
}

#[test]
fn directories_of_pytorch_and_deepspeed_are_known() {
    let place = TestDir::new();
    // A text in a pickle has its length before it; 49 is the letter `1`.
    place.put(
        "dcp/.metadata",
        b"\x80\x041__0_0.distcpq\x00\x0c__1_0.distcp.",
        1,
    );
    place.put("dcp/__0_0.distcp", b"bytes", 1);
    assert_eq!(place.refused("dcp"), "`__1_0.distcp` is missing");
    place.put("dcp/__1_0.distcp", b"", 1);
    assert_eq!(place.refused("dcp"), "`__1_0.distcp` in it: it is empty");
    place.put("dcp/__1_0.distcp", b"bytes", 1);
    assert_eq!(place.chosen("dcp").unwrap().1, CheckpointKind::Distributed);
    place.put("dcp/.metadata", b"\x80\x04 __0_0.distcp", 1);
    assert!(place.refused("dcp").contains("no whole pickle"));

    place.put("ds/latest", b"global_step30\n", 1);
    assert_eq!(place.refused("ds"), "`global_step30` is missing");
    place.put("ds/global_step30/mp_rank_00_model_states.pt", &torch(), 1);
    assert_eq!(
        place.chosen("ds"),
        Some(("ds".into(), CheckpointKind::DeepSpeed, Some(30)))
    );
    place.put("ds/global_step30/zero_optim_states.pt", &torch()[..99], 1);
    assert!(place.refused("ds").contains("zero_optim_states.pt"));
    place.put("ds/latest", b"../ds", 1);
    assert!(place.refused("ds").contains("elsewhere"));
    // A message shows names, and a file may hold a long one.
    place.put("ds/latest", &[b'x'; 4000], 1);
    assert!(place.refused("ds").contains("elsewhere"));

    place.put("empty/readme.txt", b"nothing", 1);
    assert_eq!(
        place.refused("empty"),
        "a directory of no known kind of checkpoint"
    );
}

#[test]
fn links_that_turn_in_circles_and_pipes_do_not_hold_it_up() {
    let place = TestDir::new();
    place.put("a/b/last.pt", &torch(), 1);
    symlink(place.at("a"), place.at("a/b/up")).unwrap();
    symlink(place.at("loop"), place.at("loop")).unwrap();
    symlink(place.at("nowhere"), place.at("a/gone.pt")).unwrap();
    assert_eq!(place.chosen("**/last.pt").unwrap().0, "a/b/last.pt");
    assert_eq!(place.chosen("*/*/*/*/*.pt").unwrap().0, "a/b/up/b/last.pt");
    assert_eq!(place.chosen("loop/**"), None);
    assert_eq!(place.chosen("a/gone.pt"), None);
    // A link to the newest file is what many trainings keep.
    symlink("b/last.pt", place.at("a/newest.pt")).unwrap();
    assert_eq!(place.chosen("a/newest.pt").unwrap().0, "a/newest.pt");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.at("pipe.pt"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    assert_eq!(place.refused("pipe.pt"), "neither a file nor a directory");
}
