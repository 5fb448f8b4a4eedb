//! Pickles with objects in them, as `torch.save` writes its `data.pkl`.

use super::file_kind::is_instruction;
use super::*;

/// `{"model": OrderedDict(w=tensor of 64, b=tensor of 2), "args": Namespace(lr=0.1, global_step=7), "seen": {1, 2},
/// "kept": frozenset({3}), "seed": 2**100, "step": 40, "epoch": 3}` as Python 3.11 writes it in protocols 2 and 4, the
/// storages of the tensors as persistent ids.
const RECORDED: [&[u8]; 2] = [
    b"\x80\x02}q\x00(X\x05\x00\x00\x00modelq\x01ccollections\nOrderedDict\nq\x02)Rq\x03(X\x01\x00\x00\x00wq\x04ctorch._utils\n_rebuild_tensor_v2\nq\x05((X\x07\x00\x00\x00storageq\x06ctorch\nFloatStorage\nq\x07X\x01\x00\x00\x000q\x08X\x03\x00\x00\x00cpuq\x09K@tq\nQK\x00K@\x85q\x0bK\x01\x85q\x0c\x89h\x02)Rq\x0dtq\x0eRq\x0fX\x01\x00\x00\x00bq\x10h\x05((h\x06h\x07X\x01\x00\x00\x001q\x11h\x09K\x02tq\x12QK\x00K\x02\x85q\x13h\x0c\x89h\x02)Rq\x14tq\x15Rq\x16uX\x04\x00\x00\x00argsq\x17cargparse\nNamespace\nq\x18)\x81q\x19}q\x1a(X\x02\x00\x00\x00lrq\x1bG?\xb9\x99\x99\x99\x99\x99\x9aX\x0b\x00\x00\x00global_stepq\x1cK\x07ubX\x04\x00\x00\x00seenq\x1dc__builtin__\nset\nq\x1e]q\x1f(K\x01K\x02e\x85q Rq!X\x04\x00\x00\x00keptq\"c__builtin__\nfrozenset\nq#]q$K\x03a\x85q%Rq&X\x04\x00\x00\x00seedq'\x8a\x0d\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10X\x04\x00\x00\x00stepq(K(X\x05\x00\x00\x00epochq)K\x03u.",
    b"\x80\x04\x95U\x01\x00\x00\x00\x00\x00\x00}\x94(\x8c\x05model\x94\x8c\x0bcollections\x94\x8c\x0bOrderedDict\x94\x93\x94)R\x94(\x8c\x01w\x94\x8c\x0ctorch._utils\x94\x8c\x12_rebuild_tensor_v2\x94\x93\x94((\x8c\x07storage\x94\x8c\x05torch\x94\x8c\x0cFloatStorage\x94\x93\x94\x8c\x010\x94\x8c\x03cpu\x94K@t\x94QK\x00K@\x85\x94K\x01\x85\x94\x89h\x04)R\x94t\x94R\x94\x8c\x01b\x94h\x09((h\nh\x0d\x8c\x011\x94h\x0fK\x02t\x94QK\x00K\x02\x85\x94h\x12\x89h\x04)R\x94t\x94R\x94u\x8c\x04args\x94\x8c\x08argparse\x94\x8c\x09Namespace\x94\x93\x94)\x81\x94}\x94(\x8c\x02lr\x94G?\xb9\x99\x99\x99\x99\x99\x9a\x8c\x0bglobal_step\x94K\x07ub\x8c\x04seen\x94\x8f\x94(K\x01K\x02\x90\x8c\x04kept\x94(K\x03\x91\x94\x8c\x04seed\x94\x8a\x0d\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x8c\x04step\x94K(\x8c\x05epoch\x94K\x03u.",
];

fn try_read(bytes: &[u8]) -> Result<Document<'_>, PickleError> {
    read_around_objects(bytes, &limits_for(bytes.len()))
}

#[test]
fn plain_values_around_objects_are_read() {
    for bytes in RECORDED {
        let document = try_read(bytes).unwrap();
        let Value::Dict(root) = document.root() else {
            panic!("{document:?}");
        };
        assert!(matches!(root.get("step"), Some(Value::Int(40))));
        assert!(matches!(root.get("epoch"), Some(Value::Int(3))));
        for name in ["model", "args", "seen", "kept", "seed"] {
            assert!(matches!(root.get(name), Some(Value::Opaque)), "{name}");
        }
        // What an object holds is not mistaken for what the pickle holds.
        assert!(root.get("global_step").is_none());
        assert!(matches!(
            read(bytes, &limits_for(bytes.len())),
            Err(PickleError::Class { .. })
        ));
    }
}

