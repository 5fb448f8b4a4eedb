//! Pickles that Python wrote, pickles that it would not write, and pickles that want to do harm.

use super::file_kind::is_instruction;
use super::machine::{Objects, PickleMachine};
use super::*;

/// `[None, True, False, 0, 255, 256, -1, 65536, -2**31, 2**31, 2**63-1, -2**63, 2**64-1, 1.5, -0.25,
/// "café 😀\n\\", "", (), (1,), (1,2), (1,2,3), (1,2,3,4), [], {}, {"key": [1], 7: {"key": "x"}}]`,
/// as Python 3.11 writes it in protocols 0, 1, 2 and 4; 3 and 5 differ from their neighbors in the header.
const RECORDED: [&[u8]; 4] = [
    b"(lp0\nNaI01\naI00\naI0\naI255\naI256\naI-1\naI65536\naI-2147483648\naL2147483648L\naL9223372036854775807L\naL-9223372036854775808L\naL18446744073709551615L\naF1.5\naF-0.25\naVcaf\xe9 \\U0001f600\\u000a\\u005c\np1\naV\np2\na(ta(I1\ntp3\na(I1\nI2\ntp4\na(I1\nI2\nI3\ntp5\na(I1\nI2\nI3\nI4\ntp6\na(lp7\na(dp8\na(dp9\nVkey\np10\n(lp11\nI1\nasI7\n(dp12\ng10\nVx\np13\nssa.",
    b"]q\x00(NI01\nI00\nK\x00K\xffM\x00\x01J\xff\xff\xff\xffJ\x00\x00\x01\x00J\x00\x00\x00\x80L2147483648L\nL9223372036854775807L\nL-9223372036854775808L\nL18446744073709551615L\nG?\xf8\x00\x00\x00\x00\x00\x00G\xbf\xd0\x00\x00\x00\x00\x00\x00X\x0c\x00\x00\x00caf\xc3\xa9 \xf0\x9f\x98\x80\n\\q\x01X\x00\x00\x00\x00q\x02)(K\x01tq\x03(K\x01K\x02tq\x04(K\x01K\x02K\x03tq\x05(K\x01K\x02K\x03K\x04tq\x06]q\x07}q\x08}q\x09(X\x03\x00\x00\x00keyq\n]q\x0bK\x01aK\x07}q\x0ch\nX\x01\x00\x00\x00xq\x0dsue.",
    b"\x80\x02]q\x00(N\x88\x89K\x00K\xffM\x00\x01J\xff\xff\xff\xffJ\x00\x00\x01\x00J\x00\x00\x00\x80\x8a\x05\x00\x00\x00\x80\x00\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00G?\xf8\x00\x00\x00\x00\x00\x00G\xbf\xd0\x00\x00\x00\x00\x00\x00X\x0c\x00\x00\x00caf\xc3\xa9 \xf0\x9f\x98\x80\n\\q\x01X\x00\x00\x00\x00q\x02)K\x01\x85q\x03K\x01K\x02\x86q\x04K\x01K\x02K\x03\x87q\x05(K\x01K\x02K\x03K\x04tq\x06]q\x07}q\x08}q\x09(X\x03\x00\x00\x00keyq\n]q\x0bK\x01aK\x07}q\x0ch\nX\x01\x00\x00\x00xq\x0dsue.",
    b"\x80\x04\x95\xa4\x00\x00\x00\x00\x00\x00\x00]\x94(N\x88\x89K\x00K\xffM\x00\x01J\xff\xff\xff\xffJ\x00\x00\x01\x00J\x00\x00\x00\x80\x8a\x05\x00\x00\x00\x80\x00\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00G?\xf8\x00\x00\x00\x00\x00\x00G\xbf\xd0\x00\x00\x00\x00\x00\x00\x8c\x0ccaf\xc3\xa9 \xf0\x9f\x98\x80\n\\\x94\x8c\x00\x94)K\x01\x85\x94K\x01K\x02\x86\x94K\x01K\x02K\x03\x87\x94(K\x01K\x02K\x03K\x04t\x94]\x94}\x94}\x94(\x8c\x03key\x94]\x94K\x01aK\x07}\x94h\n\x8c\x01x\x94sue.",
];

