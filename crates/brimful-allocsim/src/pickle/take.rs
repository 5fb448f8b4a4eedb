//! Dicts that leave a document while it is being read.

use super::Dict;
use super::fetched::FetchedEntries;

/// Takes dicts that are wanted in a smaller form.
pub trait TakeDicts {
    /// Called when a dict was filled, with all that one instruction put into it. `Some` takes it: the number stands in
    /// its place ([`super::Value::Taken`]), and nothing can be added to it any more.
    fn take(&mut self, dict: Dict<'_>) -> Option<u32>;

    /// All values with an identifier above this one were removed; other values will get these identifiers.
    fn removed_above(&mut self, _id: usize) {}
}

/// What the machine knows about the values that it may forget.
pub(super) struct Taking<'t> {
    pub(super) taker: &'t mut dyn TakeDicts,
    /// `None` if the input is not a whole pickle: then nothing is forgotten.
    pub(super) fetched: Option<FetchedEntries>,
    /// The newest value that something refers to by its identifier: a memo entry that is fetched later, or a constant.
    pub(super) newest_pinned: Option<u32>,
    pub(super) newest_dict: Option<TableLengths>,
}

/// How long the tables were when a dict was begun.
#[derive(Clone, Copy)]
pub(super) struct TableLengths {
    pub(super) dict: u32,
    pub(super) stack: usize,
    pub(super) texts: usize,
    pub(super) blobs: usize,
    pub(super) cells: usize,
    pub(super) spans: usize,
}
