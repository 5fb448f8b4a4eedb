//! What a file says of its datasets, read by `hdf5-reader` with bounds of ours.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hdf5_reader::error::Error;
use hdf5_reader::group::Group;
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::dataspace::DataspaceType;
use hdf5_reader::messages::filter_pipeline::FilterDescription;
use hdf5_reader::messages::layout::DataLayout;
use hdf5_reader::object_header::ObjectHeader;
use hdf5_reader::{Datatype, Hdf5File, OpenOptions};

use super::element::Element;
use super::storage::{Bounded, is_missing, source_error};
use crate::array::DType;
use crate::error::SourceError;
use crate::reading::{Access, Reader};

/// Bytes of the largest object header. Real ones have a few KiB.
const MAX_HEADER_BYTES: usize = 4 << 20;
/// Datasets that are listed at the most, and how deep groups are followed.
const MAX_LIST_LEN: usize = 10_000;
const MAX_GROUP_DEPTH: usize = 16;
/// Chunks of all fields whose places are kept in memory, 24 bytes each; while those of one are collected, about 150.
pub(super) const MAX_CHUNKS: u64 = 4 << 20;
/// Datasets that a message names.
const MAX_SHOWN: usize = 100;
/// Sides of the widest dataset: what the format allows.
const MAX_DIMENSIONS: usize = 32;

/// The metadata of an open file.
pub(super) struct Metadata {
    path: PathBuf,
    storage: Arc<Bounded>,
    file: Hdf5File,
    /// Chunks whose places may still be kept.
    chunks_left: Cell<u64>,
}

/// A dataset as its object header has it; nothing of it has been checked against the file.
#[derive(Debug)]
pub(super) struct Described {
    /// As users call it, for messages.
    pub(super) name: String,
    pub(super) dims: Vec<u64>,
    pub(super) max_dims: Option<Vec<u64>>,
    pub(super) element: Result<Element, String>,
    pub(super) layout: DataLayout,
    pub(super) filters: Vec<FilterDescription>,
    pub(super) fill: Option<Vec<u8>>,
    /// What MATLAB notes of its class: `char`, `double`.
    pub(super) matlab_class: Option<String>,
    /// MATLAB stores an empty array as its sides.
    pub(super) matlab_empty: bool,
}

/// A dataset of a file, for messages and for a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its path in the file, without the first slash: `train/images`.
    pub dataset: String,
    pub shape: Vec<u64>,
    pub holds: Holds,
}

/// What a dataset consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    Numbers(DType),
    /// Object references: a cell array of MATLAB.
    References,
    /// What cannot be read, in words.
    Other(String),
}

impl fmt::Display for Listed {
    /// `images (uint8 1449x3x640x480)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sides: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        match &self.holds {
            Holds::Numbers(dtype) => write!(f, "{} ({dtype}", self.dataset)?,
            Holds::References => write!(f, "{} (references", self.dataset)?,
            Holds::Other(what) => write!(f, "{} ({what}", self.dataset)?,
        }
        if !sides.is_empty() {
            write!(f, " {}", sides.join("x"))?;
        }
        f.write_str(")")
    }
}

impl Metadata {
    pub(super) fn open(path: &Path) -> Result<Metadata, SourceError> {
        let reader = Reader::open(path, Access::Read).map_err(|cause| SourceError::Unreadable {
            path: path.to_owned(),
            cause,
        })?;
        let storage = Arc::new(Bounded::new(reader));
        let options = OpenOptions::default()
            .with_max_object_header_bytes(MAX_HEADER_BYTES)
            .with_max_read_bytes(MAX_HEADER_BYTES)
            .with_chunk_cache_bytes(0);
        let file = Hdf5File::from_storage_with_options(storage.clone(), options)
            .map_err(|error| source_error(path, error))?;
        Ok(Metadata {
            path: path.to_owned(),
            storage,
            file,
            chunks_left: Cell::new(MAX_CHUNKS),
        })
    }

