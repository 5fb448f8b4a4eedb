//! The stack machine that carries out a pickle's instructions, and names those it refuses.

mod build;
mod objects;
mod taking;

use super::document::{Document, Growth, NOWHERE, Node, Value};
use super::take::Taking;
use super::{Limits, PickleError};

/// What becomes of instructions that import, call or refer to something outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Objects {
    /// The pickle is not read.
    Refused,
    /// A value without contents takes their place.
    Opaque,
}

/// The stack machine.
pub(super) struct PickleMachine<'a, 't> {
    input: &'a [u8],
    /// The next byte to read.
    position: usize,
    /// Where the instruction being carried out starts.
    at: usize,
    limits: Limits,
    objects: Objects,
    document: Document<'a>,
    /// Bytes of text and blobs that could not be borrowed.
    owned_bytes: u64,
    stack: Vec<u32>,
    /// Stack lengths at each MARK; nothing below the last one may be popped.
    marks: Vec<usize>,
    memo: Vec<u32>,
    n_memoized: usize,
    constants: Constants,
    taking: Option<Taking<'t>>,
}

/// Values written over and over get one node each, made when first met.
struct Constants {
    none: u32,
    booleans: [u32; 2],
    empty_tuple: u32,
    small_integers: [u32; 256],
    opaque: u32,
}

impl<'a, 't> PickleMachine<'a, 't> {
    pub(super) fn new(input: &'a [u8], limits: Limits, objects: Objects) -> PickleMachine<'a, 't> {
        PickleMachine {
            input,
            position: 0,
            at: 0,
            limits,
            objects,
            document: Document {
                nodes: Vec::new(),
                texts: Vec::new(),
                blobs: Vec::new(),
                cells: Vec::new(),
                spans: Vec::new(),
                persistent_ids: Vec::new(),
                states: Vec::new(),
                root: NOWHERE,
            },
            owned_bytes: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            n_memoized: 0,
            constants: Constants {
                none: NOWHERE,
                booleans: [NOWHERE; 2],
                empty_tuple: NOWHERE,
                small_integers: [NOWHERE; 256],
                opaque: NOWHERE,
            },
            taking: None,
        }
    }

