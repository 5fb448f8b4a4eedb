//! Sources as values.

use std::path::PathBuf;
use std::sync::Arc;

use brimful::units::Bytes;
use serde::{Deserialize, Serialize};

use crate::array::DType;
use crate::expression::error::ExpressionError;
use crate::expression::table::{keys_of, kind_of};
use crate::location::shown;
use crate::opening::Opening;
use crate::pipeline::Pipeline;
use crate::source::Source;
use crate::sources::{
    ArrowFile, Concatenated, DatasetRequest, Folder, FolderOptions, Hdf5, Labels, Lines, Npy,
    Parquet, TarField, Tars, TokenForm, Tokens,
};

/// One path or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PathList {
    One(PathBuf),
    Several(Vec<PathBuf>),
}

impl PathList {
    pub fn paths(&self) -> &[PathBuf] {
        match self {
            PathList::One(path) => std::slice::from_ref(path),
            PathList::Several(paths) => paths,
        }
    }
}

impl From<Vec<PathBuf>> for PathList {
    fn from(paths: Vec<PathBuf>) -> PathList {
        PathList::Several(paths)
    }
}

/// Files of tokens that are kept open.
const MAX_OPEN: usize = 256;

/// Decoded row groups of Parquet files that are kept, unless somebody says otherwise.
const PARQUET_CACHE: Bytes = Bytes::from_mib(256);

/// A source: one of the formats, by the name of its function in Python, and its options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceExpression {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<PathList>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tar: Option<PathList>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrow: Option<PathList>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parquet: Option<PathList>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Bytes of decoded row groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Bytes>,
    /// Names of fields and their files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub npy: Option<Vec<(String, PathBuf)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hdf5: Option<PathBuf>,
    /// Names of fields and their datasets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<(String, String)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<usize>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<PathList>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_int64: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documents: Option<bool>,
}

const SOURCES: [(&str, &[&str]); 9] = [
    ("lines", &["json"]),
    ("folder", &["extensions", "labels", "split"]),
    ("tar", &["extensions"]),
    ("arrow", &["columns"]),
    ("parquet", &["columns", "cache"]),
    ("npy", &[]),
    ("hdf5", &["fields"]),
    ("raw", &["shape", "dtype", "field"]),
    ("tokens", &["length", "dtype", "as_int64", "documents"]),
];

