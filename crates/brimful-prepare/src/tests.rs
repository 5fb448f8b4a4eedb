use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brimful::units::Bytes;
use brimful_load::expression::{Expression, OpExpression, SourceExpression};
use brimful_load::sources::{ArrowFile, Lines, TokenForm, Tokens};
use brimful_load::{DType, Opening, Source, Value};

use super::*;

fn tokenizer() -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/load");
    fixtures.join("tokenizers/byte_level.json")
}

/// Documents of words that say where they are from.
fn text(folder: &Path, documents: u64) -> PathBuf {
    let mut lines = String::new();
    for number in 0..documents {
        let words = format!("word{number} ").repeat(usize::try_from(number % 40).unwrap() + 1);
        let _ = writeln!(lines, "{{\"text\": \"{words}\"}}");
    }
    let path = folder.join("text.jsonl");
    fs::write(&path, lines).unwrap();
    path
}

fn recipe_of_text(path: &Path) -> Recipe {
    Recipe {
        block: Some(33),
        seed: 1,
        shard: Bytes::from_mib(1),
        split: Bytes::from_mib(1),
        ..Recipe::of(Expression {
            source: SourceExpression {
                lines: Some(vec![path.to_owned()].into()),
                json: Some("text".to_owned()),
                ..SourceExpression::default()
            },
            ops: vec![OpExpression {
                tokenize: Some(tokenizer()),
                end_id: Some(0),
                ..OpExpression::default()
            }],
        })
    }
}

fn prepared_with(
    recipe: &Recipe,
    out: &Path,
    threads: usize,
    memory: Bytes,
) -> Result<Prepared, PrepareError> {
    let settings = LocalSettings {
        memory,
        threads: Some(threads),
    };
    let preparing = Preparing::start(recipe.clone(), out, settings)?;
    loop {
        if let Some(prepared) = preparing.wait(Duration::from_millis(20))? {
            return Ok(prepared);
        }
    }
}

fn prepared(recipe: &Recipe, out: &Path) -> Result<Manifest, PrepareError> {
    prepared_with(recipe, out, 2, Bytes::from_mib(512)).map(|prepared| prepared.manifest)
}

fn samples(source: &dyn Source) -> Vec<Vec<u8>> {
    let mut values = vec![Value::default(); source.fields().len()];
    (0..source.len())
        .map(|index| {
            source.read(index, &mut values).unwrap();
            values[0].bytes().to_vec()
        })
        .collect()
}

fn blocks(manifest: &Manifest, out: &Path) -> Vec<Vec<u8>> {
    let form = TokenForm {
        stored: None,
        block: 33,
        as_i64: false,
    };
    let shards = manifest.shards.iter();
    shards
        .flat_map(|shard| {
            let path = out.join(&shard.file);
            let source = Tokens::open_with_documents(&path, form, None).unwrap();
            assert_eq!(source.len(), shard.samples);
            samples(&source)
        })
        .collect()
}

/// How often each token occurs.
fn counts(tokens: impl IntoIterator<Item = u16>) -> Vec<u64> {
    let mut counts = vec![0; 1 << 16];
    for token in tokens {
        counts[usize::from(token)] += 1;
    }
    counts
}

fn of_bytes(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|token| u16::from_le_bytes(*token))
}

#[test]
fn every_token_is_in_one_block_and_the_result_is_the_same_however_it_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(folder.path(), 30_000);
    let recipe = recipe_of_text(&path);
    let mut digests = BTreeSet::new();
    for (at, (threads, memory)) in [(1, 512), (2, 512), (8, 1024), (2, 96)]
        .into_iter()
        .enumerate()
    {
        let out = folder.path().join(format!("out{at}"));
        let made = prepared_with(&recipe, &out, threads, Bytes::from_mib(memory)).unwrap();
        digests.insert(made.manifest.digest.clone());
        let left: Vec<_> = fs::read_dir(&out).unwrap().flatten().collect();
        assert_eq!(left.len(), 2 * made.manifest.shards.len() + 1, "{left:?}");
    }
    assert_eq!(digests.len(), 1);
    let out = folder.path().join("out0");
    let manifest = prepared(&recipe, &out).unwrap();
    assert!(manifest.shards.len() > 4);
    assert_eq!(manifest.documents, 30_000);
    assert_eq!(
        manifest.tokens,
        manifest.samples * 33 + manifest.dropped_tokens
    );
    assert!(manifest.dropped_tokens < 33);
    // The same tokens as one pass over the file gives, without those at the end.
    let made = blocks(&manifest, &out);
    let mut found = counts(made.iter().flat_map(|block| of_bytes(block)));
    let plain = packed(&path, folder.path());
    let expected = counts(of_bytes(&plain));
    let missing: u64 = expected.iter().zip(&found).map(|(a, b)| a - b).sum();
    assert_eq!(missing, manifest.dropped_tokens);
    found.clear();
    // Shuffled: neighbors in the file are not neighbors here.
    let whole: Vec<&[u8]> = plain.chunks_exact(66).collect();
    let in_place = whole.iter().zip(&made).filter(|(a, b)| ***a == **b).count();
    assert!(in_place < 20, "{in_place}");
}

