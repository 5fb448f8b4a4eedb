//! Several archives as one dataset.

use std::io;
use std::path::{Path, PathBuf};

use crate::array::{Field, FieldSpec};
use crate::error::{ReadError, SourceError};
use crate::opening::Opening;
use crate::reading::{Access, Choice, Reader};
use crate::remote;
use crate::source::{Source, check_index};
use crate::sources::files::choice_of;
use crate::sources::names::{Names, encoding_of, shown};
use crate::sources::tar::members::{Member, for_each_kept, for_each_member, keep};
use crate::value::Value;

/// Larger members are errors.
const MAX_MEMBER_BYTES: u64 = 1 << 30;

/// What an index of members is called.
const KIND: &str = "tar";

/// More samples are taken for a mistake.
const MAX_SAMPLES: u64 = 1 << 32;

/// A field of every sample: the member with one of these extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarField {
    pub name: String,
    /// `jpg`, `seg.png`: what follows the first dot, in lower case.
    pub extensions: Vec<String>,
}

impl TarField {
    /// A field with one extension, and named so.
    pub fn named(extension: &str) -> TarField {
        TarField {
            name: extension.to_owned(),
            extensions: vec![extension.to_owned()],
        }
    }
}

/// Archives in the order in which they were given, each sample in the order in which it lies there.
///
/// Opening reads every header, of several archives at once where they are in a store, unless an index was kept of it.
/// Names that begin with a dot, or are between double underscores, are no samples, as in WebDataset.
#[derive(Debug)]
pub struct Tars {
    shards: Vec<Shard>,
    keys: Names,
    /// For each sample, its fields in order.
    places: Vec<ShardOffset>,
    fields: Vec<Field>,
    largest: u64,
    choice: Choice,
}

#[derive(Debug)]
struct Shard {
    reader: Reader,
    /// The first sample in it.
    start: u64,
}

#[derive(Clone, Copy, Debug)]
struct ShardOffset {
    offset: u64,
    len: u64,
}

impl Tars {
    pub fn open(
        paths: &[PathBuf],
        wanted: &[TarField],
        opening: &Opening,
    ) -> Result<Tars, SourceError> {
        let mut choice = choice_of(paths.iter().map(PathBuf::as_path), opening.headroom)?;
        opening.progress.expect_files(paths.len());
        let looked_through = remote::each(paths, |path| Index::of_shard(path, wanted, opening))?;
        let (mut keys, mut places) = (Names::default(), Vec::new());
        let mut shards = Vec::new();
        for (path, (mut reader, index)) in paths.iter().zip(looked_through) {
            let start = keys.len();
            keys.append(&index.keys);
            places.extend(index.places);
            if keys.len() > MAX_SAMPLES {
                return Err(too_many(path));
            }
            if reader.access() != Access::Remote {
                reader = choice.open(path).map_err(|cause| unreadable(path, cause))?;
            }
            shards.push(Shard { reader, start });
        }
        let fields = wanted
            .iter()
            .map(|field| Field {
                name: field.name.clone(),
                spec: FieldSpec::Encoded(encoding_of(&field.extensions)),
            })
            .collect();
        let mut tars = Tars {
            shards,
            keys,
            places,
            fields,
            largest: 0,
            choice,
        };
        tars.largest = (0..tars.len())
            .map(|sample| tars.held_for(sample))
            .max()
            .unwrap_or(0);
        Ok(tars)
    }

    fn shard(&self, index: u64) -> Option<&Shard> {
        let after = self.shards.partition_point(|shard| shard.start <= index);
        self.shards.get(after.checked_sub(1)?)
    }

    fn places(&self, index: u64) -> Option<&[ShardOffset]> {
        let n_fields = self.fields.len();
        let first = usize::try_from(index).ok()?.checked_mul(n_fields)?;
        self.places.get(first..first.checked_add(n_fields)?)
    }

