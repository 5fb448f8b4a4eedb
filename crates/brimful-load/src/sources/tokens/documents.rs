//! Where the documents of a file of tokens begin: the file beside it, `NAME.documents`.
//!
//! ```text
//!  0  "brimdocs"
//!  8  u32  version, 1
//! 12  u32  bytes of a token
//! 16  u64  documents
//! 24  u64  tokens
//! 32  u64  where the first document begins, in tokens: 0
//!     …    one for each document, never less than the one before it
//!     u64  the tokens once more: where the last document ends
//! ```
//!
//! All numbers are little-endian. A document may be empty.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::array::DType;
use crate::buffer::PAGE;
use crate::error::ReadError;
use crate::problem::Problem;
use crate::reading::{Access, Reader};
use crate::value::Piece;

const MAGIC: [u8; 8] = *b"brimdocs";
const VERSION: u32 = 1;
pub const HEADER_BYTES: usize = 32;
const START_BYTES: usize = size_of::<u64>();

/// Most starts that are kept in memory: every so-manieth, 8 MiB of them.
const MAX_KEPT: u64 = 1 << 20;

/// Fewest starts from one that is kept to the next: a page of them.
const FEWEST_BETWEEN: u64 = (PAGE / START_BYTES) as u64;

/// Longest document: positions are handed out as `int32`.
const MAX_LEN: u64 = i32::MAX as u64;

/// `NAME.documents` beside a file of tokens.
pub fn documents_path(tokens: &Path) -> PathBuf {
    let mut name = OsString::from(tokens.as_os_str());
    name.push(".documents");
    PathBuf::from(name)
}

/// The beginning of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub token_bytes: u32,
    pub documents: u64,
    pub tokens: u64,
}

impl Header {
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.token_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.documents.to_le_bytes());
        bytes[24..].copy_from_slice(&self.tokens.to_le_bytes());
        bytes
    }

    fn read(reader: &Reader) -> Result<Header, Problem> {
        let wrong = |found: String| Problem::malformed("the documents of a file of tokens", found);
        let mut bytes = [0; HEADER_BYTES];
        if reader.len() < HEADER_BYTES as u64 {
            return Err(wrong(format!("{} bytes", reader.len())));
        }
        reader.read_to(0, &mut bytes, &mut Piece::default())?;
        let (words, _) = bytes.as_chunks::<8>();
        let &[magic, form, documents, tokens] = words else {
            return Err(wrong("another header".to_owned()));
        };
        if magic != MAGIC {
            return Err(wrong("something else".to_owned()));
        }
        let form = u64::from_le_bytes(form);
        let (version, token_bytes) = (form & u64::from(u32::MAX), form >> 32);
        if version != u64::from(VERSION) {
            return Err(Problem::unsupported(
                format!("version {version} of the documents of a file of tokens"),
                "pack it again, or use a newer version of brimful",
            ));
        }
        let header = Header {
            token_bytes: u32::try_from(token_bytes).unwrap_or(u32::MAX),
            documents: u64::from_le_bytes(documents),
            tokens: u64::from_le_bytes(tokens),
        };
        let expected = header
            .documents
            .checked_add(1)
            .and_then(|starts| starts.checked_mul(START_BYTES as u64))
            .and_then(|bytes| bytes.checked_add(HEADER_BYTES as u64));
        if expected != Some(reader.len()) {
            return Err(Problem::malformed(
                format!("the starts of {} documents", header.documents),
                format!("a file of {} bytes", reader.len()),
            ));
        }
        Ok(header)
    }
}

/// The type of the tokens of a file, where the documents beside it say so.
pub(crate) fn stored_type(path: &Path) -> Result<DType, Problem> {
    let reader = Reader::open(path, Access::Read)?;
    match Header::read(&reader)?.token_bytes {
        2 => Ok(DType::U16),
        4 => Ok(DType::U32),
        other => Err(Problem::malformed(
            "tokens of 2 or 4 bytes",
            format!("{other}"),
        )),
    }
}

/// The documents of a file of tokens. Every start was looked at when it was opened.
#[derive(Debug)]
pub(crate) struct Documents {
    reader: Reader,
    header: Header,
    /// Starts from one that is kept to the next.
    between: u64,
    kept: Vec<u64>,
}

impl Documents {
    /// Reads all of it once, in pieces.
    pub(crate) fn open(path: &Path, access: Access) -> Result<Documents, Problem> {
        let reader = Reader::open(path, access)?;
        let header = Header::read(&reader)?;
        let starts = header.documents + 1;
        let between = starts.div_ceil(MAX_KEPT).max(FEWEST_BETWEEN);
        let mut documents = Documents {
            kept: Vec::new(),
            between,
            header,
            reader,
        };
        documents.check()?;
        Ok(documents)
    }

