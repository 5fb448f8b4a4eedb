use std::path::Path;

use super::server::{Fault, Server};
use std::time::Duration;

use super::*;
use crate::reading::{Access, Reader, choose_among};
use crate::value::Piece;
use brimful::units::Bytes;

fn data(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| u8::try_from((at ^ at >> 8 ^ at >> 16) & 255).unwrap())
        .collect()
}

/// A server of an object of so many bytes, and a reader of it.
fn opened(len: usize) -> (Server, Reader, Vec<u8>) {
    let server = Server::start(data(len));
    let reader = Reader::open(&server.path("data.bin"), Access::Mapped).unwrap();
    (server, reader, data(len))
}

fn read(reader: &Reader, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut out = vec![0; len];
    reader.read_to(offset, &mut out, &mut Piece::default())?;
    Ok(out)
}

#[test]
fn every_way_of_reading_gives_the_bytes_of_the_object() {
    let (_server, reader, data) = opened(400_000);
    assert_eq!(reader.access(), Access::Remote);
    assert_eq!(reader.len(), 400_000);
    let mut piece = Piece::default();
    let mut scratch = vec![0; 400_000];
    for (offset, len) in [
        (0, 400_000),
        (1, 1),
        (100_000, 70_000),
        (399_990, 10),
        (400_000, 0),
    ] {
        let start = usize::try_from(offset).unwrap();
        let expected = &data[start..start + len];
        reader.read(offset, len, &mut piece).unwrap();
        assert_eq!(piece.bytes(), expected);
        let view = reader.view(offset, len, &mut scratch, <[u8]>::to_vec);
        assert_eq!(view.unwrap(), expected);
        assert_eq!(read(&reader, offset, len).unwrap(), expected);
    }
    assert!(reader.read(399_999, 2, &mut piece).is_err());
    assert_eq!(reader.access(), Access::Remote);
    assert!(reader.held_for(10_000) > 10_000);
}

#[test]
fn opening_takes_one_request_and_headers_none() {
    let (server, reader, data) = opened(10 << 20);
    assert_eq!(server.asked(), [(0, FIRST)]);
    for offset in 0..1000_u64 {
        let start = usize::try_from(offset * 60).unwrap();
        assert_eq!(
            read(&reader, offset * 60, 60).unwrap(),
            data[start..start + 60]
        );
    }
    assert_eq!(server.asked(), []);
}

#[test]
fn large_reads_ask_for_exactly_their_bytes() {
    let (server, reader, data) = opened(MAX_REQUEST_BYTES + 300_000);
    server.asked();
    assert_eq!(
        read(&reader, 100_001, 100_000).unwrap(),
        data[100_001..200_001]
    );
    assert_eq!(server.asked(), [(100_001, 200_001)]);
    let all = read(&reader, 0, MAX_REQUEST_BYTES + 300_000).unwrap();
    assert!(all == data);
    let part = MAX_REQUEST_BYTES as u64;
    assert_eq!(server.asked(), [(0, part), (part, part + 300_000)]);
}

#[test]
fn many_threads_read_at_once() {
    let (_server, reader, data) = opened(1 << 20);
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (reader, data) = (&reader, &data);
            scope.spawn(move || {
                for turn in 0..50_u64 {
                    let offset = (turn * 7919 + thread * 104_729) * 13 % 900_000;
                    let len = if turn % 5 == 0 { 100_000 } else { 700 };
                    let start = usize::try_from(offset).unwrap();
                    assert_eq!(read(reader, offset, len).unwrap(), data[start..start + len]);
                }
            });
        }
    });
}

#[test]
fn a_server_that_recovers_is_asked_again() {
    let (server, reader, data) = opened(300_000);
    for fault in [Fault::Unavailable, Fault::ClosesEarly] {
        server.fail(fault, 2);
        assert_eq!(
            read(&reader, 0, 200_000).unwrap(),
            data[..200_000],
            "{fault:?}"
        );
        server.fail(fault, 1);
        let reader = Reader::open(&server.path("again"), Access::Read).unwrap();
        assert_eq!(
            read(&reader, 60_000, 100).unwrap(),
            data[60_000..60_100],
            "{fault:?}"
        );
    }
}

#[test]
fn answers_that_lie_are_errors() {
    for fault in [
        Fault::SendsLess,
        Fault::SendsMore,
        Fault::OtherRange,
        Fault::LongerObject,
        Fault::EndlessObject,
        Fault::EndlessRange,
        Fault::NoRanges,
        Fault::Forbidden,
    ] {
        let (server, reader, data) = opened(300_000);
        for len in [100_000, 500] {
            server.fail(fault, 1);
            assert!(
                read(&reader, 90_000, len).is_err(),
                "{fault:?}, {len} bytes"
            );
            let end = 90_000 + len;
            assert_eq!(
                read(&reader, 90_000, len).unwrap(),
                data[90_000..end],
                "{fault:?}"
            );
        }
    }
}

#[test]
fn lies_at_opening_are_errors() {
    let server = Server::start(data(300_000));
    for fault in [
        Fault::SendsLess,
        Fault::SendsMore,
        Fault::OtherRange,
        Fault::EndlessObject,
        Fault::EndlessRange,
        Fault::NoRanges,
    ] {
        server.fail(fault, 1);
        assert!(
            Reader::open(&server.path("x"), Access::Read).is_err(),
            "{fault:?}"
        );
    }
    // Of an object that is shorter than was said, what is not there is an error when it is read.
    server.fail(Fault::LongerObject, 1);
    let reader = Reader::open(&server.path("x"), Access::Read).unwrap();
    assert!(read(&reader, 200_000, 100_000).is_err());
}

