//! Ops as values.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::array::{DType, FieldSpec};
use crate::error::OpError;
use crate::expression::error::ExpressionError;
use crate::expression::source::dtype_of;
use crate::expression::table::{keys_of, kind_of};
use crate::kernels::Occupied;
use crate::kernels::filter::Filter;
use crate::ops::{
    Cast, Crop, CropAnchor, DecodeImage, Flip, Layout, Normalize, Op, Parse, Resize, Tokenize,
    Transpose, Voxelize,
};
use crate::pipeline::Pipeline;
use crate::text::Tokenizer;

/// Channels of a decoded image.
const COLORS: usize = 3;

/// One number for height and width, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Sides {
    Both(usize),
    HeightAndWidth([usize; 2]),
}

impl Sides {
    fn get(self) -> (usize, usize) {
        match self {
            Sides::Both(side) => (side, side),
            Sides::HeightAndWidth([height, width]) => (height, width),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormalizeExpression {
    pub mean: Vec<f32>,
    pub std: Vec<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f32>,
}

/// An op: its name with its main argument, the field, and its options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpExpression {
    /// Nothing for the only field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// For ops of several fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pixels: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resize: Option<Sides>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crop: Option<Sides>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random: Option<bool>,
    /// With this probability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flip: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transpose: Option<Vec<usize>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize: Option<NormalizeExpression>,
    /// To this dtype.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cast: Option<String>,
    /// Voxels of each side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub voxelize: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surface: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotations: Option<u32>,
    /// With this tokenizer. Without a length it packs documents, which only preparing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenize: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pad_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub special_tokens: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_id: Option<u32>,
    /// To this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
    /// To this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rename: Option<String>,
    /// Only these fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub select: Option<Vec<String>>,
    /// The number of each sample, as a field of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numbered: Option<String>,
    /// The first position and the one behind the last, of the order that is shuffled by `seed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<[u64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

const OPS: [(&str, &[&str]); 13] = [
    ("decode", &["field", "max_pixels"]),
    ("resize", &["field", "filter"]),
    ("crop", &["field", "fields", "random"]),
    ("flip", &["field", "fields"]),
    ("transpose", &["field"]),
    ("normalize", &["field"]),
    ("cast", &["field"]),
    (
        "voxelize",
        &["field", "dtype", "channel", "surface", "rotations"],
    ),
    (
        "tokenize",
        &[
            "field",
            "length",
            "pad_id",
            "special_tokens",
            "max_bytes",
            "mask",
            "end_id",
            "dtype",
        ],
    ),
    ("copy", &["field"]),
    ("rename", &["field"]),
    ("select", &[]),
    ("numbered", &[]),
];
/// Options of `tokenize` without a length, and with one.
const OF_PACKING: &[&str] = &["end_id", "dtype"];
const OF_SAMPLES: &[&str] = &["pad_id", "max_bytes", "mask"];
/// Of datasets that were cut in Python.
const PART: (&str, &[&str]) = ("part", &["seed"]);

impl OpExpression {
    /// Its name; an error where there is none or more than one.
    pub fn kind(&self) -> Result<&'static str, ExpressionError> {
        let plain = OpExpression {
            // Paths need not be text.
            tokenize: self.tokenize.as_ref().map(|_| PathBuf::new()),
            ..self.clone()
        };
        let written = keys_of(&plain);
        if self.part.is_some() {
            return kind_of("an op", &[PART], &written);
        }
        let kind = kind_of("an op", &OPS, &written)?;
        let others = match self.length {
            Some(_) => OF_PACKING,
            None => OF_SAMPLES,
        };
        let stray = written.iter().find(|key| others.contains(&key.as_str()));
        match stray {
            Some(stray) if kind == "tokenize" => Err(ExpressionError::Malformed {
                what: "`tokenize`".to_owned(),
                expected: "options either of texts of one `length` or of packed documents"
                    .to_owned(),
                found: format!("`{stray}`"),
            }),
            _ if self.decode == Some(false) => Err(ExpressionError::Malformed {
                what: "`decode`".to_owned(),
                expected: "the value true".to_owned(),
                found: "false".to_owned(),
            }),
            _ => Ok(kind),
        }
    }

    /// Whether it needs all samples of the source, not some of them.
    pub fn is_of_all_samples(&self) -> bool {
        self.part.is_some() || self.numbered.is_some()
    }

    /// The field that it is for; nothing where there are several and none is named.
    pub fn field_of(&self, pipeline: &Pipeline) -> Result<String, ExpressionError> {
        if let Some(field) = &self.field {
            return Ok(field.clone());
        }
        let fields = pipeline.fields();
        match fields.as_slice() {
            [field] => Ok(field.name.clone()),
            fields => Err(ExpressionError::Malformed {
                what: format!("`{}`", self.kind()?),
                expected: "a `field`".to_owned(),
                found: format!(
                    "none; available fields are {}",
                    fields
                        .iter()
                        .map(|field| field.name.as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            }),
        }
    }

    fn fields_of(&self, pipeline: &Pipeline) -> Result<Vec<String>, ExpressionError> {
        match &self.fields {
            Some(fields) => Ok(fields.clone()),
            None => Ok(vec![self.field_of(pipeline)?]),
        }
    }

    /// Puts it behind a pipeline.
    pub fn apply(&self, pipeline: &Pipeline) -> Result<Pipeline, ExpressionError> {
        let kind = self.kind()?;
        // These are not for one field.
        match (&self.part, &self.numbered, &self.select) {
            (Some([start, end]), ..) => return Ok(pipeline.part(*start..*end, self.seed)),
            (_, Some(name), _) => return Ok(pipeline.numbered(name)?),
            (.., Some(fields)) => return Ok(pipeline.keep(fields)?),
            _ => {}
        }
        if let Some(sides) = self.crop {
            let anchor = if self.random.unwrap_or(false) {
                CropAnchor::Random
            } else {
                CropAnchor::Center
            };
            return self.alike(pipeline, |layout, number| {
                Arc::new(Crop::new(number, sides.get(), anchor, layout, COLORS))
            });
        }
        if let Some(probability) = self.flip {
            return self.alike(pipeline, |layout, number| {
                Arc::new(Flip::new(number, probability, layout))
            });
        }
        let field = self.field_of(pipeline)?;
        if let Some(to) = &self.copy {
            return Ok(pipeline.copy(&field, to)?);
        }
        if let Some(to) = &self.rename {
            return Ok(pipeline.rename(&field, to)?);
        }
        if let Some(tokenizer) = &self.tokenize {
            return self.tokenized(pipeline, &field, tokenizer);
        }
        let dtype = match kind {
            "cast" => dtype_of(self.cast.as_deref().unwrap_or_default())?,
            _ => dtype_of(self.dtype.as_deref().unwrap_or("float32"))?,
        };
        let layout = pipeline.layout(&field).unwrap_or_default();
        Ok(pipeline.with(&field, |_, spec| self.op(kind, dtype, layout, spec))?)
    }

    /// An op of one field.
    fn op(
        &self,
        kind: &'static str,
        dtype: DType,
        layout: Layout,
        spec: &FieldSpec,
    ) -> Result<Arc<dyn Op>, OpError> {
        Ok(match kind {
            "resize" => {
                let filter = match self.filter.as_deref() {
                    None | Some("bilinear") => Filter::Bilinear,
                    Some("bicubic") => Filter::Bicubic,
                    Some(other) => {
                        return Err(OpError::WrongKind {
                            op: "resize",
                            expected: "the filter bilinear or bicubic".to_owned(),
                            found: other.to_owned(),
                        });
                    }
                };
                let sides = self.resize.map(Sides::get).unwrap_or_default();
                Arc::new(Resize::new(sides, filter, layout, COLORS, spec)?)
            }
            "transpose" => Arc::new(Transpose::new(
                self.transpose.as_deref().unwrap_or_default(),
            )?),
            "normalize" => {
                let given = self.normalize.clone().unwrap_or_default();
                Arc::new(Normalize::new(
                    &given.mean,
                    &given.std,
                    given.scale,
                    layout,
                )?)
            }
            "cast" => match spec {
                FieldSpec::Encoded(_) => Arc::new(Parse::new(dtype)),
                FieldSpec::Array(_) | FieldSpec::Ragged { .. } => Arc::new(Cast::new(dtype)),
            },
            "voxelize" => Arc::new(Voxelize {
                dtype,
                channel: self.channel.unwrap_or(false),
                occupied: if self.surface.unwrap_or(false) {
                    Occupied::Surface
                } else {
                    Occupied::Points
                },
                rotations: self.rotations.unwrap_or(1),
                ..Voxelize::new(self.voxelize.unwrap_or_default())
            }),
            _ => {
                let usual = DecodeImage::default();
                Arc::new(DecodeImage {
                    max_pixels: self.max_pixels.unwrap_or(usual.max_pixels),
                    ..usual
                })
            }
        })
    }

    fn alike(
        &self,
        pipeline: &Pipeline,
        make: impl Fn(Layout, u64) -> Arc<dyn Op>,
    ) -> Result<Pipeline, ExpressionError> {
        let fields = self.fields_of(pipeline)?;
        Ok(pipeline.with_alike(&fields, |field, number, _| {
            // The default for a field that does not exist, which the op then reports.
            Ok(make(pipeline.layout(field).unwrap_or_default(), number))
        })?)
    }

    fn tokenized(
        &self,
        pipeline: &Pipeline,
        field: &str,
        tokenizer: &Path,
    ) -> Result<Pipeline, ExpressionError> {
        let Some(length) = self.length else {
            return Err(ExpressionError::Malformed {
                what: "`tokenize`".to_owned(),
                expected: "a `length`, or a recipe with a `block`".to_owned(),
                found: "neither".to_owned(),
            });
        };
        let tokenizer = Arc::new(Tokenizer::open(tokenizer)?);
        let make = |number| {
            let mut op = Tokenize::new(number, Arc::clone(&tokenizer), length);
            op.pad_id = self.pad_id.unwrap_or(op.pad_id);
            op.max_bytes = self.max_bytes.unwrap_or(op.max_bytes);
            op.special_tokens = self.special_tokens.unwrap_or(true);
            op
        };
        let Some(mask) = &self.mask else {
            return Ok(pipeline.with(field, |number, _| Ok(Arc::new(make(number))))?);
        };
        let mut of_mask = None;
        let pipeline = pipeline.copy(field, mask)?.with(field, |number, _| {
            let ids = make(number);
            of_mask = Some(ids.mask());
            Ok(Arc::new(ids))
        })?;
        Ok(match of_mask {
            Some(of_mask) => pipeline.with(mask, |_, _| Ok(Arc::new(of_mask)))?,
            None => pipeline,
        })
    }
}
