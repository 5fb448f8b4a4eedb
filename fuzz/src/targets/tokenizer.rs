//! A `tokenizer.json` of anyone's making: opened or refused, and what it makes of a text stays within the memory that was
//! said.
//!
//! The file is put together of parts that Hugging Face's library writes, in which the input changes values.

use std::cell::RefCell;
use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use brimful_load::text::{Tokenizer, WordCache};
use serde_json::{Value, json};

use crate::{document, input};

/// Bytes of a text that are looked at.
const MAX_TEXT: usize = 2048;

static NORMALIZERS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    vec![
        json!(null),
        json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
            "lowercase": true}),
        json!({"type": "Sequence", "normalizers": [
            {"type": "NFKC"}, {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
            {"type": "Strip", "strip_left": true, "strip_right": true}, {"type": "Prepend", "prepend": "_"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "_"},
            {"type": "Replace", "pattern": {"Regex": "a+(?=b)"}, "content": "c"}]}),
        json!({"type": "ByteLevel"}),
        json!({"type": "Nmt"}),
        json!({"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="}),
    ]
});

static PRE_TOKENIZERS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    vec![
        json!(null),
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
        json!({"type": "BertPreTokenizer"}),
        json!({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": true}),
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": true},
            {"type": "Punctuation", "behavior": "Isolated"}, {"type": "CharDelimiterSplit", "delimiter": "x"},
            {"type": "UnicodeScripts"}, {"type": "FixedLength", "length": 3},
            {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s(?!\\S)"}, "behavior": "MergedWithNext", "invert": false}]}),
    ]
});

static MODELS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    vec![
        json!({"type": "BPE", "dropout": null, "unk_token": "[UNK]", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": {"[UNK]": 0, "a": 1, "b": 2, "ab": 3, "_": 4, "abb": 5, "<0x61>": 6},
            "merges": [["a", "b"], ["ab", "b"]]}),
        json!({"type": "BPE", "vocab": {"a": 0, "##b": 1, "ab": 2}, "merges": ["a ##b"],
            "continuing_subword_prefix": "##", "end_of_word_suffix": "</w>", "byte_fallback": true}),
        json!({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "##b": 4, "the": 5}}),
        json!({"type": "Unigram", "unk_id": 0, "byte_fallback": false,
            "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0], ["ab", -1.5], ["_", -3.0], ["<0x61>", -9.0]]}),
        json!({"type": "WordLevel", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "a": 1, "the": 7}}),
    ]
});

static POST_PROCESSORS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    vec![
        json!(null),
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true}),
        json!({"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]}),
        json!({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": true,
            "add_prefix_space": true}),
        json!({"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]},
                "[SEP]": {"id": "[SEP]", "ids": [2], "tokens": ["[SEP]"]}}}),
    ]
});

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let _ = run(&mut input);
}

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let file = if input.ratio(1, 16)? {
        input.arbitrary::<&[u8]>()?.to_vec()
    } else {
        tokenizer(input)?.to_string().into_bytes()
    };
    let text = String::from_utf8_lossy(input.bytes(input.len())?);
    let text = &text[..text.floor_char_boundary(MAX_TEXT)];
    let path = input::file_of(&file);
    let tokenizer = match Tokenizer::open(&path) {
        Ok(tokenizer) => tokenizer,
        Err(error) => {
            assert!(error.to_string().len() < 20_000, "a message, not a page");
            return Ok(());
        }
    };
    let (before, behind) = tokenizer.around();
    assert!(before.len() + behind.len() <= 4096);
    for text in [text, "the ab 12, abb\u{301}"] {
        encode(&tokenizer, text);
    }
    Ok(())
}

fn tokenizer(input: &mut Unstructured<'_>) -> Result<Value> {
    let added = |id: u32, content: &str, special: bool| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": !special, "special": special})
    };
    let whole = json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": null, "pad_id": 1,
            "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [added(8, "<x>", true), added(9, "ab", false)],
        "normalizer": input.choose(&NORMALIZERS)?,
        "pre_tokenizer": input.choose(&PRE_TOKENIZERS)?,
        "post_processor": input.choose(&POST_PROCESSORS)?,
        "decoder": null,
        "model": input.choose(&MODELS)?,
    });
    document::changed(&whole, input)
}

thread_local! {
    /// It takes megabytes, which are made once.
    static WORDS: RefCell<WordCache> = RefCell::default();
}

fn encode(tokenizer: &Tokenizer, text: &str) {
    WORDS.with_borrow_mut(|words| encode_with(words, tokenizer, text));
}

fn encode_with(words: &mut WordCache, tokenizer: &Tokenizer, text: &str) {
    let (mut all, mut first) = (Vec::new(), Vec::new());
    let mut is_encoded = false;
    let peak = input::peak_of(|| {
        is_encoded = tokenizer.append(text, usize::MAX, words, &mut all).is_ok();
    });
    let promised = Tokenizer::bytes_for(text.len() as u64) + 16 * all.capacity() as u64 + (1 << 20);
    assert!(
        peak as u64 <= promised,
        "{peak} bytes were held, {promised} promised"
    );
    if !is_encoded {
        return;
    }
    assert!(
        all.iter().all(|id| *id <= tokenizer.largest_id()),
        "a token above the largest, {}: {all:?}",
        tokenizer.largest_id()
    );
    if tokenizer
        .first(text, 5, MAX_TEXT, words, &mut first)
        .is_ok()
    {
        assert!(first.len() <= 5);
    }
}
