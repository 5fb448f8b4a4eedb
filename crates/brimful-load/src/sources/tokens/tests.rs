use super::*;
use crate::sources::testing::{HEADROOMS, all_bytes, check_access, check_threads, fixture, sample};

const U16_IN_BLOCKS_OF_64: TokenForm = TokenForm {
    stored: None,
    block: 64,
    as_i64: false,
};

fn blocks(source: &Tokens) -> Vec<i64> {
    (0..source.len())
        .flat_map(|index| {
            let value = &sample(source, index)[0];
            match value.dtype {
                DType::U16 => value
                    .elements::<u16>()
                    .iter()
                    .map(|&id| i64::from(id))
                    .collect(),
                DType::I32 => value
                    .elements::<i32>()
                    .iter()
                    .map(|&id| i64::from(id))
                    .collect(),
                _ => value.elements::<i64>().into_owned(),
            }
        })
        .collect()
}

#[test]
fn an_array_is_cut_into_blocks_and_its_rest_is_counted() {
    for (headroom, as_i64) in HEADROOMS
        .into_iter()
        .flat_map(|room| [(room, false), (room, true)])
    {
        let form = TokenForm {
            as_i64,
            ..U16_IN_BLOCKS_OF_64
        };
        let source = Tokens::open(&fixture("tokens_u2.npy"), form, headroom).unwrap();
        check_access(&source, headroom);
        assert_eq!((source.len(), source.dropped_tokens()), (15, 40));
        assert_eq!(blocks(&source), (0..960).collect::<Vec<i64>>());
        let kind = source.fields()[0].spec.to_string();
        assert_eq!(kind, if as_i64 { "int64 64" } else { "uint16 64" });
        check_threads(&source);
    }
}

#[test]
fn big_endian_ids_are_turned() {
    for (headroom, as_i64) in HEADROOMS
        .into_iter()
        .flat_map(|room| [(room, false), (room, true)])
    {
        let form = TokenForm {
            stored: Some(DType::I32),
            block: 10,
            as_i64,
        };
        let source = Tokens::open(&fixture("tokens_i4_big_endian.npy"), form, headroom).unwrap();
        assert_eq!(blocks(&source), (-50..50).collect::<Vec<i64>>());
        all_bytes(&source);
    }
}

#[test]
fn a_raw_file_needs_its_type() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("train.bin");
    // Longer than what is widened in one go.
    let ids: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&path, &ids).unwrap();
    for headroom in HEADROOMS {
        let form = TokenForm {
            stored: Some(DType::U32),
            block: 5_000,
            as_i64: true,
        };
        let source = Tokens::open(&path, form, headroom).unwrap();
        assert_eq!(blocks(&source), (0..20_000).collect::<Vec<i64>>());
        all_bytes(&source);
    }
    let refused = |stored, block| {
        let form = TokenForm {
            stored,
            block,
            as_i64: false,
        };
        Tokens::open(&path, form, None).unwrap_err().to_string()
    };
    assert!(refused(None, 5).contains("the type of the ids"));
    assert!(refused(Some(DType::F32), 5).contains("float32 as token ids"));
    assert!(refused(Some(DType::U32), 0).contains("at least one token"));
    assert!(refused(Some(DType::U32), usize::MAX).contains("fit into memory"));
    std::fs::write(&path, &ids[..7]).unwrap();
    assert!(refused(Some(DType::U32), 1).contains("multiple of the 4 bytes"));
}

#[test]
fn an_npy_file_of_another_type_or_form_is_refused() {
    let refused = |name, stored| {
        let form = TokenForm {
            stored,
            ..U16_IN_BLOCKS_OF_64
        };
        Tokens::open(&fixture(name), form, None)
            .unwrap_err()
            .to_string()
    };
    assert!(refused("tokens_u2.npy", Some(DType::U32)).contains("a .npy file of uint16"));
    assert!(refused("f4.npy", None).contains("one side"));
    assert!(refused("u1_fortran_1d.npy", None).contains("uint8 as token ids"));
}

#[test]
fn a_slot_of_another_length_is_an_error() {
    let source = Tokens::open(&fixture("tokens_u2.npy"), U16_IN_BLOCKS_OF_64, None).unwrap();
    let mut short = [0; 127];
    let mut values = [Value::default()];
    assert!(source.read_into(0, &mut [&mut short], &mut values).is_err());
    assert!(source.read_into(0, &mut [], &mut values).is_err());
    assert!(
        source
            .read_into(15, &mut [&mut [0; 128]], &mut values)
            .is_err()
    );
}
