//! What was written is read; and no bytes make a reader panic.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::{ArrayKind, ArrayNode, Dict, Header, Item, Key, List, ListBuilder, Slot, Writer};

#[derive(Clone, Debug, PartialEq)]
enum Value {
    None,
    Bool(bool),
    Int(i64),
    BigInt(Vec<u8>),
    Float(u64),
    Str(String),
    Loose(Vec<u8>),
    Bytes(Vec<u8>),
    Scalar(u8, [u8; 8]),
    List(Vec<Value>),
    Tuple(Vec<Value>),
    /// Keys are different texts or numbers.
    Dict(Vec<(Value, Value)>),
    Array(String, Vec<u64>, Vec<u8>),
}

fn value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::None),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<i8>().prop_map(|small| Value::Int(small.into())),
        any::<Vec<u8>>().prop_map(Value::BigInt),
        any::<u64>().prop_map(Value::Float),
        ".{0,20}".prop_map(Value::Str),
        any::<Vec<u8>>().prop_map(Value::Loose),
        any::<Vec<u8>>().prop_map(Value::Bytes),
        any::<(u8, [u8; 8])>().prop_map(|(code, bytes)| Value::Scalar(code, bytes)),
        ("[<|a-z0-9]{0,6}", any::<Vec<u64>>(), any::<Vec<u8>>())
            .prop_map(|(dtype, shape, bytes)| Value::Array(dtype, shape, bytes)),
    ];
    let list_of = |inner: BoxedStrategy<Value>| prop::collection::vec(inner, 0..12);
    let packed = prop_oneof![
        list_of(any::<bool>().prop_map(Value::Bool).boxed()),
        list_of(any::<u16>().prop_map(|n| Value::Int(n.into())).boxed()),
        list_of(any::<i32>().prop_map(|n| Value::Int(n.into())).boxed()),
        list_of(any::<u64>().prop_map(Value::Float).boxed()),
        list_of(".{0,9}".prop_map(Value::Str).boxed()),
        list_of(any::<Vec<u8>>().prop_map(Value::Bytes).boxed()),
    ];
    let leaf = prop_oneof![scalar, packed.prop_map(Value::List)];
    leaf.prop_recursive(4, 64, 12, |inner| {
        let key = prop_oneof![
            ".{0,6}".prop_map(Value::Str),
            any::<i64>().prop_map(Value::Int)
        ];
        let entries = prop::collection::vec((key, inner.clone()), 0..24).prop_map(|mut entries| {
            let mut seen = Vec::new();
            entries.retain(|(key, _)| {
                !seen.contains(key) && {
                    seen.push(key.clone());
                    true
                }
            });
            entries
        });
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..12).prop_map(Value::List),
            prop::collection::vec(inner, 0..6).prop_map(Value::Tuple),
            entries.prop_map(Value::Dict),
        ]
    })
}

fn push(writer: &mut Writer<Vec<u8>>, list: &mut ListBuilder, value: &Value) {
    match value {
        Value::None => list.push_slot(Slot::none()),
        Value::Bool(value) => list.push_bool(*value),
        Value::Int(value) => list.push_int(*value),
        Value::BigInt(bytes) => list.push_big_int(writer, bytes).unwrap(),
        Value::Float(bits) => list.push_float(f64::from_bits(*bits)),
        Value::Str(text) => list.push_str(writer, text.as_bytes()).unwrap(),
        Value::Loose(text) => list.push_loose_str(writer, text).unwrap(),
        Value::Bytes(bytes) => list.push_bytes(writer, bytes).unwrap(),
        Value::Scalar(code, bytes) => list.push_slot(Slot::scalar(*code, *bytes)),
        Value::List(items) => list.push_slot(Slot::list(written(writer, items))),
        Value::Tuple(items) => list.push_slot(Slot::tuple(written(writer, items))),
        Value::Dict(entries) => {
            let keys: Vec<Value> = entries.iter().map(|entry| entry.0.clone()).collect();
            let hashes: Vec<u64> = keys.iter().map(|value| writer.hash(&key(value))).collect();
            let node = written(writer, &keys);
            let keys = writer.keys(node, &hashes, None).unwrap();
            let values: Vec<Value> = entries.iter().map(|entry| entry.1.clone()).collect();
            let values = written(writer, &values);
            list.push_slot(writer.dict(keys, values).unwrap());
        }
        Value::Array(dtype, shape, bytes) => {
            let at = writer.begin_array().unwrap();
            assert!(at.is_multiple_of(64));
            writer.array_bytes(bytes).unwrap();
            let kind = ArrayKind::NumPy;
            list.push_slot(writer.end_array(kind, at, dtype, shape).unwrap());
        }
    }
}

fn written(writer: &mut Writer<Vec<u8>>, items: &[Value]) -> u64 {
    let mut list = ListBuilder::default();
    for item in items {
        push(writer, &mut list, item);
    }
    list.finish(writer).unwrap()
}

fn key(value: &Value) -> Key {
    let mut key = Key::default();
    match value {
        Value::Str(text) => key.push_str(text.as_bytes()),
        Value::Int(number) => key.push_int(*number),
        other => unreachable!("{other:?} is no key here"),
    }
    key
}

fn bytes_of(items: &[Value]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), [3; 16]).unwrap();
    let root = written(&mut writer, items);
    let (mut bytes, header) = writer.finish(Slot::list(root)).unwrap();
    assert_eq!(header.len, bytes.len() as u64);
    bytes[..64].copy_from_slice(&header.to_bytes());
    bytes
}

