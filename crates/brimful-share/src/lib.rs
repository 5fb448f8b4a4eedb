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
//! It knows nothing about Python, and starts no process.
//!
//! Read first: [`Slot`], then [`List`].
//!
//! ```
//! use brimful_share::{Item, Segment, Slot, Storage, Writer, create};
//!
//! let (file, id) = create(&Storage::Memory)?;
//! let (file, header) = Writer::new(file, id)?.finish(Slot::int(7))?;
//! let segment = Segment::seal(file, header)?;
//! assert_eq!(segment.header().root.item(segment.bytes())?, Item::Int(7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dict;
mod error;
mod key;
mod layout;
mod list;
mod segment;
mod writer;

#[cfg(test)]
mod tests;

pub use dict::Dict;
pub use error::{Damaged, ShareError};
pub use key::Key;
pub use layout::{HEADER_BYTES, Header, Id, Item, MAX_DEPTH, Slot};
pub use list::{ArrayNode, ItemEncoding, List};
pub use segment::{Handle, Segment, Storage, create};
pub use writer::{ArrayKind, ListBuilder, Writer};
