//! A dataset of references to other datasets: each of those is one sample. Cell arrays of MATLAB are stored so.

use std::collections::HashMap;

use super::array::Array;
use super::metadata::{Described, Metadata};
use crate::array::{DType, Encoding, FieldSpec};
use crate::error::{ReadError, SourceError};
use crate::reading::Reader;
use crate::value::Value;

/// References whose targets are kept in memory, a few hundred bytes each.
const MAX_REFERENCES: u64 = 1 << 18;

/// The targets of a dataset of references.
#[derive(Debug)]
pub(super) struct References {
    targets: Vec<Target>,
    /// Which target each sample is.
    samples: Vec<u32>,
    spec: FieldSpec,
}

#[derive(Debug)]
enum Target {
    Array(Array),
    /// Units of UTF-16, or bytes.
    Text(Array),
    /// An array of MATLAB with a side of 0.
    Empty {
        dtype: DType,
        shape: Vec<usize>,
    },
    EmptyText,
}

impl References {
    /// Samples are counted by `axis`, and there is one reference for each.
    pub(super) fn of_samples(
        metadata: &Metadata,
        described: &Described,
        axis: usize,
    ) -> Result<References, SourceError> {
        let name = &described.name;
        let count: Option<u64> = described
            .dims
            .iter()
            .try_fold(1_u64, |count, &dim| count.checked_mul(dim));
        if described.dims.get(axis).copied() != count {
            return Err(metadata.malformed(
                format_args!("one reference for each sample along axis {axis} of {name}"),
                format_args!("sides {:?}", described.dims),
            ));
        }
        if count.is_none_or(|count| count > MAX_REFERENCES) {
            return Err(metadata.unsupported(
                format_args!("{name}, of more than {MAX_REFERENCES} references,"),
                "write its arrays into one dataset",
            ));
        }
        let reader = metadata.reader();

        let mut references = References {
            targets: Vec::new(),
            samples: Vec::new(),
            spec: FieldSpec::Encoded(Encoding::Unknown),
        };
        let mut known = HashMap::new();
        for (sample, address) in addresses(metadata, described, reader)?
            .into_iter()
            .enumerate()
        {
            if let Some(&target) = known.get(&address) {
                references.samples.push(target);
                continue;
            }
            let name = format!("{name} of sample {sample}");
            if address == 0 || metadata.place(address)?.is_none() {
                return Err(metadata.malformed(
                    format_args!("a reference to a dataset for {name}"),
                    "a reference to nothing",
                ));
            }
            let target = Target::of(metadata, &metadata.dataset_at(&name, address)?, reader)?;
            let at = u32::try_from(references.targets.len()).unwrap_or(u32::MAX);
            references.targets.push(target);
            references.samples.push(at);
            known.insert(address, at);
        }
        references.spec = spec_of(&references.targets).ok_or_else(|| {
            metadata.unsupported(
                format_args!(
                    "{name}, with references to arrays of different types or numbers of sides,"
                ),
                "choose another field, or write arrays of one type",
            )
        })?;
        Ok(references)
    }

    pub(super) fn n_samples(&self) -> u64 {
        self.samples.len() as u64
    }

    pub(super) fn spec(&self) -> &FieldSpec {
        &self.spec
    }

    /// Bytes that the targets take in the file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.targets
            .iter()
            .map(|target| match target {
                Target::Array(array) | Target::Text(array) => array.file_bytes(),
                Target::Empty { .. } | Target::EmptyText => 0,
            })
            .fold(0, u64::saturating_add)
    }

    /// Bytes of memory that one sample takes at the most.
    pub(super) fn held_bytes(&self, reader: &Reader) -> u64 {
        let held = |target: &Target| match target {
            Target::Array(array) => array.held_bytes(reader),
            // The text as it is in the file, and twice as UTF-8: a unit becomes three bytes at the most.
            Target::Text(array) => array
                .held_bytes(reader)
                .saturating_add(6 * array.form().elements() as u64 + 4096),
            Target::Empty { .. } | Target::EmptyText => 0,
        };
        self.targets.iter().map(held).max().unwrap_or(0)
    }

    /// Reads the dataset that the reference of one sample is for.
    pub(super) fn read(
        &self,
        reader: &Reader,
        index: u64,
        value: &mut Value,
    ) -> Result<(), ReadError> {
        let target = usize::try_from(index)
            .ok()
            .and_then(|index| self.samples.get(index))
            .and_then(|&target| self.targets.get(target as usize));
        match target {
            Some(Target::Array(array)) => array.read(reader, 0, value),
            Some(Target::Text(array)) => {
                array.read(reader, 0, value)?;
                let text = if value.dtype == DType::U16 {
                    let units = value.elements::<u16>();
                    char::decode_utf16(units.iter().copied())
                        .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
                        .collect()
                } else {
                    String::from_utf8_lossy(value.bytes()).into_owned()
                };
                let piece = value.set_encoded(text.len());
                piece.own(text.len()).copy_from_slice(text.as_bytes());
                Ok(())
            }
            Some(Target::Empty { dtype, shape }) => {
                value.set_array(*dtype, shape, 0);
                Ok(())
            }
            Some(Target::EmptyText) => {
                value.set_encoded(0).own(0);
                Ok(())
            }
            None => Err(ReadError::Malformed {
                expected: format!("a sample below {}", self.samples.len()),
                found: index.to_string(),
            }),
        }
    }
}

