//! HDF5 files, as h5py, PyTables and MATLAB (version 7.3) write them.
//!
//! What the file says of itself is read once, by `hdf5-reader`. From then on samples are read straight from their places
//! in the file, by any number of threads, none of which waits for another: there is no lock, and no cache that would
//! need one.
//!
//! How a dataset is stored decides how fast that is:
//!
//! - **contiguous**: one read for each sample, and no copy at all where the file is mapped;
//! - **one chunk for each sample** (`chunks=(1, 3, 480, 640)`): the same, plus the decompression;
//! - **several samples in a chunk**, compressed: the whole chunk is decompressed for each of them. Write it again with
//!   one sample in each chunk; [`Source::max_sample_bytes`] counts the chunk too;
//! - **samples along another axis than the first**: gathered from as many places as the sides before it have.
//!
//! Read are integers, floats, booleans as h5py writes them, and references to datasets of those, which MATLAB makes of
//! cell arrays. Of filters: gzip, LZF, shuffle and Fletcher-32.
//!
//! Verified are the checksums of metadata and of chunks with Fletcher-32 or gzip.
//!
//! The places of chunks are kept in memory, 24 bytes each, and at most four million for all fields.

mod array;
mod blocks;
mod chunk_index;
mod chunks;
mod element;
mod filters;
mod gather;
mod index_checksums;
mod lzf;
mod metadata;
mod references;
mod scratch;
mod storage;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use brimful::units::Bytes;

use self::array::Array;
use self::element::Element;
use self::metadata::Metadata;
pub use self::metadata::{Holds, Listed};
use self::references::References;
use crate::array::{Field, FieldSpec};
use crate::error::{ReadError, SourceError};
use crate::reading::{Choice, Reader, choose_among};
use crate::source::Source;
use crate::value::Value;

/// A field that is wanted of every sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetRequest {
    /// What the field will be called.
    pub name: String,
    /// The path of the dataset in the file: `train/images`.
    pub dataset: String,
    /// The axis that counts the samples.
    pub axis: usize,
}

impl DatasetRequest {
    /// A field that is called as its dataset, with samples along the first axis.
    pub fn new(dataset: &str) -> DatasetRequest {
        DatasetRequest {
            name: dataset.to_owned(),
            dataset: dataset.to_owned(),
            axis: 0,
        }
    }
}

/// One HDF5 file.
#[derive(Debug)]
pub struct Hdf5 {
    reader: Reader,
    choice: Choice,
    n_samples: u64,
    fields: Vec<Field>,
    parts: Vec<Part>,
    max_sample_bytes: u64,
}

/// Where a field comes from.
#[derive(Debug)]
enum Part {
    Array(Array),
    References(References),
}

impl Hdf5 {
    /// Opens a file for these fields; where none is named, for all datasets that have as many samples as most have.
    ///
    /// `headroom` is what is free for the data, see [`choose_among`].
    pub fn open(
        path: &Path,
        fields: &[DatasetRequest],
        headroom: Option<Bytes>,
    ) -> Result<Hdf5, SourceError> {
        Hdf5::open_with(path, fields, |data| choose_among([path], data, headroom))
    }

    /// The same where somebody else chooses how so many bytes of data are read.
    pub fn open_with(
        path: &Path,
        fields: &[DatasetRequest],
        choose: impl FnOnce(Bytes) -> Choice,
    ) -> Result<Hdf5, SourceError> {
        let metadata = Metadata::open(path)?;
        let parts = if fields.is_empty() {
            all_parts(&metadata)?
        } else {
            let mut parts = Vec::with_capacity(fields.len());
            for wanted in fields {
                parts.push((wanted.clone(), Part::of(&metadata, wanted)?));
            }
            parts
        };
        let n_samples = agreed_samples(&metadata, &parts)?;

        let data = parts
            .iter()
            .map(|(_, part)| part.file_bytes())
            .fold(0, u64::saturating_add);
        let mut choice = choose(Bytes(data));
        let reader = choice.open(path).map_err(|cause| SourceError::Unreadable {
            path: path.to_owned(),
            cause,
        })?;
        let max_sample_bytes = parts
            .iter()
            .map(|(_, part)| part.held_bytes(&reader))
            .fold(0, u64::saturating_add);
        let (fields, parts) = parts
            .into_iter()
            .map(|(wanted, part)| {
                let spec = part.spec();
                let name = wanted.name;
                (Field { name, spec }, part)
            })
            .unzip();
        Ok(Hdf5 {
            reader,
            choice,
            n_samples,
            fields,
            parts,
            max_sample_bytes,
        })
    }

