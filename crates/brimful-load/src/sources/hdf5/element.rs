//! What one element of a dataset is, and what has to be done to it after reading.

use hdf5_reader::{ByteOrder, Datatype, ReferenceType, VarLenKind};

use crate::array::DType;

/// One element, as the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Number(Number),
    /// The address of another dataset, as an unsigned number of so many bytes.
    Reference {
        size: u8,
    },
}

/// A number of a type that a batch can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) dtype: DType,
    pub(super) mend: Conversion,
}

/// What turns the bytes of the file into those of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    None,
    /// The bytes of each element are the other way around.
    ByteSwap,
    /// A byte that is not 0 is 1: what reads booleans relies on it.
    ToBool,
}

impl Number {
    /// An address of the file, of so many bytes.
    pub(super) fn address(size: u8) -> Option<Number> {
        let dtype = match size {
            2 => DType::U16,
            4 => DType::U32,
            8 => DType::U64,
            _ => return None,
        };
        Some(Number::of(dtype, ByteOrder::LittleEndian))
    }

    fn of(dtype: DType, order: ByteOrder) -> Number {
        let native = if cfg!(target_endian = "little") {
            ByteOrder::LittleEndian
        } else {
            ByteOrder::BigEndian
        };
        let mend = if order == native || dtype.size() == 1 {
            Conversion::None
        } else {
            Conversion::ByteSwap
        };
        Number { dtype, mend }
    }

    /// Mends elements in place.
    pub(super) fn mend(self, bytes: &mut [u8]) {
        match (self.mend, self.dtype.size()) {
            (Conversion::ByteSwap, 2) => swap::<2>(bytes),
            (Conversion::ByteSwap, 4) => swap::<4>(bytes),
            (Conversion::ByteSwap, 8) => swap::<8>(bytes),
            (Conversion::ToBool, _) => bytes
                .iter_mut()
                .for_each(|byte| *byte = u8::from(*byte != 0)),
            (Conversion::None | Conversion::ByteSwap, _) => {}
        }
    }
}

fn swap<const SIZE: usize>(bytes: &mut [u8]) {
    for element in bytes.as_chunks_mut::<SIZE>().0 {
        element.reverse();
    }
}

impl Element {
    /// The element of a type; where there is none, what it is in words.
    ///
    /// `raw` is the type as the file stores it, without which two formats of a float cannot be told apart.
    pub(super) fn of(datatype: &Datatype, raw: Option<&[u8]>) -> Result<Element, String> {
        match datatype {
            Datatype::FixedPoint {
                size,
                signed,
                byte_order,
            } => {
                if let Some(bits) = raw.and_then(integer_bits)
                    && bits != (0, u16::from(*size) * 8)
                {
                    return Err(format!("integers of {} bits in {size} bytes", bits.1));
                }
                let dtype = match (size, signed) {
                    (1, false) => DType::U8,
                    (1, true) => DType::I8,
                    (2, false) => DType::U16,
                    (2, true) => DType::I16,
                    (4, false) => DType::U32,
                    (4, true) => DType::I32,
                    (8, false) => DType::U64,
                    (8, true) => DType::I64,
                    _ => return Err(format!("integers of {size} bytes")),
                };
                Ok(Element::Number(Number::of(dtype, *byte_order)))
            }
            Datatype::FloatingPoint { size, byte_order } => {
                Ok(Element::Number(Number::of(float(*size, raw)?, *byte_order)))
            }
            // As h5py writes booleans; others are the numbers that stand for their names.
            Datatype::Enum { base, members } => {
                let named = |name: &str, value: u8| {
                    members
                        .iter()
                        .any(|member| member.name == name && member.value == [value])
                };
                if members.len() == 2 && named("FALSE", 0) && named("TRUE", 1) {
                    return Ok(Element::Number(Number {
                        dtype: DType::Bool,
                        mend: Conversion::ToBool,
                    }));
                }
                match Element::of(base, None)? {
                    Element::Number(number) => Ok(Element::Number(number)),
                    Element::Reference { .. } => Err("an enumeration of references".to_owned()),
                }
            }
            Datatype::Reference {
                ref_type: ReferenceType::Object,
                size,
            } if raw
                .is_none_or(|raw| raw.get(1).is_some_and(|flags| flags.trailing_zeros() >= 4)) =>
            {
                Ok(Element::Reference { size: *size })
            }
            Datatype::Reference { .. } => Err("references to parts of datasets".to_owned()),
            Datatype::String { .. } => Err("text of a fixed length".to_owned()),
            Datatype::Compound { .. } => Err("elements with fields (compound)".to_owned()),
            Datatype::Array { .. } => Err("elements that are arrays".to_owned()),
            Datatype::VarLen {
                kind: VarLenKind::String,
                ..
            } => Err("text of varying length".to_owned()),
            Datatype::VarLen { .. } => Err("elements of varying length".to_owned()),
            Datatype::Opaque { .. } => Err("opaque bytes".to_owned()),
            Datatype::Bitfield { .. } => Err("bit fields".to_owned()),
        }
    }

