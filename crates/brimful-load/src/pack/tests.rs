use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brimful::units::Bytes;
use proptest::prelude::*;

use super::*;
use crate::array::DType;
use crate::array::{Encoding, Field, FieldSpec};
use crate::error::ReadError;
use crate::reading::{Access, Choice};
use crate::source::Source;
use crate::sources::testing::{HEADROOMS, all_bytes, check_threads, fixture, sample};
use crate::sources::{TokenForm, Tokens};
use crate::text::WordCache;
use crate::value::Value;

/// Texts in memory.
#[derive(Debug)]
struct Texts {
    all: Vec<Vec<u8>>,
    fields: Vec<Field>,
    choice: Choice,
}

impl Texts {
    fn pipeline<T: Into<Vec<u8>>>(texts: impl IntoIterator<Item = T>) -> Pipeline {
        Pipeline::new(Arc::new(Texts {
            all: texts.into_iter().map(Into::into).collect(),
            fields: vec![Field {
                name: "text".to_owned(),
                spec: FieldSpec::Encoded(Encoding::Text),
            }],
            choice: Choice {
                access: Access::Read,
                reason: String::new(),
            },
        }))
    }
}

impl Source for Texts {
    fn len(&self) -> u64 {
        self.all.len() as u64
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn max_sample_bytes(&self) -> u64 {
        self.all.iter().map(Vec::len).max().unwrap_or(0) as u64
    }

    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError> {
        let text = &self.all[usize::try_from(index).unwrap()];
        assert_ne!(text, b"panic", "as asked for");
        let piece = values[0].set_encoded(text.len());
        piece.own(text.len()).copy_from_slice(text);
        Ok(())
    }

    fn place(&self, index: u64) -> String {
        format!("text {index}")
    }

    fn choice(&self) -> &Choice {
        &self.choice
    }
}

fn tokenizer(name: &str) -> Arc<Tokenizer> {
    let path = fixture(&format!("tokenizers/{name}.json"));
    Arc::new(Tokenizer::open(&path).unwrap())
}

fn settings(threads: usize) -> PackSettings {
    PackSettings {
        field: "text".to_owned(),
        stored: None,
        end_id: Some(0),
        special_tokens: false,
        threads: Some(threads),
        memory: Bytes::from_gib(1),
    }
}

fn packed(
    pipeline: &Pipeline,
    tokenizer: &Arc<Tokenizer>,
    path: &Path,
    settings: &PackSettings,
) -> Result<Packed, PackError> {
    let mut packing = Packing::start(pipeline, Arc::clone(tokenizer), path, settings)?;
    loop {
        if let Some(packed) = packing.wait(Duration::from_mins(1))? {
            assert_eq!(packing.done(), packing.total());
            return Ok(packed);
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Packs with one, two and five threads, and reads back tokens, documents and positions.
fn check(texts: &[String], settings_of: &PackSettings, tokenizer: &Arc<Tokenizer>, block: usize) {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("tokens.bin");
    let pipeline = Texts::pipeline(texts.iter().map(String::as_str));
    let mut words = WordCache::default();
    let documents: Vec<Vec<u32>> = texts
        .iter()
        .map(|text| {
            let mut ids = Vec::new();
            tokenizer
                .append(text, usize::MAX, &mut words, &mut ids)
                .unwrap();
            let (before, behind) = if settings_of.special_tokens {
                tokenizer.around()
            } else {
                (&[][..], &[][..])
            };
            let end = settings_of.end_id.as_slice();
            [before, &ids, behind, end].concat()
        })
        .collect();
    let mut files = Vec::new();
    for threads in [1, 2, 5] {
        let settings = PackSettings {
            threads: Some(threads),
            ..settings_of.clone()
        };
        let packed = packed(&pipeline, tokenizer, &path, &settings).unwrap();
        assert_eq!(packed.documents, texts.len() as u64);
        assert_eq!(packed.tokens, documents.concat().len() as u64);
        assert_eq!(names(folder.path()), ["tokens.bin", "tokens.bin.documents"]);
        let beside = folder.path().join("tokens.bin.documents");
        files.push([
            std::fs::read(&path).unwrap(),
            std::fs::read(beside).unwrap(),
        ]);
    }
    assert!(files.iter().all(|pair| *pair == files[0]));

    let mut expected = Vec::new();
    for document in &documents {
        expected.extend(document.iter().zip(0..).map(|(&id, place)| (id, place)));
    }
    for headroom in HEADROOMS {
        let form = TokenForm {
            stored: None,
            block,
            as_i64: true,
        };
        let source = Tokens::open_with_documents(&path, form, headroom).unwrap();
        assert_eq!(source.len(), (expected.len() / block) as u64);
        for (index, expected) in (0..source.len()).zip(expected.chunks(block)) {
            let values = sample(&source, index);
            let ids: Vec<i64> = values[0].elements().into_owned();
            let numbers: Vec<i32> = values[1].elements().into_owned();
            let positions: Vec<i32> = values[2].elements().into_owned();
            let mut number = 0;
            for (at, &(id, position)) in expected.iter().enumerate() {
                number += i32::from(at > 0 && position == 0);
                assert_eq!(
                    (ids[at], numbers[at], positions[at]),
                    (i64::from(id), number, position)
                );
            }
        }
        all_bytes(&source);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_packed_is_read_back(
        texts in proptest::collection::vec("[a-c ]{0,30}|\\PC{0,8}", 0..60),
        block in 1_usize..40,
        has_end in any::<bool>(),
        special_tokens in any::<bool>(),
        is_wide in any::<bool>(),
    ) {
        let settings = PackSettings {
            end_id: has_end.then_some(0),
            stored: is_wide.then_some(DType::U32),
            special_tokens,
            ..settings(1)
        };
        check(&texts, &settings, &tokenizer("word_piece"), block);
    }
}

#[test]
fn documents_longer_than_what_may_wait_are_written_in_their_turn() {
    // Lone spaces, so that a cut changes nothing; two long ones at the end of a run and one at the beginning.
    let long = "a. ".repeat(40_000);
    let texts: Vec<String> = (0..24)
        .map(|at| match at {
            6..=8 => long.clone(),
            _ => format!("short {at}"),
        })
        .collect();
    let settings = PackSettings {
        stored: Some(DType::U32),
        ..settings(1)
    };
    check(&texts, &settings, &tokenizer("word_piece"), 1000);
}

#[test]
fn many_short_documents_are_packed_in_order() {
    let texts: Vec<String> = (0..20_000).map(|at| format!("{at}")).collect();
    check(&texts, &settings(1), &tokenizer("byte_level"), 2048);
}

#[test]
fn blocks_with_more_documents_than_a_page_of_starts_are_right() {
    let texts: Vec<String> = (0..3000)
        .map(|at| if at % 7 == 0 { "a" } else { "" }.to_owned())
        .collect();
    let settings = PackSettings {
        end_id: None,
        ..settings(1)
    };
    check(&texts, &settings, &tokenizer("byte_level"), 200);
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("tokens.bin");
    let pipeline = Texts::pipeline(texts);
    packed(&pipeline, &tokenizer("byte_level"), &path, &settings).unwrap();
    let form = TokenForm {
        stored: Some(DType::U16),
        block: 64,
        as_i64: false,
    };
    check_threads(&Tokens::open_with_documents(&path, form, None).unwrap());
}

#[test]
fn the_first_text_that_fails_is_named_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.bin");
    std::fs::write(&path, b"what was there").unwrap();
    for bad in [&b"\xff\xfe"[..], b"panic"] {
        let texts = (0..500).map(|at| match at {
            123 | 300 => bad.to_vec(),
            _ => b"good".to_vec(),
        });
        let pipeline = Texts::pipeline(texts);
        for threads in [1, 5] {
            let error = packed(
                &pipeline,
                &tokenizer("byte_level"),
                &path,
                &settings(threads),
            );
            let Err(PackError::Sample(error)) = error else {
                panic!("{error:?}");
            };
            assert_eq!(error.index, 123);
            assert_eq!(error.to_string(), "text 123, field \"text\"");
            assert_eq!(names(folder.path()), ["tokens.bin"]);
        }
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"what was there");
}

#[test]
fn a_packing_that_is_dropped_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.bin");
    let pipeline = Texts::pipeline((0..100_000).map(|at| format!("text {at}")));
    let tokenizer = tokenizer("byte_level");
    let mut packing =
        Packing::start(&pipeline, Arc::clone(&tokenizer), &path, &settings(3)).unwrap();
    assert!(packing.wait(Duration::from_millis(5)).unwrap().is_none());
    assert!(!path.exists());
    let busy = Packing::start(&pipeline, tokenizer, &path, &settings(1)).unwrap_err();
    assert!(matches!(busy, PackError::Busy { .. }), "{busy}");
    drop(packing);
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.bin");
    let pipeline = Texts::pipeline(["a"]);
    let refused = |settings: PackSettings| {
        packed(&pipeline, &tokenizer("byte_level"), &path, &settings)
            .unwrap_err()
            .to_string()
    };
    let found = refused(PackSettings {
        threads: Some(0),
        ..settings(1)
    });
    assert_eq!(found, "threads must be at least 1, found 0");
    let found = refused(PackSettings {
        stored: Some(DType::U16),
        end_id: Some(70_000),
        ..settings(1)
    });
    assert_eq!(
        found,
        "dtype must be uint32 for tokens up to 70000, found uint16"
    );
    let found = refused(PackSettings {
        stored: Some(DType::I64),
        ..settings(1)
    });
    assert_eq!(found, "dtype must be uint16 or uint32, found int64");
    let found = refused(PackSettings {
        memory: Bytes::from_mib(1),
        ..settings(1)
    });
    assert!(found.starts_with("memory budget of"), "{found}");
    let found = refused(PackSettings {
        field: "words".to_owned(),
        ..settings(1)
    });
    assert!(found.contains("no field \"words\""), "{found}");
    let wide = PackSettings {
        end_id: Some(70_000),
        ..settings(1)
    };
    let made = packed(&pipeline, &tokenizer("byte_level"), &path, &wide).unwrap();
    assert_eq!(made.stored, DType::U32);
}

#[test]
fn documents_that_do_not_fit_their_tokens_are_refused() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("tokens.bin");
    let beside = folder.path().join("tokens.bin.documents");
    packed(
        &Texts::pipeline(["a", "b c", "d"]),
        &tokenizer("byte_level"),
        &path,
        &settings(1),
    )
    .unwrap();
    let sound = std::fs::read(&beside).unwrap();
    let form = TokenForm {
        stored: None,
        block: 2,
        as_i64: false,
    };
    let refused = |expected: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = sound.clone();
        change(&mut bytes);
        std::fs::write(&beside, &bytes).unwrap();
        for headroom in HEADROOMS {
            let error = Tokens::open_with_documents(&path, form, headroom)
                .unwrap_err()
                .to_string();
            assert!(error.contains("tokens.bin.documents"), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    };
    refused("found 31 bytes", &|bytes| bytes.truncate(31));
    refused("found something else", &|bytes| bytes[0] = b'B');
    refused("version 2", &|bytes| bytes[8] = 2);
    refused("tokens of 2 or 4 bytes, found 3", &|bytes| bytes[12] = 3);
    refused("the documents of", &|bytes| bytes[12] = 4);
    refused("the starts of 4 documents", &|bytes| bytes[16] = 4);
    refused("the starts of 18446744073709551615", &|bytes| {
        bytes[16..24].fill(0xff);
    });
    refused("a file of 63 bytes", &|bytes| bytes.truncate(63));
    refused("start 0 of a document from 0 to 0, found 1", &|bytes| {
        bytes[32] = 1;
    });
    refused("start 2 of a document from 2", &|bytes| bytes[48] = 1);
    refused("start 2 of a document from 2", &|bytes| bytes[48] = 99);
    refused("start 1 of a document", &|bytes| bytes[40..48].fill(0xff));
    refused("documents up to the end at", &|bytes| bytes[56] -= 1);
    // The tokens do not fit: another number of them.
    std::fs::write(&beside, &sound).unwrap();
    std::fs::write(&path, [0; 4]).unwrap();
    let error = Tokens::open_with_documents(&path, form, None)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("expected the documents of 2 tokens of 2 bytes"),
        "{error}"
    );
    // Every byte of it broken in every way is an error or is read.
    for at in 0..sound.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = sound.clone();
            bytes[at] ^= flip;
            std::fs::write(&beside, &bytes).unwrap();
            for headroom in HEADROOMS {
                if let Ok(source) = Tokens::open_with_documents(&path, form, headroom) {
                    all_bytes(&source);
                }
            }
        }
    }
}

#[test]
fn starts_that_change_later_are_an_error() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("tokens.bin");
    packed(
        &Texts::pipeline(["a", "b c", "d"]),
        &tokenizer("byte_level"),
        &path,
        &settings(1),
    )
    .unwrap();
    let form = TokenForm {
        stored: None,
        block: 2,
        as_i64: false,
    };
    for headroom in HEADROOMS {
        let source = Tokens::open_with_documents(&path, form, headroom).unwrap();
        let beside = folder.path().join("tokens.bin.documents");
        let sound = std::fs::read(&beside).unwrap();
        for fill in [0, 0xff] {
            let mut bytes = sound.clone();
            bytes[32..].fill(fill);
            // In place: the file is open.
            std::os::unix::fs::FileExt::write_all_at(
                &std::fs::File::options().write(true).open(&beside).unwrap(),
                &bytes,
                0,
            )
            .unwrap();
            let mut values = vec![Value::default(); 3];
            assert!(source.read(0, &mut values).is_err());
        }
        std::fs::write(&beside, &sound).unwrap();
    }
}
