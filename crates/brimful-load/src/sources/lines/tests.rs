use std::fs;

use proptest::prelude::*;

use super::*;
use crate::sources::testing::{check_threads, fixture, sample};

fn texts(source: &Lines) -> Vec<String> {
    (0..source.len())
        .map(|index| {
            let value = &sample(source, index)[0];
            assert_eq!(value.shape, [value.bytes().len()]);
            String::from_utf8(value.bytes().to_vec()).unwrap()
        })
        .collect()
}

#[test]
fn a_line_is_a_sample() {
    let source = Lines::open(&[fixture("lines.txt")], None, &Opening::default()).unwrap();
    let expected = ["first", "zweite Zeile ü", "", "fourth, without an end"];
    assert_eq!(texts(&source), expected);
    assert_eq!(source.place(1), "lines.txt, line 2 at byte 6");
    assert_eq!(source.fields()[0].name, "text");
    check_threads(&source);
}

#[test]
fn a_field_of_json_lines_is_a_sample() {
    let path = fixture("lines.jsonl");
    let source = Lines::open(
        &[path.clone(), path],
        Some("text".to_owned()),
        &Opening::default(),
    )
    .unwrap();
    assert_eq!(source.len(), 10);
    let text = |index| sample(&source, index)[0].bytes().to_vec();
    for first in [0, 5] {
        assert_eq!(text(first), b"plain");
        assert_eq!(text(first + 1), "with \"escapes\" ü".as_bytes());
        assert_eq!(text(first + 2), b"");
    }
    let error = |index| {
        source
            .read(index, &mut [Value::default()])
            .unwrap_err()
            .to_string()
    };
    assert!(error(3).contains("expected a JSON object with a text \"text\", found invalid type"));
    assert!(error(9).contains("found an object without it"));
    assert_eq!(source.place(7), "lines.jsonl, object 3 at byte 75");
}

#[test]
fn a_line_that_is_not_utf_8_is_an_error_of_its_own() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), b"good\nb\xffad\ngood\n").unwrap();
    let source = Lines::open(&[file.path().to_owned()], None, &Opening::default()).unwrap();
    let mut values = [Value::default()];
    source.read(0, &mut values).unwrap();
    let error = source.read(1, &mut values).unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected UTF-8, found something else from byte 1 of the line on"
    );
    source.read(2, &mut values).unwrap();
    assert!(source.read(3, &mut values).is_err());
}

#[test]
fn a_line_beyond_the_limit_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = b"first\n".to_vec();
    bytes.resize(bytes.len() + (16 << 20), b'x');
    bytes.extend(b"\nthird");
    fs::write(file.path(), &bytes).unwrap();
    let error = Lines::open(&[file.path().to_owned()], None, &Opening::default()).unwrap_err();
    let expected = "expected lines of at most 16777216 bytes, found line 2 of";
    assert!(error.to_string().contains(expected), "{error}");
    bytes.remove(7);
    fs::write(file.path(), &bytes).unwrap();
    let source = Lines::open(&[file.path().to_owned()], None, &Opening::default()).unwrap();
    assert_eq!(sample(&source, 1)[0].bytes().len(), (16 << 20) - 1);
}

#[test]
fn starts_beyond_32_bits_are_kept() {
    let line = 15 << 20;
    let mut starts = LineStarts::default();
    for at in 0..2000 {
        starts.push(at * line).unwrap();
    }
    for at in [0, 254, 255, 256, 1999] {
        assert_eq!(starts.extent(at).unwrap().0, at * line);
    }
    assert_eq!(starts.extent(2000), None);
}

#[test]
fn an_index_beyond_the_headroom_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "\n".repeat(3 << 20)).unwrap();
    let headroom = Some(Bytes::from_mib(4));
    let error = Lines::open(&[file.path().to_owned()], None, &headroom.into()).unwrap_err();
    assert!(matches!(error, SourceError::Unsupported { .. }), "{error}");
    let source = Lines::open(&[file.path().to_owned()], None, &Opening::default()).unwrap();
    assert_eq!(source.len(), 3 << 20);
    assert!(source.index_bytes() < 5 * source.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lines_are_those_of_the_text(
        lines in proptest::collection::vec("[a-zé\r]{0,40}", 0..400),
        ends_with_newline in any::<bool>(),
        direct in any::<bool>(),
    ) {
        let mut text = lines.join("\n");
        if ends_with_newline && !lines.is_empty() {
            text.push('\n');
        }
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("text");
        fs::write(&path, &text).unwrap();
        let headroom = direct.then(|| Bytes(text.len() as u64 - u64::from(!text.is_empty())));
        let Ok(source) = Lines::open(&[path], None, &headroom.into()) else {
            // Short lines whose index is as large as the text.
            prop_assume!(false);
            return Ok(());
        };
        prop_assert_eq!(texts(&source), text.lines().collect::<Vec<_>>());
    }
}

proptest! {
    #[test]
    fn ranges_have_every_line_once(
        text in "([a-z]{0,6}(\n|\r\n)){0,12}[a-z]{0,4}",
        cuts in prop::collection::vec(0_u64..90, 0..5),
        is_json in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        fs::write(&path, &text).unwrap();
        let field = is_json.then(|| "text".to_owned());
        let all = Lines::open(std::slice::from_ref(&path), field.clone(), &Opening::default());
        let all: Vec<String> = texts_as_read(&all.unwrap());
        let mut cuts: Vec<u64> = cuts.into_iter().map(|cut| cut.min(text.len() as u64)).collect();
        cuts.extend([0, text.len() as u64]);
        cuts.sort_unstable();
        let parts: Vec<String> = cuts
            .windows(2)
            .flat_map(|cut| {
                let range = cut[0]..cut[1];
                let room = Bytes::from_mib(1);
                let part = Lines::open_range(&path, range, field.clone(), room, &Opening::default());
                texts_as_read(&part.unwrap())
            })
            .collect();
        prop_assert_eq!(parts, all);
    }
}

/// What lies between the starts, whatever it means. Empty lines of JSON Lines, which count to the line before them, are
/// left out.
fn texts_as_read(source: &Lines) -> Vec<String> {
    (0..source.len())
        .map(|index| {
            let (file, start, end) = source.find(index).unwrap();
            let mut piece = Piece::default();
            let len = usize::try_from(end - start).unwrap();
            file.reader.read(start, len, &mut piece).unwrap();
            let text = String::from_utf8(piece.bytes().to_vec()).unwrap();
            match source.json_field {
                Some(_) => text.trim_end().to_owned(),
                None => text,
            }
        })
        .collect()
}
