//! The description of the devices, from the text of `BRIMFUL_PHANTOM_DEVICES`. Pure.

use crate::card::{self, ComputeCapability};

/// One device as its description gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceSpec {
    pub(crate) name: String,
    /// What the driver calls total memory, in bytes.
    pub(crate) memory: u64,
    /// Bytes that can really be taken. More than `memory` for a rehearsal that must not end early.
    pub(crate) room: u64,
    /// Bytes taken before the program asks for any: the context, other processes.
    pub(crate) held: u64,
    /// Bytes that the first use takes besides.
    pub(crate) context: u64,
    pub(crate) cc: ComputeCapability,
    pub(crate) multiprocessors: u32,
}

/// One T4, the card of the free notebooks; total as its driver reports it.
pub(crate) const DEFAULT: &str =
    "name=Tesla T4,memory=15843721216,held=0,cc=7.5,multiprocessors=40";

/// Each device has its own window of addresses; there is room for this many.
pub(crate) const MAX_DEVICES: usize = 16;
/// A window is twice as large, so that first fit finds room even in a scattered one.
pub(crate) const MAX_MEMORY: u64 = 1 << 40;

/// Reads the devices; the error says what was expected and what was found.
pub(crate) fn parse_devices(text: &str) -> Result<Vec<DeviceSpec>, String> {
    let devices = text
        .split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(parse_device)
        .collect::<Result<Vec<_>, _>>()?;
    match devices.len() {
        0 => Err(format!(
            "expected at least one device such as `{DEFAULT}`, found `{text}`"
        )),
        n if n > MAX_DEVICES => Err(format!("expected at most {MAX_DEVICES} devices, found {n}")),
        _ => Ok(devices),
    }
}

fn parse_device(text: &str) -> Result<DeviceSpec, String> {
    let mut name = None;
    let mut memory = None;
    let mut room = None;
    let mut held = 0;
    let mut context = 0;
    let mut cc = None;
    let mut multiprocessors = None;
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(format!(
                "expected `key=value`, found `{}` in `{text}`",
                pair.trim()
            ));
        };
        let value = value.trim();
        match key.trim() {
            "name" => name = Some(value.to_owned()),
            "memory" => memory = Some(number(key, value)?),
            "room" => room = Some(number(key, value)?),
            "held" => held = number(key, value)?,
            "context" => context = number(key, value)?,
            "cc" => cc = Some(parse_cc(value)?),
            "multiprocessors" => multiprocessors = Some(number(key, value)?),
            other => {
                return Err(format!(
                    "expected one of the keys name, memory, room, held, context, cc, multiprocessors, found `{other}` in `{text}`"
                ));
            }
        }
    }
    let missing = |key: &str| format!("expected the key `{key}`, found only `{text}`");
    let memory: u64 = memory.ok_or_else(|| missing("memory"))?;
    let room = room.unwrap_or(memory);
    for (key, bytes) in [("memory", memory), ("room", room)] {
        if bytes == 0 || bytes > MAX_MEMORY {
            return Err(format!(
                "expected {key} between 1 and {MAX_MEMORY} bytes, found {bytes} in `{text}`"
            ));
        }
    }
    for (key, bytes) in [("held", held), ("context", context)] {
        if bytes > room {
            return Err(format!(
                "expected {key} to be at most the memory of {room} bytes, found {bytes} in `{text}`"
            ));
        }
    }
    let multiprocessors: u64 = multiprocessors.ok_or_else(|| missing("multiprocessors"))?;
    let Ok(multiprocessors @ 1..=1024) = u32::try_from(multiprocessors) else {
        return Err(format!(
            "expected 1 to 1024 multiprocessors, found {multiprocessors} in `{text}`"
        ));
    };
    Ok(DeviceSpec {
        name: name.unwrap_or_else(|| "phantom".to_owned()),
        memory,
        room,
        held,
        context,
        cc: cc.ok_or_else(|| missing("cc"))?,
        multiprocessors,
    })
}

fn number(key: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| {
        format!(
            "expected a whole number for `{}`, found `{value}`",
            key.trim()
        )
    })
}

