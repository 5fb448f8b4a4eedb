//! The two files, under other names until they are whole.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::array::DType;
use crate::pack::error::PackError;
use crate::sources::{DocumentsHeader, HEADER_BYTES, documents_path};

/// What was packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    pub documents: u64,
    pub tokens: u64,
    pub stored: DType,
}

/// Tokens and the starts of documents, appended in order.
#[derive(Debug)]
pub(super) struct Output {
    tokens: Part,
    documents: Part,
    stored: DType,
    n_tokens: u64,
    n_documents: u64,
}

impl Output {
    pub(super) fn create(path: &Path, stored: DType) -> Result<Output, PackError> {
        let tokens = Part::create(path)?;
        let mut documents = Part::create(&documents_path(path))?;
        // The numbers of the header are known at the end.
        documents.write(&[0; HEADER_BYTES])?;
        documents.write(&0_u64.to_le_bytes())?;
        Ok(Output {
            tokens,
            documents,
            stored,
            n_tokens: 0,
            n_documents: 0,
        })
    }

    pub(super) fn documents(&self) -> u64 {
        self.n_documents
    }

    /// Appends tokens, and documents by the tokens that each has: the first may have begun before, and what is behind
    /// the last belongs to the next one.
    pub(super) fn append(&mut self, tokens: &[u8], lengths: &[u64]) -> Result<(), PackError> {
        self.tokens.write(tokens)?;
        let mut starts = Vec::with_capacity(size_of_val(lengths));
        for length in lengths {
            self.n_tokens += length;
            starts.extend_from_slice(&self.n_tokens.to_le_bytes());
        }
        self.n_documents += lengths.len() as u64;
        self.documents.write(&starts)
    }

    /// Makes both files durable and gives them their names.
    pub(super) fn finish(self) -> Result<Packed, PackError> {
        let header = DocumentsHeader {
            token_bytes: u32::try_from(self.stored.size()).unwrap_or(u32::MAX),
            documents: self.n_documents,
            tokens: self.n_tokens,
        };
        self.documents.write_first(&header.to_bytes())?;
        // The starts first: a file of tokens with its name has them.
        self.documents.finish()?;
        self.tokens.finish()?;
        Ok(Packed {
            documents: self.n_documents,
            tokens: self.n_tokens,
            stored: self.stored,
        })
    }
}

/// A file that is called `NAME.part` until it is whole, and is removed if it never is.
#[derive(Debug)]
struct Part {
    file: File,
    path: PathBuf,
    /// What it is called for now.
    unnamed: PathBuf,
    is_whole: bool,
}

impl Part {
    /// Takes over what somebody who was killed has left behind, but not from somebody who still writes to it.
    fn create(path: &Path) -> Result<Part, PackError> {
        let mut name = OsString::from(path.as_os_str());
        name.push(".part");
        let part = PathBuf::from(name);
        let unwritable = |cause: io::Error| PackError::Unwritable {
            path: part.clone(),
            cause,
        };
        let file = brimful_private::take_over_named(&part).map_err(unwritable)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The second are file systems without locks.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP) => {}
            Err(Errno::WOULDBLOCK) => return Err(PackError::Busy { path: part }),
            Err(error) => return Err(unwritable(error.into())),
        }
        file.set_len(0).map_err(unwritable)?;
        Ok(Part {
            file,
            path: path.to_owned(),
            unnamed: part,
            is_whole: false,
        })
    }

    fn unwritable(&self, cause: io::Error) -> PackError {
        PackError::Unwritable {
            path: self.unnamed.clone(),
            cause,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        let written = self.file.write_all(bytes);
        written.map_err(|cause| self.unwritable(cause))
    }

    fn write_first(&self, bytes: &[u8]) -> Result<(), PackError> {
        let written = self.file.write_all_at(bytes, 0);
        written.map_err(|cause| self.unwritable(cause))
    }

    fn finish(mut self) -> Result<(), PackError> {
        let named = self
            .file
            .sync_all()
            .and_then(|()| fs::rename(&self.unnamed, &self.path));
        named.map_err(|cause| self.unwritable(cause))?;
        self.is_whole = true;
        // The name is durable when its folder is; not every file system has that, and the file is there in any case.
        if let Some(folder) = self.path.parent()
            && let Ok(folder) = File::open(folder)
        {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_whole {
            // Nothing more can be done about a file that does not go.
            let _ = fs::remove_file(&self.unnamed);
        }
    }
}
