//! What was found by looking through a file, kept for the next time that it is opened.
//!
//! Tar files and texts tell where their samples are only to those who pass all of them, and a training that comes back
//! after a kill would pass them again. An index belongs to one version of a file: to the ETag of an object, or to the
//! number, size and times of a file. None is needed: one that is missing, torn or of another version is made again, and
//! where none can be written, nobody is told.
//!
//! ```text
//!   indexes/3f09…c2.index    gzip of postcard values: the name of the version, Some(entry) for each entry, None
//! ```
//!
//! The name of an index file is the XXH3 hash of the version. Both XXH3 and postcard are specified formats, so an index
//! outlives the compiler that brimful was built with.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::reading::{Access, Reader};

/// Changes with what an index says.
const FORM: u32 = 2;

/// Smaller ones are looked through in no time. An object costs requests, whatever its size.
const SMALLEST_FILE: u64 = 64 << 20;
const SMALLEST_OBJECT: u64 = 1 << 20;

/// The largest index, before it is compressed.
const MAX_INDEX_BYTES: u64 = 512 << 20;

/// What the folder may hold; beyond it, those go that nobody has used for longest.
const MAX_BYTES: u64 = 2 << 30;
const MAX_FILES: usize = 20_000;

/// What a killed process left half written goes after this.
const OLD: Duration = Duration::from_hours(24);

/// A file that changed this shortly before may change again, and its times stay the same.
const SETTLED: Duration = Duration::from_secs(2);

/// The longest run of bytes in one value: a name. A length that claims more is refused before memory is allocated.
pub(crate) const MAX_NAME_BYTES: usize = 1 << 20;

/// A folder of indexes.
#[derive(Clone, Debug)]
pub struct Indexes {
    folder: PathBuf,
    smallest_file: u64,
}

impl Indexes {
    /// The folder is made when there is something to keep.
    pub fn in_folder(folder: PathBuf) -> Indexes {
        Indexes {
            folder,
            smallest_file: SMALLEST_FILE,
        }
    }

    /// The same for files of any size: a fuzz target opens small ones many times.
    #[doc(hidden)]
    pub fn of_any_size(self) -> Indexes {
        Indexes {
            smallest_file: 1,
            ..self
        }
    }

    /// The index of a file as it is now.
    pub(crate) fn find(&self, kind: &str, reader: &Reader) -> Option<IndexReader> {
        let version = self.version_of(kind, reader)?;
        let file = brimful_private::open(&self.path_of(&version)).ok()?;
        // Used last now; where that cannot be noted, it goes a little earlier.
        drop(file.set_modified(SystemTime::now()));
        let decoder = GzDecoder::new(BufReader::new(file));
        let mut kept = IndexReader {
            bytes: BufReader::new(decoder.take(MAX_INDEX_BYTES)),
            scratch: vec![0; MAX_NAME_BYTES],
        };
        let is_same = kept.value::<&str>().is_ok_and(|(name, _)| name == version);
        is_same.then_some(kept)
    }

    /// One line that no other version of a file has. None for those that are not worth an index, or have no version.
    fn version_of(&self, kind: &str, reader: &Reader) -> Option<String> {
        let smallest = match reader.access() {
            Access::Remote => SMALLEST_OBJECT,
            Access::Mapped | Access::Read | Access::Direct => self.smallest_file,
        };
        let len = reader.len();
        if len < smallest {
            return None;
        }
        let version = reader.version(SETTLED)?;
        let path = reader.path().display();
        Some(format!(
            "brimful index {FORM} of {kind}, {len} bytes, version {version}, {path}"
        ))
    }

    /// Begins an index for a file as it is now, if it is worth one.
    pub(crate) fn begin(&self, kind: &str, reader: &Reader) -> Option<IndexWriter> {
        static TIDIED: Once = Once::new();
        static BEGUN: AtomicU64 = AtomicU64::new(0);
        let version = self.version_of(kind, reader)?;
        let path = self.path_of(&version);
        let number = BEGUN.fetch_add(1, Ordering::Relaxed);
        let part = path.with_extension(format!("{}-{number}.part", std::process::id()));
        brimful_private::create_directory(&self.folder).ok()?;
        TIDIED.call_once(|| self.tidy(MAX_BYTES, MAX_FILES));
        let file = brimful_private::create_new(&part).ok()?;
        let encoder = GzEncoder::new(file, Compression::fast());
        let mut keeping = IndexWriter {
            bytes: Some(BufWriter::new(encoder)),
            scratch: Vec::new(),
            n_bytes: 0,
            part,
            path,
        };
        keeping.value(&version);
        Some(keeping)
    }

