//! A dataset of numbers, one axis of which counts samples.

use hdf5_reader::messages::layout::DataLayout;

use super::chunks::Chunks;
use super::element::{Conversion, Element, Number};
use super::metadata::{Described, Metadata};
use super::scratch::ChunkScratch;
use crate::array::TensorSpec;
use crate::error::{ReadError, SourceError};
use crate::reading::{Access, Reader};
use crate::value::{Piece, Value};

/// What helps where a type is not read.
const AS_NUMBERS: &str =
    "write it as numbers, for example with h5py and a NumPy type of integers or floats";

/// A dataset whose places in the file have been checked.
#[derive(Debug)]
pub(super) struct Array {
    number: Number,
    dims: Vec<u64>,
    axis: usize,
    /// Of one sample.
    form: TensorSpec,
    stored: Stored,
    /// One element for what was never written, as the file has it.
    fill: Vec<u8>,
}

#[derive(Debug)]
enum Stored {
    Contiguous {
        offset: u64,
    },
    /// In the header itself.
    Compact(Vec<u8>),
    Chunked(Chunks),
    /// Never written.
    Nowhere,
}

impl Array {
    /// Samples are counted by `axis`.
    pub(super) fn of_samples(
        metadata: &Metadata,
        described: &Described,
        axis: usize,
    ) -> Result<Array, SourceError> {
        if axis >= described.dims.len() {
            return Err(metadata.malformed(
                format_args!("an axis {axis} of {} to count samples", described.name),
                format_args!("sides {:?}", described.dims),
            ));
        }
        Array::new(metadata, described, Some(axis))
    }

    /// All of the dataset is one sample.
    pub(super) fn of_one_sample(
        metadata: &Metadata,
        described: &Described,
    ) -> Result<Array, SourceError> {
        Array::new(metadata, described, None)
    }

    fn new(
        metadata: &Metadata,
        described: &Described,
        axis: Option<usize>,
    ) -> Result<Array, SourceError> {
        let name = &described.name;
        let element = match &described.element {
            Ok(element) => *element,
            Err(what) => {
                let what = format!("{name}, of {what},");
                return Err(metadata.unsupported(what, AS_NUMBERS));
            }
        };
        let number = match element {
            Element::Number(number) => number,
            Element::Reference { size } => Number::address(size).ok_or_else(|| {
                metadata.malformed(
                    format_args!("references in {name}"),
                    format_args!("{size} bytes each"),
                )
            })?,
        };
        let total = described
            .dims
            .iter()
            .try_fold(element.size() as u64, |bytes, &dim| bytes.checked_mul(dim));
        // Also where a side of 0 hides it: what is computed from the others must not run over.
        let countable = |side: usize| {
            let mut others = described
                .dims
                .iter()
                .enumerate()
                .filter(|(at, _)| *at != side);
            others
                .try_fold(element.size() as u64, |bytes, (_, &dim)| {
                    bytes.checked_mul(dim.max(1))
                })
                .is_some_and(|bytes| isize::try_from(bytes).is_ok())
        };
        if !countable(axis.unwrap_or(usize::MAX)) {
            return Err(metadata.malformed(
                format_args!("samples of {name} that fit into memory"),
                format_args!("sides {:?}", described.dims),
            ));
        }
        let stored = Stored::of(metadata, described, element.size(), total)?;

        let mut dims = described.dims.clone();
        let (stored, axis) = if let Some(axis) = axis {
            (stored, axis)
        } else {
            dims.insert(0, 1);
            let stored = match stored {
                Stored::Chunked(chunks) => Stored::Chunked(chunks.into_one_sample()),
                other => other,
            };
            (stored, 0)
        };
        let mut sides = Vec::with_capacity(dims.len());
        for (side, &dim) in dims.iter().enumerate() {
            if side != axis {
                sides.push(usize::try_from(dim).unwrap_or(usize::MAX));
            }
        }
        // No sample is larger than what could be in the file, however it is compressed.
        let largest = match &stored {
            Stored::Chunked(chunks) => metadata
                .len()
                .saturating_mul(chunks.pipeline().largest_ratio().max(1032)),
            Stored::Nowhere => metadata.len().saturating_mul(1032),
            Stored::Contiguous { .. } | Stored::Compact(_) => metadata.len(),
        };
        let form = TensorSpec::new(number.dtype, sides)
            .filter(|form| form.bytes() as u64 <= largest || dims[axis] == 0)
            .ok_or_else(|| {
                metadata.malformed(
                    format_args!(
                        "samples of {name} that fit into a file of {} bytes",
                        metadata.len()
                    ),
                    format_args!("sides {:?}", described.dims),
                )
            })?;
        let fill = match &described.fill {
            Some(fill) if fill.len() == element.size() => fill.clone(),
            _ => vec![0; element.size()],
        };
        Ok(Array {
            number,
            dims,
            axis,
            form,
            stored,
            fill,
        })
    }