    /// Counts chunks of a dataset, also those of sides that it may grow to. An error where all datasets together have
    /// more than are kept: many may share one index.
    pub(super) fn count_chunks(&self, name: &str, chunks: Option<u64>) -> Result<(), SourceError> {
        let left = chunks.and_then(|chunks| self.chunks_left.get().checked_sub(chunks));
        let left = left.ok_or_else(|| {
            self.unsupported(
                format_args!("{name}, with which there would be more than {MAX_CHUNKS} chunks,"),
                "write it with larger chunks, or without any; or open fewer fields",
            )
        })?;
        self.chunks_left.set(left);
        Ok(())
    }

    /// Bytes of the file.
    pub(super) fn len(&self) -> u64 {
        self.reader().len()
    }

    /// What the metadata is read with.
    pub(super) fn reader(&self) -> &Reader {
        self.storage.reader()
    }

    pub(super) fn file(&self) -> &Hdf5File {
        &self.file
    }

    /// Where in the file an address of the file is; nothing where it says that there is no such place.
    pub(super) fn place(&self, address: u64) -> Result<Option<u64>, SourceError> {
        let superblock = self.file.superblock();
        if hdf5_reader::io::Cursor::is_undefined_offset(address, superblock.offset_size) {
            return Ok(None);
        }
        superblock
            .base_address
            .checked_add(address)
            .map(Some)
            .ok_or_else(|| self.malformed("an address within the file", address))
    }

    /// The dataset of that name.
    pub(super) fn dataset(&self, name: &str) -> Result<Described, SourceError> {
        self.find(name)?.ok_or_else(|| SourceError::NoSuchField {
            path: self.path.clone(),
            wanted: name.to_owned(),
            known: self
                .list()
                .unwrap_or_default()
                .iter()
                .take(MAX_SHOWN)
                .map(Listed::to_string)
                .collect(),
        })
    }

    fn find(&self, name: &str) -> Result<Option<Described>, SourceError> {
        let dataset = match self.file.dataset(name) {
            Ok(dataset) => dataset,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(self.error(error)),
        };
        let raw = dataset.raw_datatype().map_err(|error| self.error(error))?;
        let header = self
            .file
            .get_or_parse_header(dataset.address())
            .map_err(|error| self.error(error))?;
        self.described(name, &header, Some(&raw)).map(Some)
    }

    /// The dataset whose object header is at that address.
    pub(super) fn dataset_at(&self, name: &str, address: u64) -> Result<Described, SourceError> {
        let superblock = self.file.superblock();
        // Not through the cache of the file: it would keep the headers of all references.
        let header = ObjectHeader::parse_at_storage_with_limit(
            self.file.storage(),
            address,
            superblock.offset_size,
            superblock.length_size,
            MAX_HEADER_BYTES,
        )
        .map_err(|error| self.error(error))?;
        let shared = header
            .messages
            .iter()
            .any(|message| matches!(message, HdfMessage::Shared(_)));
        if shared {
            let header = self
                .file
                .get_or_parse_header(address)
                .map_err(|error| self.error(error))?;
            return self.described(name, &header, None);
        }
        self.described(name, &header, None)
    }