    fn path_of(&self, version: &str) -> PathBuf {
        // Two that share a name would only take turns: the name of the version is within.
        let hash = XxHash3_128::oneshot(version.as_bytes());
        self.folder.join(format!("{hash:032x}.index"))
    }

    /// Makes room for more.
    fn tidy(&self, max_bytes: u64, max_files: usize) {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return;
        };
        let now = SystemTime::now();
        let mut found = Vec::new();
        for entry in entries.filter_map(Result::ok) {
            let (path, metadata) = (entry.path(), entry.metadata());
            let Ok((metadata, used)) = metadata.and_then(|one| Ok((one.clone(), one.modified()?)))
            else {
                continue;
            };
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("part") if now.duration_since(used).is_ok_and(|age| age > OLD) => {
                    drop(fs::remove_file(path));
                }
                Some("index") if metadata.is_file() => found.push((used, metadata.len(), path)),
                _ => {}
            }
        }
        found.sort_unstable();
        let mut bytes: u64 = found.iter().map(|(_, len, _)| len).sum();
        let mut n_files = found.len();
        for (_, len, path) in found {
            if bytes <= max_bytes && n_files <= max_files {
                break;
            }
            drop(fs::remove_file(path));
            bytes -= len;
            n_files -= 1;
        }
    }
}

/// An index that is being read. Whatever is wrong with it, it is torn, and the file itself is asked.
pub(crate) struct IndexReader {
    bytes: Bytes,
    /// What borrowed names point into. It bounds their length.
    scratch: Vec<u8>,
}

type Bytes = BufReader<io::Take<GzDecoder<BufReader<File>>>>;

impl IndexReader {
    /// The next entry; none behind the last entry, when all of it was whole.
    pub(crate) fn entry<'a, T: Deserialize<'a>>(&'a mut self) -> io::Result<Option<T>> {
        let (entry, bytes) = self.value::<Option<T>>()?;
        if entry.is_none() && bytes.read(&mut [0])? > 0 {
            return Err(torn());
        }
        Ok(entry)
    }

    /// The next value, and what follows it.
    fn value<'a, T: Deserialize<'a>>(&'a mut self) -> io::Result<(T, &'a mut Bytes)> {
        let source = (&mut self.bytes, &mut self.scratch[..]);
        match postcard::from_io(source) {
            Ok((value, (bytes, _))) => Ok((value, bytes)),
            Err(_) => Err(torn()),
        }
    }
}

pub(crate) fn torn() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// An index that is being written. Where that fails, or it is dropped before its end, there is none.
pub(crate) struct IndexWriter {
    bytes: Option<BufWriter<GzEncoder<File>>>,
    /// One value, as it is written.
    scratch: Vec<u8>,
    n_bytes: u64,
    part: PathBuf,
    path: PathBuf,
}

impl IndexWriter {
    pub(crate) fn entry<T: Serialize>(&mut self, entry: &T) {
        self.value(&Some(entry));
    }

    fn value<T: Serialize>(&mut self, value: &T) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        match postcard::to_extend(value, scratch) {
            Ok(bytes) => {
                self.write(&bytes);
                self.scratch = bytes;
            }
            Err(_) => self.bytes = None,
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.n_bytes += bytes.len() as u64;
        let written = match &mut self.bytes {
            Some(_) if self.n_bytes > MAX_INDEX_BYTES => false,
            Some(writer) => writer.write_all(bytes).is_ok(),
            None => return,
        };
        if !written {
            self.bytes = None;
        }
    }

    /// Puts it where it is found.
    pub(crate) fn finish(mut self) {
        self.value(&None::<()>);
        let Some(writer) = self.bytes.take() else {
            return;
        };
        let whole = writer
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(GzEncoder::finish);
        if whole.is_ok() {
            drop(fs::rename(&self.part, &self.path));
        }
    }
}

impl Drop for IndexWriter {
    fn drop(&mut self) {
        // One that was finished has gone from there.
        drop(fs::remove_file(&self.part));
    }
}

