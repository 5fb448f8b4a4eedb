//! How the values of a column lie in the buffers of a record batch.
//!
//! A record batch lists nodes (one per array, with its length and nulls) and buffers (validity, offsets, data), all
//! columns one after another and parents before children. So the numbers of a column's nodes and buffers follow from
//! the types of the columns before it.

use arrow_ipc::{Field as ArrowField, Precision, Type};

use crate::array::{DType, Encoding, Field, FieldSpec, TensorSpec};
use crate::problem::Problem;
use crate::sources::arrow::extension::{self, ColumnShape};
use crate::sources::arrow::nodes::{Layer, Leaf, Node, Offsets};

/// How deep lists may be nested.
const MAX_DEPTH: usize = 8;

/// Longest name of a column that is read.
const MAX_NAME_LEN: usize = 1024;

/// One column that is read.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) field: Field,
    /// From the outside in; without the innermost.
    pub(super) layers: Vec<Node<Layer>>,
    pub(super) leaf: Node<Leaf>,
    pub(super) shape: ColumnShape,
}

/// Nodes and buffers, counted while columns are passed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) nodes: usize,
    pub(super) buffers: usize,
}

impl Count {
    /// Passes over an array with all its children.
    pub(super) fn skip(&mut self, field: &ArrowField<'_>, depth: usize) -> Result<(), Problem> {
        let (buffers, has_children) = if field.dictionary().is_some() {
            (2, false)
        } else {
            match field.type_type() {
                Type::Null => (0, false),
                Type::Int
                | Type::FloatingPoint
                | Type::Bool
                | Type::Decimal
                | Type::Date
                | Type::Time
                | Type::Timestamp
                | Type::Interval
                | Type::Duration
                | Type::FixedSizeBinary => (2, false),
                Type::Binary | Type::Utf8 | Type::LargeBinary | Type::LargeUtf8 => (3, false),
                Type::List | Type::LargeList | Type::Map => (2, true),
                Type::FixedSizeList | Type::Struct_ => (1, true),
                other => {
                    return Err(Problem::unsupported(
                        format!("a file with the column {:?} of type {other:?}", name(field)),
                        "write the file without that column, or with another type for it, as for a view the plain one",
                    ));
                }
            }
        };
        self.nodes += 1;
        self.buffers += buffers;
        if has_children {
            // The depth of a description is bounded where it is verified, by 64 tables.
            if depth == 64 {
                return Err(Problem::malformed("types of at most 64 levels", "more"));
            }
            for child in field.children().iter().flatten() {
                self.skip(&child, depth + 1)?;
            }
        }
        Ok(())
    }

    fn take<T>(&mut self, form: T, buffers: usize) -> Node<T> {
        let node = Node {
            form,
            number: self.nodes,
            buffer: self.buffers,
        };
        self.nodes += 1;
        self.buffers += buffers;
        node
    }
}

impl Column {
    /// The column of a field whose first node and buffer are those of `count`.
    pub(super) fn new(
        field: &ArrowField<'_>,
        mut count: Count,
        is_image: bool,
    ) -> Result<Column, Problem> {
        let name = name(field);
        if name.len() > MAX_NAME_LEN {
            return Err(Problem::malformed(
                format!("names of at most {MAX_NAME_LEN} bytes"),
                format!("one of {}", name.len()),
            ));
        }
        let mut layers = Vec::new();
        let mut inner = *field;
        let leaf = loop {
            if layers.len() == MAX_DEPTH {
                return Err(unsupported(field, "the column is nested too deep"));
            }
            if inner.dictionary().is_some() {
                return Err(unsupported(
                    field,
                    "write its values, not a dictionary: in pyarrow column.dictionary_decode()",
                ));
            }
            if let Some(leaf) = leaf(&inner)? {
                break leaf;
            }
            let (layer, child) = layer(&inner, &mut count, layers.is_empty())?
                .ok_or_else(|| unsupported(field, "choose other columns, or convert it"))?;
            layers.push(layer);
            inner = child;
        };
        let is_nested = layers.iter().any(|layer| layer.form != Layer::Struct);
        let leaf = match leaf {
            Leaf::Varying { .. } if is_nested => {
                return Err(unsupported(
                    field,
                    "lists of numbers are read, lists of texts are not",
                ));
            }
            // In a struct of bytes and path.
            Leaf::Varying { offsets, .. } if !layers.is_empty() => Leaf::Varying {
                offsets,
                encoding: if is_image {
                    Encoding::Image
                } else {
                    Encoding::Unknown
                },
            },
            other => other,
        };
        let buffers = match leaf {
            Leaf::Varying { .. } => 3,
            Leaf::Number(_) | Leaf::Binary(_) | Leaf::Bits => 2,
        };
        let leaf = count.take(leaf, buffers);
        let shape = extension::shape(field, &layers, leaf.form)?;
        let spec = spec(&leaf.form, &shape).ok_or_else(|| {
            Problem::malformed(
                format!("a column {name:?} whose samples fit into memory"),
                format!("{shape:?}"),
            )
        })?;
        Ok(Column {
            field: Field {
                name: name.to_owned(),
                spec,
            },
            layers,
            leaf,
            shape,
        })
    }
}