    /// What is in a file.
    pub fn datasets(path: &Path) -> Result<Vec<Listed>, SourceError> {
        Metadata::open(path)?.list()
    }
}

impl Source for Hdf5 {
    fn len(&self) -> u64 {
        self.n_samples
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn max_sample_bytes(&self) -> u64 {
        self.max_sample_bytes
    }

    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError> {
        if values.len() != self.parts.len() {
            return Err(ReadError::Malformed {
                expected: format!("{} values to read into", self.parts.len()),
                found: values.len().to_string(),
            });
        }
        for (part, value) in self.parts.iter().zip(values) {
            match part {
                Part::Array(array) => array.read(&self.reader, index, value)?,
                Part::References(references) => references.read(&self.reader, index, value)?,
            }
        }
        Ok(())
    }

    fn place(&self, index: u64) -> String {
        format!("{}, sample {index}", self.reader.path().display())
    }

    fn choice(&self) -> &Choice {
        &self.choice
    }
}

impl Part {
    fn of(metadata: &Metadata, wanted: &DatasetRequest) -> Result<Part, SourceError> {
        let described = metadata.dataset(&wanted.dataset)?;
        if let Ok(Element::Reference { .. }) = described.element {
            References::of_samples(metadata, &described, wanted.axis).map(Part::References)
        } else {
            Array::of_samples(metadata, &described, wanted.axis).map(Part::Array)
        }
    }

    fn spec(&self) -> FieldSpec {
        match self {
            Part::Array(array) => FieldSpec::Array(array.form().clone()),
            Part::References(references) => references.spec().clone(),
        }
    }

    fn n_samples(&self) -> u64 {
        match self {
            Part::Array(array) => array.n_samples(),
            Part::References(references) => references.n_samples(),
        }
    }

    fn file_bytes(&self) -> u64 {
        match self {
            Part::Array(array) => array.file_bytes(),
            Part::References(references) => references.file_bytes(),
        }
    }

    fn held_bytes(&self, reader: &Reader) -> u64 {
        match self {
            Part::Array(array) => array.held_bytes(reader),
            Part::References(references) => references.held_bytes(reader),
        }
    }
}

/// The samples of all fields, which must be equally many.
fn agreed_samples(
    metadata: &Metadata,
    parts: &[(DatasetRequest, Part)],
) -> Result<u64, SourceError> {
    let Some((first, rest)) = parts.split_first() else {
        return Err(metadata.malformed(
            "a dataset whose first axis counts samples",
            "none that can be read",
        ));
    };
    for (wanted, part) in rest {
        if part.n_samples() != first.1.n_samples() {
            return Err(metadata.malformed(
                format_args!(
                    "{} samples in all fields, as {} has",
                    first.1.n_samples(),
                    first.0.dataset
                ),
                format_args!(
                    "{} along axis {} of {}",
                    part.n_samples(),
                    wanted.axis,
                    wanted.dataset
                ),
            ));
        }
    }
    Ok(first.1.n_samples())
}

/// The datasets that can be read and whose first side is the one that most of them have.
fn all_parts(metadata: &Metadata) -> Result<Vec<(DatasetRequest, Part)>, SourceError> {
    let listed: Vec<Listed> = metadata
        .list()?
        .into_iter()
        .filter(|listed| !matches!(listed.holds, Holds::Other(_)))
        .collect();
    let mut counts = BTreeMap::new();
    for side in listed.iter().filter_map(|listed| listed.shape.first()) {
        *counts.entry(*side).or_insert(0_usize) += 1;
    }
    // Of two that are equally common the larger one.
    let most = counts.iter().max_by_key(|(_, count)| **count);
    let Some((&side, _)) = most else {
        return Ok(Vec::new());
    };
    let mut parts = Vec::new();
    for listed in listed
        .iter()
        .filter(|listed| listed.shape.first() == Some(&side))
    {
        let wanted = DatasetRequest::new(&listed.dataset);
        match Part::of(metadata, &wanted) {
            Ok(part) => parts.push((wanted, part)),
            Err(SourceError::Unsupported { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(parts)
}