/// What was written by `write`, for tests of those who read it.
#[cfg(test)]
pub(crate) fn written(write: impl FnOnce(&mut IndexWriter)) -> IndexReader {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    File::create(&path).unwrap().set_len(SMALLEST_FILE).unwrap();
    let mut reader = Reader::open(&path, Access::Read).unwrap();
    reader.age(SETTLED * 2);
    let indexes = Indexes::in_folder(folder.path().to_owned());
    let mut keeping = indexes.begin("test", &reader).unwrap();
    write(&mut keeping);
    keeping.finish();
    indexes.find("test", &reader).unwrap()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    /// A file that is worth an index and takes no room.
    fn large_file(folder: &Path) -> PathBuf {
        let path = folder.join("large");
        let file = File::create(&path).unwrap();
        file.set_len(SMALLEST_FILE).unwrap();
        path
    }

    /// As it is, though it was made a moment ago.
    fn reader(path: &Path) -> Reader {
        let mut reader = Reader::open(path, Access::Read).unwrap();
        reader.age(SETTLED * 2);
        reader
    }

    fn keep(indexes: &Indexes, reader: &Reader) -> bool {
        match indexes.begin("test", reader) {
            Some(keeping) => {
                keeping.finish();
                true
            }
            None => false,
        }
    }

    #[test]
    fn nobody_else_can_read_or_replace_an_index() {
        use std::os::unix::fs::{MetadataExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let indexes = Indexes::in_folder(folder.path().join("a/b"));
        let reader = reader(&large_file(folder.path()));
        assert!(keep(&indexes, &reader));
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode(&folder.path().join("a/b")), 0o700);
        let index = fs::read_dir(folder.path().join("a/b")).unwrap().next();
        let index = index.unwrap().unwrap().path();
        assert_eq!(mode(&index), 0o600);
        fs::rename(&index, folder.path().join("elsewhere")).unwrap();
        symlink(folder.path().join("elsewhere"), &index).unwrap();
        assert!(indexes.find("test", &reader).is_none());
    }

    #[test]
    fn a_file_that_was_changed_has_no_index() {
        let folder = tempfile::tempdir().unwrap();
        let indexes = Indexes::in_folder(folder.path().join("a/b"));
        let path = large_file(folder.path());
        let before = reader(&path);
        assert!(indexes.find("test", &before).is_none());
        assert!(keep(&indexes, &before));
        assert!(indexes.find("test", &before).is_some());
        assert!(indexes.find("other", &before).is_none());

        std::thread::sleep(Duration::from_millis(20));
        fs::write(folder.path().join("new"), vec![1; 10]).unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        file.set_len(SMALLEST_FILE + 1).unwrap();
        file.set_len(SMALLEST_FILE).unwrap();
        assert!(indexes.find("test", &reader(&path)).is_none());
    }

    #[test]
    fn a_small_file_and_one_of_this_moment_are_not_worth_one() {
        let folder = tempfile::tempdir().unwrap();
        let indexes = Indexes::in_folder(folder.path().to_owned());
        let path = large_file(folder.path());
        let of_this_moment = Reader::open(&path, Access::Read).unwrap();
        assert!(!keep(&indexes, &of_this_moment));
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(SMALLEST_FILE - 1).unwrap();
        assert!(!keep(&indexes, &reader(&path)));
    }

    #[test]
    fn what_is_not_finished_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let indexes = Indexes::in_folder(folder.path().join("indexes"));
        let reader = reader(&large_file(folder.path()));
        let mut keeping = indexes.begin("test", &reader).unwrap();
        keeping.entry(&7_u64);
        drop(keeping);
        let left = fs::read_dir(folder.path().join("indexes")).unwrap();
        assert_eq!(left.count(), 0);
        assert!(indexes.find("test", &reader).is_none());
    }

    #[test]
    fn those_that_nobody_used_for_longest_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let indexes = Indexes::in_folder(folder.path().to_owned());
        let now = SystemTime::now();
        let write = |name: &str, len, hours| {
            let path = folder.path().join(name);
            fs::write(&path, vec![0; len]).unwrap();
            let used = now - Duration::from_hours(hours);
            File::open(&path).unwrap().set_modified(used).unwrap();
        };
        for (name, hours) in [("b.index", 30), ("a.index", 20), ("c.index", 10)] {
            write(name, 100, hours);
        }
        write("d.1-1.part", 1000, 25);
        write("e.1-1.part", 1000, 23);
        write("somebody's.txt", 1000, 100);
        let left = || {
            let entries = fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        indexes.tidy(300, 3);
        let others = ["e.1-1.part", "somebody's.txt"];
        assert_eq!(
            left(),
            [&["a.index", "b.index", "c.index"][..], &others].concat()
        );
        indexes.tidy(299, 3);
        assert_eq!(left(), [&["a.index", "c.index"][..], &others].concat());
        indexes.tidy(299, 1);
        assert_eq!(left(), [&["c.index"][..], &others].concat());
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Entry<'a> {
        number: u64,
        name: &'a [u8],
    }

    /// An index that another build wrote must be found and read: neither its name nor its bytes may depend on the
    /// compiler.
    #[test]
    fn names_and_bytes_of_an_index_are_fixed() {
        let indexes = Indexes::in_folder(PathBuf::from("/indexes"));
        assert_eq!(
            indexes.path_of("brimful index 2 of test"),
            Path::new("/indexes/734d1a1d0bcc4dc74693e7f8d9f02edd.index")
        );
        let entry = Entry {
            number: 300,
            name: b"a.jpg",
        };
        let bytes = postcard::to_extend(&Some(entry), Vec::new()).unwrap();
        assert_eq!(bytes, b"\x01\xac\x02\x05a.jpg");
        let end = postcard::to_extend(&None::<()>, Vec::new()).unwrap();
        assert_eq!(end, b"\0");
    }

    /// The length is compared with what a name may have before anything is allocated.
    #[test]
    fn a_name_that_claims_to_be_long_is_torn() {
        let name = vec![b'a'; MAX_NAME_BYTES];
        let mut kept = written(|keeping| keeping.entry(&name));
        assert_eq!(kept.entry::<&[u8]>().unwrap(), Some(&name[..]));
        let mut kept = written(|keeping| keeping.entry(&[&name[..], b"a"].concat()));
        assert!(kept.entry::<&[u8]>().is_err());
        // The length alone, and no bytes behind it.
        let mut kept = written(|keeping| keeping.entry(&(u64::MAX >> 1)));
        assert!(kept.entry::<&[u8]>().is_err());
    }

    #[test]
    fn an_index_with_a_flipped_bit_is_torn() {
        let folder = tempfile::tempdir().unwrap();
        let indexes = Indexes::in_folder(folder.path().join("indexes"));
        let reader = reader(&large_file(folder.path()));
        let mut keeping = indexes.begin("test", &reader).unwrap();
        (0..50_u64).for_each(|number| keeping.entry(&(number * number)));
        let path = keeping.path.clone();
        keeping.finish();
        let sound: Vec<u64> = (0..50).map(|number| number * number).collect();
        let whole = fs::read(&path).unwrap();
        for bit in 0..8 * whole.len() {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let mut file = File::options().write(true).open(&path).unwrap();
            file.write_all(&flipped).unwrap();
            let Some(mut kept) = indexes.find("test", &reader) else {
                continue;
            };
            let entries: io::Result<Vec<u64>> =
                std::iter::from_fn(|| kept.entry().transpose()).collect();
            // The header of gzip has a time and a system, which nobody reads.
            assert!(entries.is_err() || entries.unwrap() == sound, "bit {bit}");
        }
    }

    #[test]
    fn what_follows_the_end_is_torn() {
        let mut kept = written(|keeping| {
            keeping.value(&None::<u64>);
            keeping.entry(&1_u64);
        });
        assert!(kept.entry::<u64>().is_err());
    }

    proptest! {
        #[test]
        fn what_was_kept_comes_back(
            entries in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..300)), 0..50),
        ) {
            let mut kept = written(|keeping| {
                for (number, name) in &entries {
                    keeping.entry(&Entry { number: *number, name });
                }
            });
            for (number, name) in &entries {
                prop_assert_eq!(kept.entry().unwrap(), Some(Entry { number: *number, name }));
            }
            prop_assert_eq!(kept.entry::<Entry<'_>>().unwrap(), None);
        }
    }
}
