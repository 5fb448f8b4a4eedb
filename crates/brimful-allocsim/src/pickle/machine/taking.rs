//! Handing dicts to a taker, and forgetting what they held.

use super::PickleMachine;
use crate::pickle::document::Node;
use crate::pickle::fetched::FetchedEntries;
use crate::pickle::take::{TableLengths, TakeDicts, Taking};

impl<'t> PickleMachine<'_, 't> {
    /// Dicts go to `taker`. The input is looked through once for the memo entries that are needed again.
    pub(in crate::pickle) fn taking(mut self, taker: &'t mut dyn TakeDicts) -> Self {
        self.taking = Some(Taking {
            taker,
            fetched: PickleMachine::new(self.input, self.limits, self.objects).fetched(),
            newest_pinned: None,
            newest_dict: None,
        });
        self
    }

    /// Looks through the instructions without carrying them out; `None` if they do not end as a pickle does.
    fn fetched(mut self) -> Option<FetchedEntries> {
        let mut fetched = FetchedEntries::default();
        loop {
            self.at = self.position;
            let instruction = self.byte().ok()?;
            let operand = self.operand(instruction).ok()?;
            let n_bytes = match instruction {
                b'.' => return Some(fetched),
                b'g' | b'h' | b'j' => {
                    let idx = usize::try_from(operand).ok()?;
                    // Refused later: no entry is stored there.
                    if idx >= self.limits.max_memo_entries {
                        return None;
                    }
                    fetched.insert(idx);
                    0
                }
                0x80 | b'K' => 1,
                b'M' => 2,
                b'J' => 4,
                b'G' => 8,
                0x8a | 0x8b | 0x8c | 0x8d | b'X' | b'T' | b'U' | b'C' | b'B' | 0x8e | 0x96 => {
                    operand
                }
                b'I' | b'L' | b'F' | b'S' | b'V' => {
                    self.line().ok()?;
                    0
                }
                // Instructions without anything behind them, and those that end the reading.
                _ => 0,
            };
            self.take(n_bytes).ok()?;
        }
    }

    /// Remembers how long the tables are now that an empty dict is on top of the stack.
    pub(super) fn begin_dict(&mut self, dict: u32) {
        if let Some(taking) = &mut self.taking {
            taking.newest_dict = Some(TableLengths {
                dict,
                stack: self.stack.len(),
                texts: self.document.texts.len(),
                blobs: self.document.blobs.len(),
                cells: self.document.cells.len(),
                spans: self.document.spans.len(),
            });
        }
    }

    /// A container that is older than the newest dict now holds what was made since: that cannot be forgotten.
    pub(super) fn note_filled(&mut self, container: u32) {
        if let Some(taking) = &mut self.taking {
            taking
                .newest_dict
                .take_if(|lengths| container < lengths.dict);
        }
    }

    /// Keeps a value, and so all that are older, for as long as the document lives.
    pub(super) fn pin(&mut self, id: u32) {
        if let Some(taking) = &mut self.taking {
            taking.newest_pinned = taking.newest_pinned.max(Some(id));
        }
    }

    /// The same for a value that was stored in the memo, if it is fetched from there.
    pub(super) fn pin_stored(&mut self, id: u32, slot: usize) {
        if let Some(taking) = &self.taking
            && taking.fetched.as_ref().is_none_or(|f| f.contains(slot))
        {
            self.pin(id);
        }
    }

    /// Offers a dict that was just filled for the first time.
    ///
    /// All that was made since it was begun is forgotten if nothing else refers to it. Nothing on the stack does: a
    /// dict that is not pinned and is where it was begun has below it what was there then, which is older.
    pub(super) fn offer(&mut self, dict: u32) {
        let Some(taking) = &mut self.taking else {
            return;
        };
        let Some(number) = taking.taker.take(self.document.dict(dict)) else {
            return;
        };
        self.document.nodes[dict as usize] = Node::Taken(number);
        let begun = taking
            .newest_dict
            .take_if(|lengths| lengths.dict == dict && lengths.stack == self.stack.len());
        let Some(lengths) = begun.filter(|_| taking.newest_pinned < Some(dict)) else {
            return;
        };
        taking.taker.removed_above(dict as usize);
        self.document.nodes.truncate(dict as usize + 1);
        self.document.texts.truncate(lengths.texts);
        self.document.blobs.truncate(lengths.blobs);
        self.document.cells.truncate(lengths.cells);
        self.document.spans.truncate(lengths.spans);
    }
}
