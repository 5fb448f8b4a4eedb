//! A folder of files, one sample each: `root/class/file.jpg` as ImageFolder has it, `root/class/train/file.off` as
//! ModelNet has it, or any tree without labels.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use brimful::units::Bytes;

use crate::array::{DType, Encoding, Field, FieldSpec, TensorSpec};
use crate::buffer::PAGE;
use crate::error::{ReadError, SourceError};
use crate::location::is_remote;
use crate::reading::{Access, Choice, Reader, choose};
use crate::source::Source;
use crate::sources::folder_options::{FolderOptions, Labels};
use crate::sources::listing::{Listing, list};
use crate::sources::names::{Names, encoding_of};
use crate::value::Value;

/// Files as samples, in the order of their names, folder by folder.
///
/// Names that begin with a dot are left out, files and folders alike. Links are followed, except those to a folder
/// that they lie in.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    names: Names,
    classes: Vec<String>,
    /// The first sample of each class.
    class_starts: Vec<u64>,
    fields: Vec<Field>,
    largest: u64,
    choice: Choice,
}

impl Folder {
    pub fn open(root: &Path, options: &FolderOptions) -> Result<Folder, SourceError> {
        if is_remote(root) {
            return Err(SourceError::Unsupported {
                path: root.to_owned(),
                what: "a directory of objects".to_owned(),
                hint: "put the files into tar archives, and open those".to_owned(),
            });
        }
        let Listing {
            names,
            classes,
            class_starts,
            largest,
            total,
        } = list(root, options)?;
        let encoding = encoding_of(&options.extensions);
        let mut fields = vec![Field {
            name: match encoding {
                Encoding::Image => "image",
                Encoding::Mesh => "mesh",
                Encoding::Text => "text",
                Encoding::Unknown => "bytes",
            }
            .to_owned(),
            spec: FieldSpec::Encoded(encoding),
        }];
        if options.labels != Labels::None {
            fields.push(Field {
                name: "label".to_owned(),
                spec: FieldSpec::Array(TensorSpec::new(DType::I64, []).expect("eight bytes")),
            });
        }
        let mut folder = Folder {
            root: root.to_owned(),
            names,
            classes,
            class_starts,
            fields,
            largest,
            choice: unmapped(choose(Bytes(total), options.headroom)),
        };
        // The first file tells how all are read.
        if let Some(path) = folder.path(0)
            && let Err(cause) = folder.choice.open(&path)
        {
            return Err(SourceError::Unreadable { path, cause });
        }
        Ok(folder)
    }

    /// The names of the classes; a label is a place in this list. Empty without labels.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    fn path(&self, index: u64) -> Option<PathBuf> {
        let name = self.names.get(index)?;
        Some(self.root.join(OsStr::from_bytes(name)))
    }

    fn label(&self, index: u64) -> i64 {
        let class = self.class_starts.partition_point(|&start| start <= index);
        // Classes without samples begin where the next one does: the last that begins here or before is the one.
        i64::try_from(class).map_or(-1, |class| class - 1)
    }
}