#[test]
fn storages_are_named_by_their_persistent_ids() {
    for bytes in RECORDED {
        let document = try_read(bytes).unwrap();
        let ids: Vec<String> = document
            .persistent_ids()
            .map(|id| match id {
                Value::Tuple(items) => format!("{:?}", items.iter().collect::<Vec<_>>()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            ids,
            [
                r#"[Str("storage"), Class("torch.FloatStorage"), Str("0"), Str("cpu"), Int(64)]"#,
                r#"[Str("storage"), Class("torch.FloatStorage"), Str("1"), Str("cpu"), Int(2)]"#,
            ]
        );
        let states: Vec<Value<'_>> = document.states().collect();
        let [Value::Dict(state)] = states[..] else {
            panic!("{states:?}");
        };
        assert!(matches!(state.get("global_step"), Some(Value::Int(7))));
    }
}

#[test]
fn every_kind_of_object_is_opaque() {
    let opaque: [&[u8]; 14] = [
        b"cos\nsystem\nS'x'\n\x85R.",
        b"(S'x'\nios\nsystem\n.",
        b"(cos\nsystem\nS'x'\no.",
        b"cm\nC\n)\x81.",
        b"cm\nC\n)}\x92.",
        b"cm\nC\n)\x81}b.",
        b"P12\n.",
        b"K\x01Q.",
        b"\x82\x01.",
        b"\x83\x01\x00.",
        b"\x84\x01\x00\x00\x00.",
        b"\x8f(K\x01\x90.",
        b"(K\x01\x91.",
        b"\x97\x98.",
    ];
    for bytes in opaque {
        let document = try_read(bytes).unwrap();
        assert!(matches!(document.root(), Value::Opaque), "{bytes:?}");
    }
    let wide = b"L99999999999999999999999999999999999999999999\n.";
    assert!(matches!(try_read(wide).unwrap().root(), Value::Opaque));
}

/// `children = []; node.owner = children; children.append(node)`, as trees of modules are pickled.
#[test]
fn a_list_that_leads_back_to_itself_through_an_object_is_cut() {
    let mut bytes = b"\x80\x02}(X\x08\x00\x00\x00children]q\x00cm\nNode\n)\x81".to_vec();
    bytes.extend(b"}X\x05\x00\x00\x00ownerh\x00sba");
    bytes.extend(b"X\x04\x00\x00\x00stepK(u.");
    let document = try_read(&bytes).unwrap();
    let Value::Dict(root) = document.root() else {
        panic!("{document:?}");
    };
    assert!(matches!(root.get("step"), Some(Value::Int(40))));
    let Some(Value::List(children)) = root.get("children") else {
        panic!("{root:?}");
    };
    assert_eq!(children.iter().count(), 0);
    assert!(matches!(
        try_read(b"]q\x00h\x00a.").unwrap().root(),
        Value::List(_)
    ));
}

#[test]
fn a_state_belongs_to_an_object_and_a_class_has_a_name() {
    for bytes in [&b"}}b."[..], b"cm\nC\n}b.", b"NN\x93.", b"cm\nC\n(K\x01e."] {
        assert!(
            matches!(try_read(bytes), Err(PickleError::Malformed { .. })),
            "{bytes:?}"
        );
    }
}

#[test]
fn every_cut_is_an_error_and_no_changed_byte_makes_it_panic() {
    for bytes in RECORDED {
        for len in 0..bytes.len() {
            assert!(try_read(&bytes[..len]).is_err(), "cut after {len}");
        }
        for idx in 0..bytes.len() {
            for byte in (0..=u8::MAX).filter(|byte| is_instruction(*byte) || *byte < 2) {
                let mut changed = bytes.to_vec();
                changed[idx] = byte;
                if let Ok(document) = try_read(&changed) {
                    let _ = format!("{document:?}");
                    let _ = document.persistent_ids().count() + document.states().count();
                }
            }
        }
    }
}

#[test]
fn no_instruction_takes_from_an_empty_stack() {
    for first in 0..=u8::MAX {
        for second in 0..=u8::MAX {
            for before in [
                &b""[..],
                b"(",
                b"N",
                b"N(",
                b"](",
                b"P\n(",
                b"(N(NN",
                b"P\n}",
            ] {
                let mut bytes = before.to_vec();
                bytes.extend([first, second, b'.', 0, 0, 0, 0, 0, 0, b'\n', b'\n', b'.']);
                let _ = try_read(&bytes);
            }
        }
    }
}

#[test]
fn what_is_built_around_objects_is_bounded() {
    let limits = Limits {
        max_built_bytes: 4096,
        max_depth: 8,
        max_memo_entries: 16,
    };
    for unit in [&b"cm\nC\n"[..], b"P\n", b"NQ0", b"P\nNb", b"\x8f", b"P\n(e"] {
        let mut bytes = Vec::new();
        for _ in 0..10_000 {
            bytes.extend(unit);
        }
        bytes.push(b'.');
        let read = read_around_objects(&bytes, &limits);
        assert!(
            matches!(read, Err(PickleError::TooLarge { .. })),
            "{unit:?}: {read:?}"
        );
    }
}
