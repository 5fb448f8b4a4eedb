//! The lines of code that a snapshot names, each once.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use super::{Frame, TableIndex};
use crate::pickle::{Dict, Value};

/// Frames that were chosen to be shown.
#[derive(Default)]
pub(super) struct FrameTable {
    pub(super) frames: Vec<Frame>,
    indexes: HashMap<Frame, Option<TableIndex>>,
    texts: HashMap<Arc<str>, Arc<str>>,
    /// By [`Dict::id`] and [`crate::pickle::Sequence::id`]: whose code a frame is, and which frame of a list was
    /// chosen. Both are shared by many events, and looking once keeps the work within the file's size.
    known: Vec<Known>,
}

#[derive(Clone, Copy)]
enum Known {
    Nothing,
    /// A frame: whose code it is, and where it is in the table once it was shown.
    Frame(Origin, Option<TableIndex>),
    /// A list: which of its frames is shown.
    List(Option<TableIndex>),
}

/// Whose code a frame is.
#[derive(Clone, Copy)]
enum Origin {
    User,
    Library,
    /// Not Python.
    Native,
}

impl FrameTable {
    /// The innermost frame of the user's own Python code, else the innermost of any Python code.
    ///
    /// Frames only illustrate: one of an unexpected form is passed over, not refused.
    pub(super) fn shown_of(&mut self, frames: Value<'_>) -> Option<TableIndex> {
        let (Value::List(list) | Value::Tuple(list)) = frames else {
            return None;
        };
        if let Some(Known::List(shown)) = self.known.get(list.id()) {
            return *shown;
        }
        let mut library = None;
        let mut own = None;
        for frame in list.iter() {
            let Value::Dict(frame) = frame else { continue };
            match self.origin(frame) {
                Origin::User => {
                    own = Some(frame);
                    break;
                }
                Origin::Library if library.is_none() => library = Some(frame),
                _ => {}
            }
        }
        let shown = own.or(library).and_then(|frame| self.intern(frame));
        self.note(list.id(), Known::List(shown));
        shown
    }

    /// Identifiers above this one may be given to other values.
    pub(super) fn forget_above(&mut self, id: usize) {
        self.known.truncate(id + 1);
    }

    fn note(&mut self, id: usize, known: Known) {
        if id >= self.known.len() {
            self.known.resize(id + 1, Known::Nothing);
        }
        self.known[id] = known;
    }

    fn origin(&mut self, frame: Dict<'_>) -> Origin {
        if let Some(Known::Frame(origin, _)) = self.known.get(frame.id()) {
            return *origin;
        }
        let origin = match frame.get("filename") {
            Some(Value::Str(file)) => origin_of(file),
            _ => Origin::Native,
        };
        self.note(frame.id(), Known::Frame(origin, None));
        origin
    }

    /// A frame that [`FrameTable::origin`] has looked at.
    fn intern(&mut self, dict: Dict<'_>) -> Option<TableIndex> {
        let Some(Known::Frame(origin, known)) = self.known.get(dict.id()).copied() else {
            return None;
        };
        if known.is_some() {
            return known;
        }
        let frame = Frame {
            file: self.shared(dict.get("filename")),
            line: match dict.get("line") {
                Some(Value::Int(line)) => u32::try_from(line).unwrap_or(0),
                _ => 0,
            },
            name: self.shared(dict.get("name")),
        };
        let frames = &mut self.frames;
        let idx = *self.indexes.entry(frame).or_insert_with_key(|frame| {
            frames.push(frame.clone());
            TableIndex::new(frames.len() - 1)
        });
        self.note(dict.id(), Known::Frame(origin, idx));
        idx
    }

    fn shared(&mut self, value: Option<Value<'_>>) -> Arc<str> {
        let text = match value {
            Some(Value::Str(text)) => text,
            _ => "",
        };
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&new), Arc::clone(&new));
        new
    }
}

/// Whose code a file is, by its path.
fn origin_of(file: &str) -> Origin {
    if Path::new(file).extension() != Some(OsStr::new("py")) {
        return Origin::Native;
    }
    let file = file.replace('\\', "/");
    let in_package = |folder: &str| {
        file.split_once(folder)
            .map(|(_, below)| below.starts_with("torch/"))
    };
    let of_torch = in_package("/site-packages/").or_else(|| in_package("/dist-packages/"));
    let of_library = match of_torch {
        Some(of_torch) => of_torch,
        // The standard library, and what the compiler of torch generates.
        None => file.contains("/lib/python3.") || file.contains("/torchinductor_"),
    };
    if of_library {
        Origin::Library
    } else {
        Origin::User
    }
}
