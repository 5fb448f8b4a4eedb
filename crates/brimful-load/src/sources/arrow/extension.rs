//! What stands beside the types of a schema: shapes of tensors, and which columns are images.

use std::collections::HashMap;

use arrow_ipc::{Field as ArrowField, KeyValue, Schema};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::problem::Problem;
use crate::sources::arrow::nodes::{Layer, Leaf, Node};

/// Longest note that is parsed.
const MAX_LEN: usize = 1 << 18;

/// Most sides of a tensor: as many as NumPy 2 allows.
const MAX_DIMENSIONS: usize = 64;

/// The sides of a sample, from the outside in; nothing where a side varies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ColumnShape {
    sides: Vec<Option<usize>>,
    /// The sides that the elements of a fixed list are given instead, when all is read.
    tensor: Option<Vec<usize>>,
}

impl ColumnShape {
    /// The side of the list number `at`, where it is known.
    pub(super) fn side(&self, at: usize) -> Option<usize> {
        self.sides.get(at).copied().flatten()
    }

    pub(super) fn tensor(&self) -> Option<&[usize]> {
        self.tensor.as_deref()
    }

    /// All of them, where they are the same in every sample.
    pub(super) fn known(&self) -> Option<Vec<usize>> {
        match &self.tensor {
            Some(sides) => Some(sides.clone()),
            None => self.sides.iter().copied().collect(),
        }
    }

    pub(super) fn rank(&self) -> usize {
        self.sides.len()
    }
}

/// The shape of a column's samples: what the types say, and what an extension says more.
pub(super) fn shape(
    field: &ArrowField<'_>,
    layers: &[Node<Layer>],
    leaf: Leaf,
) -> Result<ColumnShape, Problem> {
    let mut sides: Vec<Option<usize>> = layers
        .iter()
        .filter_map(|layer| match layer.form {
            Layer::Struct => None,
            Layer::Fixed(side) => Some(Some(side)),
            Layer::Varying(_) => Some(None),
        })
        .collect();
    if let Leaf::Binary(width) = leaf {
        sides.push(Some(width));
    }
    let mut shape = ColumnShape {
        sides,
        tensor: None,
    };
    let notes = field.custom_metadata().into_iter().flatten();
    let extension = note(notes.clone(), "ARROW:extension:name").unwrap_or_default();
    let said = note(notes, "ARROW:extension:metadata").unwrap_or_default();
    let differs = |found: String| {
        Problem::malformed(
            format!("a shape that fits to the lists of {:?}", field.name()),
            found,
        )
    };
    // As Hugging Face names Array2D to Array5D; only the first side may be open.
    if extension.starts_with("datasets.features.features.Array") {
        let (told, IgnoredAny): (Vec<Option<usize>>, IgnoredAny) =
            parsed(said).ok_or_else(|| differs(shown(said)))?;
        if told.len() != shape.sides.len() {
            return Err(differs(format!("{told:?}")));
        }
        for (side, told) in shape.sides.iter_mut().zip(&told) {
            match (*side, *told) {
                (Some(side), Some(told)) if side != told => return Err(differs(format!("{told}"))),
                (None, told) => *side = told,
                _ => {}
            }
        }
    } else if extension == "arrow.fixed_shape_tensor" {
        let tensor: Tensor = parsed(said)
            .filter(|tensor: &Tensor| tensor.shape.len() <= MAX_DIMENSIONS)
            .ok_or_else(|| differs(shown(said)))?;
        let is_in_order = tensor
            .permutation
            .is_none_or(|order| order.iter().copied().eq(0..tensor.shape.len()));
        if !is_in_order {
            return Err(Problem::unsupported(
                format!(
                    "the column {:?} with a permutation of its sides",
                    field.name()
                ),
                "write the tensors in row-major order",
            ));
        }
        let elements = tensor
            .shape
            .iter()
            .try_fold(1_usize, |elements, &side| elements.checked_mul(side));
        if elements.is_none() || shape.sides != [elements] {
            return Err(differs(format!("{:?}", tensor.shape)));
        }
        shape.tensor = Some(tensor.shape);
    }
    Ok(shape)
}

/// What is said of a fixed shape tensor.
#[derive(Deserialize)]
struct Tensor {
    shape: Vec<usize>,
    permutation: Option<Vec<usize>>,
}

/// The features that Hugging Face notes in a schema, each with its type.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Features {
    #[serde(default)]
    info: Info,
}

#[derive(Debug, Default, Deserialize)]
struct Info {
    #[serde(default)]
    features: HashMap<String, Feature>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Feature {
    Typed {
        #[serde(rename = "_type")]
        name: String,
    },
    Other(IgnoredAny),
}

impl Features {
    pub(super) fn of(schema: &Schema<'_>) -> Features {
        let notes = schema.custom_metadata().into_iter().flatten();
        note(notes, "huggingface")
            .and_then(parsed)
            .unwrap_or_default()
    }

    /// Whether a struct of bytes and path is an image: unless something else is said.
    pub(super) fn is_image(&self, column: &str) -> bool {
        match self.info.features.get(column) {
            Some(Feature::Typed { name }) => name == "Image",
            Some(Feature::Other(_)) => false,
            None => true,
        }
    }
}

fn note<'a>(mut notes: impl Iterator<Item = KeyValue<'a>>, key: &str) -> Option<&'a str> {
    notes
        .find(|note| note.key() == Some(key))
        .and_then(|note| note.value())
}

fn parsed<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    if text.len() > MAX_LEN {
        return None;
    }
    serde_json::from_str(text).ok()
}

fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}