/// The innermost array, where this is one.
fn leaf(field: &ArrowField<'_>) -> Result<Option<Leaf>, Problem> {
    let bytes = |offsets, encoding| Leaf::Varying { offsets, encoding };
    let leaf = match field.type_type() {
        Type::Bool => Leaf::Bits,
        Type::Int => Leaf::Number(integer(field)?),
        Type::FloatingPoint => match field
            .type_as_floating_point()
            .map(|float| float.precision())
        {
            Some(Precision::HALF) => Leaf::Number(DType::F16),
            Some(Precision::SINGLE) => Leaf::Number(DType::F32),
            Some(Precision::DOUBLE) => Leaf::Number(DType::F64),
            other => {
                return Err(Problem::malformed(
                    "floats of 16, 32 or 64 bits",
                    format!("{other:?}"),
                ));
            }
        },
        Type::FixedSizeBinary => {
            let width = field
                .type_as_fixed_size_binary()
                .map(|binary| binary.byteWidth());
            Leaf::Binary(side("a width", width)?)
        }
        Type::Binary => bytes(Offsets::Narrow, Encoding::Unknown),
        Type::LargeBinary => bytes(Offsets::Wide, Encoding::Unknown),
        Type::Utf8 => bytes(Offsets::Narrow, Encoding::Text),
        Type::LargeUtf8 => bytes(Offsets::Wide, Encoding::Text),
        _ => return Ok(None),
    };
    Ok(Some(leaf))
}

/// A list or a struct and the child that is read; nothing where it is neither.
fn layer<'a>(
    field: &ArrowField<'a>,
    count: &mut Count,
    is_outermost: bool,
) -> Result<Option<(Node<Layer>, ArrowField<'a>)>, Problem> {
    let (layer, buffers) = match field.type_type() {
        Type::List => (Layer::Varying(Offsets::Narrow), 2),
        Type::LargeList => (Layer::Varying(Offsets::Wide), 2),
        Type::FixedSizeList => {
            let len = field.type_as_fixed_size_list().map(|list| list.listSize());
            (Layer::Fixed(side("a length", len)?), 1)
        }
        Type::Struct_ if is_outermost => (Layer::Struct, 1),
        _ => return Ok(None),
    };
    let node = count.take(layer, buffers);
    let mut children = field.children().into_iter().flatten();
    if layer != Layer::Struct {
        let child = children.next();
        return match (child, children.next()) {
            (Some(child), None) => Ok(Some((node, child))),
            _ => Err(Problem::malformed(
                "a list with one child",
                "another number",
            )),
        };
    }
    // As Hugging Face keeps images and sounds: the bytes of the file, and the path that it had.
    for child in children {
        if child.name() == Some("bytes") {
            let is_bytes = matches!(child.type_type(), Type::Binary | Type::LargeBinary);
            return Ok(is_bytes.then_some((node, child)));
        }
        count.skip(&child, 1)?;
    }
    Ok(None)
}

fn spec(leaf: &Leaf, shape: &ColumnShape) -> Option<FieldSpec> {
    let dtype = match *leaf {
        Leaf::Varying { encoding, .. } => return Some(FieldSpec::Encoded(encoding)),
        Leaf::Number(dtype) => dtype,
        Leaf::Binary(_) => DType::U8,
        Leaf::Bits => DType::Bool,
    };
    match shape.known() {
        Some(sides) => TensorSpec::new(dtype, sides).map(FieldSpec::Array),
        None => Some(FieldSpec::Ragged {
            dtype,
            rank: shape.rank(),
        }),
    }
}

fn integer(field: &ArrowField<'_>) -> Result<DType, Problem> {
    let int = field.type_as_int();
    let form = int.map(|int| (int.bitWidth(), int.is_signed()));
    Ok(match form {
        Some((8, false)) => DType::U8,
        Some((8, true)) => DType::I8,
        Some((16, false)) => DType::U16,
        Some((16, true)) => DType::I16,
        Some((32, false)) => DType::U32,
        Some((32, true)) => DType::I32,
        Some((64, false)) => DType::U64,
        Some((64, true)) => DType::I64,
        other => {
            return Err(Problem::malformed(
                "integers of 8, 16, 32 or 64 bits",
                format!("{other:?}"),
            ));
        }
    })
}

fn side(what: &str, found: Option<i32>) -> Result<usize, Problem> {
    found
        .and_then(|found| usize::try_from(found).ok())
        .ok_or_else(|| Problem::malformed(format!("{what} of zero or more"), format!("{found:?}")))
}

pub(super) fn name<'a>(field: &ArrowField<'a>) -> &'a str {
    field.name().unwrap_or_default()
}

fn unsupported(field: &ArrowField<'_>, hint: &str) -> Problem {
    Problem::unsupported(
        format!(
            "the column {:?} of type {:?}",
            name(field),
            field.type_type()
        ),
        hint,
    )
}