impl SourceExpression {
    /// The name of the format; an error where there is none or more than one.
    pub fn kind(&self) -> Result<&'static str, ExpressionError> {
        let mut plain = self.clone();
        // Paths need not be text.
        for path in plain.paths_mut() {
            *path = PathBuf::new();
        }
        kind_of("a source", &SOURCES, &keys_of(&plain))
    }

    /// Every path that it names.
    pub fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        let lists = [
            &mut self.lines,
            &mut self.tar,
            &mut self.arrow,
            &mut self.parquet,
            &mut self.tokens,
        ];
        let single = [&mut self.folder, &mut self.hdf5, &mut self.raw];
        let listed = lists.into_iter().flatten().flat_map(|list| match list {
            PathList::One(path) => std::slice::from_mut(path),
            PathList::Several(paths) => paths.as_mut_slice(),
        });
        let of_npy = self.npy.iter_mut().flatten().map(|(_, path)| path);
        listed
            .chain(single.into_iter().flatten())
            .chain(of_npy)
            .collect()
    }

    /// Opens it with all of its fields.
    pub fn open(&self, opening: &Opening) -> Result<Pipeline, ExpressionError> {
        let headroom = opening.headroom;
        let columns = self.columns.as_deref();
        let extensions = self.extensions.clone().unwrap_or_default();
        let source: Arc<dyn Source> = match self.kind()? {
            "lines" => {
                let json = self.json.clone();
                Arc::new(Lines::open(paths(self.lines.as_ref()), json, opening)?)
            }
            "tar" => {
                let fields: Vec<TarField> = extensions
                    .iter()
                    .map(|name| TarField::named(name))
                    .collect();
                Arc::new(Tars::open(paths(self.tar.as_ref()), &fields, opening)?)
            }
            "arrow" => Arc::new(ArrowFile::open(
                paths(self.arrow.as_ref()),
                columns,
                headroom,
            )?),
            "parquet" => Arc::new(Parquet::open(
                paths(self.parquet.as_ref()),
                columns,
                self.cache.unwrap_or(PARQUET_CACHE),
                headroom,
            )?),
            "npy" => Arc::new(Npy::open(
                self.npy.as_deref().unwrap_or_default(),
                headroom,
            )?),
            "hdf5" => self.open_hdf5(headroom)?,
            "raw" => self.open_raw(headroom)?,
            "tokens" => self.open_tokens(headroom)?,
            _ => return self.open_folder(extensions, headroom),
        };
        Ok(Pipeline::new(source))
    }

    fn open_hdf5(&self, headroom: Option<Bytes>) -> Result<Arc<dyn Source>, ExpressionError> {
        let path = self.hdf5.clone().unwrap_or_default();
        let wanted: Vec<DatasetRequest> = self
            .fields
            .iter()
            .flatten()
            .map(|(name, dataset)| DatasetRequest {
                name: name.clone(),
                dataset: dataset.clone(),
                axis: 0,
            })
            .collect();
        Ok(Arc::new(Hdf5::open(&path, &wanted, headroom)?))
    }

    fn open_raw(&self, headroom: Option<Bytes>) -> Result<Arc<dyn Source>, ExpressionError> {
        let path = self.raw.clone().unwrap_or_default();
        let (Some(shape), Some(dtype)) = (&self.shape, &self.dtype) else {
            return Err(missing("raw", "a `shape` and a `dtype`"));
        };
        let dtype = dtype_of(dtype)?;
        let field = self.field.as_deref().unwrap_or("data");
        Ok(Arc::new(Npy::raw(field, &path, dtype, shape, headroom)?))
    }

    fn open_tokens(&self, headroom: Option<Bytes>) -> Result<Arc<dyn Source>, ExpressionError> {
        let Some(block) = self.length else {
            return Err(missing("tokens", "a `length`"));
        };
        let has_documents = self.documents.unwrap_or(false);
        let dtype = match &self.dtype {
            Some(dtype) => Some(dtype_of(dtype)?),
            // Where there are documents, they say it.
            None => (!has_documents).then_some(DType::U16),
        };
        let files = paths(self.tokens.as_ref());
        let sizes = files.iter().flat_map(std::fs::metadata);
        let all = sizes.fold(0_u64, |all, found| all.saturating_add(found.len()));
        // All of them are read in turn, so none is mapped where not all fit. But a file that is not mapped stays open,
        // and a process may not have many.
        let headroom = match headroom {
            Some(_) if files.len() > MAX_OPEN => None,
            Some(headroom) if headroom.get() < all => Some(Bytes::ZERO),
            other => other,
        };
        let mut sources: Vec<Arc<dyn Source>> = Vec::new();
        for path in files {
            let shown = shown(path);
            let is_npy = shown
                .extension()
                .is_some_and(|extension| extension == "npy");
            let form = TokenForm {
                stored: dtype.filter(|_| !is_npy),
                block,
                as_i64: self.as_int64.unwrap_or(false),
            };
            sources.push(Arc::new(if has_documents {
                Tokens::open_with_documents(path, form, headroom)?
            } else {
                Tokens::open(path, form, headroom)?
            }));
        }
        if let [source] = sources.as_slice() {
            return Ok(Arc::clone(source));
        }
        let found = format!("{} files of different dtypes", sources.len());
        match Concatenated::new(sources) {
            Some(all) => Ok(Arc::new(all)),
            None => Err(ExpressionError::Malformed {
                what: "`tokens`".to_owned(),
                expected: "files of one dtype".to_owned(),
                found,
            }),
        }
    }

    fn open_folder(
        &self,
        extensions: Vec<String>,
        headroom: Option<Bytes>,
    ) -> Result<Pipeline, ExpressionError> {
        let root = self.folder.clone().unwrap_or_default();
        let has_labels = self.labels.unwrap_or(false);
        let options = FolderOptions {
            extensions,
            labels: match &self.split {
                Some(split) => Labels::ClassesWithSplit(split.clone()),
                None if has_labels => Labels::Classes,
                None => Labels::None,
            },
            headroom,
            ..FolderOptions::default()
        };
        let pipeline = Pipeline::new(Arc::new(Folder::open(&root, &options)?));
        if self.split.is_none() || has_labels {
            return Ok(pipeline);
        }
        // Files of a split have labels; they are not wanted.
        let names = pipeline.fields().into_iter().map(|field| field.name);
        let kept: Vec<String> = names.filter(|name| name != "label").collect();
        Ok(pipeline.keep(&kept)?)
    }
}

fn paths(list: Option<&PathList>) -> &[PathBuf] {
    list.map_or(&[], PathList::paths)
}

fn missing(what: &str, expected: &str) -> ExpressionError {
    ExpressionError::Malformed {
        what: format!("`{what}`"),
        expected: expected.to_owned(),
        found: "none".to_owned(),
    }
}

pub(super) fn dtype_of(name: &str) -> Result<DType, ExpressionError> {
    DType::from_name(name).ok_or_else(|| ExpressionError::UnknownType(name.to_owned()))
}
