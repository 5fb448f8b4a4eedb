//! What a pickle built: values as indexes into flat tables.

use std::borrow::Cow;
use std::fmt;

/// Everything one pickle built. Text and bytes borrow from the input where they can.
pub struct Document<'a> {
    pub(super) nodes: Vec<Node>,
    pub(super) texts: Vec<Cow<'a, str>>,
    pub(super) blobs: Vec<Cow<'a, [u8]>>,
    /// References of all containers; a dict's lie in pairs of key and value.
    pub(super) cells: Vec<u32>,
    pub(super) spans: Vec<Span>,
    /// What stood for something outside of the pickle.
    pub(super) persistent_ids: Vec<u32>,
    /// What objects were given as their state.
    pub(super) states: Vec<u32>,
    pub(super) root: u32,
}

impl Document<'_> {
    /// The pickled value.
    pub fn root(&self) -> Value<'_> {
        self.value(self.root)
    }

    /// The identifiers of what lies outside of the pickle, in the order in which they were met.
    ///
    /// Empty unless the pickle was read by [`super::read_around_objects`].
    pub fn persistent_ids(&self) -> impl Iterator<Item = Value<'_>> {
        self.persistent_ids.iter().map(|id| self.value(*id))
    }

    /// The state that each object was given, in the order in which that happened.
    ///
    /// Empty unless the pickle was read by [`super::read_around_objects`].
    pub fn states(&self) -> impl Iterator<Item = Value<'_>> {
        self.states.iter().map(|id| self.value(*id))
    }

    pub(super) fn value(&self, id: u32) -> Value<'_> {
        match self.nodes[id as usize] {
            Node::None => Value::None,
            Node::Bool(value) => Value::Bool(value),
            Node::Int(value) => Value::Int(value),
            Node::UInt(value) => Value::UInt(value),
            Node::Float(value) => Value::Float(value),
            Node::Text(idx) => Value::Str(&self.texts[idx as usize]),
            Node::Blob(idx) => Value::Bytes(&self.blobs[idx as usize]),
            Node::Tuple { .. } => Value::Tuple(Sequence { document: self, id }),
            Node::List(_) => Value::List(Sequence { document: self, id }),
            Node::Dict(_) => Value::Dict(self.dict(id)),
            Node::Class(idx) => Value::Class(&self.texts[idx as usize]),
            Node::Opaque => Value::Opaque,
            Node::Taken(number) => Value::Taken(number),
        }
    }

    pub(super) fn dict(&self, id: u32) -> Dict<'_> {
        Dict { document: self, id }
    }

    fn cells_of(&self, id: u32) -> Cells<'_> {
        let (now, next_span) = match self.nodes[id as usize] {
            Node::Tuple { start, len, .. } => {
                (&self.cells[start as usize..][..len as usize], NOWHERE)
            }
            Node::List(growth) | Node::Dict(growth) => (&[][..], growth.first_span),
            _ => (&[][..], NOWHERE),
        };
        Cells {
            document: self,
            now: now.iter(),
            next_span,
        }
    }
}

impl fmt::Debug for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("n_values", &self.nodes.len())
            .field("root", &self.root())
            .finish_non_exhaustive()
    }
}

/// One plain value. Copying it copies a reference.
///
/// `Debug` shows a container's length, not what it holds: shared values would repeat without end.
#[derive(Clone, Copy, Debug)]
pub enum Value<'d> {
    None,
    Bool(bool),
    Int(i64),
    /// An integer above `i64::MAX`.
    UInt(u64),
    Float(f64),
    /// Text; what was not Unicode in it is replaced.
    Str(&'d str),
    Bytes(&'d [u8]),
    List(Sequence<'d>),
    Tuple(Sequence<'d>),
    Dict(Dict<'d>),
    /// A class or function by its name, such as `torch.FloatStorage`. It was not looked up.
    Class(&'d str),
    /// What a class would have made, or something outside of the pickle.
    Opaque,
    /// A dict that a [`super::TakeDicts`] took, by the number that it gave.
    Taken(u32),
}

impl Value<'_> {
    /// What this is, for a message: "an integer".
    pub fn kind(&self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::UInt(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Str(_) => "a string",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "a list",
            Value::Tuple(_) => "a tuple",
            Value::Dict(_) | Value::Taken(_) => "a dict",
            Value::Class(_) => "a class",
            Value::Opaque => "an object",
        }
    }
}

/// The items of a list or tuple.
#[derive(Clone, Copy)]
pub struct Sequence<'d> {
    document: &'d Document<'d>,
    id: u32,
}

impl<'d> Sequence<'d> {
    /// The same for every reference to the same list.
    pub fn id(&self) -> usize {
        self.id as usize
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.document.cells_of(self.id).count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = Value<'d>> + use<'d> {
        let document = self.document;
        document.cells_of(self.id).map(|cell| document.value(cell))
    }
}

impl fmt::Debug for Sequence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} items", self.len())
    }
}

/// The entries of a dict, in the order in which they were set.
#[derive(Clone, Copy)]
pub struct Dict<'d> {
    document: &'d Document<'d>,
    id: u32,
}

impl<'d> Dict<'d> {
    /// The same for every reference to the same dict.
    pub fn id(&self) -> usize {
        self.id as usize
    }

    /// Key and value; a key that was set twice comes twice, and the last one counts.
    pub fn iter(&self) -> impl Iterator<Item = (Value<'d>, Value<'d>)> + use<'d> {
        let document = self.document;
        let mut cells = document.cells_of(self.id);
        std::iter::from_fn(move || {
            let key = document.value(cells.next()?);
            Some((key, document.value(cells.next()?)))
        })
    }

    /// The value of a text key.
    pub fn get(&self, key: &str) -> Option<Value<'d>> {
        self.iter()
            .filter(|(found, _)| matches!(found, Value::Str(found) if *found == key))
            .last()
            .map(|(_, value)| value)
    }
}

impl fmt::Debug for Dict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries", self.iter().count())
    }
}

/// No node, no span.
pub(super) const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy)]
pub(super) enum Node {
    None,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(u32),
    Blob(u32),
    Tuple { start: u32, len: u32, depth: u16 },
    List(Growth),
    Dict(Growth),
    Class(u32),
    Opaque,
    Taken(u32),
}

// The figure that the memory of a large snapshot hangs on.
const _: () = assert!(size_of::<Node>() == 16);

/// A list or dict, which pickles fill in steps.
#[derive(Clone, Copy)]
pub(super) struct Growth {
    pub(super) first_span: u32,
    pub(super) last_span: u32,
    pub(super) depth: u16,
    /// Whether another container holds this one. From then on it may not change, which is why
    /// nothing can contain itself and why `depth` is final: the last reference that closes a cycle
    /// would go into a container that is held already.
    pub(super) held: bool,
}

impl Growth {
    pub(super) const EMPTY: Growth = Growth {
        first_span: NOWHERE,
        last_span: NOWHERE,
        depth: 1,
        held: false,
    };
}

/// A run of cells; writers fill long lists a thousand items at a time.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
    pub(super) next: u32,
}

struct Cells<'d> {
    document: &'d Document<'d>,
    now: std::slice::Iter<'d, u32>,
    next_span: u32,
}

impl Iterator for Cells<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        loop {
            if let Some(cell) = self.now.next() {
                return Some(*cell);
            }
            let span = self.document.spans.get(self.next_span as usize)?;
            self.now = self.document.cells[span.start as usize..][..span.len as usize].iter();
            self.next_span = span.next;
        }
    }
}
