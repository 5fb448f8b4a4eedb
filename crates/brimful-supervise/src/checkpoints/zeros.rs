//! Whether the tensors of a checkpoint are all zero, from samples.
//!
//! A training on a GPU that holds no values, such as a rehearsal, writes zeros. What counts are storages of floating
//! point numbers with more than one value: an optimizer counts its steps, and a random number generator keeps its
//! state, in tensors of the host that are not zero even then. A checkpoint in which some of the tensors are zero, such
//! as fresh biases or the moments of an optimizer before its first step, is a usual one.
//!
//! Nothing is claimed of what cannot be sampled: compressed archives, pickles, files of other kinds, and whatever the
//! disk does not give within [`TIME_LIMIT`].

use std::path::Path;
use std::time::{Duration, Instant};

use crate::checkpoints::checkpoint::CheckpointKind;
use crate::checkpoints::directory;
use crate::checkpoints::file::{self, Tensor};
use crate::checkpoints::pickled::{self, MAX_PICKLE};
use crate::checkpoints::region::{BLOCK, Region};
use crate::checkpoints::tensor_source::TensorSource;
use crate::checkpoints::torch_zip::{self, Archive};

/// For one checkpoint. The usual one is settled by its first block; only one of zeros is sampled to the end.
const TIME_LIMIT: Duration = Duration::from_millis(800);
const ZERO_BLOCK: [u8; BLOCK] = [0; BLOCK];
/// Blocks of one storage, spread over all of it.
const MAX_BLOCKS: u64 = 64;
/// Storages of one archive or file, the largest first.
const MAX_STORAGES: usize = 1024;
/// Archives and files of one checkpoint, spread over all of them.
const MAX_SOURCES: usize = 256;
/// Scalars are at most this long.
const SCALAR: u64 = 8;

/// Whether every sampled byte of every storage is zero. No where that cannot be told.
pub(super) fn are_all(path: &Path, kind: CheckpointKind) -> bool {
    let deadline = Instant::now() + TIME_LIMIT;
    sources(path, kind).is_some_and(|sources| are_all_in(&sources, deadline) == Some(true))
}

fn sources(path: &Path, kind: CheckpointKind) -> Option<Vec<TensorSource>> {
    match kind {
        CheckpointKind::TorchZip | CheckpointKind::Safetensors => {
            Some(vec![TensorSource::File(path.to_owned())])
        }
        CheckpointKind::HuggingFace | CheckpointKind::Distributed | CheckpointKind::DeepSpeed => {
            directory::model_sources(path, MAX_SOURCES)
        }
        CheckpointKind::Pickle | CheckpointKind::Other => None,
    }
}

/// Nothing where it cannot be told.
fn are_all_in(sources: &[TensorSource], deadline: Instant) -> Option<bool> {
    let mut sampling = Sampling {
        deadline,
        has_numbers: false,
        has_others: false,
        others_are_zero: true,
    };
    let every = sources.len().div_ceil(MAX_SOURCES).max(1);
    for source in sources.iter().step_by(every) {
        let (path, part) = match source {
            TensorSource::File(path) => (path, None),
            TensorSource::Part {
                path,
                offset,
                length,
            } => (path, Some((*offset, *length))),
        };
        let (file, length) = file::open(path).ok()?;
        // Blocks that lie far apart: reading ahead would only fill the page cache.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        let whole = Region::whole(&file, length);
        let region = match part {
            Some((offset, length)) => whole.part(offset, length)?,
            None => whole,
        };
        let storages = storages(path, region)?;
        if !sampling.are_zero(storages)? {
            return Some(false);
        }
    }
    match (sampling.has_numbers, sampling.has_others) {
        (true, _) => Some(true),
        (false, true) => Some(sampling.others_are_zero),
        (false, false) => None,
    }
}

/// The bytes of one storage.
struct Storage<'a> {
    region: Region<'a>,
    /// Floating point numbers, more than one.
    is_numbers: bool,
}

fn storages<'a>(path: &Path, region: Region<'a>) -> Option<Vec<Storage<'a>>> {
    if path
        .extension()
        .is_some_and(|ending| ending == "safetensors")
    {
        let tensors = file::safetensors(region).ok()?;
        return tensors
            .iter()
            .map(|tensor| in_safetensors(region, tensor))
            .collect();
    }
    let mut start = [0; torch_zip::START.len()];
    region.read_exact_at(&mut start, 0).ok()?;
    if start != torch_zip::START {
        return None;
    }
    let archive = Archive::open(region).ok()?;
    // A pickle that cannot be read leaves every storage one of numbers, which claims less.
    let integers = archive
        .pickle(MAX_PICKLE)
        .and_then(|bytes| pickled::integer_storages(&bytes));
    archive
        .storages()
        .map(|(key, entry)| {
            let region = archive.data(entry)?;
            let is_scalar = region.length() <= SCALAR;
            let is_numbers = match &integers {
                Some(integers) => !is_scalar && !integers.contains(key),
                None => true,
            };
            Some(Storage { region, is_numbers })
        })
        .collect()
}

fn in_safetensors<'a>(region: Region<'a>, tensor: &Tensor) -> Option<Storage<'a>> {
    // F32, BF16, F8_E4M3, C64; whole numbers are I64, U8, BOOL.
    let is_floating = tensor.dtype.starts_with(['F', 'B', 'C']) && tensor.dtype != "BOOL";
    Some(Storage {
        region: region.part(tensor.start, tensor.length)?,
        is_numbers: is_floating && tensor.length > SCALAR,
    })
}

struct Sampling {
    deadline: Instant,
    has_numbers: bool,
    has_others: bool,
    /// Decides where there are no storages of numbers at all.
    others_are_zero: bool,
}

impl Sampling {
    /// Whether all sampled storages of numbers are zero. Nothing where time is up or the file cannot be read.
    fn are_zero(&mut self, mut storages: Vec<Storage<'_>>) -> Option<bool> {
        storages.retain(|storage| storage.region.length() > 0);
        storages.sort_by_key(|storage| std::cmp::Reverse(storage.region.length()));
        storages.truncate(MAX_STORAGES);
        self.has_numbers |= storages.iter().any(|storage| storage.is_numbers);
        self.has_others |= storages.iter().any(|storage| !storage.is_numbers);
        // A block of each storage, then the next of each: a value other than zero is found early.
        for round in 0..MAX_BLOCKS {
            for storage in &storages {
                if !storage.is_numbers && !self.others_are_zero {
                    continue;
                }
                if Instant::now() > self.deadline {
                    // A block of each storage is a sample of all of them; less is none.
                    return (round > 0).then_some(true);
                }
                if is_zero(storage.region, round)? {
                    continue;
                }
                if storage.is_numbers {
                    return Some(false);
                }
                self.others_are_zero = false;
            }
        }
        Some(true)
    }
}

/// Whether one of the sampled blocks is zero; yes where the storage has fewer.
fn is_zero(region: Region<'_>, round: u64) -> Option<bool> {
    let n_blocks = region.n_blocks();
    // The first rounds jump through all of the storage: 0, 32, 16, 48, 8, ...
    let spread = round.reverse_bits() >> (u64::BITS - MAX_BLOCKS.trailing_zeros());
    let block = if n_blocks <= MAX_BLOCKS {
        round
    } else {
        // The storage's last block is among them.
        spread * (n_blocks - 1) / (MAX_BLOCKS - 1)
    };
    if block >= n_blocks {
        return Some(true);
    }
    let mut bytes = [0; BLOCK];
    let bytes = region.read_block(block, &mut bytes)?;
    Some(*bytes == ZERO_BLOCK[..bytes.len()])
}