    fn check(&mut self) -> Result<(), Problem> {
        let mut piece = Piece::default();
        let starts = self.header.documents + 1;
        let (mut number, mut before) = (0_u64, 0_u64);
        while number < starts {
            let count = (starts - number).min(self.between);
            let at = HEADER_BYTES as u64 + number * START_BYTES as u64;
            let bytes = usize::try_from(count).unwrap_or(usize::MAX) * START_BYTES;
            let kept = &mut self.kept;
            let tokens = self.header.tokens;
            self.reader.view_piece(at, bytes, &mut piece, |bytes| {
                for (place, start) in (number..).zip(starts_of(bytes)) {
                    let start = u64::from_le_bytes(*start);
                    let least = before;
                    let most = match place {
                        0 => 0,
                        _ => tokens.min(before.saturating_add(MAX_LEN)),
                    };
                    if !(least..=most).contains(&start) {
                        return Err(Problem::malformed(
                            format!("start {place} of a document from {least} to {most}"),
                            start.to_string(),
                        ));
                    }
                    if place == number {
                        kept.push(start);
                    }
                    before = start;
                }
                Ok(())
            })??;
            number += count;
        }
        if before != self.header.tokens {
            return Err(Problem::malformed(
                format!("documents up to the end at {}", self.header.tokens),
                format!("an end at {before}"),
            ));
        }
        self.kept.shrink_to_fit();
        Ok(())
    }

    pub(crate) fn header(&self) -> Header {
        self.header
    }

    /// Bytes that [`Documents::fill`] takes at the most.
    pub(crate) fn held_for_fill(&self) -> u64 {
        self.reader
            .held_for((self.between + 1) * START_BYTES as u64)
    }

    /// For the tokens from `first` on: which document of the block they are in, counted from 0, and where in it.
    pub(crate) fn fill(
        &self,
        first: u64,
        documents: &mut [u8],
        positions: &mut [u8],
        piece: &mut Piece,
    ) -> Result<(), ReadError> {
        let documents = documents.as_chunks_mut::<4>().0;
        let positions = positions.as_chunks_mut::<4>().0;
        let mut filled = Filled { done: 0, number: 0 };
        while filled.done < documents.len() {
            let begun = filled.done;
            let token = first + begun as u64;
            self.with_starts_around(token, piece, |starts| {
                filled.fill(first, starts, documents, positions);
            })?;
            if filled.done == begun {
                return Err(ReadError::Malformed {
                    expected: format!("a document with token {token}"),
                    found: "none: the file has changed since it was opened".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Gives the starts around a token to `look`: from the last one that is kept and not above it to the next one that is
    /// kept.
    fn with_starts_around(
        &self,
        token: u64,
        piece: &mut Piece,
        look: impl FnOnce(&[Start]),
    ) -> Result<(), ReadError> {
        let after = self.kept.partition_point(|&start| start <= token);
        let number = (after as u64).saturating_sub(1) * self.between;
        let count = (self.header.documents + 1 - number).min(self.between + 1);
        let at = HEADER_BYTES as u64 + number * START_BYTES as u64;
        let bytes = usize::try_from(count).map_err(io::Error::other)? * START_BYTES;
        self.reader
            .view_piece(at, bytes, piece, |bytes| look(starts_of(bytes)))?;
        Ok(())
    }
}

/// How far a block is.
struct Filled {
    done: usize,
    /// Of the next document.
    number: i32,
}

impl Filled {
    /// Goes on as far as these starts reach. `first` is the first token of the block.
    fn fill(
        &mut self,
        first: u64,
        starts: &[Start],
        documents: &mut [[u8; 4]],
        positions: &mut [[u8; 4]],
    ) {
        let token = first + self.done as u64;
        let after = starts.partition_point(|start| u64::from_le_bytes(*start) <= token);
        for pair in starts[after.saturating_sub(1)..].windows(2) {
            let [start, end] = [pair[0], pair[1]].map(u64::from_le_bytes);
            let token = first + self.done as u64;
            if !(start..end).contains(&token) {
                continue;
            }
            let left = (documents.len() - self.done) as u64;
            let count = usize::try_from((end - token).min(left)).unwrap_or(usize::MAX);
            let from = i32::try_from(token - start).unwrap_or(i32::MAX);
            let filled = self.done..self.done + count;
            documents[filled.clone()].fill(self.number.to_le_bytes());
            for (position, place) in (from..).zip(&mut positions[filled]) {
                *place = position.to_le_bytes();
            }
            self.done += count;
            self.number = self.number.saturating_add(1);
            if self.done == documents.len() {
                return;
            }
        }
    }
}

type Start = [u8; START_BYTES];

fn starts_of(bytes: &[u8]) -> &[Start] {
    bytes.as_chunks().0
}