#[test]
fn an_object_that_changes_is_not_mixed_with_what_it_was() {
    let (server, reader, _) = opened(300_000);
    server.replace(data(300_000), "\"2\"");
    let error = read(&reader, 100_000, 100_000).unwrap_err().to_string();
    assert!(
        error.starts_with("the object changed after it was opened"),
        "{error}"
    );
}

#[test]
fn an_empty_object_is_empty() {
    let server = Server::start(Vec::new());
    let reader = Reader::open(&server.path("empty"), Access::Read).unwrap();
    assert!(reader.is_empty());
    assert!(read(&reader, 0, 0).unwrap().is_empty());
}

#[test]
fn errors_name_the_object_and_no_credentials() {
    let server = Server::start(data(10));
    let check = |path: &Path, expected: &str| {
        let cause = Reader::open(path, Access::Read).unwrap_err();
        let error = crate::error::SourceError::Unreadable {
            path: path.to_owned(),
            cause,
        };
        let said = format!("{error}: {}", std::error::Error::source(&error).unwrap());
        let said = said.replace(&server.path("").display().to_string(), "SERVER/");
        assert!(said.starts_with(expected), "{said}");
        for secret in ["secret", "hidden", "503-times"] {
            assert!(!said.contains(secret), "{said}");
        }
    };
    let signed = server.path("missing?Signature=secret");
    check(&signed, "failed to read SERVER/missing: no such object");
    server.fail(Fault::Forbidden, 1);
    let signed = server.path("a?Signature=secret");
    check(
        &signed,
        "failed to read SERVER/a: access denied by the object store: ",
    );
    server.fail(Fault::NoRanges, 1);
    check(
        &signed,
        "failed to read SERVER/a: the server does not support range requests",
    );
    let nobody = Path::new("http://me:secret@127.0.0.1:9/a?Signature=secret");
    check(
        nobody,
        "failed to read http://127.0.0.1:9/a: Connection refused",
    );
}

#[test]
fn a_reader_shows_no_credentials() {
    let server = Server::start(data(10));
    let reader = Reader::open(&server.path("a.npy?Signature=secret"), Access::Read).unwrap();
    assert_eq!(reader.path(), server.path("a.npy"));
    assert!(!format!("{reader:?}").contains("secret"));
}

#[test]
fn the_choice_says_why() {
    let paths = [Path::new("/data/a.npy"), Path::new("s3://bucket/b.npy")];
    let choice = choose_among(paths, Bytes(10), Some(Bytes(5)));
    assert_eq!(choice.access, Access::Remote);
    assert!(
        choice
            .reason
            .starts_with("s3://bucket/b.npy is in an object store")
    );
    assert_eq!(
        choose_among([paths[0]], Bytes(10), None).access,
        Access::Mapped
    );
}

#[test]
fn objects_are_looked_through_at_once_and_come_in_order() {
    let paths: Vec<_> = (0..100)
        .map(|number| PathBuf::from(format!("s3://data/{number}")))
        .collect();
    // Nobody is done with one of the first before all of them have begun.
    let begun = std::sync::Barrier::new(AT_ONCE);
    let made = each(&paths, |path| {
        if paths[..AT_ONCE].iter().any(|first| first == path) {
            begun.wait();
        }
        Ok::<_, ()>(path.to_owned())
    });
    assert_eq!(made.as_ref(), Ok(&paths));
    assert_eq!(each(&[], |_| Err::<(), _>("none")), Ok(Vec::new()));
}

#[test]
fn of_several_objects_that_fail_the_first_is_told() {
    let paths: Vec<_> = (0..40)
        .map(|number| PathBuf::from(format!("s3://data/{number}")))
        .collect();
    for _ in 0..50 {
        let made = each(&paths, |path| match path.to_str() {
            Some("s3://data/5") => {
                thread::sleep(Duration::from_millis(1));
                Err(5)
            }
            Some("s3://data/7") => Err(7),
            _ => Ok(()),
        });
        assert_eq!(made, Err(5));
    }
}

#[test]
fn files_are_looked_through_one_after_the_other() {
    let paths: Vec<_> = (0..20)
        .map(|number| PathBuf::from(number.to_string()))
        .collect();
    let here = thread::current().id();
    let made = each(&paths, |_| {
        assert_eq!(thread::current().id(), here);
        Ok::<_, ()>(())
    });
    assert_eq!(made, Ok(vec![(); 20]));
}

#[test]
fn a_redirect_is_followed_on_its_host_and_no_further() {
    let server = Server::start(data(1000));
    server.fail(Fault::RedirectsHere, 1);
    let reader = Reader::open(&server.path("data.bin"), Access::Mapped).unwrap();
    assert_eq!(read(&reader, 10, 20).unwrap(), data(1000)[10..30]);
    server.asked();
    server.fail(Fault::RedirectsElsewhere, 1);
    let error = Reader::open(&server.path("other.bin"), Access::Mapped).unwrap_err();
    let text = format!("{error:?} {error}");
    assert!(
        text.contains("redirects to another host, localhost"),
        "{text}"
    );
    assert_eq!(server.asked().len(), 1, "nothing was sent there");
    server.fail(Fault::RedirectsHere, 20);
    let error = Reader::open(&server.path("third.bin"), Access::Mapped).unwrap_err();
    assert!(format!("{error:?} {error}").contains("more than 10 times"));
}