    pub(super) fn run(mut self) -> Result<Document<'a>, PickleError> {
        // One instruction adds at most about a hundred bytes beside owned text, which is checked
        // where it is made, so looking now and then is enough.
        const INSTRUCTIONS_PER_CHECK: u32 = 64;
        let mut until_check = INSTRUCTIONS_PER_CHECK;
        loop {
            self.at = self.position;
            let instruction = self.byte()?;
            if instruction == b'.' {
                self.document.root = self.pop()?;
                self.check_size()?;
                return Ok(self.document);
            }
            self.step(instruction)?;
            until_check -= 1;
            if until_check == 0 {
                self.check_size()?;
                until_check = INSTRUCTIONS_PER_CHECK;
            }
        }
    }

    fn step(&mut self, instruction: u8) -> Result<(), PickleError> {
        let operand = self.operand(instruction)?;
        match instruction {
            0x80 => self.protocol(),
            // FRAME: a hint for buffered reading, and a first sign of a file cut short.
            0x95 => self.expect_left(operand),

            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'0' => self.pop_or_unmark(),
            b'1' => {
                let start = self.unmark()?;
                self.stack.truncate(start);
                Ok(())
            }
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
                Ok(())
            }

            b'N' => self.none(),
            0x88 => self.boolean(true),
            0x89 => self.boolean(false),
            b'K' => self.byte().and_then(|value| self.integer(value.into())),
            b'M' => {
                let value = u16::from_le_bytes(self.array()?);
                self.integer(value.into())
            }
            b'J' => {
                let value = i32::from_le_bytes(self.array()?);
                self.integer(value.into())
            }
            0x8a | 0x8b => self.long(operand),
            b'I' => self.text_integer(),
            b'L' => self.text_long(),
            b'G' => {
                let value = f64::from_be_bytes(self.array()?);
                self.push_node(Node::Float(value))
            }
            b'F' => self.text_float(),

            // Python 2 wrote its byte strings, which were its text, with `T`, `U` and `S`.
            0x8c | 0x8d | b'X' | b'T' | b'U' => self.text(operand),
            b'S' => self.quoted_text(),
            b'V' => self.escaped_text(),
            b'C' | b'B' | 0x8e | 0x96 => self.blob(operand),

            b')' => self.tuple(self.stack.len()),
            b't' => self.unmark().and_then(|start| self.tuple(start)),
            0x85..=0x87 => {
                let start = self.start_of_last(usize::from(instruction - 0x84))?;
                self.tuple(start)
            }
            b']' => self.push_node(Node::List(Growth::EMPTY)),
            b'}' => {
                let dict = self.new_node(Node::Dict(Growth::EMPTY))?;
                self.stack.push(dict);
                self.begin_dict(dict);
                Ok(())
            }
            b'l' | b'd' => {
                let start = self.unmark()?;
                let is_dict = instruction == b'd';
                let container = self.new_node(if is_dict {
                    Node::Dict(Growth::EMPTY)
                } else {
                    Node::List(Growth::EMPTY)
                })?;
                self.extend(container, start, is_dict)?;
                self.stack.push(container);
                Ok(())
            }
            b'a' => {
                let start = self.start_of_last(1)?;
                self.extend_below(start, false)
            }
            b's' => {
                let start = self.start_of_last(2)?;
                self.extend_below(start, true)
            }
            b'e' | b'u' => {
                let start = self.unmark()?;
                self.extend_below(start, instruction == b'u')
            }

            b'p' | b'q' | b'r' => self.put(operand),
            0x94 => self.put(self.n_memoized as u64),
            b'g' | b'h' | b'j' => self.get(operand),

            _ if self.objects == Objects::Opaque => self.around(instruction),
            _ => Err(self.refuse(instruction)),
        }
    }

    /// The length or memo index that follows an instruction; 0 for those without.
    fn operand(&mut self, instruction: u8) -> Result<u64, PickleError> {
        match instruction {
            b'C' | b'U' | b'h' | b'q' | 0x8a | 0x8c => self.byte().map(u64::from),
            b'B' | b'X' | b'j' | b'r' => Ok(u32::from_le_bytes(self.array()?).into()),
            b'T' | 0x8b => {
                let len = i32::from_le_bytes(self.array()?);
                u64::try_from(len).map_err(|_| self.malformed("a length", "a negative number"))
            }
            0x8d | 0x8e | 0x95 | 0x96 => Ok(u64::from_le_bytes(self.array()?)),
            b'g' | b'p' => {
                let line = self.text_line("a memo index")?;
                line.parse()
                    .map_err(|_| self.malformed("a memo index", "other text"))
            }
            _ => Ok(0),
        }
    }

    /// The instructions that import, call or look up, and those that do not exist.
    fn refuse(&mut self, instruction: u8) -> PickleError {
        let at = self.at;
        let not_plain = |what, instruction| PickleError::NotPlain {
            what,
            instruction,
            at,
        };
        match instruction {
            // Both name the class in two lines.
            b'c' | b'i' => match (self.line(), self.line()) {
                (Ok(module), Ok(name)) => PickleError::Class {
                    name: shown_name(
                        &String::from_utf8_lossy(module),
                        &String::from_utf8_lossy(name),
                    ),
                    at,
                },
                (Err(error), _) | (_, Err(error)) => error,
            },
            0x93 => {
                let name = match self.stack.as_slice() {
                    [.., module, name] => {
                        match (self.document.value(*module), self.document.value(*name)) {
                            (Value::Str(module), Value::Str(name)) => {
                                Some(shown_name(module, name))
                            }
                            _ => None,
                        }
                    }
                    _ => None,
                };
                match name {
                    Some(name) => PickleError::Class { name, at },
                    None => not_plain("a class without a name", "STACK_GLOBAL"),
                }
            }
            b'R' => not_plain("a call", "REDUCE"),
            b'b' => not_plain("an object's state", "BUILD"),
            b'o' => not_plain("an object", "OBJ"),
            0x81 => not_plain("an object", "NEWOBJ"),
            0x92 => not_plain("an object", "NEWOBJ_EX"),
            b'P' => not_plain("a reference to something outside the file", "PERSID"),
            b'Q' => not_plain("a reference to something outside the file", "BINPERSID"),
            0x82 => not_plain("a registered class", "EXT1"),
            0x83 => not_plain("a registered class", "EXT2"),
            0x84 => not_plain("a registered class", "EXT4"),
            0x8f => not_plain("a set", "EMPTY_SET"),
            0x90 => not_plain("a set", "ADDITEMS"),
            0x91 => not_plain("a frozen set", "FROZENSET"),
            0x97 => not_plain("a buffer outside the file", "NEXT_BUFFER"),
            0x98 => not_plain("a buffer outside the file", "READONLY_BUFFER"),
            found => PickleError::UnknownInstruction { found, at },
        }
    }

    // Reading.

    fn left(&self) -> u64 {
        (self.input.len() - self.position) as u64
    }

    fn expect_left(&self, wanted: u64) -> Result<(), PickleError> {
        if wanted > self.left() {
            return Err(self.truncated(wanted));
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, PickleError> {
        match self.input.get(self.position) {
            Some(byte) => {
                self.position += 1;
                Ok(*byte)
            }
            None => Err(self.truncated(1)),
        }
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], PickleError> {
        let rest = &self.input[self.position..];
        let taken = usize::try_from(len).ok().and_then(|len| rest.get(..len));
        let Some(taken) = taken else {
            return Err(self.truncated(len));
        };
        self.position += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let taken = self.take(N as u64)?;
        let mut array = [0; N];
        array.copy_from_slice(taken);
        Ok(array)
    }

    /// The bytes up to a line feed, without it.
    fn line(&mut self) -> Result<&'a [u8], PickleError> {
        let rest = &self.input[self.position..];
        let Some(len) = rest.iter().position(|byte| *byte == b'\n') else {
            return Err(self.truncated(self.left() + 1));
        };
        self.position += len + 1;
        Ok(&rest[..len])
    }

    fn text_line(&mut self, expected: &'static str) -> Result<&'a str, PickleError> {
        let line = self.line()?;
        std::str::from_utf8(line)
            .map(str::trim)
            .map_err(|_| self.malformed(expected, "bytes that are no text"))
    }

    fn protocol(&mut self) -> Result<(), PickleError> {
        match self.byte()? {
            0..=5 => Ok(()),
            found => Err(PickleError::UnknownProtocol { found, at: self.at }),
        }
    }

    // The stack.

    /// Where the last `len` values start.
    fn start_of_last(&self, len: usize) -> Result<usize, PickleError> {
        let fence = self.marks.last().copied().unwrap_or(0);
        match self.stack.len().checked_sub(len) {
            Some(start) if start >= fence => Ok(start),
            _ => Err(self.malformed("a value on the stack", "none")),
        }
    }

    fn top(&self) -> Result<u32, PickleError> {
        let start = self.start_of_last(1)?;
        Ok(self.stack[start])
    }

    fn pop(&mut self) -> Result<u32, PickleError> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn unmark(&mut self) -> Result<usize, PickleError> {
        match self.marks.pop() {
            Some(start) => Ok(start),
            None => Err(self.malformed("a MARK on the stack", "none")),
        }
    }

    fn pop_or_unmark(&mut self) -> Result<(), PickleError> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(|_| ())
    }

    fn push_node(&mut self, node: Node) -> Result<(), PickleError> {
        let id = self.new_node(node)?;
        self.stack.push(id);
        Ok(())
    }

    /// A node that the machine itself comes back to.
    fn new_constant(&mut self, node: Node) -> Result<u32, PickleError> {
        let id = self.new_node(node)?;
        self.pin(id);
        Ok(id)
    }

    fn new_node(&mut self, node: Node) -> Result<u32, PickleError> {
        let id = self.index(self.document.nodes.len())?;
        self.document.nodes.push(node);
        Ok(id)
    }

    // Limits.

    /// A table's length as an index; the tables end where 32 bits do.
    fn index(&self, len: usize) -> Result<u32, PickleError> {
        match u32::try_from(len) {
            Ok(idx) if idx != NOWHERE => Ok(idx),
            _ => Err(self.too_large()),
        }
    }

    fn check_size(&self) -> Result<(), PickleError> {
        let document = &self.document;
        let built_bytes = self.owned_bytes
            + size_of_val(document.nodes.as_slice()) as u64
            + size_of_val(document.texts.as_slice()) as u64
            + size_of_val(document.blobs.as_slice()) as u64
            + size_of_val(document.cells.as_slice()) as u64
            + size_of_val(document.spans.as_slice()) as u64
            + size_of_val(document.persistent_ids.as_slice()) as u64
            + size_of_val(document.states.as_slice()) as u64
            + size_of_val(self.stack.as_slice()) as u64
            + size_of_val(self.marks.as_slice()) as u64
            + size_of_val(self.memo.as_slice()) as u64;
        if built_bytes > self.limits.max_built_bytes {
            return Err(self.too_large());
        }
        Ok(())
    }

    fn too_large(&self) -> PickleError {
        PickleError::TooLarge {
            limit: self.limits.max_built_bytes,
            at: self.at,
        }
    }

    fn truncated(&self, wanted: u64) -> PickleError {
        PickleError::Truncated {
            wanted,
            left: self.left(),
            at: self.at,
        }
    }

    fn malformed(&self, expected: &'static str, found: &'static str) -> PickleError {
        PickleError::Malformed {
            expected,
            found,
            at: self.at,
        }
    }
}

/// A class's name for a message: short, and without anything a terminal would obey.
fn shown_name(module: &str, name: &str) -> String {
    const MAX_CHARS: usize = 80;
    let name: String = module
        .chars()
        .chain(['.'])
        .chain(name.chars())
        .take(MAX_CHARS)
        .collect();
    name.escape_debug().to_string()
}
