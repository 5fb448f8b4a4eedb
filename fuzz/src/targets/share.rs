//! A shared copy of anyone's making: everything that can be reached in it is read or refused, and never a panic.
use brimful_share::{ArrayNode, Dict, Header, Item, Key, List};

/// Bytes may lead in circles; longer walks only repeat what shorter ones do.
const MAX_STEPS: usize = 2000;

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let mut steps = MAX_STEPS;
    if let Ok(header) = Header::read(data) {
        assert_eq!(header.to_bytes()[..48], data[..48], "a header's own bytes");
        if let Ok(item) = header.root.item(data) {
            walk(data, item, &mut steps);
        }
    }
    // Without a header too, as if a handle led into the middle of it.
    for at in (0..data.len() as u64).step_by(8) {
        for item in [Item::List(at), Item::Dict(at), Item::Array(at)] {
            walk(data, item, &mut steps);
        }
    }
}

fn walk(data: &[u8], item: Item<'_>, steps: &mut usize) {
    match item {
        Item::List(at) | Item::Tuple(at) => {
            if let Ok(list) = List::read(data, at) {
                each(data, list, steps);
            }
        }
        Item::Dict(at) => {
            if let Ok(dict) = Dict::read(data, at) {
                assert_eq!(dict.keys().len(), dict.values().len());
                look_up(data, &dict);
                each(data, dict.keys(), steps);
                each(data, dict.values(), steps);
            }
        }
        Item::Array(at) | Item::Tensor(at) => {
            if let Ok(array) = ArrayNode::read(data, at) {
                let end = array.data + array.n_bytes;
                assert!(end <= data.len() as u64, "an array lies inside of the copy");
            }
        }
        _ => {}
    }
}

fn each(data: &[u8], list: List, steps: &mut usize) {
    for idx in 0..list.len() {
        let Some(left) = steps.checked_sub(1) else {
            return;
        };
        *steps = left;
        if let Ok(item) = list.get(data, idx) {
            walk(data, item, steps);
        }
    }
    assert!(
        list.get(data, list.len()).is_err(),
        "nothing behind the end"
    );
}

fn look_up(data: &[u8], dict: &Dict) {
    let mut text = Key::default();
    text.push_str(b"text");
    let mut number = Key::default();
    number.push_float(1.0);
    for key in [text, number] {
        if let Ok(Some(idx)) = dict.find(data, &[0; 16], &key) {
            assert!(idx < dict.keys().len(), "a key that exists");
        }
    }
}
