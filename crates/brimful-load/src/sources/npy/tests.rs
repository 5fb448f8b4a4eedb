use half::f16;
use proptest::prelude::*;

use super::*;
use crate::sources::testing::{HEADROOMS, all_bytes, check_access, check_threads, fixture, sample};

fn open(name: &str) -> Result<Npy, SourceError> {
    Npy::open(&[("x".to_owned(), fixture(name))], None)
}

fn kind(source: &Npy) -> String {
    source.fields()[0].spec.to_string()
}

#[test]
fn files_of_numpy_are_read_whatever_the_access() {
    for headroom in HEADROOMS {
        let names = [
            "f4",
            "f2_big_endian",
            "i8_big_endian",
            "bool",
            "u1_fortran_1d",
        ];
        let files: Vec<_> = names
            .iter()
            .map(|name| ((*name).to_owned(), fixture(&format!("{name}.npy"))))
            .collect();
        let source = Npy::open(&files, headroom).unwrap();
        check_access(&source, headroom);
        assert_eq!(source.len(), 7);
        for row in 0..7_u8 {
            let values = sample(&source, u64::from(row));
            let counted: Vec<u8> = (row * 6..row * 6 + 6).collect();
            let floats: Vec<f32> = counted.iter().map(|&count| f32::from(count)).collect();
            let halves: Vec<f16> = counted.iter().map(|&count| f16::from(count)).collect();
            let longs: Vec<i64> = counted.iter().map(|&count| i64::from(count) - 20).collect();
            let bools: Vec<u8> = counted
                .iter()
                .map(|count| u8::from(count % 3 == 0))
                .collect();
            assert_eq!(*values[0].elements::<f32>(), floats);
            assert_eq!(*values[1].elements::<f16>(), halves);
            assert_eq!(*values[2].elements::<i64>(), longs);
            assert_eq!(values[3].bytes(), bools);
            assert_eq!(values[4].bytes(), [row]);
            assert_eq!(
                (values[0].dtype, &*values[0].shape),
                (DType::F32, &[2, 3][..])
            );
            assert_eq!((values[4].dtype, &*values[4].shape), (DType::U8, &[][..]));
        }
        check_threads(&source);
        assert!(source.read(7, &mut []).is_err());
    }
}

#[test]
fn the_form_of_a_field_is_told() {
    assert_eq!(kind(&open("f4.npy").unwrap()), "float32 2x3");
    assert_eq!(kind(&open("bool.npy").unwrap()), "bool 2x3");
    let empty = open("empty.npy").unwrap();
    assert_eq!((empty.len(), kind(&empty)), (0, "int32 4".to_owned()));
    assert_eq!(open("f4.npy").unwrap().place(3), "f4.npy, sample 3");
}

#[test]
fn what_cannot_be_read_is_refused_with_the_reason() {
    let refused = |name: &str| match open(name).unwrap_err() {
        SourceError::Unsupported { what, hint, .. } => format!("{what}: {hint}"),
        other => other.to_string(),
    };
    assert!(refused("objects.npy").contains("pickle"));
    assert!(refused("f8_fortran_2d.npy").contains("np.ascontiguousarray"));
    assert!(refused("records.npy").contains("records"));
    assert!(refused("scalar.npy").contains("a single number"));
    assert!(refused("lines.txt").contains("x93NUMPY"));
    assert!(refused("absent.npy").contains("failed to read"));
}

#[test]
fn files_of_different_lengths_do_not_go_together() {
    let error = Npy::open(
        &[
            ("a".to_owned(), fixture("f4.npy")),
            ("b".to_owned(), fixture("tokens_u2.npy")),
        ],
        None,
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("expected 7 samples, as in f4.npy, found 1000")
    );
    let twice = ("a".to_owned(), fixture("f4.npy"));
    assert!(Npy::open(&[twice.clone(), twice], None).is_err());
    assert!(Npy::open(&[], None).is_err());
}

#[test]
fn a_raw_file_is_cut_into_samples() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("raw.bin");
    let elements: Vec<u8> = (0..24_u16).flat_map(u16::to_le_bytes).collect();
    std::fs::write(&path, &elements).unwrap();
    for headroom in HEADROOMS {
        let source = Npy::raw("x", &path, DType::U16, &[2, 3], headroom).unwrap();
        let expected: Vec<_> = elements
            .chunks(12)
            .map(|sample| vec![sample.to_vec()])
            .collect();
        assert_eq!(all_bytes(&source), expected);
    }
    for shape in [&[5][..], &[0], &[usize::MAX, 2]] {
        assert!(
            Npy::raw("x", &path, DType::U16, shape, None).is_err(),
            "{shape:?}"
        );
    }
}

fn file(version: u8, header: &str, elements: &[u8]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    file.extend([version, 0]);
    match version {
        1 => file.extend(u16::try_from(header.len()).unwrap().to_le_bytes()),
        _ => file.extend(u32::try_from(header.len()).unwrap().to_le_bytes()),
    }
    file.extend(header.as_bytes());
    file.extend(elements);
    file
}

fn opened(bytes: &[u8]) -> Result<Npy, SourceError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    Npy::open(&[("x".to_owned(), file.path().to_owned())], None)
}

#[test]
fn a_header_that_promises_more_than_the_file_has_is_an_error() {
    for shape in [
        "(3,)",
        "(4611686018427387904, 4)",
        "(2, 18446744073709551615)",
        "(18446744073709551615,)",
    ] {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
        assert!(opened(&file(1, &header, &[0; 8])).is_err(), "{shape}");
    }
    // No element, so no bytes: so many samples are none of our memory.
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 0), }\n";
    assert_eq!(
        opened(&file(2, header, &[])).unwrap().len(),
        1_000_000_000_000
    );
    let mut long = file(3, "{}", &[]);
    long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(opened(&long).is_err());
}

proptest! {
    #[test]
    fn any_shape_that_numpy_could_write_is_read(
        version in 1_u8..=3,
        shape in proptest::collection::vec(0_usize..5, 1..5),
        padding in 0_usize..70,
        swapped in any::<bool>(),
    ) {
        let sides = format!("{shape:?},").replace(['[', ']'], "");
        let order = if swapped { '>' } else { '<' };
        let header = format!(
            "{{'descr': '{order}i2', 'fortran_order': False, 'shape': ({sides}), }}{}\n",
            " ".repeat(padding)
        );
        let elements: Vec<i16> = (0..shape.iter().product::<usize>()).map(|at| i16::try_from(at).unwrap() - 3).collect();
        let bytes: Vec<u8> = elements
            .iter()
            .flat_map(|element| if swapped { element.to_be_bytes() } else { element.to_le_bytes() })
            .collect();
        let source = opened(&file(version, &header, &bytes)).unwrap();
        prop_assert_eq!(source.len(), shape[0] as u64);
        let read: Vec<i16> = (0..source.len())
            .flat_map(|index| sample(&source, index)[0].elements::<i16>().into_owned())
            .collect();
        prop_assert_eq!(read, elements);
    }

    #[test]
    fn any_text_as_a_header_is_an_error_or_read(version in 1_u8..=3, header in "[{}()'\",: 0-9LTrueFalsdcnoth_p<f4]{0,80}") {
        let _ = opened(&file(version, &header, &[0; 64]));
    }
}
