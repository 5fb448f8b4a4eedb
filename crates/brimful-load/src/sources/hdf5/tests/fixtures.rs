//! Every fixture gives the numbers that its formula says.

use std::sync::Arc;

use super::{TIGHT, check, expected, fixture, numbers, opened, read};
use crate::array::{DType, Encoding, FieldSpec, TensorSpec};
use crate::error::SourceError;
use crate::reading::Access;
use crate::source::Source;
use crate::sources::hdf5::{DatasetRequest, Hdf5, Holds};
use crate::value::{Piece, Value};

#[test]
fn every_type_of_number_is_read() {
    for dtype in DType::ALL {
        if dtype == DType::Bool {
            continue;
        }
        check("contiguous.h5", dtype.name(), &[4, 3], 0);
        let source = opened("contiguous.h5", dtype.name(), 0, None);
        let form = TensorSpec::new(dtype, [3]).unwrap();
        assert_eq!(source.fields()[0].spec, FieldSpec::Array(form));
    }
}

#[test]
fn big_endian_numbers_are_turned_around() {
    for dataset in ["big_uint16", "big_int32", "big_float64"] {
        check("contiguous.h5", dataset, &[4, 3], 0);
    }
}

#[test]
fn booleans_of_h5py_are_booleans() {
    let source = opened("contiguous.h5", "bool", 0, None);
    let value = read(&source, 2);
    assert_eq!(value.dtype, DType::Bool);
    let odd: Vec<f64> = expected(&[4, 3], 0, 2)
        .iter()
        .map(|number| number % 2.0)
        .collect();
    assert_eq!(numbers(&value), odd);
}

#[test]
fn compact_and_unwritten_datasets_are_read() {
    check("contiguous.h5", "compact", &[4, 3], 0);
    for dataset in ["group/unwritten", "/group/unwritten", "linked"] {
        let source = opened("contiguous.h5", dataset, 0, None);
        assert_eq!(numbers(&read(&source, 3)), [-7.0; 3]);
    }
}

#[test]
fn samples_may_be_counted_by_another_axis() {
    check("contiguous.h5", "second_axis", &[2, 4, 3], 1);
    check("contiguous.h5", "last_axis", &[2, 3, 4], 2);
    for file in ["chunked-earliest.h5", "chunked-latest.h5"] {
        for axis in 0..3 {
            check(file, "third_axis", &[2, 3, 6], axis);
        }
        for axis in 0..4 {
            check(file, "plain_two", &[5, 2, 3, 4], axis);
            check(file, "shuffle_gzip_part", &[5, 2, 3, 4], axis);
        }
    }
}

#[test]
fn contiguous_samples_of_a_map_are_not_copied() {
    let source = opened("contiguous.h5", "float32", 0, None);
    assert!(matches!(read(&source, 1).piece, Piece::Mapped { .. }));
    assert_eq!(source.max_sample_bytes(), 0);
    // Nor are those that are a whole chunk without filters.
    let source = opened("chunked-latest.h5", "plain_one", 0, None);
    assert!(matches!(read(&source, 1).piece, Piece::Mapped { .. }));
}

#[test]
fn every_filter_is_undone() {
    for file in ["chunked-earliest.h5", "chunked-latest.h5"] {
        for filters in [
            "plain",
            "gzip",
            "lzf",
            "shuffle_gzip",
            "shuffle_lzf_fletcher",
            "fletcher",
        ] {
            check(file, &format!("{filters}_one"), &[5, 2, 3, 4], 0);
        }
        for filters in ["plain", "shuffle_gzip"] {
            check(file, &format!("{filters}_part"), &[5, 2, 3, 4], 0);
            check(file, &format!("{filters}_two"), &[5, 2, 3, 4], 0);
        }
        check(file, "lzf_skipped", &[4, 5], 0);
    }
}

