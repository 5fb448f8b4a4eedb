use std::path::PathBuf;

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::sources::testing::fixture;

const NAMES: [&str; 4] = ["byte_level", "word_piece", "whole_text", "pieces"];

fn open(name: &str) -> Tokenizer {
    Tokenizer::open(&fixture(&format!("tokenizers/{name}.json"))).unwrap()
}

fn encoded(tokenizer: &Tokenizer, text: &str, words: &mut WordCache) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.append(text, usize::MAX, words, &mut ids).unwrap();
    ids
}

/// What the library for Python makes of a text.
#[derive(Deserialize)]
struct Case {
    text: String,
    plain: Vec<u32>,
    first_16: Vec<u32>,
}

fn expected(name: &str) -> Vec<Case> {
    let bytes = std::fs::read(fixture("tokenizers/expected.json")).unwrap();
    let mut all: Value = serde_json::from_slice(&bytes).unwrap();
    serde_json::from_value(all[name].take()).unwrap()
}

#[test]
fn byte_level_tokens_are_shown_as_their_text() {
    let tokenizer = open("byte_level");
    for Case { text, plain, .. } in expected("byte_level") {
        assert_eq!(tokenizer.text_of(&plain).as_deref(), Some(text.as_str()));
    }
    assert_eq!(tokenizer.text_of(&[u32::MAX]).as_deref(), Some(""));
}

#[test]
fn tokens_are_those_of_the_library_for_python() {
    // One memory of words for all: they do not see each other's.
    let mut words = WordCache::default();
    let tokenizers = NAMES.map(open);
    for _ in 0..2 {
        for (name, tokenizer) in NAMES.iter().zip(&tokenizers) {
            for Case {
                text,
                plain,
                first_16,
            } in expected(name)
            {
                assert_eq!(
                    encoded(tokenizer, &text, &mut words),
                    plain,
                    "{name}: {text:?}"
                );
                let (before, behind) = tokenizer.around();
                let mut ids = Vec::new();
                let n = 16 - before.len() - behind.len();
                tokenizer
                    .first(&text, n, 1 << 20, &mut words, &mut ids)
                    .unwrap();
                assert_eq!(
                    [before, &ids, behind].concat(),
                    first_16,
                    "{name}: {text:?}"
                );
            }
        }
    }
    assert!(!tokenizers::parallelism::has_parallelism_been_used());
}

#[test]
fn a_tokenizer_says_what_it_fills_up_with_and_its_largest_token() {
    let facts = NAMES.map(open).map(|tokenizer| {
        let (before, behind) = tokenizer.around();
        let around = (before.to_vec(), behind.to_vec());
        (tokenizer.pad_id(), tokenizer.largest_id(), around)
    });
    assert_eq!(facts[0], (Some(1), 419, (vec![], vec![])));
    assert_eq!(facts[1], (None, 259, (vec![2], vec![3])));
    assert_eq!(facts[2].2, (vec![1], vec![]));
    assert_eq!(facts[3].2, (vec![], vec![]));
    let folder = tempfile::tempdir().unwrap();
    let json = std::fs::read(fixture("tokenizers/pieces.json")).unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), json).unwrap();
    assert_eq!(
        Tokenizer::open(folder.path()).unwrap().largest_id(),
        facts[3].1
    );
}

#[test]
fn a_refusal_quotes_little_of_the_file() {
    let long = format!("\u{1b}{}", "x".repeat(100_000));
    for part in ["padding", "version", "added_tokens", "model"] {
        let (_folder, path) = changed("byte_level", |all| all[part] = long.as_str().into());
        let message = Tokenizer::open(&path).unwrap_err().to_string();
        assert!(message.len() < 2000, "{part}: {} bytes", message.len());
        assert!(
            message.chars().all(brimful::printable::is_printable),
            "{message:?}"
        );
    }
}

#[test]
fn the_beginning_of_a_long_text_is_that_of_the_whole() {
    let mut words = WordCache::default();
    let text: String = expected("byte_level")
        .iter()
        .cycle()
        .take(150)
        .flat_map(|case| [case.text.as_str(), " "])
        .collect();
    let spaces = format!("{}end", " ".repeat(30_000));
    for (tokenizer, text) in NAMES
        .iter()
        .flat_map(|name| [(open(name), &text), (open(name), &spaces)])
    {
        let whole = encoded(&tokenizer, text, &mut words);
        for n in [0, 1, 7, 100, 1000] {
            let mut ids = Vec::new();
            tokenizer
                .first(text, n, usize::MAX, &mut words, &mut ids)
                .unwrap();
            assert_eq!(ids, whole[..n.min(whole.len())], "{tokenizer:?}, {n}");
        }
    }
}