    pub(super) fn form(&self) -> &TensorSpec {
        &self.form
    }

    pub(super) fn n_samples(&self) -> u64 {
        self.dims[self.axis]
    }

    /// Bytes that it takes in the file.
    pub(super) fn file_bytes(&self) -> u64 {
        match &self.stored {
            Stored::Contiguous { .. } => {
                (self.form.bytes() as u64).saturating_mul(self.n_samples())
            }
            Stored::Chunked(chunks) => chunks.stored_bytes(),
            Stored::Compact(_) | Stored::Nowhere => 0,
        }
    }

    /// Bytes of memory that one sample takes while and after it is read.
    pub(super) fn held_bytes(&self, reader: &Reader) -> u64 {
        if self.n_samples() == 0 {
            return 0;
        }
        let direct = reader.held_for(self.form.bytes() as u64);
        match &self.stored {
            Stored::Contiguous { .. } if self.is_in_one_run() => {
                if self.number.mend == Conversion::None || reader.access() != Access::Mapped {
                    direct
                } else {
                    ChunkScratch::of_sample(self.form.bytes()).bytes() as u64
                }
            }
            _ => (self.rooms(reader).bytes() as u64).max(direct),
        }
    }

    /// Reads one sample into `value`.
    pub(super) fn read(
        &self,
        reader: &Reader,
        index: u64,
        value: &mut Value,
    ) -> Result<(), ReadError> {
        if index >= self.n_samples() {
            return Err(ReadError::Malformed {
                expected: format!("a sample below {}", self.n_samples()),
                found: index.to_string(),
            });
        }
        value.dtype = self.number.dtype;
        value.shape.clear();
        value.shape.extend_from_slice(self.form.shape());
        match &self.stored {
            Stored::Contiguous { offset } if self.is_in_one_run() => {
                // Within the file: checked when it was opened.
                let offset = offset + index * self.form.bytes() as u64;
                self.read_run(reader, offset, value)
            }
            Stored::Chunked(chunks) => {
                if let Some(offset) = self.run_in_chunk(chunks, index) {
                    return self.read_run(reader, offset, value);
                }
                let bytes = self.form.bytes();
                let mut rooms = self.rooms(reader).open(&mut value.piece, bytes);
                self.gather_chunks(chunks, reader, index, &mut rooms)?;
                self.number.mend(&mut rooms.sample[..bytes]);
                Ok(())
            }
            Stored::Contiguous { offset } => {
                let rooms = self.rooms(reader).open(&mut value.piece, self.form.bytes());
                let sample = &mut rooms.sample[..self.form.bytes()];
                self.gather_runs(*offset, reader, index, sample, rooms.stored)?;
                self.number.mend(sample);
                Ok(())
            }
            Stored::Compact(data) => {
                let sample = value.piece.own(self.form.bytes());
                for (at, run) in self.runs(index).enumerate() {
                    let start = usize::try_from(run).unwrap_or(usize::MAX);
                    let len = self.run_bytes();
                    sample[at * len..][..len].copy_from_slice(&data[start..start + len]);
                }
                self.number.mend(sample);
                Ok(())
            }
            Stored::Nowhere => {
                let sample = value.piece.own(self.form.bytes());
                self.fill(sample);
                self.number.mend(sample);
                Ok(())
            }
        }
    }