fn read(bytes: &[u8], item: Item<'_>) -> Value {
    match item {
        Item::None => Value::None,
        Item::Bool(value) => Value::Bool(value),
        Item::Int(value) => Value::Int(value),
        Item::BigInt(value) => Value::BigInt(value.to_vec()),
        Item::Float(value) => Value::Float(value.to_bits()),
        Item::Str(text) => Value::Str(str::from_utf8(text).unwrap().to_owned()),
        Item::LooseStr(text) => Value::Loose(text.to_vec()),
        Item::Bytes(value) => Value::Bytes(value.to_vec()),
        Item::Scalar(code, value) => Value::Scalar(code, value),
        Item::List(at) => Value::List(read_list(bytes, List::read(bytes, at).unwrap())),
        Item::Tuple(at) => Value::Tuple(read_list(bytes, List::read(bytes, at).unwrap())),
        Item::Dict(at) => {
            let dict = Dict::read(bytes, at).unwrap();
            let keys = read_list(bytes, dict.keys());
            for (idx, value) in keys.iter().enumerate() {
                let found = dict.find(bytes, &[3; 16], &key(value)).unwrap();
                assert_eq!(found, Some(idx));
            }
            let mut absent = Key::default();
            absent.push_bytes(b"absent");
            assert_eq!(dict.find(bytes, &[3; 16], &absent), Ok(None));
            Value::Dict(
                keys.into_iter()
                    .zip(read_list(bytes, dict.values()))
                    .collect(),
            )
        }
        Item::Array(at) | Item::Tensor(at) => {
            let node = ArrayNode::read(bytes, at).unwrap();
            let data = usize::try_from(node.data).unwrap();
            let end = data + usize::try_from(node.n_bytes).unwrap();
            Value::Array(node.dtype.to_owned(), node.shape, bytes[data..end].to_vec())
        }
    }
}

fn read_list(bytes: &[u8], list: List) -> Vec<Value> {
    (0..list.len())
        .map(|idx| read(bytes, list.get(bytes, idx).unwrap()))
        .collect()
}

/// Looks at everything that can be reached, as far as `steps` goes; errors are fine.
fn wander(bytes: &[u8], item: Item<'_>, steps: &mut usize) {
    let mut each = |list: List| {
        for idx in 0..list.len() {
            let Some(left) = steps.checked_sub(1) else {
                return;
            };
            *steps = left;
            if let Ok(item) = list.get(bytes, idx) {
                wander(bytes, item, steps);
            }
        }
    };
    match item {
        Item::List(at) | Item::Tuple(at) => {
            if let Ok(list) = List::read(bytes, at) {
                each(list);
            }
        }
        Item::Dict(at) => {
            if let Ok(dict) = Dict::read(bytes, at) {
                let mut key = Key::default();
                key.push_str(b"text");
                let _ = dict.find(bytes, &[3; 16], &key);
                each(dict.keys());
                each(dict.values());
            }
        }
        Item::Array(at) | Item::Tensor(at) => drop(ArrayNode::read(bytes, at)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read(items in prop::collection::vec(value(), 0..12)) {
        let bytes = bytes_of(&items);
        let header = Header::read(&bytes).unwrap();
        let found = read(&bytes, header.root.item(&bytes).unwrap());
        prop_assert_eq!(found, Value::List(items));
    }

    #[test]
    fn changed_bytes_never_panic(
        items in prop::collection::vec(value(), 1..6),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = bytes_of(&items);
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            if let Ok(item) = Header::read(bytes).and_then(|header| header.root.item(bytes)) {
                wander(bytes, item, &mut 200);
            }
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), at in 0_u64..500) {
        for item in [Item::List(at), Item::Dict(at), Item::Array(at)] {
            wander(&bytes, item, &mut 200);
        }
        let _ = Header::read(&bytes);
    }
}

#[test]
fn numbers_take_the_fewest_bytes_that_hold_them() {
    for (ints, width) in [
        (vec![0, 255], 1),
        (vec![-1, 127], 1),
        (vec![0, 256], 2),
        (vec![-1, 255], 2),
        (vec![-1, 40_000], 4),
        (vec![0, 65_536], 4),
        (vec![-1, 70_000], 4),
        (vec![0, 1 << 32], 8),
        (vec![i64::MIN, i64::MAX], 8),
    ] {
        let items: Vec<Value> = ints.iter().copied().map(Value::Int).collect();
        let bytes = bytes_of(&items);
        let Item::List(at) = Header::read(&bytes).unwrap().root.item(&bytes).unwrap() else {
            unreachable!("a list was written");
        };
        let list = List::read(&bytes, at).unwrap();
        assert_eq!(list.encoding().width(), width, "{ints:?}");
        assert_eq!(read_list(&bytes, list), items);
    }
}

#[test]
fn keys_that_python_says_are_equal_are_equal() {
    let key = |push: fn(&mut Key)| {
        let mut key = Key::default();
        push(&mut key);
        key
    };
    assert_eq!(key(|key| key.push_int(1)), key(|key| key.push_float(1.0)));
    assert_eq!(key(|key| key.push_int(0)), key(|key| key.push_float(-0.0)));
    assert_ne!(key(|key| key.push_int(1)), key(|key| key.push_float(1.5)));
    assert_ne!(
        key(|key| key.push_str(b"a")),
        key(|key| key.push_bytes(b"a"))
    );
}

#[test]
fn hashes_of_similar_keys_spread() {
    let writer = Writer::new(Vec::new(), [9; 16]).unwrap();
    let mut places: HashMap<u64, u32> = HashMap::new();
    for number in 0..65_536_u32 {
        let mut key = Key::default();
        key.push_str(format!("image_{number:06}.jpg").as_bytes());
        *places.entry(writer.hash(&key) & 0xffff).or_default() += 1;
    }
    let most = places.values().max().copied();
    assert!(most < Some(16), "{most:?} keys in one place");
}