#[test]
fn chunks_that_were_not_written_are_the_fill_value() {
    for file in ["chunked-earliest.h5", "chunked-latest.h5"] {
        let source = opened(file, "sparse", 0, None);
        let written = expected(&[5, 2, 3, 4], 0, 3);
        assert_eq!(numbers(&read(&source, 3)), written);
        assert_eq!(numbers(&read(&source, 4)), [9.0; 24]);
    }
}

#[test]
fn every_chunk_index_is_read() {
    for index in [
        "implicit",
        "implicit_wide",
        "fixed",
        "fixed_wide",
        "extensible",
        "tree",
    ] {
        check("indexes.h5", index, &[9, 3, 4], 0);
    }
    for index in ["fixed", "extensible", "tree"] {
        check("indexes-gzip.h5", index, &[9, 3, 4], 0);
    }
    check("indexes.h5", "single", &[2, 3, 4], 0);
    check("indexes-gzip.h5", "single", &[2, 3, 4], 0);
}

#[test]
fn files_of_matlab_give_images_depths_and_names() {
    check("matlab.h5", "images", &[3, 3, 8, 6], 0);
    check("matlab.h5", "depths", &[3, 8, 6], 0);
    for headroom in [None, TIGHT] {
        let source = opened("matlab.h5", "names", 1, headroom);
        assert_eq!(source.len(), 3);
        assert_eq!(source.fields()[0].spec, FieldSpec::Encoded(Encoding::Text));
        let mut values = [Value::default()];
        for (index, name) in ["kitchen", "café 😀", ""].iter().enumerate() {
            source.read(index as u64, &mut values).unwrap();
            assert_eq!(values[0].bytes(), name.as_bytes());
            assert_eq!(values[0].shape, [name.len()]);
        }
    }
}

#[test]
fn references_to_arrays_of_many_sizes_are_ragged() {
    let source = opened("matlab.h5", "points", 0, None);
    let ragged = FieldSpec::Ragged {
        dtype: DType::F64,
        rank: 2,
    };
    assert_eq!(source.fields()[0].spec, ragged);
    for headroom in [None, TIGHT] {
        let source = opened("matlab.h5", "points", 0, headroom);
        let mut values = vec![Value::default()];
        for (index, rows) in [2, 5, 3].into_iter().enumerate() {
            source.read(index as u64, &mut values).unwrap();
            assert_eq!(values[0].shape, [rows, 2]);
            assert_eq!(numbers(&values[0]), expected(&[1, rows, 2], 0, 0));
            assert!(values[0].piece.held_bytes() as u64 <= source.max_sample_bytes());
        }
    }
    let source = opened("matlab.h5", "boxes", 0, None);
    let form = TensorSpec::new(DType::I16, [2, 2]).unwrap();
    assert_eq!(source.fields()[0].spec, FieldSpec::Array(form));
}

#[test]
fn several_fields_are_read_together() {
    let names = DatasetRequest {
        axis: 1,
        ..DatasetRequest::new("names")
    };
    let wanted = [
        DatasetRequest::new("images"),
        DatasetRequest::new("depths"),
        names,
    ];
    let source = Hdf5::open(&fixture("matlab.h5"), &wanted, None).unwrap();
    let mut values = vec![Value::default(); 3];
    source.read(1, &mut values).unwrap();
    assert_eq!(values[0].shape, [3, 8, 6]);
    assert_eq!(values[1].shape, [8, 6]);
    assert_eq!(values[2].bytes(), "café 😀".as_bytes());
    assert!(source.place(1).ends_with("matlab.h5, sample 1"));
    assert!(source.read(3, &mut values).is_err());
    assert!(source.read(0, &mut values[..1]).is_err());
}

#[test]
fn without_names_all_fields_of_equal_length_are_read() {
    let source = Hdf5::open(&fixture("matlab.h5"), &[], None).unwrap();
    let names: Vec<&str> = source
        .fields()
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    assert_eq!(names, ["boxes", "depths", "images", "points"]);
    let source = Hdf5::open(&fixture("contiguous.h5"), &[], None).unwrap();
    assert_eq!(source.len(), 4);
    assert!(
        source
            .fields()
            .iter()
            .any(|field| field.name == "group/unwritten")
    );
}

