//! Plain text and JSON Lines: one line is one sample.
//!
//! The files are scanned when they are opened for the first time, for where their lines begin. A line is UTF-8; its end, `\n` or
//! `\r\n`, does not belong to it.

mod json;
mod starts;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};

use brimful::units::Bytes;

use crate::array::{Encoding, Field, FieldSpec};
use crate::buffer::PAGE;
use crate::error::{ReadError, SourceError};
use crate::opening::Opening;
use crate::problem::Problem;
use crate::reading::{Access, Choice, Reader};
use crate::source::{Source, check_index};
use crate::sources::files::{choice_of, file_name};
use crate::sources::lines::starts::{Empty, LineStarts};
use crate::value::{Piece, Value};

/// The lines of one or several files, one after another.
#[derive(Debug)]
pub struct Lines {
    files: Vec<TextFile>,
    /// The field of each line's JSON object that is the sample.
    json_field: Option<String>,
    fields: Vec<Field>,
    len: u64,
    choice: Choice,
}

#[derive(Debug)]
struct TextFile {
    reader: Reader,
    starts: LineStarts,
    /// Number of its first line among those of all files.
    first: u64,
}

impl Lines {
    /// Opens text files, or with `json_field` files of one JSON object per line, of which that field is taken. The one
    /// field of a sample has the name of that field, or `text`. Empty lines are samples of a text and not of JSON Lines.
    pub fn open(
        paths: &[PathBuf],
        json_field: Option<String>,
        opening: &Opening,
    ) -> Result<Lines, SourceError> {
        let headroom = opening.headroom;
        let mut choice = choice_of(paths.iter().map(PathBuf::as_path), headroom)?;
        opening.progress.expect_files(paths.len());
        let empty = Empty::of(json_field.as_deref());
        let mut room = headroom.map_or(u64::MAX, Bytes::get);
        let mut files = Vec::new();
        let mut len = 0;
        for path in paths {
            let file = choice
                .open(path)
                .map_err(Problem::from)
                .and_then(|reader| {
                    let starts = LineStarts::find(&reader, empty, room, opening)?;
                    Ok(TextFile {
                        reader,
                        starts,
                        first: len,
                    })
                })
                .map_err(|problem| problem.of(path))?;
            len += file.starts.len();
            room = room.saturating_sub(file.starts.held_bytes());
            files.push(file);
        }
        Ok(Lines::new(files, json_field, choice))
    }

    /// The lines of one file that begin in a range of its bytes. `room` are the bytes that their starts may take.
    ///
    /// Ranges that cover a file have every line exactly once, wherever they meet.
    pub fn open_range(
        path: &Path,
        range: Range<u64>,
        json_field: Option<String>,
        room: Bytes,
        opening: &Opening,
    ) -> Result<Lines, SourceError> {
        let mut choice = choice_of([path], None)?;
        if choice.access == Access::Mapped {
            choice = Choice {
                access: Access::Read,
                reason: "a part of the file is read once, from its beginning to its end".to_owned(),
            };
        }
        opening.progress.expect_files(1);
        let empty = Empty::of(json_field.as_deref());
        let file = choice
            .open(path)
            .map_err(Problem::from)
            .and_then(|reader| {
                let starts = LineStarts::find_in(&reader, range, empty, room.get(), opening)?;
                Ok(TextFile {
                    reader,
                    starts,
                    first: 0,
                })
            })
            .map_err(|problem| problem.of(path))?;
        Ok(Lines::new(vec![file], json_field, choice))
    }

    fn new(files: Vec<TextFile>, json_field: Option<String>, choice: Choice) -> Lines {
        let name = json_field.clone().unwrap_or_else(|| "text".to_owned());
        Lines {
            len: files.iter().map(|file| file.starts.len()).sum(),
            files,
            json_field,
            fields: vec![Field {
                name,
                spec: FieldSpec::Encoded(Encoding::Text),
            }],
            choice,
        }
    }

