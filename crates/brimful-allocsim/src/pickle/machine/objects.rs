//! Instructions that import, call or refer to something outside, where a value without contents takes the place of
//! what they would make.
//!
//! Each one takes from the stack what Python's own machine takes, so that everything around the object is read as
//! Python would read it.

use std::borrow::Cow;

use super::PickleMachine;
use crate::pickle::PickleError;
use crate::pickle::document::{NOWHERE, Node, Value};

impl PickleMachine<'_, '_> {
    /// Pushes the one value that stands for every object.
    pub(super) fn opaque(&mut self) -> Result<(), PickleError> {
        if self.constants.opaque == NOWHERE {
            self.constants.opaque = self.new_constant(Node::Opaque)?;
        }
        self.stack.push(self.constants.opaque);
        Ok(())
    }

    /// Carries out an instruction that [`super::Objects::Refused`] does not know.
    pub(super) fn around(&mut self, instruction: u8) -> Result<(), PickleError> {
        match instruction {
            // GLOBAL and INST name the class in two lines; INST calls it with what is above the mark.
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                let name = format!(
                    "{}.{}",
                    String::from_utf8_lossy(module),
                    String::from_utf8_lossy(name)
                );
                self.class(name)
            }
            b'i' => {
                self.line()?;
                self.line()?;
                self.instead_of_marked()
            }
            // STACK_GLOBAL.
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Value::Str(module), Value::Str(name)) =
                    (self.document.value(module), self.document.value(name))
                else {
                    return Err(self.malformed("the name of a class", "another value"));
                };
                let name = format!("{module}.{name}");
                self.class(name)
            }
            // REDUCE, NEWOBJ and NEWOBJ_EX: a class and its arguments.
            b'R' | 0x81 => self.instead_of_last(2),
            0x92 => self.instead_of_last(3),
            // OBJ has the class and its arguments above the mark, FROZENSET its members.
            b'o' | 0x91 => self.instead_of_marked(),
            // BUILD: the object stays.
            b'b' => {
                let state = self.pop()?;
                let object = self.top()?;
                if !matches!(self.document.value(object), Value::Opaque) {
                    return Err(self.malformed("an object to give a state", "plain data"));
                }
                self.document.states.push(state);
                Ok(())
            }
            // PERSID has its identifier in a line, BINPERSID on the stack.
            b'P' => {
                self.line()?;
                self.opaque()
            }
            b'Q' => {
                let id = self.pop()?;
                self.document.persistent_ids.push(id);
                self.opaque()
            }
            // EXT1, EXT2, EXT4: a class by its number in a register of Python's.
            0x82 => self.take(1).and_then(|_| self.opaque()),
            0x83 => self.take(2).and_then(|_| self.opaque()),
            0x84 => self.take(4).and_then(|_| self.opaque()),
            // EMPTY_SET, and NEXT_BUFFER, which is outside of the pickle.
            0x8f | 0x97 => self.opaque(),
            // ADDITEMS.
            0x90 => {
                let start = self.unmark()?;
                self.extend_below(start, false)
            }
            // READONLY_BUFFER changes nothing of what is on the stack.
            0x98 => self.top().map(|_| ()),
            _ => Err(self.refuse(instruction)),
        }
    }

    fn class(&mut self, name: String) -> Result<(), PickleError> {
        let idx = self.new_text(Cow::Owned(name))?;
        self.push_node(Node::Class(idx))
    }

    fn instead_of_last(&mut self, len: usize) -> Result<(), PickleError> {
        let start = self.start_of_last(len)?;
        self.stack.truncate(start);
        self.opaque()
    }

    fn instead_of_marked(&mut self) -> Result<(), PickleError> {
        let start = self.unmark()?;
        self.stack.truncate(start);
        self.opaque()
    }
}
