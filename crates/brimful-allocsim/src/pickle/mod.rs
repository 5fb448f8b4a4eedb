//! An unpickler of plain data: numbers, text, lists, tuples and dicts, and nothing that runs code.
//!
//! A pickle is a program for a small stack machine, and some of its instructions import and call
//! anything. This reader has none of those: it names the class it met and stops ([`read`]), or puts
//! a value without contents in the place of what the class would have built ([`read_around_objects`],
//! for checkpoints, whose tensors are objects). What it builds is bounded by [`Limits`], and no input
//! makes it panic, loop or use the call stack without end.
//!
//! Values live in one [`Document`], as indexes into flat tables, and text stays in the input.
//! A memory snapshot holds a million dicts whose keys and frames are shared through the pickle's
//! memo: a reference costs four bytes here, less than the five the file spends on it.
//!
//! ```text
//! bytes ──read──► Document ──root──► Value::Dict ──get("segments")──► Value::List ──iter──► …
//! ```

mod document;
mod error;
mod fetched;
mod file_kind;
mod limits;
mod machine;
#[cfg(test)]
mod opaque_tests;
mod take;
#[cfg(test)]
mod take_tests;
#[cfg(test)]
mod tests;
mod unescape;

pub use document::{Dict, Document, Sequence, Value};
pub use error::PickleError;
pub use file_kind::FileKind;
pub use limits::{Limits, limits_for};
pub use take::TakeDicts;

use machine::{Objects, PickleMachine};

/// Reads one pickle of protocol 0 to 5; bytes after its end are not looked at.
pub fn read<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Document<'a>, PickleError> {
    if let Some(found) = FileKind::of(bytes) {
        return Err(PickleError::NotAPickle { found });
    }
    PickleMachine::new(bytes, *limits, Objects::Refused).run()
}

/// The same, with dicts handed to `taker` as soon as they are filled, for files whose values would not all fit.
///
/// What a taken dict held is forgotten if nothing refers to it later, so a file of a million small dicts costs what
/// the taker keeps of them and 20 bytes for each.
pub fn read_taking<'a>(
    bytes: &'a [u8],
    limits: &Limits,
    taker: &mut dyn TakeDicts,
) -> Result<Document<'a>, PickleError> {
    if let Some(found) = FileKind::of(bytes) {
        return Err(PickleError::NotAPickle { found });
    }
    PickleMachine::new(bytes, *limits, Objects::Refused)
        .taking(taker)
        .run()
}

/// The same for a pickle that also holds objects: nothing is imported, called or built for them.
///
/// A class is a [`Value::Class`], whatever it makes is [`Value::Opaque`], and so are a reference to
/// something outside of the pickle, a set, and an integer of more than 64 bits. What an object is
/// filled with is dropped, and so is what would make a list or dict hold itself; [`Document::persistent_ids`] and [`Document::states`] keep what is
/// needed to find the tensors of a checkpoint.
pub fn read_around_objects<'a>(
    bytes: &'a [u8],
    limits: &Limits,
) -> Result<Document<'a>, PickleError> {
    if let Some(found) = FileKind::of(bytes) {
        return Err(PickleError::NotAPickle { found });
    }
    PickleMachine::new(bytes, *limits, Objects::Opaque).run()
}