    /// Bytes of memory that the starts of the lines take.
    pub fn index_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.starts.held_bytes()).sum()
    }

    /// The string or the integer that a line has in the field `name` of its JSON object. `value` is memory to work with.
    pub fn id(&self, index: u64, name: &str, value: &mut Value) -> Result<String, ReadError> {
        check_index(index, self.len)?;
        let Some((file, start, end)) = self.find(index) else {
            return Ok(String::new());
        };
        let len = usize::try_from(end - start).map_err(std::io::Error::other)?;
        file.reader.read(start, len, &mut value.piece)?;
        let id = json::id_of(value.bytes(), name);
        file.reader.check(end)?;
        id
    }

    /// The file of a line, and where in it the line lies.
    fn find(&self, index: u64) -> Option<(&TextFile, u64, u64)> {
        let after = self.files.partition_point(|file| file.first <= index);
        let file = self.files.get(after.checked_sub(1)?)?;
        let (start, end) = file.starts.extent(index - file.first)?;
        Some((file, start, end))
    }
}

impl Source for Lines {
    fn len(&self) -> u64 {
        self.len
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn max_sample_bytes(&self) -> u64 {
        let held = |file: &TextFile| {
            let longest = file.starts.longest();
            // A field with escapes is copied: by the parser, whose memory doubles as it grows, then as a text, then
            // into the sample when the first of them is gone.
            let copies = match self.json_field {
                Some(_) => 3 * longest.next_multiple_of(PAGE as u64),
                None => 0,
            };
            file.reader.held_for(longest) + copies
        };
        self.files.iter().map(held).max().unwrap_or_default()
    }

    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError> {
        check_index(index, self.len)?;
        let (Some((file, start, end)), Some(value)) = (self.find(index), values.first_mut()) else {
            return Ok(());
        };
        let len = usize::try_from(end - start).map_err(std::io::Error::other)?;
        file.reader.read(start, len, &mut value.piece)?;
        let taken = match &self.json_field {
            Some(name) => take_field(&mut value.piece, name),
            None => take_line(&mut value.piece),
        };
        // A field with escapes is no longer a part of the file, so it is checked here.
        file.reader.check(end)?;
        taken?;
        value.set_encoded(value.bytes().len());
        Ok(())
    }

    fn place(&self, index: u64) -> String {
        // Empty lines of JSON Lines are not counted, so its lines have no numbers.
        let noun = match self.json_field {
            Some(_) => "object",
            None => "line",
        };
        match self.find(index) {
            Some((file, start, _)) => format!(
                "{}, {noun} {} at byte {start}",
                file_name(file.reader.path()),
                index - file.first + 1
            ),
            None => format!("{noun} {index}"),
        }
    }

    fn choice(&self) -> &Choice {
        &self.choice
    }
}

/// Leaves the line without its end.
fn take_line(piece: &mut Piece) -> Result<(), ReadError> {
    let bytes = piece.bytes();
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    // A single `\r` before the end of the file is text.
    let line = match line.strip_suffix(b"\r") {
        Some(shorter) if line.len() < bytes.len() => shorter,
        _ => line,
    };
    if let Err(error) = std::str::from_utf8(line) {
        return Err(ReadError::Malformed {
            expected: "UTF-8".to_owned(),
            found: format!(
                "something else from byte {} of the line on",
                error.valid_up_to()
            ),
        });
    }
    let len = line.len();
    piece.narrow(0, len);
    Ok(())
}

/// Leaves one field of the JSON object.
fn take_field(piece: &mut Piece, name: &str) -> Result<(), ReadError> {
    let line = piece.bytes();
    match json::text_of(line, name)? {
        Cow::Borrowed(text) => {
            // It is a part of the line, so there is a way to leave it where it is.
            let start = text.as_ptr() as usize - line.as_ptr() as usize;
            let len = text.len();
            piece.narrow(start, len);
        }
        Cow::Owned(text) => piece.own(text.len()).copy_from_slice(text.as_bytes()),
    }
    Ok(())
}
