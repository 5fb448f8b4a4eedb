//! A pickle whose dicts are taken holds the same as one whose dicts are not.

use proptest::prelude::*;

use super::{Dict, TakeDicts, Value, limits_for, read, read_taking};

/// Takes every dict, and keeps how it reads.
#[derive(Default)]
struct Everything {
    taken: Vec<String>,
}

impl TakeDicts for Everything {
    fn take(&mut self, dict: Dict<'_>) -> Option<u32> {
        let text = shown_dict(dict, &self.taken);
        self.taken.push(text);
        u32::try_from(self.taken.len() - 1).ok()
    }
}

fn shown_dict(dict: Dict<'_>, taken: &[String]) -> String {
    let entries: Vec<String> = dict
        .iter()
        .map(|(key, value)| format!("{}: {}", shown(key, taken), shown(value, taken)))
        .collect();
    format!("{{{}}}", entries.join(", "))
}

fn shown(value: Value<'_>, taken: &[String]) -> String {
    match value {
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| shown(item, taken)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Tuple(items) => {
            let items: Vec<String> = items.iter().map(|item| shown(item, taken)).collect();
            format!("({})", items.join(", "))
        }
        Value::Dict(dict) => shown_dict(dict, taken),
        Value::Taken(number) => taken[number as usize].clone(),
        other => format!("{other:?}"),
    }
}

/// The two readings of a program, where both succeed.
fn check_same(program: &[u8]) {
    let limits = limits_for(program.len());
    let whole = read(program, &limits);
    let mut everything = Everything::default();
    let taking = read_taking(program, &limits, &mut everything);
    match (whole, taking) {
        (Ok(whole), Ok(taking)) => {
            assert_eq!(
                shown(whole.root(), &[]),
                shown(taking.root(), &everything.taken)
            );
        }
        // A dict that is filled twice can be read, but not taken.
        (Ok(_), Err(error)) => {
            let text = error.to_string();
            assert!(text.contains("one that was complete"), "{text}");
        }
        (Err(_), Ok(_)) => panic!("taking dicts makes no pickle more valid"),
        (Err(_), Err(_)) => {}
    }
}

#[test]
fn what_is_fetched_later_stays() {
    // [{'a': (1000, 2000)}, that tuple]: the tuple is stored and fetched.
    check_same(b"](}(\x8c\x01aM\xe8\x03M\xd0\x07\x86\x94uh\0e.");
    // The same, with the tuple stored and never fetched.
    check_same(b"](}(\x8c\x01aM\xe8\x03M\xd0\x07\x86\x94uK\x01e.");
}

#[test]
fn a_constant_met_in_a_dict_stays() {
    // [{'a': 7}, 7, {'a': None}, None, {'a': ()}, ()]
    check_same(b"](}\x8c\x01aK\x07sK\x07}\x8c\x01aNsN}\x8c\x01a)s)e.");
}

#[test]
fn a_list_that_is_filled_while_a_dict_is_open_keeps_its_items() {
    // A list is stored, and fetched and filled on top of the open dict: [list, {'a': 1000}].
    check_same(b"(]q\0}h\0(M\xd0\x07M\xd1\x07e0\x8c\x01aM\xe8\x03st.");
}

#[test]
fn what_lies_below_a_dict_that_was_fetched_stays() {
    // The dict is stored, a number is pushed, and the dict is fetched on top of it and filled.
    check_same(b"(}q\0M\xd0\x07h\0\x8c\x01aM\xe8\x03st.");
    // The same through a copy of the top.
    check_same(b"(}2\x8c\x01aM\xe8\x03st.");
}

#[test]
fn a_million_dicts_cost_little() {
    struct Counted(u32);
    impl TakeDicts for Counted {
        fn take(&mut self, _dict: Dict<'_>) -> Option<u32> {
            self.0 += 1;
            Some(0)
        }
    }
    let mut program = b"](".to_vec();
    for _ in 0..10_000 {
        program.extend_from_slice(b"}\x94(\x8c\x01a\x94M\xe8\x03\x8c\x01b\x94M\xd0\x07u");
    }
    program.extend_from_slice(b"e.");
    let mut counted = Counted(0);
    let document =
        read_taking(&program, &limits_for(program.len()), &mut counted).expect("a pickle");
    assert_eq!(counted.0, 10_000);
    assert_eq!((document.nodes.len(), document.texts.len()), (10_001, 0));
    assert_eq!((document.cells.len(), document.spans.len()), (10_000, 1));
}

/// Instructions that make, fill, store, fetch, copy and drop values.
fn instruction() -> impl Strategy<Value = Vec<u8>> {
    let plain = |bytes: &'static [u8]| Just(bytes.to_vec());
    prop_oneof![
        4 => plain(b"}"),
        2 => plain(b"]"),
        3 => plain(b"("),
        3 => plain(b"u"),
        2 => plain(b"e"),
        2 => plain(b"a"),
        4 => plain(b"s"),
        1 => plain(b"t"),
        1 => plain(b"d"),
        1 => plain(b"2"),
        1 => plain(b"0"),
        1 => plain(b")"),
        1 => plain(b"N"),
        3 => plain(b"\x8c\x01a"),
        2 => (0..3_u8).prop_map(|n| vec![b'K', n]),
        3 => (1_u8..4).prop_map(|n| vec![b'M', n, n]),
        1 => plain(b"\x86"),
        2 => plain(b"\x94"),
        2 => (0..3_u8).prop_map(|n| vec![b'q', n]),
        3 => (0..3_u8).prop_map(|n| vec![b'h', n]),
    ]
}

/// Statements that leave one value on the stack each, so that most programs are valid.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        (1_u8..4).prop_map(|n| vec![b'M', n, n]),
        (0..3_u8).prop_map(|n| vec![b'K', n]),
        (0..3_u8).prop_map(|n| vec![b'M', n, 9, b'q', n]),
        (0..3_u8).prop_map(|n| vec![b'h', n]),
        Just(b"\x8c\x01a\x94".to_vec()),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let stored = prop::option::of(0..3_u8);
        (0..4_u8, prop::collection::vec(inner, 1..5), stored).prop_map(|(kind, items, stored)| {
            let mut program = match kind {
                0 | 1 => vec![b'}'],
                2 => vec![b']'],
                _ => vec![],
            };
            if let (Some(slot), true) = (stored, kind < 3) {
                program.extend([b'q', slot]);
            }
            program.push(b'(');
            for item in &items {
                if kind < 2 {
                    program.extend(b"\x8c\x01k\x94");
                }
                program.extend(item);
            }
            program.push(match kind {
                0 | 1 => b'u',
                2 => b'e',
                _ => b't',
            });
            program
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_program_reads_the_same(instructions in prop::collection::vec(instruction(), 1..40)) {
        let mut program = instructions.concat();
        program.push(b'.');
        check_same(&program);
    }

    #[test]
    fn any_values_read_the_same(values in prop::collection::vec(value(), 1..6)) {
        let mut program = b"(K\x01q\0K\x02q\x01K\x03q\x02".to_vec();
        program.extend(values.concat());
        program.extend(b"t.");
        check_same(&program);
    }
}
