//! One small memory-mapped page per training process, written by the hook and read by the supervisor.
//!
//! A page is a file `PID.gauge` of 4096 bytes, read as 512 little-endian words of 64 bits:
//!
//! | Word | Holds |
//! |---|---|
//! | 0 | the letters `brimgaug` |
//! | 1 | the version of this layout, 1 |
//! | 2 | the sequence: odd while the words 6 and following are being changed, raised by 2 with each change |
//! | 3 | the process |
//! | 4 | optimizer steps; stored alone and in one piece, so it is no part of the sequence |
//! | 5 | the checksum: words 6 to 14 and the workers in use, added up, XOR the (even) sequence |
//! | 6 | epochs |
//! | 7 | 0 without CUDA, else 1 + the device as the process numbers it |
//! | 8, 9 | bytes allocated and reserved |
//! | 10, 11 | the peaks of both |
//! | 12 | times the allocator gave everything back and tried again |
//! | 13 | out-of-memory errors, caught ones too |
//! | 14 | how many workers follow from word 16 on |
//! | 15 | nothing yet |
//! | 16… | one worker of a DataLoader each: its process (upper 32 bits), loader and number (16 bits each) |
//!
//! The writer is Python, which has no memory barriers: the checksum, not the order of stores, is what makes a page
//! believable. The reader takes the page in one read and tries again when it met a change half done.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use brimful::units::Bytes;
use brimful::watch::Gauge;

use crate::roles::KnownWorker;

const SIZE: usize = 4096;
const WORDS: usize = SIZE / 8;
const MAGIC: u64 = u64::from_le_bytes(*b"brimgaug");
const VERSION: u64 = 1;
const FIRST_WORKER: usize = 16;

/// More processes of one job than this do not fit the machines of this world.
const MAX_FILES: usize = 4096;
/// A change takes the writer some microseconds. A page that is never whole was left behind by a process that died.
const TRIES: u32 = 4;
/// Figures beyond this are not bytes of a GPU: 1 EiB.
const MAX_BYTES: u64 = 1 << 60;

/// What one process says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub gauge: Gauge,
    /// The workers of its loaders.
    pub workers: Vec<KnownWorker>,
}

/// Reads every gauge of a run's directory. A page that is being written or is not ours is left out.
pub fn read_all(gauges: &Path) -> Vec<Gauge> {
    let readings = read_with_workers(gauges).into_iter();
    readings.map(|reading| reading.gauge).collect()
}

/// The same, with the workers that each process has started. By process.
pub fn read_with_workers(gauges: &Path) -> Vec<Reading> {
    let Ok(entries) = std::fs::read_dir(gauges) else {
        return Vec::new();
    };
    let mut readings: Vec<Reading> = entries
        .flatten()
        .take(MAX_FILES)
        .filter_map(|entry| {
            let name = entry.file_name();
            let pid = pid_of(name.to_str()?.strip_suffix(".gauge")?)?;
            read(&entry.path(), pid)
        })
        .collect();
    readings.sort_by_key(|reading| reading.gauge.pid);
    readings
}

/// A process id as it stands in a file's name.
pub(crate) fn pid_of(stem: &str) -> Option<u32> {
    let pid = stem.parse().ok()?;
    // `parse` also takes `+7` and `007`.
    (pid > 0 && u32::to_string(&pid) == stem).then_some(pid)
}

/// Opens a plain file and nothing else: a link may lead anywhere, and to open a pipe may take forever.
pub(crate) fn open_plain(path: &Path) -> Option<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).ok()?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

fn read(path: &Path, pid: u32) -> Option<Reading> {
    for attempt in 0..TRIES {
        if attempt > 0 {
            std::thread::yield_now();
        }
        let mut page = [0; SIZE + 1];
        let mut length = 0;
        let mut file = open_plain(path)?;
        while length < page.len() {
            match file.read(&mut page[length..]).ok()? {
                0 => break,
                more => length += more,
            }
        }
        let page = page.first_chunk().filter(|_| length == SIZE)?;
        match parse(page, pid) {
            MappedGauge::Whole(reading) => return Some(reading),
            MappedGauge::Changing => {}
            MappedGauge::Foreign => return None,
        }
    }
    None
}

enum MappedGauge {
    Whole(Reading),
    /// Caught in the middle of a change.
    Changing,
    /// No page of this brimful.
    Foreign,
}