    fn described(
        &self,
        name: &str,
        header: &ObjectHeader,
        raw: Option<&[u8]>,
    ) -> Result<Described, SourceError> {
        let (mut space, mut datatype, mut layout) = (None, None, None);
        let (mut filters, mut fill) = (Vec::new(), None);
        let (mut matlab_class, mut matlab_empty) = (None, false);
        for message in &header.messages {
            match message {
                HdfMessage::Dataspace(message) => space = Some(message),
                HdfMessage::Datatype(message) => datatype = Some(&message.datatype),
                HdfMessage::DataLayout(message) => layout = Some(message.layout.clone()),
                HdfMessage::FilterPipeline(message) => filters.clone_from(&message.filters),
                HdfMessage::FillValue(message) => fill.clone_from(&message.value),
                HdfMessage::Attribute(message) if message.name == "MATLAB_class" => {
                    if let Datatype::String { .. } = message.datatype {
                        let text = String::from_utf8_lossy(&message.raw_data);
                        matlab_class = Some(text.trim_end_matches('\0').to_owned());
                    }
                }
                HdfMessage::Attribute(message) if message.name == "MATLAB_empty" => {
                    matlab_empty = message.raw_data.iter().any(|&byte| byte != 0);
                }
                HdfMessage::ExternalFiles(_) => {
                    return Err(self.unsupported(
                        format!("{name}, whose numbers are in another file"),
                        "copy the dataset into one file, for example with h5repack",
                    ));
                }
                _ => {}
            }
        }
        let (Some(space), Some(datatype), Some(layout)) = (space, datatype, layout) else {
            return Err(self.malformed(
                format_args!("a dataset for {name}"),
                "an object without a shape, a type or a place",
            ));
        };
        let mut dims = space.dims.clone();
        if space.dataspace_type == DataspaceType::Null {
            dims = vec![0];
        }
        if dims.len() > MAX_DIMENSIONS {
            return Err(self.malformed(
                format_args!("at most {MAX_DIMENSIONS} sides of {name}"),
                dims.len(),
            ));
        }
        Ok(Described {
            name: name.to_owned(),
            max_dims: space.max_dims.clone().filter(|max| max.len() == dims.len()),
            dims,
            element: Element::of(datatype, raw),
            layout,
            filters,
            fill,
            matlab_class,
            matlab_empty,
        })
    }

    /// The datasets of the file, in the order of the file; not those that MATLAB keeps for references.
    pub(super) fn list(&self) -> Result<Vec<Listed>, SourceError> {
        let root = self.file.root_group().map_err(|error| self.error(error))?;
        let mut list = Vec::new();
        let mut seen = HashSet::from([root.address()]);
        self.list_group(&root, "", MAX_GROUP_DEPTH, &mut seen, &mut list)?;
        Ok(list)
    }

    fn list_group(
        &self,
        group: &Group,
        prefix: &str,
        depth: usize,
        seen: &mut HashSet<u64>,
        list: &mut Vec<Listed>,
    ) -> Result<(), SourceError> {
        let (groups, datasets) = group.member_names().map_err(|error| self.error(error))?;
        for name in datasets {
            if list.len() == MAX_LIST_LEN {
                return Ok(());
            }
            let dataset = format!("{prefix}{name}");
            let (shape, holds) = match self.find(&dataset) {
                Ok(Some(described)) => (
                    described.dims,
                    match described.element {
                        Ok(Element::Number(number)) => Holds::Numbers(number.dtype),
                        Ok(Element::Reference { .. }) => Holds::References,
                        Err(what) => Holds::Other(what),
                    },
                ),
                // A link that leads nowhere.
                Ok(None) => continue,
                Err(error) => (Vec::new(), Holds::Other(error.to_string())),
            };
            list.push(Listed {
                dataset,
                shape,
                holds,
            });
        }
        for name in groups {
            if depth == 0 || name.starts_with('#') {
                continue;
            }
            let child = group.group(&name).map_err(|error| self.error(error))?;
            if seen.insert(child.address()) {
                self.list_group(&child, &format!("{prefix}{name}/"), depth - 1, seen, list)?;
            }
        }
        Ok(())
    }

    pub(super) fn malformed(
        &self,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> SourceError {
        SourceError::Malformed {
            path: self.path.clone(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    pub(super) fn unsupported(&self, what: impl fmt::Display, hint: &str) -> SourceError {
        SourceError::Unsupported {
            path: self.path.clone(),
            what: what.to_string(),
            hint: hint.to_owned(),
        }
    }

    pub(super) fn error(&self, error: Error) -> SourceError {
        source_error(&self.path, error)
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Metadata({:?})", self.storage)
    }
}