/// The tokens of all documents in order.
fn packed(path: &Path, folder: &Path) -> Vec<u8> {
    use std::sync::Arc;

    use brimful_load::Pipeline;
    use brimful_load::pack::{PackSettings, Packing};
    use brimful_load::text::Tokenizer;
    let lines = Lines::open(
        &[path.to_owned()],
        Some("text".to_owned()),
        &Opening::default(),
    );
    let pipeline = Pipeline::new(Arc::new(lines.unwrap()));
    let settings = PackSettings {
        field: "text".to_owned(),
        stored: Some(DType::U16),
        end_id: Some(0),
        special_tokens: false,
        threads: Some(2),
        memory: Bytes::from_mib(512),
    };
    let tokenizer = Arc::new(Tokenizer::open(&tokenizer()).unwrap());
    let out = folder.join("plain.bin");
    let mut packing = Packing::start(&pipeline, tokenizer, &out, &settings).unwrap();
    while packing.wait(Duration::from_secs(1)).unwrap().is_none() {}
    fs::read(out).unwrap()
}

#[test]
fn documents_begin_where_they_did() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(folder.path(), 2_000);
    let out = folder.path().join("out");
    let manifest = prepared(&recipe_of_text(&path), &out).unwrap();
    let form = TokenForm {
        stored: None,
        block: 33,
        as_i64: false,
    };
    let source = Tokens::open_with_documents(&out.join(&manifest.shards[0].file), form, None);
    let source = source.unwrap();
    let mut values = vec![Value::default(); 3];
    // Beginnings that are no document's: where the leftovers of two meet, which is seldom.
    let mut n_inside = 0;
    for index in 0..source.len() {
        source.read(index, &mut values).unwrap();
        let tokens: Vec<u16> = values[0].elements().into_owned();
        let documents: Vec<i32> = values[1].elements().into_owned();
        let positions: Vec<i32> = values[2].elements().into_owned();
        assert_eq!((documents[0], positions[0]), (0, 0));
        for at in 1..tokens.len() {
            // Every document ends with a 0, which no text has; blocks of leftovers have more beginnings.
            if tokens[at - 1] == 0 {
                assert_eq!(positions[at], 0, "block {index}, token {at}");
                assert_eq!(documents[at], documents[at - 1] + 1);
            } else if positions[at] == 0 {
                n_inside += 1;
            }
        }
    }
    assert!(n_inside < source.len(), "{n_inside} of {}", source.len());
}

#[test]
fn what_is_finished_is_kept_and_what_is_torn_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(folder.path(), 20_000);
    let recipe = recipe_of_text(&path);
    let whole = prepared(&recipe, &folder.path().join("whole")).unwrap();
    let out = folder.path().join("out");
    let preparation = Preparation::begin(&recipe, &out).unwrap();
    drop(preparation.lock().unwrap());
    let memory = Bytes::from_mib(256);
    preparation.run_map_task(1, memory).unwrap();
    preparation.run_map_task(0, memory).unwrap();
    let kept = preparation.work().run(1);
    let before = fs::metadata(&kept).unwrap().modified().unwrap();
    // Torn by somebody else, and left over by an attempt that was killed.
    let torn = preparation.work().run(0);
    let bytes = fs::read(&torn).unwrap();
    fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    let left = out.join("shard-00000.tokens.attempt-host-1-0");
    fs::write(&left, "half").unwrap();
    for task in 0..=preparation.map_tasks() {
        preparation.run_map_task(task, memory).unwrap();
    }
    preparation.run_shard_task(0, memory).unwrap();
    assert_eq!(fs::metadata(&kept).unwrap().modified().unwrap(), before);
    assert_eq!(prepared(&recipe, &out).unwrap().digest, whole.digest);
    assert!(!left.exists());
    assert!(!preparation.work().work().exists());
    // Once more: it is there.
    let again = prepared_with(&recipe, &out, 1, memory).unwrap();
    assert!(again.was_finished);
    assert_eq!(again.manifest.digest, whole.digest);
}