    fn held_for(&self, index: u64) -> u64 {
        match (self.shard(index), self.places(index)) {
            (Some(shard), Some(places)) => places
                .iter()
                .map(|place| shard.reader.held_for(place.len))
                .sum(),
            _ => 0,
        }
    }
}

impl Source for Tars {
    fn len(&self) -> u64 {
        self.keys.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn max_sample_bytes(&self) -> u64 {
        self.largest
    }

    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError> {
        check_index(index, self.len())?;
        let (Some(shard), Some(places)) = (self.shard(index), self.places(index)) else {
            return Ok(());
        };
        for (place, value) in places.iter().zip(values) {
            let len = usize::try_from(place.len).map_err(io::Error::other)?;
            shard
                .reader
                .read(place.offset, len, value.set_encoded(len))?;
        }
        Ok(())
    }

    fn place(&self, index: u64) -> String {
        match (self.shard(index), self.keys.get(index)) {
            (Some(shard), Some(key)) => {
                format!("{}, {}", shard.reader.path().display(), shown(key))
            }
            _ => format!("sample {index}"),
        }
    }

    fn choice(&self) -> &Choice {
        &self.choice
    }
}

/// The samples of one archive.
struct Index<'a> {
    wanted: &'a [TarField],
    keys: Names,
    places: Vec<ShardOffset>,
}

/// A sample whose members are still coming.
struct TarSample {
    key: Vec<u8>,
    places: Vec<Option<ShardOffset>>,
}

/// Why the members of an archive came to no samples.
enum Stop {
    /// The index that was kept is of no use.
    Torn,
    /// The archive is.
    Source(SourceError),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Stop {
        Stop::Torn
    }
}

impl From<SourceError> for Stop {
    fn from(error: SourceError) -> Stop {
        Stop::Source(error)
    }
}

impl<'a> Index<'a> {
    fn of_shard(
        path: &Path,
        wanted: &'a [TarField],
        opening: &Opening,
    ) -> Result<(Reader, Index<'a>), SourceError> {
        // Headers are small and follow each other, which direct reads are bad at.
        let reader = Reader::open(path, Access::Read).map_err(|cause| unreadable(path, cause))?;
        let mut progress = opening.progress.file(reader.len());
        let indexes = opening.indexes.as_ref();
        if let Some(kept) = indexes.and_then(|indexes| indexes.find(KIND, &reader)) {
            let mut samples = Samples::new(path, wanted);
            let passed = for_each_kept(kept, reader.len(), &mut |member| {
                Ok::<_, Stop>(samples.take(&member)?)
            });
            match passed.and_then(|()| Ok(samples.finish()?)) {
                Ok(index) => return Ok((reader, index)),
                Err(Stop::Source(error)) => return Err(error),
                Err(Stop::Torn) => {}
            }
        }
        let mut samples = Samples::new(path, wanted);
        let mut keeping = indexes.and_then(|indexes| indexes.begin(KIND, &reader));
        let mut before = 0;
        for_each_member(path, &reader, &mut progress, &mut |member| {
            if let Some(keeping) = &mut keeping {
                keep(keeping, &member, before);
            }
            before = member.offset + member.len;
            samples.take(&member)
        })?;
        if let Some(keeping) = keeping {
            keeping.finish();
        }
        // Others that are looked through need the room.
        reader.forget_windows();
        Ok((reader, samples.finish()?))
    }
}

/// Members on their way into an index.
struct Samples<'p, 'a> {
    path: &'p Path,
    index: Index<'a>,
    sample: Option<TarSample>,
}

impl<'p, 'a> Samples<'p, 'a> {
    fn new(path: &'p Path, wanted: &'a [TarField]) -> Samples<'p, 'a> {
        let index = Index {
            wanted,
            keys: Names::default(),
            places: Vec::new(),
        };
        Samples {
            path,
            index,
            sample: None,
        }
    }

