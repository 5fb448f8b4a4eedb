//! The frame of Arrow IPC: messages one after another, in a stream or in a file with a footer.

use arrow_ipc::{Footer, Message, root_as_footer, root_as_message};

use crate::problem::Problem;
use crate::reading::Reader;
use crate::sources::files::footer_start;
use crate::value::Piece;

/// What a file of the file format begins and ends with.
const MAGIC: &[u8; 6] = b"ARROW1";

/// Longest description of a message or footer that is read: enough for a batch of 200,000 columns.
const MAX_LEN: u64 = 16 << 20;

/// Stands before the length of a message since Arrow 0.15.
const CONTINUATION: u32 = u32::MAX;

/// Where a message lies: its description, then its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) body_start: u64,
    pub(super) body_len: u64,
}

impl Frame {
    pub(super) fn end(&self) -> u64 {
        // Within the file, as checked when it was read.
        self.body_start + self.body_len
    }
}

/// Reads messages, with one buffer for all of them.
#[derive(Debug)]
pub(super) struct Messages<'a> {
    reader: &'a Reader,
    spare: Piece,
    description: Vec<u8>,
}

impl<'a> Messages<'a> {
    pub(super) fn new(reader: &'a Reader) -> Messages<'a> {
        Messages {
            reader,
            spare: Piece::default(),
            description: Vec::new(),
        }
    }

    /// Whether it is of the file format, which has a footer; else it is a stream.
    pub(super) fn has_footer(&mut self) -> Result<bool, Problem> {
        if self.reader.len() < MAGIC.len() as u64 {
            return Ok(false);
        }
        let mut first = [0; MAGIC.len()];
        self.reader.read_to(0, &mut first, &mut self.spare)?;
        let [b0, b1, b2, b3, ..] = first;
        let word = u32::from_le_bytes([b0, b1, b2, b3]);
        if &first != MAGIC && word != CONTINUATION && u64::from(word) > self.reader.len() {
            return Err(Problem::malformed(
                "an Arrow file or stream",
                format!("a file that begins with \"{}\"", first.escape_ascii()),
            ));
        }
        Ok(&first == MAGIC)
    }

    /// The footer, and where it begins.
    pub(super) fn footer(&mut self) -> Result<(Footer<'_>, u64), Problem> {
        let end = [0; 4 + MAGIC.len()];
        let mut last = end;
        let last_start = self.reader.len().checked_sub(last.len() as u64);
        let Some(last_start) = last_start else {
            return Err(Problem::malformed(
                "an Arrow file with a footer",
                "its first bytes only",
            ));
        };
        self.reader
            .read_to(last_start, &mut last, &mut self.spare)?;
        let [l0, l1, l2, l3, magic @ ..] = last;
        if &magic != MAGIC {
            return Err(Problem::malformed(
                "\"ARROW1\" at the end of an Arrow file, written when it is closed",
                format!("\"{}\"", magic.escape_ascii()),
            ));
        }
        let len = u64::from(u32::from_le_bytes([l0, l1, l2, l3]));
        let start = footer_start(last_start, len, MAX_LEN)?;
        self.describe(start, len)?;
        let footer = root_as_footer(&self.description).map_err(|_| broken("footer", start))?;
        Ok((footer, start))
    }

    /// The message at `offset`, which with its body ends before `limit`; nothing where the stream ends.
    pub(super) fn message(
        &mut self,
        offset: u64,
        limit: u64,
    ) -> Result<Option<(Message<'_>, Frame)>, Problem> {
        if offset == limit {
            return Ok(None);
        }
        let (start, len) = self.prefix(offset, limit)?;
        if len == 0 {
            return Ok(None);
        }
        let body_start = start
            .checked_add(len)
            .filter(|&end| len <= MAX_LEN && end <= limit)
            .ok_or_else(|| {
                let most = limit.saturating_sub(start).min(MAX_LEN);
                Problem::malformed(
                    format!("a message of at most {most} bytes at {offset}"),
                    format!("{len}"),
                )
            })?;
        self.describe(start, len)?;
        let message = root_as_message(&self.description).map_err(|_| broken("message", offset))?;
        let body_len = u64::try_from(message.bodyLength())
            .ok()
            .filter(|&len| body_start.checked_add(len).is_some_and(|end| end <= limit))
            .ok_or_else(|| {
                Problem::malformed(
                    format!(
                        "a body of at most {} bytes at {body_start}",
                        limit - body_start
                    ),
                    format!("{}", message.bodyLength()),
                )
            })?;
        let frame = Frame {
            body_start,
            body_len,
        };
        Ok(Some((message, frame)))
    }

    /// Where the description of a message begins, and its bytes.
    fn prefix(&mut self, offset: u64, limit: u64) -> Result<(u64, u64), Problem> {
        let mut word = |at: u64| -> Result<u32, Problem> {
            if at.checked_add(4).is_none_or(|end| end > limit) {
                return Err(Problem::malformed(
                    format!("the length of a message at {at}"),
                    format!("the end of the messages at {limit}"),
                ));
            }
            let mut word = [0; 4];
            self.reader.read_to(at, &mut word, &mut self.spare)?;
            Ok(u32::from_le_bytes(word))
        };
        match word(offset)? {
            CONTINUATION => Ok((offset + 8, u64::from(word(offset + 4)?))),
            len => Ok((offset + 4, u64::from(len))),
        }
    }

    /// Reads a description; `len` is at most [`MAX_LEN`].
    fn describe(&mut self, start: u64, len: u64) -> Result<(), Problem> {
        self.description.clear();
        self.description
            .resize(usize::try_from(len).map_err(std::io::Error::other)?, 0);
        self.reader
            .read_to(start, &mut self.description, &mut self.spare)?;
        Ok(())
    }
}

fn broken(what: &str, offset: u64) -> Problem {
    Problem::malformed(
        format!("an Arrow {what} at {offset}"),
        "bytes that are none",
    )
}
