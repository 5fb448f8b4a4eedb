//! An object store that answers anything: objects are read, or refused with a message fit to show, and no answer takes
//! more memory than was asked for.
//!
//! The input is a script of answers, one for each request. An answer is right but for what its script changes in it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use arbitrary::{Result, Unstructured};
use brimful::printable::is_printable;
use brimful_load::remote::scripted::{Answer, Request, answer_with};
use brimful_load::sources::{ArrowFile, Lines, Npy, Parquet, TarField, Tars};
use brimful_load::{Access, Opening, Piece, Reader, SourceError};

use crate::input;

/// A store that goes on forever is stopped here: it may claim any length, and answer for all of it.
const MAX_ANSWERS: usize = 64;
/// Bytes of one answer, whatever was asked for.
const MAX_BODY: u64 = 1 << 20;
/// Bytes of the object that the script brings itself.
const MAX_OBJECT: usize = 2048;

/// Objects that are right, from the tests.
const OBJECTS: [&[u8]; 6] = [
    include_bytes!("../../../fixtures/load/f4.npy"),
    include_bytes!("../../../fixtures/load/lines.jsonl"),
    include_bytes!("../../../fixtures/load/shard_pax.tar"),
    include_bytes!("../../../fixtures/load/none.parquet"),
    include_bytes!("../../../fixtures/load/table.arrow"),
    b"",
];

/// What is wrong with one answer.
#[derive(Clone, Debug, Default)]
struct Fault {
    status: Option<u16>,
    content_range: Option<Vec<u8>>,
    content_length: Option<Vec<u8>>,
    e_tag: Option<Vec<u8>>,
    body_change: BodyChange,
}

#[derive(Clone, Debug, Default)]
enum BodyChange {
    #[default]
    None,
    Shorter(u16),
    Longer(u16),
    Text(Vec<u8>),
}

#[derive(Debug)]
struct Script {
    object: Vec<u8>,
    /// What the store says that the object has.
    len: u64,
    faults: Vec<Fault>,
    n_answers: usize,
}

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let _ = run(&mut input);
}

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let format = input.int_in_range(0..=5)?;
    let object = if input.ratio(3, 4)? {
        OBJECTS[format].to_vec()
    } else {
        let bytes = input.arbitrary::<&[u8]>()?;
        bytes[..bytes.len().min(MAX_OBJECT)].to_vec()
    };
    let len = if input.ratio(3, 4)? {
        object.len() as u64
    } else {
        length(input)?
    };
    let mut faults = Vec::new();
    for _ in 0..input.int_in_range(0..=5)? {
        faults.push(fault(input)?);
    }
    let script = Arc::new(Mutex::new(Script {
        object,
        len,
        faults,
        n_answers: 0,
    }));
    answer_with(move |request| script.lock().expect("no answer panics").answer(request));
    let paths = [PathBuf::from(
        "http://user:secret@127.0.0.1:9/a/b?Signature=hidden",
    )];
    input::read(|| {
        Ok(match format {
            0 => Box::new(Npy::open(&[("x".to_owned(), paths[0].clone())], None).map_err(checked)?),
            1 => Box::new(Lines::open(&paths, None, &Opening::default()).map_err(checked)?),
            2 => {
                let fields = [TarField::named("cls")];
                Box::new(Tars::open(&paths, &fields, &Opening::default()).map_err(checked)?)
            }
            3 => Box::new(
                Parquet::open(&paths, None, brimful::units::Bytes(1 << 20), None)
                    .map_err(checked)?,
            ),
            _ => Box::new(ArrowFile::open(&paths, None, None).map_err(checked)?),
        })
    });
    read_ranges(&paths[0], input)
}

/// Reads as sources do, at places that only the store's own length makes possible.
fn read_ranges(path: &std::path::Path, input: &mut Unstructured<'_>) -> Result<()> {
    let reader = match Reader::open(path, Access::Read) {
        Ok(reader) => reader,
        Err(error) => {
            shown(&error.to_string());
            return Ok(());
        }
    };
    for _ in 0..input.int_in_range(0..=6)? {
        let from_end = input.arbitrary()?;
        let distance = u64::from(input.arbitrary::<u32>()?);
        let offset = if from_end {
            reader.len().saturating_sub(distance)
        } else {
            distance
        };
        let mut out = vec![0; input.int_in_range(0..=100_000)?];
        if let Err(error) = reader.read_to(offset, &mut out, &mut Piece::default()) {
            shown(&error.to_string());
        }
    }
    Ok(())
}

fn checked(error: SourceError) -> SourceError {
    shown(&error.to_string());
    error
}

fn shown(message: &str) {
    assert!(message.len() < 20_000, "a message, not a page");
    assert!(
        message.chars().all(|c| c == '\n' || is_printable(c)),
        "{message:?}"
    );
    for secret in ["user:", "secret", "Signature"] {
        assert!(!message.contains(secret), "{message}");
    }
}

