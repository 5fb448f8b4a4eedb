//! The pages of a column chunk, looked at before any of them is decompressed.
//!
//! A page of some bytes may say that it holds gigabytes, and values that repeat take a few bits each. What the headers
//! say is what the decoder will reserve, so it is held against the bound here.

use crate::problem::Problem;
use crate::reading::Reader;
use crate::sources::parquet::footer::Chunk;
use crate::sources::parquet::thrift::{Met, walk};
use crate::value::Piece;

/// Headers are some 50 bytes; statistics of long texts make them longer.
const HEADER: u64 = 1 << 10;
const MAX_HEADER_LEN: u64 = 1 << 20;

/// Kinds of pages, and the encoding in which a value begins with the value before it.
const DATA: i64 = 0;
const DICTIONARY: i64 = 2;
const DATA_V2: i64 = 3;
const DELTA_BYTE_ARRAY: i64 = 7;
/// Encodings that only newer writers use, which list what they use. With a flipped bit, that of a dictionary is the last
/// of them, whose decoder takes any bytes.
const LISTED: [i64; 4] = [5, 6, DELTA_BYTE_ARRAY, 9];

/// What all pages of a chunk are together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages {
    /// Bytes that a value may have which itself takes a few bits.
    pub(super) longest_repeated: u64,
}

#[derive(Default)]
pub(super) struct Header {
    kind: i64,
    uncompressed: i64,
    pub(super) compressed: i64,
    values: i64,
    encoding: i64,
}

impl Pages {
    /// Walks through the headers; nothing in them may be more than `most` bytes.
    pub(super) fn check(reader: &Reader, chunk: &Chunk, most: u64) -> Result<Pages, Problem> {
        let mut pages = Pages::default();
        let (mut at, end) = (chunk.start, chunk.start + chunk.compressed);
        let (mut values, mut uncompressed) = (0_u64, 0_u64);
        while at < end && values < chunk.values {
            let (header, len) = header(reader, at, end)?;
            let size = |size: i64| {
                let wrong = |_| Problem::malformed("the size of a page", format!("{size}"));
                u64::try_from(size).map_err(wrong)
            };
            let own = size(header.uncompressed)?;
            uncompressed = uncompressed.saturating_add(own);
            at = (at + len)
                .checked_add(size(header.compressed)?)
                .filter(|&next| next <= end)
                .ok_or_else(|| {
                    Problem::malformed(format!("a page that ends before {end}"), "a longer one")
                })?;
            match header.kind {
                DATA | DATA_V2 => {
                    values = values.saturating_add(size(header.values)?);
                    if LISTED.contains(&header.encoding)
                        && chunk.encodings != 0
                        && chunk.encodings >> header.encoding & 1 == 0
                    {
                        return Err(Problem::malformed(
                            "a page in an encoding that the file's footer lists",
                            format!("encoding {}", header.encoding),
                        ));
                    }
                    if header.encoding == DELTA_BYTE_ARRAY {
                        pages.longest_repeated = pages.longest_repeated.max(own);
                    }
                }
                DICTIONARY => pages.longest_repeated = pages.longest_repeated.max(own),
                _ => {}
            }
            let decoded = values.saturating_mul(chunk.width);
            if uncompressed.max(decoded) > most {
                return Err(Problem::malformed(
                    format!("pages of at most {most} bytes, as the file's footer says"),
                    format!("{}", uncompressed.max(decoded)),
                ));
            }
        }
        // One value less may be a shorter list in a row, which nothing else notices.
        if values != chunk.values {
            return Err(Problem::malformed(
                format!("{} values in the pages of a column", chunk.values),
                format!("{values}"),
            ));
        }
        Ok(pages)
    }
}

/// The header of a page, and its length.
pub(super) fn header(reader: &Reader, at: u64, end: u64) -> Result<(Header, u64), Problem> {
    let mut bytes = Vec::new();
    for most in [HEADER, MAX_HEADER_LEN] {
        let len = most.min(end - at);
        bytes.resize(usize::try_from(len).map_err(std::io::Error::other)?, 0);
        reader.read_to(at, &mut bytes, &mut Piece::default())?;
        let mut header = Header::default();
        let found = walk(&bytes, &mut |way, met| {
            if let Met::Number(number) = met {
                match way {
                    [1] => header.kind = number,
                    [2] => header.uncompressed = number,
                    [3] => header.compressed = number,
                    [5 | 7 | 8, 1] => header.values = number,
                    [5, 2] | [8, 4] => header.encoding = number,
                    _ => {}
                }
            }
        })?;
        if let Some(len) = found {
            return Ok((header, len as u64));
        }
    }
    Err(Problem::malformed(
        format!("the header of a page at {at}"),
        "the first part of one",
    ))
}