impl Source for Folder {
    fn len(&self) -> u64 {
        self.names.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn max_sample_bytes(&self) -> u64 {
        let page = PAGE as u64;
        // A direct read may begin and end within a page; a label takes one.
        self.largest.next_multiple_of(page) + 3 * page
    }

    fn read(&self, index: u64, values: &mut [Value]) -> Result<(), ReadError> {
        let path = self.path(index).ok_or_else(|| ReadError::Malformed {
            expected: format!("a sample below {}", self.len()),
            found: index.to_string(),
        })?;
        let reader = Reader::open_as_before(&path, self.choice.access)?;
        if reader.len() > self.largest {
            return Err(ReadError::Malformed {
                expected: format!(
                    "at most {} bytes, as when the directory was opened",
                    self.largest
                ),
                found: format!("{} bytes", reader.len()),
            });
        }
        let len = usize::try_from(reader.len()).map_err(std::io::Error::other)?;
        let mut values = values.iter_mut();
        if let Some(file) = values.next() {
            reader.read(0, len, file.set_encoded(len))?;
        }
        if let Some(label) = values.next() {
            label
                .set_array(DType::I64, &[], size_of::<i64>())
                .copy_from_slice(&self.label(index).to_ne_bytes());
        }
        Ok(())
    }

    fn place(&self, index: u64) -> String {
        match self.path(index) {
            Some(path) => path.display().to_string(),
            None => format!("{}, sample {index}", self.root.display()),
        }
    }

    fn choice(&self) -> &Choice {
        &self.choice
    }
}

/// A map for each file costs more than to read it.
fn unmapped(choice: Choice) -> Choice {
    match choice.access {
        Access::Mapped => Choice {
            access: Access::Read,
            reason: format!("{}; each file is read whole", choice.reason),
        },
        Access::Read | Access::Direct | Access::Remote => choice,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn tree(files: &[&str]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        folder
    }

    fn options(extensions: &[&str], labels: Labels) -> FolderOptions {
        FolderOptions {
            extensions: extensions
                .iter()
                .map(|&extension| extension.to_owned())
                .collect(),
            labels,
            ..FolderOptions::default()
        }
    }

    /// Every sample: what is in the file (its name, see above), and the label.
    fn samples(folder: &Folder) -> Vec<(String, Option<i64>)> {
        let mut values = vec![Value::default(); folder.fields().len()];
        (0..folder.len())
            .map(|index| {
                folder.read(index, &mut values).unwrap();
                let text = String::from_utf8(values[0].bytes().to_vec()).unwrap();
                assert!(folder.place(index).ends_with(&text));
                (text, values.get(1).map(|label| label.elements::<i64>()[0]))
            })
            .collect()
    }

    #[test]
    fn classes_are_folders_in_the_order_of_their_names() {
        let root = tree(&[
            "dog/b.jpg",
            "dog/a.JPEG",
            "cat/z.png",
            "cat/more/y.png",
            "cat/notes.txt",
            "top.png",
        ]);
        fs::create_dir(root.path().join("bird")).unwrap();
        let folder = Folder::open(
            root.path(),
            &options(&["jpg", "jpeg", "png"], Labels::Classes),
        )
        .unwrap();
        assert_eq!(folder.classes(), ["bird", "cat", "dog"]);
        let expected = [
            ("cat/more/y.png", 1),
            ("cat/z.png", 1),
            ("dog/a.JPEG", 2),
            ("dog/b.jpg", 2),
        ];
        assert_eq!(
            samples(&folder),
            expected.map(|(name, label)| (name.to_owned(), Some(label)))
        );
        assert_eq!(folder.fields()[0].spec, FieldSpec::Encoded(Encoding::Image));
        assert_eq!(folder.fields()[1].spec.to_string(), "int64");
    }

    #[test]
    fn a_split_is_a_folder_in_each_class() {
        let root = tree(&[
            "bed/train/1.off",
            "bed/test/2.off",
            "sofa/test/3.off",
            "desk/train/4.off",
        ]);
        let open = |split: &str| {
            let labels = Labels::ClassesWithSplit(split.to_owned());
            Folder::open(root.path(), &options(&["off"], labels))
        };
        let test = open("test").unwrap();
        assert_eq!(test.classes(), ["bed", "desk", "sofa"]);
        let expected = [("bed/test/2.off", 0), ("sofa/test/3.off", 2)];
        assert_eq!(
            samples(&test),
            expected.map(|(name, label)| (name.to_owned(), Some(label)))
        );
        assert_eq!(open("train").unwrap().len(), 2);
        assert_eq!(
            open("valid").unwrap_err().to_string(),
            format!(
                "{}: expected files named *.off in */valid, found 3 directories and no file",
                root.path().display()
            )
        );
    }

    #[test]
    fn without_labels_all_files_are_samples_and_hidden_ones_are_not() {
        let root = tree(&["b/x", "a.txt", ".git/config", "b/.hidden", "a/deep/er/y"]);
        let folder = Folder::open(root.path(), &options(&[], Labels::None)).unwrap();
        let names: Vec<_> = samples(&folder).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a/deep/er/y", "a.txt", "b/x"]);
    }

    #[test]
    fn every_access_reads_the_same() {
        let root = tree(&["a", "b"]);
        let open = |headroom| {
            let options = FolderOptions {
                headroom,
                ..FolderOptions::default()
            };
            Folder::open(root.path(), &options).unwrap()
        };
        let (free, tight) = (open(None), open(Some(Bytes(1))));
        assert_eq!(free.choice().access, Access::Read);
        assert_eq!(tight.choice().access, Access::Direct);
        assert_eq!(samples(&free), samples(&tight));
    }

    #[test]
    fn files_that_are_too_large_or_have_grown_are_errors() {
        let root = tree(&["a"]);
        let path = root.path().join("a");
        let folder = Folder::open(root.path(), &FolderOptions::default()).unwrap();
        fs::write(&path, [0; 5000]).unwrap();
        let error = folder.read(0, &mut [Value::default()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "expected at most 1 bytes, as when the directory was opened, found 5000 bytes"
        );
        let options = FolderOptions {
            max_file_bytes: Bytes(4999),
            ..FolderOptions::default()
        };
        let error = Folder::open(root.path(), &options).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{}: expected a file of at most 4999 bytes, found 5000 bytes",
                path.display()
            )
        );
        assert!(folder.read(1, &mut [Value::default()]).is_err());
    }
}