    /// Takes the next member.
    fn take(&mut self, member: &Member) -> Result<(), SourceError> {
        let Some((key, extension)) = key_and_extension(&member.name) else {
            return Ok(());
        };
        if self.sample.as_ref().is_none_or(|sample| sample.key != key)
            && let Some(whole) = self.sample.replace(TarSample {
                key: key.to_vec(),
                places: vec![None; self.index.wanted.len()],
            })
        {
            self.index.finish(self.path, &whole)?;
        }
        match &mut self.sample {
            Some(sample) => self
                .index
                .take(self.path, member, extension, &mut sample.places),
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<Index<'a>, SourceError> {
        let Some(last) = self.sample else {
            let expected = "members named KEY.EXTENSION".to_owned();
            return Err(malformed(self.path, expected, "none".to_owned()));
        };
        self.index.finish(self.path, &last)?;
        Ok(self.index)
    }
}

impl Index<'_> {
    fn take(
        &self,
        path: &Path,
        member: &Member,
        extension: &[u8],
        places: &mut [Option<ShardOffset>],
    ) -> Result<(), SourceError> {
        let is_it = |known: &String| known.as_bytes().eq_ignore_ascii_case(extension);
        for (field, place) in self.wanted.iter().zip(places) {
            if !field.extensions.iter().any(is_it) {
                continue;
            }
            let name = || shown(&member.name);
            if place.is_some() {
                return Err(malformed(
                    path,
                    format!("one {:?} for each sample", field.name),
                    format!("also {}", name()),
                ));
            }
            if member.len > MAX_MEMBER_BYTES {
                let expected = format!("members of at most {MAX_MEMBER_BYTES} bytes");
                return Err(malformed(
                    path,
                    expected,
                    format!("{} of {}", name(), member.len),
                ));
            }
            *place = Some(ShardOffset {
                offset: member.offset,
                len: member.len,
            });
        }
        Ok(())
    }

    fn finish(&mut self, path: &Path, sample: &TarSample) -> Result<(), SourceError> {
        let key = || shown(&sample.key);
        for (field, place) in self.wanted.iter().zip(&sample.places) {
            let Some(place) = place else {
                let expected = format!("{}.{}", key(), field.extensions.join(" or ."));
                return Err(malformed(path, expected, format!("{} without it", key())));
            };
            self.places.push(*place);
        }
        if self.keys.len() == MAX_SAMPLES {
            return Err(too_many(path));
        }
        self.keys.push(&[&sample.key]);
        Ok(())
    }
}

/// `a/b.seg.png` is `a/b` and `seg.png`. Nothing for names that belong to no sample.
fn key_and_extension(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    let base = name
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |slash| slash + 1);
    let file = &name[base..];
    if file.starts_with(b"__") && file.ends_with(b"__") {
        return None;
    }
    match file.iter().position(|&byte| byte == b'.')? {
        0 => None,
        dot => Some((&name[..base + dot], &name[base + dot + 1..])),
    }
}

fn unreadable(path: &Path, cause: io::Error) -> SourceError {
    SourceError::Unreadable {
        path: path.to_owned(),
        cause,
    }
}

fn too_many(path: &Path) -> SourceError {
    malformed(
        path,
        format!("at most {MAX_SAMPLES} samples"),
        "more".to_owned(),
    )
}