fn fault(input: &mut Unstructured<'_>) -> Result<Fault> {
    const STATUS: [u16; 10] = [200, 204, 206, 301, 304, 400, 403, 404, 412, 416];
    let maybe = |input: &mut Unstructured<'_>| input.ratio(1, 3);
    Ok(Fault {
        status: if maybe(input)? {
            Some(*input.choose(&STATUS)?)
        } else {
            None
        },
        content_range: if maybe(input)? {
            Some(content_range(input)?)
        } else {
            None
        },
        content_length: if maybe(input)? {
            Some(length(input)?.to_string().into_bytes())
        } else {
            None
        },
        e_tag: if maybe(input)? {
            Some(
                input
                    .choose(&[&b"\"1\""[..], b"W/\"1\"", b"\"2\"", b"", b"\xff"])?
                    .to_vec(),
            )
        } else {
            None
        },
        body_change: match input.int_in_range(0..=7)? {
            0 => BodyChange::Shorter(input.arbitrary()?),
            1 => BodyChange::Longer(input.arbitrary()?),
            2 => BodyChange::Text(input.arbitrary::<&[u8]>()?.to_vec()),
            3 => BodyChange::Text(error_page(input)?),
            _ => BodyChange::None,
        },
    })
}

fn content_range(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    if input.ratio(1, 4)? {
        return Ok(input.arbitrary::<&[u8]>()?.to_vec());
    }
    let (first, last, total) = (length(input)?, length(input)?, length(input)?);
    Ok(format!("bytes {first}-{last}/{total}").into_bytes())
}

/// As S3 writes it, with what must not be shown.
fn error_page(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let message = input.arbitrary::<&str>()?;
    let message: String = message
        .chars()
        .filter(|c| !matches!(c, '<' | '>'))
        .collect();
    Ok(format!(
        "<Error><Code>Denied</Code><Message>{message}</Message><StringToSign>secret</StringToSign></Error>"
    )
    .into_bytes())
}

fn length(input: &mut Unstructured<'_>) -> Result<u64> {
    const EDGES: [u64; 10] = [
        0,
        1,
        4096,
        65_535,
        65_536,
        1 << 20,
        1 << 40,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ];
    if input.arbitrary()? {
        Ok(*input.choose(&EDGES)?)
    } else {
        Ok(u64::from(input.arbitrary::<u16>()?))
    }
}

impl Script {
    fn answer(&mut self, request: &Request) -> Answer {
        let number = self.n_answers;
        self.n_answers += 1;
        if number >= MAX_ANSWERS {
            return Answer {
                status: 404,
                ..Answer::default()
            };
        }
        let fault = self.faults.get(number).cloned().unwrap_or_default();
        let mut answer = self.right(request);
        if let Some(status) = fault.status {
            answer.status = status;
        }
        let replaced = [
            ("content-range", fault.content_range),
            ("content-length", fault.content_length),
            ("etag", fault.e_tag),
        ];
        for (name, value) in replaced {
            if let Some(value) = value {
                answer.headers.retain(|(known, _)| *known != name);
                answer.headers.push((name, value));
            }
        }
        match fault.body_change {
            BodyChange::None => {}
            BodyChange::Shorter(by) => {
                answer
                    .body
                    .truncate(answer.body.len().saturating_sub(usize::from(by)));
            }
            BodyChange::Longer(by) => answer.body.resize(answer.body.len() + usize::from(by), 0),
            BodyChange::Text(text) => answer.body = text,
        }
        answer
    }

    /// The answer of a store that is only wrong about the length of the object, if that.
    fn right(&self, request: &Request) -> Answer {
        let e_tag = ("etag", b"\"1\"".to_vec());
        let Some((first, last)) = request.range.filter(|(first, _)| *first < self.len) else {
            let status = if request.range.is_some() { 416 } else { 200 };
            let headers = vec![e_tag, ("content-length", self.len.to_string().into_bytes())];
            return Answer {
                status,
                headers,
                body: Vec::new(),
            };
        };
        let last = last.min(self.len - 1);
        let n_bytes = last - first + 1;
        let mut body = vec![0; usize::try_from(n_bytes.min(MAX_BODY)).expect("it is small")];
        let start = usize::try_from(first)
            .unwrap_or(usize::MAX)
            .min(self.object.len());
        let here = &self.object[start..];
        let n_here = here.len().min(body.len());
        body[..n_here].copy_from_slice(&here[..n_here]);
        Answer {
            status: 206,
            headers: vec![
                e_tag,
                ("content-length", n_bytes.to_string().into_bytes()),
                (
                    "content-range",
                    format!("bytes {first}-{last}/{}", self.len).into_bytes(),
                ),
            ],
            body,
        }
    }
}