const SHOWN: &str = "[None, true, false, 0, 255, 256, -1, 65536, -2147483648, 2147483648, \
    9223372036854775807, -9223372036854775808, 18446744073709551615u, 1.5, -0.25, \
    \"café 😀\\n\\\\\", \"\", (), (1), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], {}, \
    {\"key\": [1], 7: {\"key\": \"x\"}}]";

fn try_read(bytes: &[u8]) -> Result<Document<'_>, PickleError> {
    read(bytes, &limits_for(bytes.len()))
}

fn show(value: Value<'_>) -> String {
    let all = |items: Sequence<'_>| items.iter().map(show).collect::<Vec<_>>().join(", ");
    match value {
        Value::None => "None".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::UInt(value) => format!("{value}u"),
        Value::Float(value) => value.to_string(),
        Value::Str(text) => format!("{text:?}"),
        Value::Bytes(bytes) => format!("b{bytes:?}"),
        Value::List(items) => format!("[{}]", all(items)),
        Value::Tuple(items) => format!("({})", all(items)),
        Value::Dict(dict) => {
            let entries = dict
                .iter()
                .map(|(key, value)| format!("{}: {}", show(key), show(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Class(_) | Value::Opaque | Value::Taken(_) => {
            panic!("an object where only plain data is read")
        }
    }
}

fn check(bytes: &[u8], expected: &str) {
    assert_eq!(show(try_read(bytes).unwrap().root()), expected);
}

fn check_error(bytes: &[u8], expected: &str) {
    let error = try_read(bytes).unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert!(!error.hint().is_empty());
}

#[test]
fn plain_data_of_every_protocol() {
    for bytes in RECORDED {
        check(bytes, SHOWN);
    }
}

#[test]
fn forms_that_python_three_does_not_write() {
    check(b"S'a\\'b\\x41\\n\\q'\n.", "\"a'bA\\n\\\\q\"");
    check(b"S\"plain\"\n.", "\"plain\"");
    check(b"U\x02hi.", "\"hi\"");
    check(b"T\x02\x00\x00\x00hi.", "\"hi\"");
    check(b"\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi.", "\"hi\"");
    check(b"(I1\nI2\nl.", "[1, 2]");
    check(b"(I1\nI2\nd.", "{1: 2}");
    check(b"\x8a\x00.", "0");
    check(b"\x8b\x02\x00\x00\x00\xff\xff.", "-1");
    check(b"L5\n.", "5");
    check(b"Fnan\n.", "NaN");
    check(b"C\x02\x00\xff.", "b[0, 255]");
    check(b"B\x01\x00\x00\x00a.", "b[97]");
    check(b"\x96\x01\x00\x00\x00\x00\x00\x00\x00a.", "b[97]");
    check(b"K\x01K\x020.", "1");
    check(b"K\x01(K\x02K\x031.", "1");
    check(b"K\x01(0.", "1");
    check(b"K\x012\x86.", "(1, 1)");
    check(b"]r\x00\x00\x00\x000j\x00\x00\x00\x00K\x01a.", "[1]");
}

#[test]
fn what_is_no_text_is_replaced() {
    // A lone surrogate, as `surrogateescape` makes of a file name.
    check(
        b"X\x03\x00\x00\x00\xed\xb3\xbf.",
        "\"\u{fffd}\u{fffd}\u{fffd}\"",
    );
    check(b"V\\ud800\n.", "\"\u{fffd}\"");
}

#[test]
fn bytes_after_the_end_are_not_looked_at() {
    check(b"N.\0\0\0", "None");
}

#[test]
fn the_last_value_of_a_key_counts() {
    let document = try_read(b"}(U\x01aK\x01U\x01aK\x02u.").unwrap();
    let Value::Dict(dict) = document.root() else {
        panic!("not a dict")
    };
    assert!(matches!(dict.get("a"), Some(Value::Int(2))));
    assert!(dict.get("b").is_none());
}

#[test]
fn shared_values_are_one_value() {
    // `x = [1]; [x, x]`
    let document = try_read(b"\x80\x02]q\x00(]q\x01K\x01ah\x01e.").unwrap();
    assert_eq!(show(document.root()), "[[1], [1]]");
    let Value::List(items) = document.root() else {
        panic!("not a list")
    };
    let ids: Vec<usize> = items
        .iter()
        .map(|item| match item {
            Value::List(list) => list.id(),
            _ => usize::MAX,
        })
        .collect();
    assert_eq!(ids[0], ids[1]);
    assert!(ids[0] < document.nodes.len());
}

#[test]
fn long_lists_come_in_batches() {
    // Batches with other containers between them, and batches that follow at once.
    let mut bytes = b"]".to_vec();
    for _ in 0..3 {
        bytes.extend(b"(K\x01]K\x02ae(K\x03e");
    }
    bytes.push(b'.');
    check(&bytes, "[1, [2], 3, 1, [2], 3, 1, [2], 3]");
}

#[test]
fn the_classic_payload_is_named_and_not_run() {
    check_error(
        b"cos\nsystem\n(S'echo hi'\ntR.",
        "expected plain data, found the class or function `os.system` at byte 0",
    );
    check_error(
        b"\x80\x02cposix\nsystem\nq\x00X\x07\x00\x00\x00echo hiq\x01\x85q\x02Rq\x03.",
        "expected plain data, found the class or function `posix.system` at byte 2",
    );
    check_error(
        b"\x80\x04\x95\x22\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x07echo hi\x94\x85\x94R\x94.",
        "expected plain data, found the class or function `posix.system` at byte 28",
    );
    check_error(
        b"(S'echo hi'\nios\nsystem\n.",
        "expected plain data, found the class or function `os.system` at byte 12",
    );
}

#[test]
fn a_name_brings_no_control_characters_into_a_message() {
    check_error(
        b"ca\x1b[2J\nb\n.",
        "expected plain data, found the class or function `a\\u{1b}[2J.b` at byte 0",
    );
    let mut long = b"c".to_vec();
    long.extend([b'x'; 1000]);
    long.extend(b"\nname\n.");
    assert!(try_read(&long).unwrap_err().to_string().len() < 200);
}

#[test]
fn nothing_that_imports_calls_or_looks_up_is_accepted() {
    let refused: [(&[u8], &str); 16] = [
        (b"NN\x93.", "STACK_GLOBAL"),
        (b"\x93.", "STACK_GLOBAL"),
        (b"NNR.", "REDUCE"),
        (b"NNb.", "BUILD"),
        (b"(NNo.", "OBJ"),
        (b"NN\x81.", "NEWOBJ"),
        (b"NNN\x92.", "NEWOBJ_EX"),
        (b"Pid\n.", "PERSID"),
        (b"NQ.", "BINPERSID"),
        (b"\x82\x01.", "EXT1"),
        (b"\x83\x01\x00.", "EXT2"),
        (b"\x84\x01\x00\x00\x00.", "EXT4"),
        (b"\x8f.", "EMPTY_SET"),
        (b"(N\x91.", "FROZENSET"),
        (b"\x97.", "NEXT_BUFFER"),
        (b"N\x98.", "READONLY_BUFFER"),
    ];
    for (bytes, name) in refused {
        match try_read(bytes).unwrap_err() {
            PickleError::NotPlain { instruction, .. } => assert_eq!(instruction, name),
            other => panic!("{bytes:?}: {other}"),
        }
    }
}

#[test]
fn every_way_to_cut_a_pickle_short_is_an_error() {
    for bytes in RECORDED {
        for len in 0..bytes.len() {
            assert!(try_read(&bytes[..len]).is_err(), "cut after {len}");
        }
    }
    check_error(
        b"\x80\x04X\x05\x00\x00\x00abc",
        "expected 5 bytes for the instruction at byte 2, found the end of the file after 3",
    );
}

#[test]
fn no_changed_byte_makes_it_panic() {
    for bytes in RECORDED {
        for idx in 0..bytes.len() {
            for byte in (0..=u8::MAX).filter(|byte| is_instruction(*byte) || *byte < 2) {
                let mut changed = bytes.to_vec();
                changed[idx] = byte;
                if let Ok(document) = try_read(&changed) {
                    show(document.root());
                }
            }
        }
    }
}

#[test]
fn no_instruction_takes_from_an_empty_stack() {
    for first in 0..=u8::MAX {
        for second in 0..=u8::MAX {
            for before in [&b""[..], b"(", b"N", b"N(", b"](", b"}(N", b"(N(NN", b"]]"] {
                let mut bytes = before.to_vec();
                bytes.extend([first, second, b'.', 0, 0, 0, 0, 0, 0, b'\n', b'\n', b'.']);
                // Only that it returns.
                let _ = try_read(&bytes);
            }
        }
    }
}

#[test]
fn nothing_contains_itself() {
    let cycles: [&[u8]; 7] = [
        // `l.append(l)`, `d["d"] = d`, `t = ([],); t[0].append(t)`, `n[0].append(n)`.
        b"(lp0\ng0\na.",
        b"\x80\x02]q\x00h\x00a.",
        b"\x80\x02}q\x00X\x01\x00\x00\x00dq\x01h\x00s.",
        b"\x80\x02]q\x00h\x00\x85q\x01a0h\x01.",
        b"\x80\x02]q\x00]q\x01h\x00aa.",
        b"]2a.",
        b"]q\x00(K\x01h\x00e.",
    ];
    for bytes in cycles {
        let error = try_read(bytes).unwrap_err();
        assert!(
            matches!(error, PickleError::ContainsItself { .. }),
            "{bytes:?}: {error}"
        );
    }
    check_error(
        b"\x80\x02]q\x00h\x00a.",
        "expected a list that is complete, found one changed after another value held it, at byte 7",
    );
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| {
        let mut bytes = vec![b']'; depth];
        bytes.extend(vec![b'a'; depth - 1]);
        bytes.push(b'.');
        bytes
    };
    assert!(try_read(&nested(64)).is_ok());
    check_error(
        &nested(65),
        "expected values nested at most 64 deep, found more at byte 128",
    );
    assert!(try_read(&nested(1_000_000)).is_err());
    let mut tuples = vec![b')'];
    tuples.extend(vec![0x85; 1_000_000]);
    tuples.push(b'.');
    assert!(matches!(
        try_read(&tuples),
        Err(PickleError::TooDeep { limit: 64, at: 64 })
    ));
    assert!(try_read(&vec![b'('; 1_000_000]).is_err());
}

#[test]
fn sharing_does_not_multiply() {
    // Forty lists, each holding the one before twice: 2**40 items by count.
    let mut bytes = b"]".to_vec();
    for _ in 0..40 {
        bytes.extend(b"q\x000](h\x00h\x00e");
    }
    bytes.push(b'.');
    let document = try_read(&bytes).unwrap();
    assert_eq!(document.nodes.len(), 41);
    assert!(format!("{document:?}").len() < 200);
}

#[test]
fn declared_sizes_are_not_believed() {
    let huge: [&[u8]; 9] = [
        b"X\xff\xff\xff\xffabc.",
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc.",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
        b"\x96\xff\xff\xff\xff\xff\xff\xff\xffabc.",
        b"\x95\xff\xff\xff\xff\xff\xff\xff\xffN.",
        b"B\xff\xff\xff\xffabc.",
        b"C\xffabc.",
        b"T\xff\xff\xff\x7fabc.",
        b"\x8b\xff\xff\xff\x7fabc.",
    ];
    for bytes in huge {
        assert!(matches!(
            try_read(bytes),
            Err(PickleError::Truncated { .. })
        ));
    }
    check_error(
        b"T\xff\xff\xff\xffabc.",
        "expected a length, found a negative number at byte 0",
    );
    check_error(
        b"Nr\xff\xff\xff\xff.",
        "expected at most 7 memo entries, found index 4294967295 at byte 1",
    );
    check_error(
        b"Np99999999999999999999999\n.",
        "expected a memo index, found other text at byte 1",
    );
    check_error(
        b"j\xff\xff\xff\xff.",
        "expected a memo entry that was stored, found an index without one at byte 0",
    );
}

#[test]
fn integers_end_at_64_bits() {
    let too_large: [&[u8]; 5] = [
        b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.",
        b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\xff.",
        b"\x8a\x11aaaaaaaaaaaaaaaaa.",
        b"L18446744073709551616L\n.",
        b"I999999999999999999999999999999999999999999999\n.",
    ];
    for bytes in too_large {
        assert!(matches!(
            try_read(bytes),
            Err(PickleError::IntegerTooLarge { at: 0, .. })
        ));
    }
    // Bytes that only repeat the sign are no reason to refuse.
    check(b"\x8a\x0c\x05\0\0\0\0\0\0\0\0\0\0\0.", "5");
}

#[test]
fn what_is_built_is_bounded() {
    let limits = Limits {
        max_built_bytes: 1000,
        ..limits_for(100_000)
    };
    let mut bytes = vec![b']'; 100_000];
    bytes.push(b'.');
    let error = read(&bytes, &limits).unwrap_err();
    assert!(matches!(error, PickleError::TooLarge { limit: 1000, at } if at < 200));
    // Text that had to be copied counts by its length.
    let mut escaped = b"V".to_vec();
    escaped.extend(vec![b'a'; 2000]);
    escaped.extend(b"\n.");
    assert!(matches!(
        read(&escaped, &limits),
        Err(PickleError::TooLarge { at: 0, .. })
    ));
    assert_eq!(limits_for(usize::MAX).max_built_bytes, 4 << 30);
}

#[test]
fn malformed_programs_say_where() {
    check_error(b"(.", "expected a value on the stack, found none at byte 1");
    check_error(b"NNa.", "expected a list to fill, found None at byte 2");
    check_error(b"](NNu.", "expected a dict to fill, found a list at byte 4");
    check_error(
        b"}(Nu.",
        "expected a value for each key, found a key alone at byte 3",
    );
    check_error(b"}]Ns.", "expected a key of a dict, found a list at byte 3");
    check_error(
        b"(e.",
        "expected a list or dict to fill, found an empty stack at byte 1",
    );
    check_error(b"e.", "expected a MARK on the stack, found none at byte 0");
    check_error(b"Ix\n.", "expected an integer, found other text at byte 0");
    check_error(b"F1..\n.", "expected a float, found other text at byte 0");
    check_error(
        b"Sabc\n.",
        "expected a string in quotes, found other text at byte 0",
    );
    check_error(
        b"S'\\x4'\n.",
        "expected a string in quotes, found an unfinished escape at byte 0",
    );
    check_error(
        b"V\\u12\n.",
        "expected text with \\u escapes, found an unfinished escape at byte 0",
    );
    check_error(
        b"N\xff.",
        "expected a pickle instruction at byte 1, found 0xff",
    );
    check_error(
        b"\x80\x06N.",
        "expected pickle protocol 0 to 5, found 6 at byte 0",
    );
}

#[test]
fn other_files_are_named() {
    check_error(b"", "expected a pickle, found an empty file");
    check_error(
        b"PK\x03\x04rest",
        "expected a pickle, found a zip archive, as `torch.save` writes",
    );
    check_error(b"\x1f\x8b\x08rest", "expected a pickle, found a gzip file");
    check_error(b"\x28\xb5\x2f\xfd", "expected a pickle, found a zstd file");
    check_error(b"BZh91AY", "expected a pickle, found a bzip2 file");
    check_error(b"\xfd7zXZ\0\0", "expected a pickle, found an xz file");
    check_error(
        b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M",
        "expected a pickle, found a file of `torch.save` in its old format",
    );
    check_error(
        b"{\"segments\": []}",
        "expected a pickle, found what looks like JSON",
    );
    check_error(
        b"<!DOCTYPE html>",
        "expected a pickle, found what looks like an HTML page",
    );
    check_error(b"\x7fELF", "expected a pickle, found another kind of file");
}

#[test]
fn every_instruction_known_may_come_first() {
    for byte in 0..=u8::MAX {
        let unknown = matches!(
            PickleMachine::new(&[byte, b'.'], limits_for(2), Objects::Refused).run(),
            Err(PickleError::UnknownInstruction { at: 0, .. })
        );
        assert_eq!(unknown, !is_instruction(byte), "{byte:#x}");
    }
}