    /// Bytes of one element.
    pub(super) fn size(self) -> usize {
        match self {
            Element::Number(number) => number.dtype.size(),
            Element::Reference { size } => usize::from(size),
        }
    }
}

/// Where the bits of an integer begin, and how many there are.
fn integer_bits(raw: &[u8]) -> Option<(u16, u16)> {
    let [offset, precision] = [raw.get(8..10)?, raw.get(10..12)?];
    Some((
        u16::from_le_bytes(offset.try_into().ok()?),
        u16::from_le_bytes(precision.try_into().ok()?),
    ))
}

/// Which float has so many bytes and, where it is known, its bits in those places.
fn float(size: u8, raw: Option<&[u8]>) -> Result<DType, String> {
    let Some(raw) = raw else {
        return match size {
            4 => Ok(DType::F32),
            8 => Ok(DType::F64),
            _ => Err(format!("floats of {size} bytes")),
        };
    };
    // Vax is an order of bytes of its own.
    let vax = raw.get(1).is_some_and(|flags| flags & 0x40 != 0);
    // Places and numbers of the bits of the exponent and the fraction.
    match (size, raw.get(12..16)) {
        (2, Some([10, 5, 0, 10])) if !vax => Ok(DType::F16),
        (2, Some([7, 8, 0, 7])) if !vax => Ok(DType::BF16),
        (4, Some([23, 8, 0, 23])) if !vax => Ok(DType::F32),
        (8, Some([52, 11, 0, 52])) if !vax => Ok(DType::F64),
        _ => Err(format!("floats of {size} bytes in a format of their own")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float_message(size: u8, layout: [u8; 4]) -> Vec<u8> {
        let mut raw = vec![0x11, 0x20, 0, 0, size, 0, 0, 0, 0, 0, size * 8, 0];
        raw.extend(layout);
        raw.extend([0; 4]);
        raw
    }

    #[test]
    fn floats_of_two_bytes_are_told_apart_by_their_bits() {
        assert_eq!(
            float(2, Some(&float_message(2, [10, 5, 0, 10]))),
            Ok(DType::F16)
        );
        assert_eq!(
            float(2, Some(&float_message(2, [7, 8, 0, 7]))),
            Ok(DType::BF16)
        );
        assert!(float(2, Some(&float_message(2, [11, 4, 0, 11]))).is_err());
        assert!(float(2, None).is_err(), "nobody knows which");
        assert!(float(16, None).is_err());
    }

    #[test]
    fn integers_with_unused_bits_are_refused() {
        let twelve_bits = [0x10, 0, 0, 0, 2, 0, 0, 0, 0, 0, 12, 0];
        let datatype = Datatype::FixedPoint {
            size: 2,
            signed: false,
            byte_order: ByteOrder::LittleEndian,
        };
        assert!(Element::of(&datatype, Some(&twelve_bits)).is_err());
        assert!(Element::of(&datatype, None).is_ok());
    }

    #[test]
    fn booleans_are_zero_or_one_whatever_the_file_holds() {
        let mut bytes = [0, 1, 2, 255];
        Number {
            dtype: DType::Bool,
            mend: Conversion::ToBool,
        }
        .mend(&mut bytes);
        assert_eq!(bytes, [0, 1, 1, 1]);
    }
}
