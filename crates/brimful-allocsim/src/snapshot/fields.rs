//! The fields of a snapshot's dicts, one by one.

use super::error::{WrongField, beyond_addresses, other_text, wrong};
use super::{BlockState, PoolKind, Segment};
use crate::pickle::{Dict, Sequence, Value};

pub(super) const SIZE: &str = "a number of bytes";
pub(super) const ADDRESS: &str = "an address";
pub(super) const STATE: &str = "one of `inactive`, `active_allocated`, `active_pending_free`";
pub(super) const ACTION: &str = "the name of an action";
const SEGMENT_TYPE: &str = "`small` or `large`";
const POOL_ID: &str = "a pair of integers";

pub(super) fn segment_of(dict: Dict<'_>) -> Result<(Segment, Sequence<'_>), WrongField> {
    let mut device = None;
    let mut address = None;
    let mut total_size = None;
    let mut stream = 0;
    let mut pool = None;
    let mut private_pool = (0, 0);
    let mut expandable = false;
    let mut blocks = None;
    for (key, value) in dict.iter() {
        match key {
            Value::Str("device") => {
                device = match value {
                    Value::Int(device) => u32::try_from(device).ok(),
                    _ => None,
                };
                if device.is_none() {
                    return Err(wrong("device", "the index of a device", value));
                }
            }
            Value::Str("address") => address = Some(word("address", value)?),
            Value::Str("total_size") => total_size = Some(size_of("total_size", value)?),
            Value::Str("stream") => stream = word("stream", value)?,
            Value::Str("segment_type") => {
                pool = Some(match value {
                    Value::Str("small") => PoolKind::Small,
                    Value::Str("large") => PoolKind::Large,
                    Value::Str(_) => return Err(other_text("segment_type", SEGMENT_TYPE)),
                    other => return Err(wrong("segment_type", SEGMENT_TYPE, other)),
                });
            }
            Value::Str("segment_pool_id") => private_pool = pool_id("segment_pool_id", value)?,
            Value::Str("is_expandable") => {
                expandable = match value {
                    Value::Bool(expandable) => expandable,
                    other => return Err(wrong("is_expandable", "a boolean", other)),
                };
            }
            Value::Str("blocks") => {
                blocks = Some(match value {
                    Value::List(blocks) => blocks,
                    other => return Err(wrong("blocks", "a list", other)),
                });
            }
            _ => {}
        }
    }
    let segment = Segment {
        device: device.ok_or_else(|| WrongField::missing("device", "the index of a device"))?,
        address: address.ok_or_else(|| WrongField::missing("address", ADDRESS))?,
        total_size: total_size.ok_or_else(|| WrongField::missing("total_size", SIZE))?,
        stream,
        pool: pool.ok_or_else(|| WrongField::missing("segment_type", SEGMENT_TYPE))?,
        private_pool,
        expandable,
        blocks: Vec::new(),
    };
    if segment.address.checked_add(segment.total_size).is_none() {
        return Err(beyond_addresses("total_size"));
    }
    let blocks = blocks.ok_or_else(|| WrongField::missing("blocks", "a list"))?;
    Ok((segment, blocks))
}

pub(super) fn state_of(value: Value<'_>) -> Result<BlockState, WrongField> {
    match value {
        Value::Str("inactive") => Ok(BlockState::Inactive),
        Value::Str("active_allocated") => Ok(BlockState::ActiveAllocated),
        Value::Str("active_pending_free" | "active_awaiting_free") => {
            Ok(BlockState::ActiveAwaitingFree)
        }
        Value::Str(_) => Err(other_text("state", STATE)),
        other => Err(wrong("state", STATE, other)),
    }
}

pub(super) fn size_of(name: &'static str, value: Value<'_>) -> Result<u64, WrongField> {
    match value {
        Value::Int(size) => u64::try_from(size).map_err(|_| wrong(name, SIZE, value)),
        Value::UInt(size) => Ok(size),
        other => Err(wrong(name, SIZE, other)),
    }
}

/// An address or a stream, which torch casts to signed on its way out.
pub(super) fn word(name: &'static str, value: Value<'_>) -> Result<u64, WrongField> {
    match value {
        Value::Int(word) => Ok(word.cast_unsigned()),
        Value::UInt(word) => Ok(word),
        other => Err(wrong(name, "an integer", other)),
    }
}

pub(super) fn pool_id(name: &'static str, value: Value<'_>) -> Result<(u64, u64), WrongField> {
    let (Value::Tuple(pair) | Value::List(pair)) = value else {
        return Err(wrong(name, POOL_ID, value));
    };
    let mut items = pair.iter();
    match (items.next(), items.next(), items.next()) {
        (Some(first), Some(second), None) => Ok((word(name, first)?, word(name, second)?)),
        _ => Err(WrongField {
            name,
            expected: POOL_ID,
            found: "another number of items",
        }),
    }
}

pub(super) fn first_of(value: Value<'_>) -> Option<Value<'_>> {
    match value {
        Value::List(list) | Value::Tuple(list) => list.iter().next(),
        _ => None,
    }
}