fn malformed(path: &Path, expected: String, found: String) -> SourceError {
    SourceError::Malformed {
        path: path.to_owned(),
        expected,
        found,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use brimful::units::Bytes;
    use tar::{Builder, Header};
    use tempfile::TempDir;

    use super::*;
    use crate::array::Encoding;
    use crate::reading::Access;

    fn shard(folder: &TempDir, name: &str, members: &[(&str, &[u8])]) -> PathBuf {
        let path = folder.path().join(name);
        let mut builder = Builder::new(File::create(&path).unwrap());
        for (name, data) in members {
            let mut header = Header::new_gnu();
            header.set_size(data.len() as u64);
            builder.append_data(&mut header, name, *data).unwrap();
        }
        builder.finish().unwrap();
        path
    }

    fn fields() -> [TarField; 2] {
        let image = TarField {
            name: "image".to_owned(),
            extensions: vec!["jpg".to_owned(), "png".to_owned()],
        };
        [image, TarField::named("cls")]
    }

    #[test]
    fn samples_are_members_with_the_same_key() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let large = vec![5; 10_000];
        let paths = [
            shard(
                &folder,
                "0.tar",
                &[
                    ("./a.cls", b"0"),
                    ("./a.jpg", b"first"),
                    ("b.json", b"{}"),
                    ("b.PNG", &large),
                    ("b.cls", b"1"),
                ],
            ),
            shard(
                &folder,
                "1.tar",
                &[
                    (".hidden", b""),
                    ("__meta__", b""),
                    ("readme", b""),
                    ("x/c.jpg", b""),
                    ("x/c.cls", b"17"),
                ],
            ),
        ];
        for (headroom, access) in [(None, Access::Mapped), (Some(Bytes(1)), Access::Direct)] {
            let tars = Tars::open(&paths, &fields(), &headroom.into()).unwrap();
            assert_eq!(tars.choice().access, access);
            assert_eq!(tars.len(), 3);
            let kinds: Vec<_> = tars
                .fields()
                .iter()
                .map(|field| field.spec.clone())
                .collect();
            assert_eq!(
                kinds,
                [Encoding::Image, Encoding::Text].map(FieldSpec::Encoded)
            );
            let mut values = vec![Value::default(); 2];
            for (index, (image, class)) in [(&b"first"[..], "0"), (&large, "1"), (b"", "17")]
                .into_iter()
                .enumerate()
            {
                tars.read(index as u64, &mut values).unwrap();
                assert_eq!(values[0].bytes(), image);
                assert_eq!(values[0].shape, [image.len()]);
                assert_eq!(values[1].bytes(), class.as_bytes());
                let held: usize = values.iter().map(|value| value.piece.held_bytes()).sum();
                assert!(held as u64 <= tars.max_sample_bytes(), "{held}");
            }
            assert!(tars.read(3, &mut values).is_err());
            assert_eq!(tars.place(2), format!("{}, x/c", paths[1].display()));
        }
    }

    fn check_refused(members: &[(&str, &[u8])], message: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = shard(&folder, "0.tar", members);
        let error =
            Tars::open(std::slice::from_ref(&path), &fields(), &Opening::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: {message}", path.display()));
    }

    #[test]
    fn a_sample_that_is_not_whole_is_an_error() {
        check_refused(
            &[
                ("a.jpg", b""),
                ("a.cls", b""),
                ("b.jpg", b""),
                ("c.cls", b""),
            ],
            "expected b.cls, found b without it",
        );
        check_refused(
            &[("a.cls", b"")],
            "expected a.jpg or .png, found a without it",
        );
        check_refused(
            &[("a.jpg", b""), ("a.png", b"")],
            "expected one \"image\" for each sample, found also a.png",
        );
        check_refused(
            &[("readme", b"")],
            "expected members named KEY.EXTENSION, found none",
        );
    }

    #[test]
    fn without_fields_there_is_no_sample_behind_the_last_either() {
        let folder = tempfile::tempdir().unwrap();
        let path = shard(&folder, "0.tar", &[("a.jpg", b"")]);
        let tars = Tars::open(&[path], &[], &Opening::default()).unwrap();
        tars.read(0, &mut []).unwrap();
        assert!(tars.read(1, &mut []).is_err());
        assert!(tars.read(u64::MAX, &mut []).is_err());
    }

    #[test]
    fn names_are_split_at_the_first_dot_of_the_file() {
        let split = |name: &'static str| {
            let (key, extension) = key_and_extension(name.as_bytes())?;
            Some((
                std::str::from_utf8(key).unwrap(),
                std::str::from_utf8(extension).unwrap(),
            ))
        };
        assert_eq!(split("a/b.seg.png"), Some(("a/b", "seg.png")));
        assert_eq!(split("./v1.2/b.png"), Some(("v1.2/b", "png")));
        assert_eq!(split("v1.2/b"), None);
        assert_eq!(split("a/.b.png"), None);
    }
}