#[test]
fn what_is_in_a_file_is_listed() {
    let listed = Hdf5::datasets(&fixture("contiguous.h5")).unwrap();
    let lines: Vec<String> = listed.iter().map(ToString::to_string).collect();
    assert!(
        lines.contains(&"second_axis (uint16 2x4x3)".to_owned()),
        "{lines:?}"
    );
    assert!(lines.contains(&"group/unwritten (int16 4x3)".to_owned()));
    assert!(lines.contains(&"scalar (float32)".to_owned()));
    let text = listed
        .iter()
        .find(|listed| listed.dataset == "text")
        .unwrap();
    assert!(matches!(text.holds, Holds::Other(_)));
}

#[test]
fn what_cannot_be_a_field_is_said() {
    let error = |file: &str, dataset: &str, axis| {
        let wanted = DatasetRequest {
            axis,
            ..DatasetRequest::new(dataset)
        };
        Hdf5::open(&fixture(file), &[wanted], None).unwrap_err()
    };
    let missing = error("contiguous.h5", "images", 0);
    assert!(
        matches!(&missing, SourceError::NoSuchField { known, .. } if known.len() > 10),
        "{missing}"
    );
    let missing = error("contiguous.h5", "nowhere/images", 0);
    assert!(
        matches!(missing, SourceError::NoSuchField { .. }),
        "{missing}"
    );
    let text = error("contiguous.h5", "text", 0);
    assert!(
        text.to_string()
            .ends_with("text, of text of varying length, is not supported"),
        "{text}"
    );
    assert!(matches!(
        error("contiguous.h5", "scalar", 0),
        SourceError::Malformed { .. }
    ));
    assert!(matches!(
        error("contiguous.h5", "uint8", 2),
        SourceError::Malformed { .. }
    ));
    assert!(matches!(
        error("matlab.h5", "mixed", 1),
        SourceError::Unsupported { .. }
    ));
    let other_axis = error("matlab.h5", "names", 0);
    assert!(
        other_axis
            .to_string()
            .contains("one reference for each sample"),
        "{other_axis}"
    );
    let none = Hdf5::open(&fixture("make.py"), &[], None).unwrap_err();
    assert!(none.to_string().contains("expected an HDF5 file"), "{none}");
}

#[test]
fn fields_of_different_lengths_are_refused() {
    let wanted = [
        DatasetRequest::new("uint8"),
        DatasetRequest::new("second_axis"),
    ];
    let error = Hdf5::open(&fixture("contiguous.h5"), &wanted, None).unwrap_err();
    assert!(
        error.to_string().ends_with(
            "expected 4 samples in all fields, as uint8 has, found 2 along axis 0 of second_axis"
        ),
        "{error}"
    );
}

#[test]
fn many_threads_read_the_same_bytes() {
    for headroom in [None, TIGHT] {
        let wanted =
            ["gzip_one", "shuffle_gzip_two", "plain_part", "sparse"].map(DatasetRequest::new);
        let source =
            Arc::new(Hdf5::open(&fixture("chunked-earliest.h5"), &wanted, headroom).unwrap());
        let read_all = |source: &Hdf5, first: u64| {
            let mut all = vec![Vec::new(); 5];
            let mut values = vec![Value::default(); 4];
            for turn in 0..200 {
                let index = (first + turn) % 5;
                source.read(index, &mut values).unwrap();
                let bytes: Vec<u8> = values
                    .iter()
                    .flat_map(|value| value.bytes().to_vec())
                    .collect();
                all[usize::try_from(index).unwrap()] = bytes;
            }
            all
        };
        let alone = read_all(&source, 0);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|first| {
                    let source = &source;
                    scope.spawn(move || read_all(source, first))
                })
                .collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), alone);
            }
        });
        assert_ne!(source.choice().access == Access::Mapped, headroom.is_some());
    }
}
