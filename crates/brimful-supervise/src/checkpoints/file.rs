//! Whether one file is whole.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use serde_json::Value;

use crate::checkpoints::checkpoint::{CheckpointKind, Incomplete};
use crate::checkpoints::pickled::{self, MAX_PICKLE, Progress};
use crate::checkpoints::region::Region;
use crate::checkpoints::torch_zip::{self, Archive};

/// The format's own bound.
const MAX_HEADER: u64 = 100 << 20;
/// How a pickle of protocol 2 or later begins; older ones have no mark.
const PICKLE: u8 = 0x80;
const STOP: u8 = b'.';
/// What `torch.save` began with before PyTorch 1.6: a pickle of its magic number. Bytes of tensors stand at the end.
const TORCH_LEGACY: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
/// Names under which tools write zip files or pickles. A file of such a name that begins like neither is damaged.
const TORCH_ENDINGS: [&str; 4] = ["pt", "pth", "ckpt", "bin"];

/// What kind of file it is, if nothing of it is missing as far as that can be told.
pub(super) fn check(path: &Path) -> Result<CheckpointKind, Incomplete> {
    let (file, length) = open(path)?;
    let mut start = [0; 16];
    let n_start = read_up_to(&file, &mut start)?;
    let start = &start[..n_start];
    let ending = path
        .extension()
        .and_then(|ending| ending.to_str())
        .map(str::to_lowercase)
        .unwrap_or_default();
    if ending == "safetensors" {
        safetensors(Region::whole(&file, length))?;
        return Ok(CheckpointKind::Safetensors);
    }
    if start.len() < torch_zip::START.len()
        && (torch_zip::START.starts_with(start) || start == [PICKLE])
    {
        return Err(Incomplete::CutShort("it ends within its first bytes"));
    }
    if start.starts_with(&torch_zip::START) {
        torch_zip::check(Region::whole(&file, length))?;
        return Ok(CheckpointKind::TorchZip);
    }
    if start.first() == Some(&PICKLE)
        && start
            .get(1)
            .is_some_and(|version| (2..=5).contains(version))
    {
        pickle(&file, start, length)?;
        return Ok(CheckpointKind::Pickle);
    }
    let is_text = start
        .iter()
        .all(|byte| (b' '..=b'~').contains(byte) || byte.is_ascii_whitespace());
    if TORCH_ENDINGS.contains(&ending.as_str()) && !is_text {
        return Err(Incomplete::Damaged(
            "it begins neither as torch.save nor as a pickle does",
        ));
    }
    Ok(CheckpointKind::Other)
}

/// An open file that holds something. Not a pipe: to read from one may take forever.
///
/// Links are resolved first, and the end of the path is then opened without following one.
pub(super) fn open(path: &Path) -> Result<(File, u64), Incomplete> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path.canonicalize()?)?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(Incomplete::NoFile);
    }
    match facts.len() {
        0 => Err(Incomplete::Empty),
        length => Ok((file, length)),
    }
}

/// The text of a small file.
pub(super) fn read_small(path: &Path, most: u64) -> Result<Vec<u8>, Incomplete> {
    let (file, length) = open(path)?;
    if length > most {
        return Err(Incomplete::Damaged("it is longer than any of its kind"));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_up_to(file: &File, bytes: &mut [u8]) -> Result<usize, Incomplete> {
    let mut n_read = 0;
    while n_read < bytes.len() {
        match file.read_at(&mut bytes[n_read..], n_read as u64)? {
            0 => break,
            more => n_read += more,
        }
    }
    Ok(n_read)
}

/// The step that a file of `torch.save` or a plain pickle holds. `n_left` is what may still be read.
pub(super) fn progress(path: &Path, n_left: &mut u64) -> Progress {
    let read = || -> Option<Vec<u8>> {
        let (file, length) = open(path).ok()?;
        let mut start = [0; 16];
        let n_start = read_up_to(&file, &mut start).ok()?;
        let start = &start[..n_start];
        let region = Region::whole(&file, length);
        let max = MAX_PICKLE.min(*n_left);
        if start.starts_with(&torch_zip::START) {
            return Archive::open(region).ok()?.pickle(max);
        }
        let is_pickle = start.first() == Some(&PICKLE) && !start.starts_with(TORCH_LEGACY);
        is_pickle.then(|| region.read_all(max)).flatten()
    };
    let Some(bytes) = read() else {
        return Progress::default();
    };
    *n_left = n_left.saturating_sub(bytes.len() as u64);
    pickled::progress(&bytes)
}

/// One tensor of a safetensors file: its type, and where its bytes are.
pub(super) struct Tensor {
    pub(super) dtype: String,
    pub(super) start: u64,
    pub(super) length: u64,
}

/// 8 bytes with the length of the header, the header as JSON, and the data, which ends where the last tensor does.
pub(super) fn safetensors(file: Region<'_>) -> Result<Vec<Tensor>, Incomplete> {
    let mut size = [0; 8];
    if file.length() < 8 {
        return Err(Incomplete::CutShort(
            "not even the header's length is there",
        ));
    }
    file.read_exact_at(&mut size, 0)?;
    let size = u64::from_le_bytes(size);
    if size > MAX_HEADER {
        return Err(Incomplete::Damaged("its header is too long"));
    }
    let data_start = 8 + size;
    let Some(data) = file.length().checked_sub(data_start) else {
        return Err(Incomplete::CutShort("the header is not whole"));
    };
    let mut header = vec![0; usize::try_from(size).unwrap_or(0)];
    file.read_exact_at(&mut header, 8)?;
    let Ok(Value::Object(listed)) = serde_json::from_slice(&header) else {
        return Err(Incomplete::Damaged("its header is not JSON"));
    };
    let mut tensors = Vec::new();
    let mut end = 0;
    for (name, tensor) in &listed {
        if name == "__metadata__" {
            continue;
        }
        let offset = |idx: usize| tensor.get("data_offsets")?.get(idx)?.as_u64();
        match (offset(0), offset(1)) {
            (Some(from), Some(to)) if from <= to => {
                end = end.max(to);
                tensors.push(Tensor {
                    dtype: tensor
                        .get("dtype")
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_owned(),
                    start: data_start.saturating_add(from),
                    length: to - from,
                });
            }
            _ => return Err(Incomplete::Damaged("a tensor in its header has no place")),
        }
    }
    match end.cmp(&data) {
        std::cmp::Ordering::Equal => Ok(tensors),
        std::cmp::Ordering::Greater => Err(Incomplete::CutShort("tensors at its end are missing")),
        std::cmp::Ordering::Less => Err(Incomplete::Damaged("more bytes than its tensors have")),
    }
}

/// A plain pickle ends with the mark that stops it. One of an old PyTorch ends with the bytes of its last tensor, which
/// may be any.
fn pickle(file: &File, start: &[u8], length: u64) -> Result<(), Incomplete> {
    if start.starts_with(TORCH_LEGACY) {
        return match length {
            // Five pickles, without one tensor.
            0..=64 => Err(Incomplete::CutShort("no tensor is in it")),
            _ => Ok(()),
        };
    }
    if TORCH_LEGACY.starts_with(start) {
        return Err(Incomplete::CutShort("it ends within its first bytes"));
    }
    let mut last = [0];
    file.read_exact_at(&mut last, length - 1)?;
    if last[0] == STOP {
        Ok(())
    } else {
        Err(Incomplete::CutShort("the mark at its end is missing"))
    }
}
