//! Undoes what filters made of a chunk.

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};
use hdf5_reader::checksum::fletcher32;
use hdf5_reader::messages::filter_pipeline::{
    FILTER_DEFLATE, FILTER_FLETCHER32, FILTER_SHUFFLE, FilterDescription,
};

use super::lzf;
use crate::error::ReadError;

/// As registered with the HDF Group.
const FILTER_LZF: u16 = 32000;

/// The filters of a dataset, in the order in which they were applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pipeline {
    filters: Vec<Filter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filter {
    Deflate,
    Lzf,
    /// First bytes of all elements, then second ones, and so on.
    Shuffle {
        size: usize,
    },
    /// Four bytes of checksum at the end.
    Fletcher32,
}

impl Pipeline {
    /// Where one of the filters is not known, its name.
    pub(super) fn of(filters: &[FilterDescription], element: usize) -> Result<Pipeline, String> {
        let mut known = Vec::new();
        for filter in filters {
            known.push(match filter.id {
                FILTER_DEFLATE => Filter::Deflate,
                FILTER_LZF => Filter::Lzf,
                FILTER_SHUFFLE => Filter::Shuffle {
                    size: match filter.client_data.first() {
                        Some(&size) => usize::try_from(size).unwrap_or(element),
                        None => element,
                    },
                },
                FILTER_FLETCHER32 => Filter::Fletcher32,
                id => {
                    return Err(match (&filter.name, known_name(id)) {
                        (_, Some(name)) => name.to_owned(),
                        (Some(name), None) if !name.is_empty() => format!("{name:?}"),
                        _ => format!("number {id}"),
                    });
                }
            });
        }
        let pipeline = Pipeline { filters: known };
        // So that two buffers are enough. Nobody compresses twice.
        if pipeline.n_of(is_compression) > 1
            || pipeline.n_of(|filter| matches!(filter, Filter::Shuffle { .. })) > 1
            || pipeline.filters.len() > 8
        {
            return Err("that is applied more than once".to_owned());
        }
        Ok(pipeline)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Whether a chunk with that mask went through none of them.
    pub(super) fn skipped_by(&self, mask: u32) -> bool {
        (0..self.filters.len()).all(|at| mask >> at & 1 == 1)
    }

    /// Bytes that a chunk of `chunk` bytes may have between two filters.
    pub(super) fn reservation(&self, chunk: usize) -> usize {
        chunk + 4 * self.n_of(|filter| filter == Filter::Fletcher32)
    }

    /// Bytes of the second buffer that [`Pipeline::undo`] needs.
    pub(super) fn between(&self, chunk: usize) -> usize {
        if self.n_of(is_transform) > 1 {
            self.reservation(chunk)
        } else {
            0
        }
    }

    /// The largest number of bytes that one stored byte can stand for.
    pub(super) fn largest_ratio(&self) -> u64 {
        if self.n_of(|filter| filter == Filter::Deflate) > 0 {
            1032
        } else if self.n_of(|filter| filter == Filter::Lzf) > 0 {
            88
        } else {
            1
        }
    }

    /// Undoes them for a chunk of `chunk` bytes: `out` holds [`Pipeline::reservation`] bytes and begins with the chunk
    /// afterwards, `between` holds [`Pipeline::between`].
    pub(super) fn undo(
        &self,
        mask: u32,
        chunk: usize,
        stored: &[u8],
        between: &mut [u8],
        out: &mut [u8],
    ) -> Result<(), ReadError> {
        let applied = |at: &usize| mask >> at & 1 == 0;
        let mut transforms = (0..self.filters.len())
            .filter(applied)
            .filter(|&at| is_transform(self.filters[at]))
            .count();
        let untransformed = transforms == 0;
        let (mut between, mut out) = (Some(between), Some(out));
        let mut current = stored;
        for at in (0..self.filters.len()).rev().filter(applied) {
            let filter = self.filters[at];
            if filter == Filter::Fletcher32 {
                current = checked(current)?;
                continue;
            }
            let target = if transforms > 1 {
                &mut between
            } else {
                &mut out
            }
            .take()
            .expect("at most two filters transform, each with a buffer of its own");
            transforms -= 1;
            let len = filter.transform(current, target)?;
            current = &target[..len];
        }
        if current.len() != chunk {
            return Err(malformed(
                format_args!("a chunk of {chunk} bytes"),
                format_args!("{} bytes", current.len()),
            ));
        }
        if untransformed && let Some(out) = out {
            out[..chunk].copy_from_slice(current);
        }
        Ok(())
    }

    fn n_of(&self, wanted: impl Fn(Filter) -> bool) -> usize {
        self.filters
            .iter()
            .filter(|&&filter| wanted(filter))
            .count()
    }
}

fn is_compression(filter: Filter) -> bool {
    matches!(filter, Filter::Deflate | Filter::Lzf)
}

fn is_transform(filter: Filter) -> bool {
    filter != Filter::Fletcher32
}

impl Filter {
    /// Writes what it was before to `out`, and says how many bytes that is.
    fn transform(self, stored: &[u8], out: &mut [u8]) -> Result<usize, ReadError> {
        match self {
            Filter::Deflate => inflate(stored, out),
            Filter::Lzf => lzf::decompress(stored, out).ok_or_else(|| {
                malformed(
                    format_args!("LZF that gives at most {} bytes", out.len()),
                    "another stream",
                )
            }),
            Filter::Shuffle { size } => match out.get_mut(..stored.len()) {
                Some(out) => {
                    unshuffle(stored, out, size);
                    Ok(stored.len())
                }
                None => Err(malformed(
                    format_args!("at most {} bytes to unshuffle", out.len()),
                    stored.len(),
                )),
            },
            Filter::Fletcher32 => unreachable!("it transforms nothing"),
        }
    }
}

fn inflate(stored: &[u8], out: &mut [u8]) -> Result<usize, ReadError> {
    let mut state = Decompress::new(true);
    let status = state.decompress(stored, out, FlushDecompress::Finish);
    match status {
        Ok(Status::StreamEnd) => {
            Ok(usize::try_from(state.total_out()).expect("no more than the output holds"))
        }
        // It goes on behind the end of the chunk, or ends before its own.
        Ok(_) => Err(malformed(
            format_args!("a zlib stream of at most {} bytes", out.len()),
            format_args!("one that has not ended after {} bytes", state.total_out()),
        )),
        Err(error) => Err(malformed("a zlib stream", error)),
    }
}

/// What is before the checksum, where it is right.
fn checked(stored: &[u8]) -> Result<&[u8], ReadError> {
    let Some((data, sum)) = stored.split_last_chunk::<4>() else {
        return Err(malformed("four bytes of checksum", stored.len()));
    };
    let (stored, found) = (u32::from_le_bytes(*sum), fletcher32(data));
    if stored == found {
        Ok(data)
    } else {
        Err(malformed(
            format_args!("data of checksum {stored:08x}"),
            format_args!("{found:08x}"),
        ))
    }
}

/// Puts the bytes of each element together again. What is left behind the last whole element stays where it is.
fn unshuffle(stored: &[u8], out: &mut [u8], size: usize) {
    match size {
        2 => unshuffle_sized::<2>(stored, out),
        4 => unshuffle_sized::<4>(stored, out),
        8 => unshuffle_sized::<8>(stored, out),
        0 | 1 => out.copy_from_slice(stored),
        _ => {
            let n_elements = stored.len() / size;
            let whole = n_elements * size;
            for (at, element) in out[..whole].chunks_exact_mut(size).enumerate() {
                for (plane, byte) in element.iter_mut().enumerate() {
                    *byte = stored[plane * n_elements + at];
                }
            }
            out[whole..].copy_from_slice(&stored[whole..]);
        }
    }
}

fn unshuffle_sized<const SIZE: usize>(stored: &[u8], out: &mut [u8]) {
    let n_elements = stored.len() / SIZE;
    let (planes, rest) = stored.split_at(n_elements * SIZE);
    let planes: [&[u8]; SIZE] =
        std::array::from_fn(|plane| &planes[plane * n_elements..(plane + 1) * n_elements]);
    let (elements, out_rest) = out.as_chunks_mut::<SIZE>();
    for (at, element) in elements.iter_mut().enumerate() {
        for (byte, plane) in element.iter_mut().zip(planes) {
            *byte = plane[at];
        }
    }
    out_rest.copy_from_slice(rest);
}

fn malformed(expected: impl fmt::Display, found: impl fmt::Display) -> ReadError {
    ReadError::Malformed {
        expected: format!("{expected}"),
        found: format!("{found}"),
    }
}

fn known_name(id: u16) -> Option<&'static str> {
    Some(match id {
        4 => "szip",
        5 => "nbit",
        6 => "scaleoffset",
        32001 => "Blosc",
        32004 => "LZ4",
        32008 => "bitshuffle",
        32015 => "Zstandard",
        32026 => "Blosc2",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn filter(id: u16, client_data: &[u32]) -> FilterDescription {
        FilterDescription {
            id,
            name: None,
            client_data: client_data.to_vec(),
        }
    }

    fn zlib(data: &[u8]) -> Vec<u8> {
        let mut encoder =
            flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn undone(
        pipeline: &Pipeline,
        mask: u32,
        chunk: usize,
        stored: &[u8],
    ) -> Result<Vec<u8>, ReadError> {
        let mut between = vec![0; pipeline.between(chunk)];
        let mut out = vec![0; pipeline.reservation(chunk)];
        pipeline.undo(mask, chunk, stored, &mut between, &mut out)?;
        out.truncate(chunk);
        Ok(out)
    }

    #[test]
    fn a_chunk_never_decompresses_to_more_than_its_size() {
        let pipeline = Pipeline::of(&[filter(FILTER_DEFLATE, &[])], 1).unwrap();
        let bomb = zlib(&vec![0; 1_000_000]);
        assert!(undone(&pipeline, 0, 1000, &bomb).is_err());
        assert!(undone(&pipeline, 0, 999_999, &bomb).is_err());
        assert!(undone(&pipeline, 0, 1_000_001, &bomb).is_err());
        assert_eq!(
            undone(&pipeline, 0, 1_000_000, &bomb).unwrap().len(),
            1_000_000
        );
    }

    #[test]
    fn filters_may_stand_in_any_order() {
        let data: Vec<u8> = (0..24).collect();
        let mut summed = data.clone();
        summed.extend(fletcher32(&data).to_le_bytes());
        let sum_then_zlib = [filter(FILTER_FLETCHER32, &[]), filter(FILTER_DEFLATE, &[])];
        let pipeline = Pipeline::of(&sum_then_zlib, 1).unwrap();
        assert_eq!(undone(&pipeline, 0, 24, &zlib(&summed)).unwrap(), data);
        // The compression was skipped, then all were.
        assert_eq!(undone(&pipeline, 0b10, 24, &summed).unwrap(), data);
        assert_eq!(undone(&pipeline, 0b11, 24, &data).unwrap(), data);
        summed[3] ^= 1;
        assert!(undone(&pipeline, 0, 24, &zlib(&summed)).is_err());
    }

    #[test]
    fn bytes_are_put_together_for_every_size_of_element() {
        for size in [1_usize, 2, 3, 4, 8, 16] {
            let data: Vec<u8> = (0..100).collect();
            let n_elements = data.len() / size;
            let mut shuffled = Vec::new();
            for plane in 0..size {
                shuffled.extend((0..n_elements).map(|at| data[at * size + plane]));
            }
            shuffled.extend(&data[n_elements * size..]);
            let mut out = vec![0; 100];
            unshuffle(&shuffled, &mut out, size);
            assert_eq!(out, data, "{size}");
        }
    }

    #[test]
    fn unknown_and_repeated_filters_are_named() {
        assert_eq!(
            Pipeline::of(&[filter(32015, &[])], 4).unwrap_err(),
            "Zstandard"
        );
        assert!(Pipeline::of(&vec![filter(FILTER_DEFLATE, &[]); 2], 4).is_err());
        assert!(Pipeline::of(&vec![filter(FILTER_FLETCHER32, &[]); 9], 4).is_err());
    }
}