#[test]
fn other_recipes_changed_inputs_and_full_directories_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(folder.path(), 3_000);
    let recipe = recipe_of_text(&path);
    let out = folder.path().join("out");
    prepared(&recipe, &out).unwrap();
    let other = Recipe {
        seed: 2,
        ..recipe.clone()
    };
    assert!(matches!(
        prepared(&other, &out),
        Err(PrepareError::OtherRecipe { .. })
    ));
    let begun = folder.path().join("begun");
    let busy = Preparation::begin(&recipe, &begun).unwrap();
    let lock = busy.lock().unwrap();
    assert!(matches!(
        prepared(&recipe, &begun),
        Err(PrepareError::Busy { .. })
    ));
    drop(lock);
    assert!(matches!(
        prepared(&other, &begun),
        Err(PrepareError::OtherRecipe { .. })
    ));
    fs::remove_file(out.join("shard-00000.tokens")).unwrap();
    assert!(matches!(
        prepared(&recipe, &out),
        Err(PrepareError::Damaged { .. })
    ));
    fs::write(&path, "{\"text\": \"changed\"}\n").unwrap();
    for out in [&out, &begun] {
        assert!(matches!(
            prepared(&recipe, out),
            Err(PrepareError::ChangedInput { .. })
        ));
    }
    let full = folder.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("thesis.tex"), "mine").unwrap();
    assert!(matches!(
        prepared(&recipe, &full),
        Err(PrepareError::NotEmpty { .. })
    ));
    assert_eq!(fs::read_dir(&full).unwrap().count(), 1);
}

#[test]
fn samples_that_fail_are_skipped_and_named_if_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.jsonl");
    fs::write(
        &path,
        "{\"text\": \"good\"}\nnot json\n{\"other\": 1}\n{\"text\": \"more of it\"}\n",
    )
    .unwrap();
    let mut recipe = Recipe {
        block: Some(2),
        ..recipe_of_text(&path)
    };
    assert!(matches!(
        prepared(&recipe, &folder.path().join("a")),
        Err(PrepareError::Sample(_))
    ));
    recipe.on_error = OnSampleError::Skip;
    let manifest = prepared(&recipe, &folder.path().join("b")).unwrap();
    assert_eq!(manifest.documents, 2);
    assert_eq!(manifest.skipped.count, 2);
    assert!(manifest.skipped.reasons[0].starts_with("text.jsonl, object 2 at byte 17"));
}

#[test]
fn numbers_become_arrow_shards() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.txt");
    let lines: Vec<String> = (0..300_000).map(|number| number.to_string()).collect();
    fs::write(&path, lines.join("\n")).unwrap();
    let source = SourceExpression {
        lines: Some(vec![path].into()),
        ..SourceExpression::default()
    };
    let cast = OpExpression {
        cast: Some("int64".to_owned()),
        ..OpExpression::default()
    };
    let recipe = Recipe {
        seed: 7,
        shard: Bytes::from_mib(1),
        split: Bytes::from_mib(1),
        ..Recipe::of(Expression {
            source,
            ops: vec![cast],
        })
    };
    let out = folder.path().join("out");
    let manifest = prepared(&recipe, &out).unwrap();
    assert_eq!(manifest.samples, 300_000);
    assert_eq!(manifest.shards.len(), 3);
    let paths: Vec<PathBuf> = manifest
        .shards
        .iter()
        .map(|shard| out.join(&shard.file))
        .collect();
    let source = ArrowFile::open(&paths, None, None).unwrap();
    let found = samples(&source);
    let numbers: Vec<i64> = found
        .iter()
        .map(|bytes| i64::from_le_bytes(bytes[..].try_into().unwrap()))
        .collect();
    let all: BTreeSet<i64> = numbers.iter().copied().collect();
    assert_eq!(all.len(), 300_000);
    assert_eq!((all.first(), all.last()), (Some(&0), Some(&299_999)));
    // Origin against position in a table of 20 x 20: chi-squared of 361 degrees of freedom, below which 99.9 % are.
    let mut table = [[0_f64; 20]; 20];
    for (position, number) in numbers.iter().enumerate() {
        table[position / 15_000][usize::try_from(*number).unwrap() / 15_000] += 1.0;
    }
    let expected = 15_000.0 / 20.0;
    let chi: f64 = table
        .iter()
        .flatten()
        .map(|n| (n - expected).powi(2) / expected)
        .sum();
    assert!(chi < 449.0 && chi > 285.0, "{chi}");
}

#[test]
fn too_little_memory_is_refused_with_what_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let path = text(folder.path(), 100);
    let recipe = recipe_of_text(&path);
    let error = prepared_with(&recipe, &folder.path().join("out"), 1, Bytes::from_mib(2));
    let Err(PrepareError::TooLittleMemory { needed, .. }) = error else {
        panic!("{error:?}");
    };
    prepared_with(&recipe, &folder.path().join("out"), 1, needed).unwrap();
}