fn parse(page: &[u8; SIZE], pid: u32) -> MappedGauge {
    let mut words = [0_u64; WORDS];
    for (word, bytes) in words.iter_mut().zip(page.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("chunks of 8"));
    }
    if words[0] != MAGIC || words[1] != VERSION || words[3] != u64::from(pid) {
        return MappedGauge::Foreign;
    }
    let sequence = words[2];
    let n_workers = usize::try_from(words[14]).unwrap_or(usize::MAX);
    if sequence % 2 == 1 || n_workers > WORDS - FIRST_WORKER {
        return MappedGauge::Changing;
    }
    let workers = &words[FIRST_WORKER..FIRST_WORKER + n_workers];
    let sum = words[6..15]
        .iter()
        .chain(workers)
        .fold(0, |sum: u64, word| sum.wrapping_add(*word));
    if words[5] != sum ^ sequence {
        return MappedGauge::Changing;
    }
    if words[8..12].iter().any(|bytes| *bytes > MAX_BYTES) {
        return MappedGauge::Foreign;
    }
    let device = words[7].checked_sub(1);
    let Ok(device) = device.map(u32::try_from).transpose() else {
        return MappedGauge::Foreign;
    };
    let gauge = Gauge {
        pid,
        steps: words[4],
        epochs: words[6],
        device,
        allocated: Bytes(words[8]),
        reserved: Bytes(words[9]),
        peak_allocated: Bytes(words[10]),
        peak_reserved: Bytes(words[11]),
        retries: words[12],
        ooms: words[13],
    };
    let workers = workers.iter().copied().filter_map(worker).collect();
    MappedGauge::Whole(Reading { gauge, workers })
}

fn worker(word: u64) -> Option<KnownWorker> {
    let pid = u32::try_from(word >> 32).ok()?;
    let part = |shift: u32| u32::try_from(word >> shift & 0xffff).ok();
    Some(KnownWorker {
        pid,
        loader: part(16)?,
        worker: part(0)?,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const PID: u32 = 4711;

    /// A page as the hook writes it.
    fn words() -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[..16].copy_from_slice(&[
            MAGIC, VERSION, 2, 4711, 120, 0, 3, 1, 10, 20, 30, 40, 5, 6, 2, 0,
        ]);
        words[16] = 5000 << 32 | 1 << 16;
        words[17] = 5001 << 32 | 1 << 16 | 1;
        checked(words)
    }

    fn checked(mut words: [u64; WORDS]) -> [u64; WORDS] {
        let in_use = FIRST_WORKER + usize::try_from(words[14]).unwrap();
        let sum: u64 = words[6..15].iter().chain(&words[16..in_use]).sum();
        words[5] = sum ^ words[2];
        words
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Reads a directory with one file `4711.gauge`.
    fn reading(contents: &[u8]) -> Vec<Reading> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("4711.gauge"), contents).unwrap();
        read_with_workers(directory.path())
    }

    fn refused(change: impl Fn(&mut [u64; WORDS])) {
        let mut words = words();
        change(&mut words);
        assert_eq!(reading(&bytes(&words)), []);
    }

    #[test]
    fn a_page_is_read_with_its_workers() {
        let readings = reading(&bytes(&words()));
        let worker = |pid, worker| KnownWorker {
            pid,
            loader: 1,
            worker,
        };
        let expected = Reading {
            gauge: Gauge {
                pid: PID,
                steps: 120,
                epochs: 3,
                device: Some(0),
                allocated: Bytes(10),
                reserved: Bytes(20),
                peak_allocated: Bytes(30),
                peak_reserved: Bytes(40),
                retries: 5,
                ooms: 6,
            },
            workers: vec![worker(5000, 0), worker(5001, 1)],
        };
        assert_eq!(readings, [expected]);
    }

    #[test]
    fn a_page_without_cuda_has_no_device() {
        let mut words = words();
        words[7] = 0;
        let readings = reading(&bytes(&checked(words)));
        assert_eq!(readings[0].gauge.device, None);
    }

    #[test]
    fn a_change_half_done_is_left_out() {
        refused(|words| words[2] = 3);
        refused(|words| words[9] = 21);
        refused(|words| words[17] += 1);
    }

    #[test]
    fn what_is_not_ours_is_left_out() {
        refused(|words| words[0] += 1);
        refused(|words| words[1] = 2);
        refused(|words| words[3] = 4712);
        refused(|words| words[14] = 497);
        refused(|words| words[14] = u64::MAX);
        refused(|words| {
            words[7] = u64::MAX;
            words[6] = 0;
            *words = checked_wrapping(*words);
        });
        refused(|words| {
            words[8] = 1 << 61;
            *words = checked(*words);
        });
        for contents in [&b""[..], b"brimgaug", &[0; SIZE], &[0xff; SIZE]] {
            assert_eq!(reading(contents), []);
        }
        let mut long = bytes(&words());
        long.push(0);
        assert_eq!(reading(&long), []);
        assert_eq!(reading(&long[..SIZE - 1]), []);
    }

    fn checked_wrapping(mut words: [u64; WORDS]) -> [u64; WORDS] {
        let sum = words[6..15]
            .iter()
            .chain(&words[16..18])
            .fold(0, |sum: u64, word| sum.wrapping_add(*word));
        words[5] = sum ^ words[2];
        words
    }

    #[test]
    fn links_pipes_directories_and_odd_names_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("page"), bytes(&words())).unwrap();
        symlink(at("page"), at("4711.gauge")).unwrap();
        std::fs::create_dir(at("4712.gauge")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("4713.gauge"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        for name in ["+4711.gauge", "04711.gauge", "x.gauge", ".gauge"] {
            std::fs::write(at(name), bytes(&words())).unwrap();
        }
        assert_eq!(read_all(directory.path()), []);
        assert_eq!(read_all(&at("missing")), []);
    }
}