#[test]
fn a_text_is_cut_at_a_character() {
    let tokenizer = open("byte_level");
    let (mut ids, mut words) = (Vec::new(), WordCache::default());
    tokenizer
        .first("日本語", 100, 7, &mut words, &mut ids)
        .unwrap();
    assert_eq!(ids, encoded(&tokenizer, "日本", &mut words));
}

/// A fixture with something of it changed.
fn changed(name: &str, change: impl FnOnce(&mut Value)) -> (tempfile::TempDir, PathBuf) {
    let bytes = std::fs::read(fixture(&format!("tokenizers/{name}.json"))).unwrap();
    let mut all: Value = serde_json::from_slice(&bytes).unwrap();
    change(&mut all);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.json");
    std::fs::write(&path, serde_json::to_vec(&all).unwrap()).unwrap();
    (folder, path)
}

fn check_refused(expected: &str, name: &str, change: impl FnOnce(&mut Value)) {
    let (_folder, path) = changed(name, change);
    let error = Tokenizer::open(&path).unwrap_err().to_string();
    assert!(error.contains("changed.json"), "{error}");
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_tokenizer_that_is_none_is_refused_by_name() {
    check_refused("expected a tokenizer, found", "byte_level", |all| {
        *all = json!([1, 2]);
    });
    check_refused("expected a tokenizer, found", "byte_level", |all| {
        all["model"] = json!({"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]});
    });
    let error = Tokenizer::open(&fixture("tokenizers/none.json")).unwrap_err();
    assert!(error.to_string().ends_with("none.json"));
    let large = tempfile::NamedTempFile::new().unwrap();
    large.as_file().set_len(10 << 30).unwrap();
    let error = Tokenizer::open(large.path()).unwrap_err().to_string();
    assert!(
        error.contains("a tokenizer of at most 67108864 bytes"),
        "{error}"
    );
}

#[test]
fn a_tokenizer_that_throws_dice_is_refused() {
    check_refused("results are random is not supported", "byte_level", |all| {
        all["model"]["dropout"] = json!(0.1);
    });
}

#[test]
fn a_text_that_grows_without_bound_is_an_error() {
    let doubled = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    let (_folder, path) = changed("byte_level", |all| {
        all["normalizer"] = json!({"type": "Sequence", "normalizers": vec![doubled; 60]});
    });
    let tokenizer = Tokenizer::open(&path).unwrap();
    let (mut ids, mut words) = (Vec::new(), WordCache::default());
    let error = tokenizer.append("aaaa", usize::MAX, &mut words, &mut ids);
    assert!(matches!(error, Err(NotEncoded::GrowsTooMuch)));
    check_refused(
        "replacements of a few characters, found one of 1000",
        "byte_level",
        |all| {
            let long = "x".repeat(1000);
            all["normalizer"] = json!({"type": "Prepend", "prepend": long});
        },
    );
}

#[test]
fn special_tokens_without_bound_are_refused() {
    let many = |all: &mut Value, single: Vec<Value>, ids: Vec<u32>| {
        all["post_processor"]["single"] = single.into();
        all["post_processor"]["special_tokens"]["[CLS]"]["ids"] = ids.into();
    };
    let special = json!({"SpecialToken": {"id": "[CLS]", "type_id": 0}});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    check_refused("at most 4096 special tokens", "word_piece", |all| {
        many(all, vec![special.clone(); 1000], vec![2; 1000]);
    });
    check_refused("gives a text other than once", "word_piece", |all| {
        many(all, vec![text; 1000], vec![2]);
    });
    check_refused("gives a text other than once", "word_piece", |all| {
        many(all, vec![special], vec![2]);
    });
}

#[test]
fn threads_give_what_one_gives() {
    for name in NAMES {
        let tokenizer = open(name);
        let cases = expected(name);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut words = WordCache::default();
                    for case in cases.iter().cycle().take(200) {
                        assert_eq!(encoded(&tokenizer, &case.text, &mut words), case.plain);
                    }
                });
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Words of all lengths, most of them met more than once, and any character.
    #[test]
    fn words_that_were_met_before_give_the_same(texts in proptest::collection::vec("[ab ]{0,60}|\\PC{0,12}", 0..40)) {
        for name in NAMES {
            let tokenizer = open(name);
            let mut words = WordCache::default();
            for text in texts.iter().chain(&texts) {
                let fresh = encoded(&tokenizer, text, &mut WordCache::default());
                prop_assert_eq!(encoded(&tokenizer, text, &mut words), fresh);
            }
        }
    }
}

/// Tokenizers with the patterns of Llama 3 and Qwen 2, and the vocabulary of the byte-level one.
fn with_pattern(pattern: &str, normalizer: &Value) -> Tokenizer {
    let bytes = std::fs::read(fixture("tokenizers/byte_level.json")).unwrap();
    let mut json: Value = serde_json::from_slice(&bytes).unwrap();
    json["normalizer"] = normalizer.clone();
    json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
    ]});
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, json.to_string()).unwrap();
    Tokenizer::open(&path).unwrap()
}

