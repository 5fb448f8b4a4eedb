//! One read-only copy of plain values in memory that many processes map: what `brimful.share` makes.
//!
//! ```text
//!   values ──Writer──▶ file without a name ──Segment──▶ bytes ──Item, List, Dict──▶ values, one at a time
//!                      (memfd, or on disk)     ▲
//!                                              └── Handle: how another process opens the same file
//! ```
//!
//! The format is read in place: an item of a list of a million is found without looking at the others. Words are little
//! endian, offsets count from the beginning of the file, children stand before their parents, so that it can be written
//! in one go. Nothing in the bytes is believed: every read is checked, and wrong bytes are [`Damaged`].
//!
//! Read first: [`Slot`], then [`List`].

mod dict;
mod error;
mod key;
mod layout;
mod list;
mod segment;
mod writer;

#[cfg(test)]
mod properties;

pub use dict::Dict;
pub use error::{Damaged, ShareError};
pub use key::Key;
pub use layout::{HEADER_BYTES, Header, Id, Item, MAX_DEPTH, Slot};
pub use list::{ArrayNode, Form, List};
pub use segment::{Handle, Place, Segment, create};
pub use writer::{ArrayKind, ListBuilder, Writer};
