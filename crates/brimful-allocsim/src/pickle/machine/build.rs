//! How the machine makes values: numbers, text, containers and the memo that shares them.

use std::borrow::Cow;

use super::{Objects, PickleMachine};
use crate::pickle::PickleError;
use crate::pickle::document::{NOWHERE, Node, Span};
use crate::pickle::unescape::{unescape_quoted, unescape_unicode};

impl<'a> PickleMachine<'a, '_> {
    pub(super) fn none(&mut self) -> Result<(), PickleError> {
        if self.constants.none == NOWHERE {
            self.constants.none = self.new_constant(Node::None)?;
        }
        self.stack.push(self.constants.none);
        Ok(())
    }

    pub(super) fn boolean(&mut self, value: bool) -> Result<(), PickleError> {
        let slot = usize::from(value);
        if self.constants.booleans[slot] == NOWHERE {
            self.constants.booleans[slot] = self.new_constant(Node::Bool(value))?;
        }
        self.stack.push(self.constants.booleans[slot]);
        Ok(())
    }

    pub(super) fn integer(&mut self, value: i64) -> Result<(), PickleError> {
        let Ok(slot) = u8::try_from(value).map(usize::from) else {
            return self.push_node(Node::Int(value));
        };
        if self.constants.small_integers[slot] == NOWHERE {
            self.constants.small_integers[slot] = self.new_constant(Node::Int(value))?;
        }
        self.stack.push(self.constants.small_integers[slot]);
        Ok(())
    }

    fn wide_integer(&mut self, value: i128, n_bytes: usize) -> Result<(), PickleError> {
        if let Ok(value) = i64::try_from(value) {
            self.integer(value)
        } else if let Ok(value) = u64::try_from(value) {
            self.push_node(Node::UInt(value))
        } else {
            self.too_wide(n_bytes)
        }
    }

    /// An integer of more than 64 bits, such as the state of a random number generator.
    fn too_wide(&mut self, n_bytes: usize) -> Result<(), PickleError> {
        match self.objects {
            Objects::Opaque => self.opaque(),
            Objects::Refused => Err(PickleError::IntegerTooLarge {
                n_bytes,
                at: self.at,
            }),
        }
    }

    /// Two's complement, little endian, of any length; a ninth byte is there for the sign alone.
    pub(super) fn long(&mut self, len: u64) -> Result<(), PickleError> {
        let bytes = self.take(len)?;
        let mut wide = match bytes.last() {
            Some(last) if *last >= 0x80 => [0xff; 16],
            _ => [0; 16],
        };
        let n_bytes = bytes.len();
        match wide.get_mut(..n_bytes) {
            Some(place) => place.copy_from_slice(bytes),
            None => return self.too_wide(n_bytes),
        }
        self.wide_integer(i128::from_le_bytes(wide), n_bytes)
    }

    pub(super) fn text_integer(&mut self) -> Result<(), PickleError> {
        match self.text_line("an integer")? {
            "00" => self.boolean(false),
            "01" => self.boolean(true),
            digits => self.decimal(digits),
        }
    }

    pub(super) fn text_long(&mut self) -> Result<(), PickleError> {
        let line = self.text_line("an integer")?;
        self.decimal(line.strip_suffix('L').unwrap_or(line))
    }

    fn decimal(&mut self, digits: &str) -> Result<(), PickleError> {
        match digits.parse::<i128>() {
            Ok(value) => self.wide_integer(value, digits.len()),
            Err(error)
                if matches!(
                    error.kind(),
                    std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow
                ) =>
            {
                self.too_wide(digits.len())
            }
            Err(_) => Err(self.malformed("an integer", "other text")),
        }
    }

    pub(super) fn text_float(&mut self) -> Result<(), PickleError> {
        let line = self.text_line("a float")?;
        match line.parse() {
            Ok(value) => self.push_node(Node::Float(value)),
            Err(_) => Err(self.malformed("a float", "other text")),
        }
    }

    pub(super) fn text(&mut self, len: u64) -> Result<(), PickleError> {
        let bytes = self.take(len)?;
        // Python passes lone surrogates through; they stand for bytes of a file name that were no text.
        self.push_text(String::from_utf8_lossy(bytes))
    }

    pub(super) fn quoted_text(&mut self) -> Result<(), PickleError> {
        let line = self.line()?.trim_ascii();
        let ([b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"']) = line else {
            return Err(self.malformed("a string in quotes", "other text"));
        };
        let Some(bytes) = unescape_quoted(inner) else {
            return Err(self.malformed("a string in quotes", "an unfinished escape"));
        };
        self.push_text(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
    }

    pub(super) fn escaped_text(&mut self) -> Result<(), PickleError> {
        let line = self.line()?;
        match unescape_unicode(line) {
            Some(text) => self.push_text(Cow::Owned(text)),
            None => Err(self.malformed("text with \\u escapes", "an unfinished escape")),
        }
    }

    fn push_text(&mut self, text: Cow<'a, str>) -> Result<(), PickleError> {
        let idx = self.new_text(text)?;
        self.push_node(Node::Text(idx))
    }

    pub(super) fn new_text(&mut self, text: Cow<'a, str>) -> Result<u32, PickleError> {
        if let Cow::Owned(text) = &text {
            self.owned_bytes += text.capacity() as u64;
            self.check_size()?;
        }
        let idx = self.index(self.document.texts.len())?;
        self.document.texts.push(text);
        Ok(idx)
    }

    pub(super) fn blob(&mut self, len: u64) -> Result<(), PickleError> {
        let bytes = self.take(len)?;
        let idx = self.index(self.document.blobs.len())?;
        self.document.blobs.push(Cow::Borrowed(bytes));
        self.push_node(Node::Blob(idx))
    }

    /// Makes a tuple of the stack from `start` on.
    pub(super) fn tuple(&mut self, start: usize) -> Result<(), PickleError> {
        let len = self.index(self.stack.len() - start)?;
        if len == 0 && self.constants.empty_tuple != NOWHERE {
            self.stack.push(self.constants.empty_tuple);
            return Ok(());
        }
        let depth = self.hold_from(start, NOWHERE, "tuple")?;
        let cells = &mut self.document.cells;
        let first_cell = cells.len();
        cells.extend_from_slice(&self.stack[start..]);
        self.stack.truncate(start);
        let start = self.index(first_cell)?;
        let tuple = self.new_node(Node::Tuple { start, len, depth })?;
        if len == 0 {
            self.constants.empty_tuple = tuple;
            self.pin(tuple);
        }
        self.stack.push(tuple);
        Ok(())
    }

    /// Moves the stack from `start` on into the container just below.
    pub(super) fn extend_below(&mut self, start: usize, is_dict: bool) -> Result<(), PickleError> {
        let fence = self.marks.last().copied().unwrap_or(0);
        match self.stack[fence.min(start)..start].last() {
            Some(container) => self.extend(*container, start, is_dict),
            None => Err(self.malformed("a list or dict to fill", "an empty stack")),
        }
    }

    /// Moves the stack from `start` on into a list or dict.
    pub(super) fn extend(
        &mut self,
        container: u32,
        start: usize,
        is_dict: bool,
    ) -> Result<(), PickleError> {
        let (mut growth, kind) = match (self.document.nodes[container as usize], is_dict) {
            (Node::List(growth), false) => (growth, "list"),
            (Node::Dict(growth), true) => (growth, "dict"),
            (Node::Taken(_), true) => {
                return Err(self.malformed("a dict to fill", "one that was complete"));
            }
            // An object that is filled like a list or dict, such as an OrderedDict.
            (Node::Opaque, _) => {
                self.stack.truncate(start);
                return Ok(());
            }
            (_, is_dict) => {
                let expected = if is_dict {
                    "a dict to fill"
                } else {
                    "a list to fill"
                };
                let found = self.document.value(container).kind();
                return Err(self.malformed(expected, found));
            }
        };
        if self.stack.len() == start {
            return Ok(());
        }
        // What leads back to itself does so through an object, whose contents are not kept anyway.
        let is_cycle = growth.held || self.stack[start..].contains(&container);
        if is_cycle && self.objects == Objects::Opaque {
            self.stack.truncate(start);
            return Ok(());
        }
        if growth.held {
            return Err(PickleError::ContainsItself { kind, at: self.at });
        }
        if is_dict {
            self.check_keys(start)?;
        }
        growth.depth = growth.depth.max(self.hold_from(start, container, kind)?);

        let is_new = growth.first_span == NOWHERE;
        self.note_filled(container);
        let first_cell = self.index(self.document.cells.len())?;
        let len = self.index(self.stack.len() - start)?;
        self.document.cells.extend_from_slice(&self.stack[start..]);
        self.stack.truncate(start);

        let next_span = self.index(self.document.spans.len())?;
        match self.document.spans.get_mut(growth.last_span as usize) {
            // Nothing was filled in between: the last run goes on.
            Some(last) if last.start + last.len == first_cell => last.len += len,
            last => {
                match last {
                    Some(last) => last.next = next_span,
                    None => growth.first_span = next_span,
                }
                growth.last_span = next_span;
                self.document.spans.push(Span {
                    start: first_cell,
                    len,
                    next: NOWHERE,
                });
            }
        }
        self.document.nodes[container as usize] = match kind {
            "list" => Node::List(growth),
            _ => Node::Dict(growth),
        };
        if is_dict && is_new {
            self.offer(container);
        }
        Ok(())
    }

    fn check_keys(&self, start: usize) -> Result<(), PickleError> {
        let pairs = self.stack[start..].chunks(2);
        for pair in pairs {
            let [key, _] = pair else {
                return Err(self.malformed("a value for each key", "a key alone"));
            };
            match self.document.nodes[*key as usize] {
                Node::List(_) => return Err(self.malformed("a key of a dict", "a list")),
                Node::Dict(_) | Node::Taken(_) => {
                    return Err(self.malformed("a key of a dict", "a dict"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Marks the values from `start` on as held, and tells the depth of what will hold them.
    fn hold_from(
        &mut self,
        start: usize,
        holder: u32,
        kind: &'static str,
    ) -> Result<u16, PickleError> {
        let mut inner: u16 = 0;
        for value in &self.stack[start..] {
            if *value == holder {
                return Err(PickleError::ContainsItself { kind, at: self.at });
            }
            match &mut self.document.nodes[*value as usize] {
                Node::List(growth) | Node::Dict(growth) => {
                    growth.held = true;
                    inner = inner.max(growth.depth);
                }
                Node::Tuple { depth, .. } => inner = inner.max(*depth),
                _ => {}
            }
        }
        if inner >= self.limits.max_depth {
            return Err(PickleError::TooDeep {
                limit: self.limits.max_depth,
                at: self.at,
            });
        }
        Ok(inner + 1)
    }

    pub(super) fn put(&mut self, idx: u64) -> Result<(), PickleError> {
        let top = self.top()?;
        let limit = self.limits.max_memo_entries;
        let slot = usize::try_from(idx).ok().filter(|slot| *slot < limit);
        let Some(slot) = slot else {
            return Err(PickleError::MemoTooLarge {
                limit,
                found: idx,
                at: self.at,
            });
        };
        if slot >= self.memo.len() {
            self.memo.resize(slot + 1, NOWHERE);
        }
        if self.memo[slot] == NOWHERE {
            self.n_memoized += 1;
        }
        self.memo[slot] = top;
        self.pin_stored(top, slot);
        Ok(())
    }

    pub(super) fn get(&mut self, idx: u64) -> Result<(), PickleError> {
        let slot = usize::try_from(idx).ok();
        match slot.and_then(|slot| self.memo.get(slot)) {
            Some(value) if *value != NOWHERE => {
                self.stack.push(*value);
                Ok(())
            }
            _ => Err(self.malformed("a memo entry that was stored", "an index without one")),
        }
    }
}
