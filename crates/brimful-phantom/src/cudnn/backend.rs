//! The backend interface without a real library: descriptors keep what is set, and one engine fits every
//! graph.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};

use crate::abi::{self, SUCCESS, boxed, drop_boxed, put, put_boxed};

/// A descriptor: its attributes as they were set.
#[derive(Debug, Default)]
pub(super) struct Descriptor {
    attributes: BTreeMap<c_int, Attribute>,
}

#[derive(Debug)]
struct Attribute {
    kind: c_int,
    count: i64,
    bytes: Vec<u8>,
}

const HEURISTIC_RESULTS: c_int = 202;
const PLAN_WORKSPACE: c_int = 402;
const CONFIGURATION_WORKSPACE: c_int = 303;
const ENGINE_COUNT: c_int = 802;

/// `cudnnBackendAttributeType_t`: the bytes of one value.
fn value_bytes(kind: c_int) -> usize {
    match kind {
        // handle, int64, double, void*, descriptor, fraction (two int64)
        0 | 3 | 5 | 6 | 15 => 8,
        26 => 16,
        // bool, char
        2 | 24 => 1,
        // enumerations, float, int32
        _ => 4,
    }
}

pub(super) fn create(_kind: c_int, out: *mut usize) -> c_int {
    put_boxed(out.cast::<*mut Descriptor>(), Descriptor::default())
}

pub(super) fn destroy(descriptor: usize) -> c_int {
    drop_boxed(descriptor as *mut Descriptor)
}

pub(super) fn set_attribute(
    descriptor: usize,
    name: c_int,
    kind: c_int,
    count: i64,
    values: usize,
) -> c_int {
    let Some(descriptor) = boxed(descriptor as *mut Descriptor) else {
        return super::BAD_PARAM;
    };
    let Some(total) = usize::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(value_bytes(kind)))
    else {
        return super::BAD_PARAM;
    };
    let bytes = if values == 0 || total == 0 {
        Vec::new()
    } else {
        // SAFETY: the caller passes `count` values of the type it names.
        unsafe { std::slice::from_raw_parts(values as *const u8, total) }.to_vec()
    };
    descriptor
        .attributes
        .insert(name, Attribute { kind, count, bytes });
    SUCCESS
}

pub(super) fn get_attribute(
    descriptor: usize,
    name: c_int,
    kind: c_int,
    wanted: i64,
    count: *mut i64,
    values: usize,
) -> c_int {
    let Some(descriptor) = boxed(descriptor as *mut Descriptor) else {
        return super::BAD_PARAM;
    };
    match name {
        // One configuration. The caller made a descriptor for it, to which nothing needs to be added.
        HEURISTIC_RESULTS | ENGINE_COUNT => {
            put(count, 1);
            if name == ENGINE_COUNT && values != 0 && wanted > 0 {
                put(values as *mut i64, 1);
            }
        }
        PLAN_WORKSPACE | CONFIGURATION_WORKSPACE => {
            put(count, 1);
            if values != 0 && wanted > 0 {
                put(values as *mut i64, 0);
            }
        }
        _ => {
            if let Some(known) = descriptor.attributes.get(&name) {
                put(count, known.count);
                let room = usize::try_from(wanted)
                    .unwrap_or(0)
                    .saturating_mul(value_bytes(kind));
                let shown = known.bytes.len().min(room);
                if values != 0 && shown > 0 && known.kind == kind {
                    // SAFETY: the caller has room for `wanted` values of the type it names.
                    unsafe {
                        (values as *mut u8).copy_from_nonoverlapping(known.bytes.as_ptr(), shown);
                    };
                }
            } else {
                // Notes about behaviour, knobs and the like: none. A single number asked for is zero.
                let single = matches!(kind, 3 | 23) && wanted == 1 && values != 0;
                put(count, i64::from(single));
                if single {
                    abi::zero(values as *mut c_void, value_bytes(kind));
                }
            }
        }
    }
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_can_be_read() {
        let mut descriptor = 0;
        create(17, &raw mut descriptor);
        let dims = [1_i64, 2, 3];
        assert_eq!(
            set_attribute(descriptor, 903, 3, 3, dims.as_ptr() as usize),
            SUCCESS
        );
        let (mut got, mut count) = ([0_i64; 2], 0);
        get_attribute(
            descriptor,
            903,
            3,
            2,
            &raw mut count,
            got.as_mut_ptr() as usize,
        );
        assert_eq!((got, count), ([1, 2], 3));
        get_attribute(
            descriptor,
            PLAN_WORKSPACE,
            3,
            1,
            &raw mut count,
            got.as_mut_ptr() as usize,
        );
        assert_eq!((got[0], count), (0, 1));
        assert_eq!(destroy(descriptor), SUCCESS);
    }
}