fn parse_cc(value: &str) -> Result<ComputeCapability, String> {
    let found = value.split_once('.').and_then(|(major, minor)| {
        Some(ComputeCapability {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    });
    match found {
        Some(cc) if card::limits(cc).is_some() => Ok(cc),
        _ => Err(format!(
            "expected a compute capability out of {}, found `{value}`",
            card::known()
        )),
    }
}

/// Which devices `CUDA_VISIBLE_DEVICES` shows, in its order.
///
/// As the driver does, the list ends at the first entry that names no device or one already named.
/// A device can also be named by the beginning of its UUID.
pub(crate) fn visible(text: Option<&str>, devices: usize) -> Vec<usize> {
    let Some(text) = text else {
        return (0..devices).collect();
    };
    let mut shown = Vec::new();
    for entry in text.split(',').map(str::trim) {
        let found = match entry.parse::<usize>() {
            Ok(index) => Some(index),
            Err(_) if entry.starts_with("GPU-") && entry.len() > 4 => {
                (0..devices).find(|index| uuid_text(*index).starts_with(entry))
            }
            Err(_) => None,
        };
        match found {
            Some(index) if index < devices && !shown.contains(&index) => shown.push(index),
            _ => break,
        }
    }
    shown
}

/// The UUID of a device: recognisable, and the same in every run.
pub(crate) fn uuid(device: usize) -> [u8; 16] {
    let mut bytes = *b"brimful-phantom\0";
    bytes[15] = u8::try_from(device).unwrap_or(u8::MAX);
    bytes
}

/// The UUID in the form NVML and `nvidia-smi -L` print.
pub(crate) fn uuid_text(device: usize) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("GPU");
    for (i, byte) in uuid(device).into_iter().enumerate() {
        if matches!(i, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_error(text: &str, expected: &str) {
        let error = parse_devices(text).unwrap_err();
        assert!(
            error.contains(expected),
            "`{error}` should say `{expected}`"
        );
    }

    #[test]
    fn the_default_is_a_t4() {
        let devices = parse_devices(DEFAULT).unwrap();
        assert_eq!(devices.len(), 1);
        assert_eq!(devices[0].name, "Tesla T4");
        assert_eq!(devices[0].cc, ComputeCapability { major: 7, minor: 5 });
        assert_eq!(
            (devices[0].memory, devices[0].multiprocessors),
            (15_843_721_216, 40)
        );
    }

    #[test]
    fn two_devices_may_differ() {
        let text = "memory=1000,cc=8.0,multiprocessors=108; name=b, memory=2000, held=7, cc=12.0, multiprocessors=1;";
        let devices = parse_devices(text).unwrap();
        assert_eq!(devices.len(), 2);
        assert_eq!((devices[1].held, devices[1].name.as_str()), (7, "b"));
    }

    #[test]
    fn errors_say_what_was_expected_and_found() {
        check_error("", "at least one device");
        check_error("memory", "expected `key=value`, found `memory`");
        check_error("memory=12GB", "whole number for `memory`, found `12GB`");
        check_error(
            "memory=9,cc=7.5,multiprocessors=1,color=red",
            "found `color`",
        );
        check_error("memory=9,cc=7,multiprocessors=1", "found `7`");
        check_error("memory=9,cc=3.5,multiprocessors=1", "7.5, 8.0");
        check_error("cc=7.5,multiprocessors=1", "key `memory`");
        check_error("memory=9,multiprocessors=1", "key `cc`");
        check_error("memory=9,cc=7.5", "key `multiprocessors`");
        check_error(
            "memory=9,held=10,cc=7.5,multiprocessors=1",
            "at most the memory of 9 bytes, found 10",
        );
        check_error("memory=0,cc=7.5,multiprocessors=1", "found 0");
        check_error("memory=9,cc=7.5,multiprocessors=0", "found 0");
        check_error("memory=-1,cc=7.5,multiprocessors=4", "found `-1`");
    }

    #[test]
    fn visible_devices_follow_the_drivers_rules() {
        assert_eq!(visible(None, 3), [0, 1, 2]);
        assert_eq!(visible(Some(""), 3), [0_usize; 0]);
        assert_eq!(visible(Some("2,0"), 3), [2, 0]);
        assert_eq!(visible(Some("1,7,0"), 3), [1]);
        assert_eq!(visible(Some("1,1"), 3), [1]);
        assert_eq!(visible(Some("-1"), 3), [0_usize; 0]);
        assert_eq!(visible(Some(&uuid_text(2)), 3), [2]);
    }
}