impl Target {
    fn of(
        metadata: &Metadata,
        described: &Described,
        reader: &Reader,
    ) -> Result<Target, SourceError> {
        let name = &described.name;
        if let Ok(super::element::Element::Reference { .. }) = described.element {
            return Err(metadata.unsupported(
                format_args!("{name}, a reference to references,"),
                "choose another field, or write its arrays into one dataset",
            ));
        }
        let is_text = described.matlab_class.as_deref() == Some("char");
        let array = Array::of_one_sample(metadata, described)?;
        if described.matlab_empty {
            if is_text {
                return Ok(Target::EmptyText);
            }
            return empty(metadata, described, &array, reader);
        }
        if !is_text {
            return Ok(Target::Array(array));
        }
        let form = array.form();
        let lines = form.shape().iter().filter(|&&side| side != 1).count();
        if lines > 1 || !matches!(form.dtype(), DType::U16 | DType::U8) {
            return Err(metadata.unsupported(
                format_args!("{name}, text of several lines ({form}),"),
                "choose another field, or write one line for each sample",
            ));
        }
        Ok(Target::Text(array))
    }
}

/// An empty array of MATLAB, whose dataset holds its sides, the fastest first.
fn empty(
    metadata: &Metadata,
    described: &Described,
    sides: &Array,
    reader: &Reader,
) -> Result<Target, SourceError> {
    let class = described.matlab_class.as_deref().unwrap_or_default();
    let dtype = match class {
        "double" => Some(DType::F64),
        "single" => Some(DType::F32),
        "logical" => Some(DType::U8),
        name => DType::from_name(name),
    };
    let mut shape = Vec::new();
    if sides.form().dtype() == DType::U64 && sides.form().elements() <= 32 {
        let mut value = Value::default();
        sides
            .read(reader, 0, &mut value)
            .map_err(|error| metadata.malformed("the sides of an empty array", error))?;
        shape.extend(
            value
                .elements::<u64>()
                .iter()
                .map(|&side| usize::try_from(side)),
        );
        shape.reverse();
    }
    let shape: Result<Vec<usize>, _> = shape.into_iter().collect();
    match (dtype, shape) {
        (Some(dtype), Ok(shape)) if shape.contains(&0) => Ok(Target::Empty { dtype, shape }),
        _ => Err(metadata.malformed(
            format_args!(
                "the type and the sides of an empty array for {}",
                described.name
            ),
            format_args!("the class {class:?} and {}", sides.form()),
        )),
    }
}

/// The addresses that the dataset holds, in the order of the samples.
fn addresses(
    metadata: &Metadata,
    described: &Described,
    reader: &Reader,
) -> Result<Vec<u64>, SourceError> {
    let array = Array::of_one_sample(metadata, described)?;
    let mut value = Value::default();
    array.read(reader, 0, &mut value).map_err(|error| {
        metadata.malformed(format_args!("the references of {}", described.name), error)
    })?;
    Ok(match value.dtype {
        DType::U16 => value
            .elements::<u16>()
            .iter()
            .map(|&address| address.into())
            .collect(),
        DType::U32 => value
            .elements::<u32>()
            .iter()
            .map(|&address| address.into())
            .collect(),
        _ => value.elements::<u64>().into_owned(),
    })
}

/// What they have in common; nothing where they cannot be one field.
fn spec_of(targets: &[Target]) -> Option<FieldSpec> {
    let mut form: Option<(DType, &[usize])> = None;
    let (mut same, mut n_texts) = (true, 0);
    for target in targets {
        let (dtype, shape) = match target {
            Target::Array(array) => (array.form().dtype(), array.form().shape()),
            Target::Empty { dtype, shape } => (*dtype, shape.as_slice()),
            Target::Text(_) | Target::EmptyText => {
                n_texts += 1;
                continue;
            }
        };
        match form {
            None => form = Some((dtype, shape)),
            Some((first, first_shape)) => {
                if first != dtype || first_shape.len() != shape.len() {
                    return None;
                }
                same &= first_shape == shape;
            }
        }
    }
    match form {
        None if n_texts > 0 => Some(FieldSpec::Encoded(Encoding::Text)),
        None => Some(FieldSpec::Encoded(Encoding::Unknown)),
        Some(_) if n_texts > 0 => None,
        Some((dtype, shape)) if same => {
            crate::array::TensorSpec::new(dtype, shape).map(FieldSpec::Array)
        }
        Some((dtype, shape)) => Some(FieldSpec::Ragged {
            dtype,
            rank: shape.len(),
        }),
    }
}
