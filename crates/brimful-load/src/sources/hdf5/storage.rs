//! The bytes that metadata is read from, and what `hdf5-reader` says when they are wrong.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use hdf5_reader::error::Error;
use hdf5_reader::{Storage, StorageBuffer};

use crate::error::SourceError;
use crate::reading::Reader;
use crate::value::Piece;

/// Bytes of the largest single piece of metadata: an index of four million chunks has 80 MB.
const MAX_PIECE_BYTES: usize = 128 << 20;

/// The bytes of the file, of which only so many are read: what lies about itself cannot keep a reader busy.
#[derive(Debug)]
pub(super) struct Bounded {
    reader: Reader,
    left: AtomicU64,
}

impl Bounded {
    pub(super) fn new(reader: Reader) -> Bounded {
        Bounded {
            // Every piece is read about twice; a file whose pieces overlap on purpose runs into this.
            left: AtomicU64::new(reader.len().saturating_mul(8).saturating_add(4 << 20)),
            reader,
        }
    }

    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }
}

impl Storage for Bounded {
    fn len(&self) -> u64 {
        self.reader.len()
    }

    fn read_range(&self, offset: u64, len: usize) -> Result<StorageBuffer, Error> {
        let needed = len as u64;
        if offset
            .checked_add(needed)
            .is_none_or(|end| end > self.len())
        {
            return Err(Error::UnexpectedEof {
                offset,
                needed,
                available: self.len().saturating_sub(offset),
            });
        }
        let afford = |left: u64| left.checked_sub(needed);
        if len > MAX_PIECE_BYTES
            || self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, afford)
                .is_err()
        {
            return Err(Error::ResourceLimit(format!(
                "{needed} more bytes of metadata at {offset}"
            )));
        }
        let mut bytes = vec![0; len];
        self.reader
            .read_to(offset, &mut bytes, &mut Piece::default())?;
        Ok(StorageBuffer::from_vec(bytes))
    }
}

/// Whether something is not there, rather than wrong.
pub(super) fn is_missing(error: &Error) -> bool {
    match error {
        Error::DatasetNotFound(_) | Error::GroupNotFound(_) => true,
        Error::Context { source, .. } => is_missing(source),
        _ => false,
    }
}

/// The same in words of ours.
pub(super) fn source_error(path: &Path, error: Error) -> SourceError {
    let path = path.to_owned();
    match error {
        Error::Io(cause) => SourceError::Unreadable { path, cause },
        Error::Context { source, .. } => source_error(&path, *source),
        Error::InvalidMagic => SourceError::Malformed {
            path,
            expected: "an HDF5 file".to_owned(),
            found: "other bytes at its beginning".to_owned(),
        },
        Error::UnsupportedLayoutClass(3) => SourceError::Unsupported {
            path,
            what: "a virtual dataset, whose numbers are in other files,".to_owned(),
            hint: "open those files, or copy the dataset into one file".to_owned(),
        },
        Error::UnsupportedSuperblockVersion(_)
        | Error::UnsupportedObjectHeaderVersion(_)
        | Error::UnsupportedDatatypeClass(_)
        | Error::UnsupportedLayoutClass(_)
        | Error::UnsupportedLayoutVersion(_)
        | Error::UnsupportedChunkIndexType(_)
        | Error::UnsupportedEncoding(_) => SourceError::Unsupported {
            path,
            what: format!("this format ({error})"),
            hint: "write the file again with h5repack or h5py".to_owned(),
        },
        error => SourceError::Malformed {
            path,
            expected: "the metadata of a sound HDF5 file".to_owned(),
            found: error.to_string(),
        },
    }
}
