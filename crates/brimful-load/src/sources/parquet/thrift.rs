//! A walk through Thrift's compact protocol, which Parquet describes itself in.
//!
//! The crate that reads these descriptions reserves memory for as many parts as they promise, before it looks whether
//! they are there; a promise of two billion ends the process. So they are walked through first, and counted.

use crate::problem::Problem;

/// Parts within parts; Parquet has eight.
const MAX_DEPTH: usize = 16;

/// What is met on the way, with the numbers of the fields that lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// A structure begins.
    Structure,
    Number(i64),
}

/// Walks through one structure at the beginning of `bytes`, and gives its length. Elements of a list have the way of the
/// list. Nothing where the bytes end before the structure does.
pub(super) fn walk(
    bytes: &[u8],
    visit: &mut dyn FnMut(&[i64], Met),
) -> Result<Option<usize>, Problem> {
    let mut walk = ThriftReader {
        bytes,
        at: 0,
        way: Vec::new(),
        visit,
    };
    match walk.structure() {
        Ok(()) => Ok(Some(walk.at)),
        Err(Stop::End) => Ok(None),
        Err(Stop::Wrong(problem)) => Err(problem),
    }
}

struct ThriftReader<'a> {
    bytes: &'a [u8],
    at: usize,
    way: Vec<i64>,
    visit: &'a mut dyn FnMut(&[i64], Met),
}

enum Stop {
    End,
    Wrong(Problem),
}

impl ThriftReader<'_> {
    fn structure(&mut self) -> Result<(), Stop> {
        (self.visit)(&self.way, Met::Structure);
        let mut field = 0_i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            field = match head >> 4 {
                0 => self.number()?,
                step => field.saturating_add(i64::from(step)),
            };
            // The value of a boolean is in its type.
            if !matches!(head & 15, 1 | 2) {
                self.enter(field, |walk| walk.value(head & 15))?;
            }
        }
    }

    fn enter(
        &mut self,
        field: i64,
        inside: impl FnOnce(&mut Self) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if self.way.len() == MAX_DEPTH {
            return Err(wrong("deeper ones"));
        }
        self.way.push(field);
        inside(self)?;
        self.way.pop();
        Ok(())
    }

    fn value(&mut self, kind: u8) -> Result<(), Stop> {
        match kind {
            1..=3 => self.skip(1),
            4..=6 => {
                let number = self.number()?;
                (self.visit)(&self.way, Met::Number(number));
                Ok(())
            }
            7 => self.skip(8),
            8 => {
                let len = self.unsigned()?;
                self.skip(len)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.unsigned()?,
                    count => u64::from(count),
                };
                self.elements(count, &[head & 15])
            }
            11 => {
                let count = self.unsigned()?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                self.elements(count, &[kinds >> 4, kinds & 15])
            }
            12 => self.structure(),
            _ => Err(wrong("another kind of part")),
        }
    }

    fn elements(&mut self, count: u64, kinds: &[u8]) -> Result<(), Stop> {
        // Each takes at least a byte.
        if count > (self.bytes.len() - self.at) as u64 {
            return Err(Stop::End);
        }
        for _ in 0..count {
            for &kind in kinds {
                // Lists in lists go deeper too.
                match kind {
                    9..=11 => self.enter(0, |walk| walk.value(kind))?,
                    _ => self.value(kind)?,
                }
            }
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.bytes.get(self.at).ok_or(Stop::End)?;
        self.at += 1;
        Ok(byte)
    }

    fn skip(&mut self, len: u64) -> Result<(), Stop> {
        let left = self.bytes.len() - self.at;
        match usize::try_from(len) {
            Ok(len) if len <= left => {
                self.at += len;
                Ok(())
            }
            _ => Err(Stop::End),
        }
    }

    fn unsigned(&mut self) -> Result<u64, Stop> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(value);
            }
        }
        Err(wrong("a longer number"))
    }

    /// One bit of sign at the end.
    fn number(&mut self) -> Result<i64, Stop> {
        let value = self.unsigned()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

fn wrong(found: &str) -> Stop {
    Stop::Wrong(Problem::malformed(
        "the description of Parquet's parts",
        found,
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Numbers = Vec<(Vec<i64>, i64)>;

    fn numbers(bytes: &[u8]) -> Result<Option<(usize, Numbers)>, Problem> {
        let mut numbers = Vec::new();
        let len = walk(bytes, &mut |way, met| {
            if let Met::Number(number) = met {
                numbers.push((way.to_vec(), number));
            }
        })?;
        Ok(len.map(|len| (len, numbers)))
    }

    #[test]
    fn numbers_are_met_with_their_way() {
        // 1: -3; 3: [7, 8]; 4: {2: true, 40: 5}; 5: "ab"; end; something else.
        let bytes = [
            0x15, 5, 0x29, 0x25, 14, 16, 0x1c, 0x21, 0x05, 80, 10, 0, 0x18, 2, b'a', b'b', 0, 99,
        ];
        let (len, numbers) = numbers(&bytes).unwrap().unwrap();
        assert_eq!(len, bytes.len() - 1);
        let expected = [(vec![1], -3), (vec![3], 7), (vec![3], 8), (vec![4, 40], 5)];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn a_promise_of_more_than_there_is_is_an_end() {
        // A list of two billion structures.
        let bytes = [0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0];
        assert!(numbers(&bytes).unwrap().is_none());
        assert!(numbers(&[0x1c; 1000]).is_err());
        assert!(numbers(&[0x99; 1000]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = numbers(&bytes);
        }
    }
}