const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

fn byte_level_tokenizers() -> [Tokenizer; 3] {
    let found = [
        open("byte_level"),
        with_pattern(LLAMA_3, &Value::Null),
        with_pattern(QWEN_2, &json!({"type": "NFC"})),
    ];
    assert!(found.iter().all(Tokenizer::has_short_way));
    found
}

#[test]
fn the_short_way_is_for_patterns_that_it_can_read() {
    for name in ["word_piece", "whole_text", "pieces"] {
        assert!(!open(name).has_short_way(), "{name}");
    }
    for other in [
        r"\p{L}+|\s+",
        r"\p{L}++|\s+(?!\S)|\s+",
        r"\p{N}{1,3}+|\s+(?!\S)|\s+",
        r"\p{L}*|\s+(?!\S)|\s+",
        r"\b|\s+(?!\S)|\s+",
        r"(?x) \p{L}+ # letters |\s+(?!\S)|\s+",
        r"(?<=a)\p{L}+|\s+(?!\S)|\s+",
        r"(a)\1|\s+(?!\S)|\s+",
    ] {
        assert!(
            !with_pattern(other, &Value::Null).has_short_way(),
            "{other}"
        );
    }
    let lowercase = json!({"type": "Lowercase"});
    assert!(!with_pattern(LLAMA_3, &lowercase).has_short_way());
}

/// Letters, digits, spaces and marks of many kinds, and what the patterns look at, close to each other.
fn texts() -> impl Strategy<Value = String> {
    let ascii = proptest::string::string_regex("[a-zA-Z0-9 '\n\r\t.,!<|>-]{0,60}").unwrap();
    let mixed = proptest::collection::vec(
        prop_oneof![
            Just("'s"),
            Just("'LL"),
            Just(" "),
            Just("  "),
            Just("\n"),
            Just("\r\n"),
            Just("\u{a0}"),
            Just("\u{2003}"),
            Just("\u{85}"),
            Just("\u{200b}"),
            Just("e\u{301}"),
            Just("é"),
            Just("ſ"),
            Just("K"),
            Just("中"),
            Just("ก็"),
            Just("٣"),
            Just("Ⅷ"),
            Just("½"),
            Just("🙂"),
            Just("ab"),
            Just("12345"),
            Just("..."),
            Just("<|end|>"),
            Just("\0"),
        ],
        0..40,
    )
    .prop_map(|parts| parts.concat());
    prop_oneof![ascii, mixed, any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn the_short_way_gives_the_tokens_of_the_library(text in texts()) {
        thread_local! {
            static TOKENIZERS: [Tokenizer; 3] = byte_level_tokenizers();
        }
        TOKENIZERS.with(|tokenizers| {
            let mut words = WordCache::default();
            for tokenizer in tokenizers {
                let mut by_library = Vec::new();
                tokenizer.append_by_library(&text, &mut words, &mut by_library).unwrap();
                for _ in 0..2 {
                    prop_assert_eq!(&encoded(tokenizer, &text, &mut words), &by_library);
                }
            }
            Ok(())
        })?;
    }
}
