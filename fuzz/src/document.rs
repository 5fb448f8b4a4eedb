//! JSON that is almost right: a document in which the input changes some values.
//!
//! Bytes that are flipped in a text almost never give a document that a parser takes. Here every input is one, so that
//! what lies behind the parser is reached.

use arbitrary::{Result, Unstructured};
use serde_json::{Number, Value, json};

/// More changes of one document only hide what one of them does.
const MAX_CHANGES: u8 = 8;
/// Values and bytes of text that one change may add: a target is about what a file says, not about large files.
const MAX_ADDED: usize = 4096;

/// A template in which the input changes values. Without input it stays as it is.
pub fn changed(template: &Value, input: &mut Unstructured<'_>) -> Result<Value> {
    let mut document = template.clone();
    for _ in 0..input.int_in_range(0..=MAX_CHANGES)? {
        change(&mut document, input)?;
    }
    Ok(document)
}

/// A template as an object, parsed once.
pub fn template(text: &str) -> Value {
    serde_json::from_str(text).expect("a template is JSON")
}

fn change(document: &mut Value, input: &mut Unstructured<'_>) -> Result<()> {
    let n_nodes = count(document);
    let other = nth(document, &mut input.choose_index(n_nodes)?).cloned();
    let Some(node) = nth(document, &mut input.choose_index(n_nodes)?) else {
        return Ok(());
    };
    match input.int_in_range(0..=9)? {
        0 => *node = input.choose(&edges())?.clone(),
        1 => *node = json!(input.arbitrary::<u8>()?),
        2 => *node = json!(input.arbitrary::<i64>()?),
        3 => *node = Number::from_f64(input.arbitrary()?).map_or(Value::Null, Value::Number),
        4 => *node = json!(input.arbitrary::<&str>()?),
        5 => {
            let text = input.arbitrary::<&str>()?;
            *node = json!(text.repeat(input.int_in_range(0..=MAX_ADDED / text.len().max(1))?));
        }
        6 => remove(node, input)?,
        7 => repeat(node, input)?,
        8 => {
            *node = other
                .filter(|other| size(other) <= MAX_ADDED)
                .unwrap_or_default()
        }
        _ => *node = json!([node.take()]),
    }
    Ok(())
}

/// Values at which arithmetic and lengths go wrong.
fn edges() -> Vec<Value> {
    let mut edges = vec![json!(null), json!(true), json!(false), json!([]), json!({})];
    edges.extend([
        json!(""),
        json!("\u{0}"),
        json!("\u{1b}[31m"),
        json!("é\u{301}"),
    ]);
    edges.extend([0, 1, -1, i64::MIN, i64::MAX, 1 << 31, 1 << 32].map(|number| json!(number)));
    edges.extend([u64::MAX, u64::MAX - 1, 1 << 63].map(|number| json!(number)));
    edges.extend([0.0, -0.0, 0.5, f64::MAX, f64::MIN_POSITIVE].map(|number| json!(number)));
    edges
}

fn remove(node: &mut Value, input: &mut Unstructured<'_>) -> Result<()> {
    match node {
        Value::Array(items) if !items.is_empty() => {
            items.remove(input.choose_index(items.len())?);
        }
        Value::Object(fields) if !fields.is_empty() => {
            let at = input.choose_index(fields.len())?;
            let key = fields.keys().nth(at).cloned().unwrap_or_default();
            fields.remove(&key);
        }
        other => *other = Value::Null,
    }
    Ok(())
}

/// One more of what is there: the same item many times, or a value under another name.
fn repeat(node: &mut Value, input: &mut Unstructured<'_>) -> Result<()> {
    match node {
        Value::Array(items) if !items.is_empty() => {
            let item = items[input.choose_index(items.len())?].clone();
            let times = input.int_in_range(0..=MAX_ADDED / size(&item))?;
            items.extend(std::iter::repeat_n(item, times));
        }
        Value::Object(fields) if !fields.is_empty() => {
            let at = input.choose_index(fields.len())?;
            let value = fields.values().nth(at).cloned().unwrap_or_default();
            fields.insert(input.arbitrary::<&str>()?.to_owned(), value);
        }
        _ => {}
    }
    Ok(())
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Values and bytes of text.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| key.len() + size(value))
            .sum(),
        Value::String(text) => text.len(),
        _ => 0,
    }
}

/// The n-th value, parents before their children.
fn nth<'v>(value: &'v mut Value, left: &mut usize) -> Option<&'v mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth(item, left)),
        Value::Object(fields) => fields.values_mut().find_map(|field| nth(field, left)),
        _ => None,
    }
}

/// The document as a pickle of protocol 2, in which memory snapshots are written.
pub fn pickled(document: &Value) -> Vec<u8> {
    let mut out = b"\x80\x02".to_vec();
    pickle(document, &mut out);
    out.push(b'.');
    out
}

fn pickle(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(b'N'),
        Value::Bool(true) => out.push(0x88),
        Value::Bool(false) => out.push(0x89),
        Value::Number(number) => {
            let whole = (number.as_i64().map(i128::from)).or(number.as_u64().map(i128::from));
            if let Some(whole) = whole {
                out.extend([0x8a, 9]);
                out.extend(&whole.to_le_bytes()[..9]);
            } else {
                out.push(b'G');
                out.extend(number.as_f64().unwrap_or_default().to_be_bytes());
            }
        }
        Value::String(text) => pickle_text(text, out),
        Value::Array(items) => {
            out.extend(b"](");
            items.iter().for_each(|item| pickle(item, out));
            out.push(b'e');
        }
        Value::Object(fields) => {
            out.extend(b"}(");
            for (key, value) in fields {
                pickle_text(key, out);
                pickle(value, out);
            }
            out.push(b'u');
        }
    }
}

fn pickle_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'X');
    out.extend(
        u32::try_from(text.len())
            .expect("texts are short")
            .to_le_bytes(),
    );
    out.extend(text.as_bytes());
}

/// A snapshot of PyTorch's allocator, small and whole.
pub const SNAPSHOT: &str = r#"{
    "segments": [
        {"device": 0, "address": 140000000000000, "total_size": 2097152, "allocated_size": 1024, "stream": 0,
            "segment_type": "small", "segment_pool_id": [0, 0], "is_expandable": false, "frames": [],
            "blocks": [
                {"address": 140000000000000, "size": 1024, "requested_size": 1000, "state": "active_allocated",
                    "frames": [{"filename": "train.py", "line": 7, "name": "main"}]},
                {"address": 140000000001024, "size": 2096128, "requested_size": 0, "state": "inactive", "frames": []}]}],
    "device_traces": [[
        {"action": "segment_alloc", "addr": 140000000000000, "size": 2097152, "stream": 0, "time_us": 1},
        {"action": "alloc", "addr": 140000000000000, "size": 1000, "stream": 0, "time_us": 2,
            "frames": [{"filename": "train.py", "line": 7, "name": "main"}]},
        {"action": "alloc", "addr": 140000000001024, "size": 512, "stream": 0, "time_us": 3, "pool_id": [0, 0]},
        {"action": "free_requested", "addr": 140000000001024, "size": 512, "stream": 0, "time_us": 4},
        {"action": "free_completed", "addr": 140000000001024, "size": 512, "stream": 0, "time_us": 5},
        {"action": "oom", "size": 9000000, "stream": 0, "time_us": 6, "device_free": 700},
        {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "time_us": 7}]],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "max_split_size": 67108864,
        "garbage_collection_threshold": 0.0, "expandable_segments": false,
        "roundup_power2_divisions": {"1": 0, "64": 4}}}"#;