    /// A sample whose bytes are all in one place: no copy where the file is mapped.
    fn read_run(&self, reader: &Reader, offset: u64, value: &mut Value) -> Result<(), ReadError> {
        let bytes = self.form.bytes();
        if self.number.mend != Conversion::None && reader.access() == Access::Mapped {
            let sample = value.piece.own(bytes);
            reader.view(offset, bytes, &mut [], |stored| {
                sample.copy_from_slice(stored);
            })?;
        } else {
            reader.read(offset, bytes, &mut value.piece)?;
        }
        if let (true, Piece::Owned { buffer, start, len }) =
            (self.number.mend != Conversion::None, &mut value.piece)
        {
            self.number
                .mend(&mut buffer.bytes_mut()[*start..*start + *len]);
        }
        Ok(())
    }

    /// Samples along another axis than the first are in many runs, as far apart as all samples are long.
    fn gather_runs(
        &self,
        offset: u64,
        reader: &Reader,
        index: u64,
        sample: &mut [u8],
        stored: &mut [u8],
    ) -> Result<(), ReadError> {
        let len = self.run_bytes();
        for (run, to) in self.runs(index).zip(sample.chunks_exact_mut(len.max(1))) {
            reader.view(offset + run, len, stored, |stored| {
                to.copy_from_slice(stored);
            })?;
        }
        Ok(())
    }

    pub(super) fn fill(&self, sample: &mut [u8]) {
        if self.fill.iter().all(|&byte| byte == self.fill[0]) {
            sample.fill(self.fill[0]);
        } else {
            for element in sample.chunks_exact_mut(self.fill.len()) {
                element.copy_from_slice(&self.fill);
            }
        }
    }

    pub(super) fn dims(&self) -> &[u64] {
        &self.dims
    }

    pub(super) fn axis(&self) -> usize {
        self.axis
    }

    pub(super) fn element_bytes(&self) -> usize {
        self.fill.len()
    }

    fn is_in_one_run(&self) -> bool {
        self.dims[..self.axis].iter().all(|&dim| dim == 1)
    }

    /// Bytes of a sample that are next to each other.
    fn run_bytes(&self) -> usize {
        let n_elements: u64 = self.dims[self.axis + 1..].iter().product();
        usize::try_from(n_elements).unwrap_or(usize::MAX) * self.element_bytes()
    }

    /// Where in the dataset the runs of a sample begin, in bytes.
    fn runs(&self, index: u64) -> impl Iterator<Item = u64> {
        let len = self.run_bytes() as u64;
        let n_samples = self.n_samples();
        let n_runs: u64 = self.dims[..self.axis].iter().product();
        (0..n_runs).map(move |run| (run * n_samples + index) * len)
    }

    fn rooms(&self, reader: &Reader) -> ChunkScratch {
        let mut rooms = ChunkScratch::of_sample(self.form.bytes());
        match &self.stored {
            Stored::Contiguous { .. } if !self.is_in_one_run() => {
                rooms.set_stored(reader, self.run_bytes());
            }
            Stored::Chunked(chunks) => self.add_rooms_of_chunks(chunks, reader, &mut rooms),
            _ => {}
        }
        rooms
    }
}

impl Stored {
    fn of(
        metadata: &Metadata,
        described: &Described,
        element: usize,
        total: Option<u64>,
    ) -> Result<Stored, SourceError> {
        let name = &described.name;
        match &described.layout {
            DataLayout::Chunked { .. } => Ok(match Chunks::of(metadata, described, element)? {
                Some(chunks) => Stored::Chunked(chunks),
                None => Stored::Nowhere,
            }),
            DataLayout::Contiguous { address, .. } => {
                let Some(offset) = metadata.place(*address)? else {
                    return Ok(Stored::Nowhere);
                };
                if total == Some(0) {
                    return Ok(Stored::Nowhere);
                }
                let end = total.and_then(|total| offset.checked_add(total));
                if end.is_none_or(|end| end > metadata.len()) {
                    return Err(metadata.malformed(
                        format_args!(
                            "{:?} elements of {element} bytes at {offset} for {name}",
                            described.dims
                        ),
                        format_args!("a file of {} bytes", metadata.len()),
                    ));
                }
                Ok(Stored::Contiguous { offset })
            }
            DataLayout::Compact { data } => {
                if total.is_none_or(|total| total > data.len() as u64) {
                    return Err(metadata.malformed(
                        format_args!(
                            "{:?} elements of {element} bytes for {name}",
                            described.dims
                        ),
                        format_args!("{} bytes", data.len()),
                    ));
                }
                Ok(Stored::Compact(data.clone()))
            }
        }
    }
}
