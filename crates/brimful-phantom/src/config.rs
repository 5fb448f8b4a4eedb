//! The description of the devices, from the text of `BRIMFUL_PHANTOM_DEVICES`. Pure.

use crate::card::{self, ComputeCapability};

/// One device as its description gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceSpec {
    pub(crate) name: String,
    /// What CUDA calls total memory, in bytes.
    pub(crate) memory: u64,
    /// What NVML calls total memory: the same and what the driver keeps for itself.
    pub(crate) total: u64,
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
    let mut total = None;
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
            "total" => total = Some(number(key, value)?),
            "room" => room = Some(number(key, value)?),
            "held" => held = number(key, value)?,
            "context" => context = number(key, value)?,
            "cc" => cc = Some(parse_cc(value)?),
            "multiprocessors" => multiprocessors = Some(number(key, value)?),
            other => {
                return Err(format!(
                    "expected one of the keys name, memory, total, room, held, context, cc, multiprocessors, found `{other}` in `{text}`"
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
        // NVML's total is often known in whole MiB only.
        total: total.unwrap_or(memory).max(memory),
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

/// What `CUDA_VISIBLE_DEVICES` says.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct VisibleDevices {
    /// Places among all devices, in the order in which the program sees them. A place may lie behind the devices that
    /// were asked for.
    pub(crate) places: Vec<usize>,
    /// Beginnings of UUIDs of the user's own GPUs, and the places that stand for them.
    uuids: Vec<(usize, String)>,
}

/// Reads `CUDA_VISIBLE_DEVICES` as CUDA does: the list ends at the first entry that names no device, and is void if it
/// names one twice.
///
/// A script names GPUs of the machine that it was written for, so an index or a UUID is accepted for which no device was
/// asked. A process has one multi-instance part at most, and no whole device beside it (NVIDIA's MIG user guide).
pub(crate) fn visible(text: Option<&str>, devices: usize) -> VisibleDevices {
    let mut visible = VisibleDevices::default();
    let Some(text) = text else {
        visible.places.extend(0..devices);
        return visible;
    };
    for entry in text.split(',').map(str::trim) {
        if is_instance(entry) {
            return VisibleDevices {
                places: vec![0],
                uuids: Vec::new(),
            };
        }
        let Some(place) = visible.place_of(entry, devices) else {
            break;
        };
        if visible.places.contains(&place) {
            return VisibleDevices::default();
        }
        visible.places.push(place);
    }
    visible
}

impl VisibleDevices {
    /// Which device an entry names.
    fn place_of(&mut self, entry: &str, devices: usize) -> Option<usize> {
        if !entry.starts_with("GPU-") {
            // As `strtoul` reads: what follows the digits does not count.
            let digits = entry.strip_prefix('+').unwrap_or(entry);
            let end = digits.find(|c: char| !c.is_ascii_digit());
            let place = digits[..end.unwrap_or(digits.len())].parse().ok()?;
            return (place < MAX_DEVICES).then_some(place);
        }
        let mut ours = (0..devices).filter(|place| uuid_text(uuid(*place)).starts_with(entry));
        match (ours.next(), ours.next()) {
            (Some(place), None) => return Some(place),
            (Some(_), Some(_)) => return None,
            (None, _) => {}
        }
        if !is_uuid_prefix(entry.strip_prefix("GPU-")?) {
            return None;
        }
        let is_same = |known: &str| known.starts_with(entry) || entry.starts_with(known);
        if let Some((place, _)) = self.uuids.iter().find(|(_, known)| is_same(known)) {
            return Some(*place);
        }
        let place = (0..MAX_DEVICES).find(|place| !self.places.contains(place))?;
        self.uuids.push((place, entry.to_owned()));
        Some(place)
    }

    /// How many devices there are with those that the list adds.
    pub(crate) fn n_devices(&self, devices: usize) -> usize {
        let named = self.places.iter().map(|place| place + 1);
        named.max().unwrap_or(0).max(devices)
    }

    /// The UUID of a device: its own, or the one under which the list names it.
    pub(crate) fn uuid(&self, place: usize) -> [u8; 16] {
        let own = uuid(place);
        let Some((_, named)) = self.uuids.iter().find(|(of, _)| *of == place) else {
            return own;
        };
        let own_text = uuid_text(own);
        let text = format!("{named}{}", own_text.get(named.len()..).unwrap_or_default());
        parse_uuid(&text).unwrap_or(own)
    }
}

/// Whether an entry names a multi-instance part: `MIG-UUID` or, by drivers before 470, `MIG-GPU-UUID/1/0`.
fn is_instance(entry: &str) -> bool {
    let Some(name) = entry.strip_prefix("MIG-") else {
        return false;
    };
    let Some(old) = name.strip_prefix("GPU-") else {
        return is_uuid_prefix(name);
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    match old.split('/').collect::<Vec<_>>()[..] {
        [uuid, gpu, compute] => is_uuid_prefix(uuid) && is_number(gpu) && is_number(compute),
        _ => false,
    }
}

/// Where a UUID's text has hyphens.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Whether a text can be the beginning of a UUID.
fn is_uuid_prefix(text: &str) -> bool {
    let is_right = |(at, c): (usize, u8)| match c {
        b'-' => HYPHENS.contains(&at),
        b'0'..=b'9' | b'a'..=b'f' => !HYPHENS.contains(&at),
        _ => false,
    };
    (1..=36).contains(&text.len()) && text.bytes().enumerate().all(is_right)
}

/// The UUID of a device: recognisable, and the same in every run.
pub(crate) fn uuid(device: usize) -> [u8; 16] {
    let mut bytes = *b"brimful-phantom\0";
    bytes[15] = u8::try_from(device).unwrap_or(u8::MAX);
    bytes
}

/// The UUID in the form NVML and `nvidia-smi -L` print.
pub(crate) fn uuid_text(uuid: [u8; 16]) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("GPU");
    for (i, byte) in uuid.into_iter().enumerate() {
        if matches!(i, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The reverse of [`uuid_text`].
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let mut digits = text
        .strip_prefix("GPU-")?
        .chars()
        .filter(|c| *c != '-')
        .map(|c| c.to_digit(16));
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        let (high, low) = (digits.next()??, digits.next()??);
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    digits.next().is_none().then_some(bytes)
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
    fn nvml_counts_what_the_driver_keeps_too() {
        let total = |text: &str| parse_devices(text).unwrap()[0].total;
        assert_eq!(
            total("memory=900,total=1000,cc=7.5,multiprocessors=1"),
            1000
        );
        assert_eq!(total("memory=900,cc=7.5,multiprocessors=1"), 900);
        assert_eq!(total("memory=900,total=899,cc=7.5,multiprocessors=1"), 900);
    }

    fn check(text: &str, expected: &[usize]) {
        assert_eq!(visible(Some(text), 3).places, expected, "`{text}`");
    }

    #[test]
    fn visible_devices_follow_the_drivers_rules() {
        assert_eq!(visible(None, 3).places, [0, 1, 2]);
        check("2,0", &[2, 0]);
        check(" 1 , 0", &[1, 0]);
        check("1gpu,+2", &[1, 2]);
        for nothing in ["", "-1", "-1,0", "none", "NoDevFiles", "1,1", "0,1,0"] {
            check(nothing, &[]);
        }
        // What follows an entry that names nothing does not count.
        check("1,-1,0", &[1]);
        check("1,16,0", &[1]);
        check("1,99999999999999999999,0", &[1]);
        check("0,,1", &[0]);
    }

    #[test]
    fn an_index_beyond_the_devices_adds_devices() {
        let three = visible(Some("3"), 1);
        assert_eq!((three.places.as_slice(), three.n_devices(1)), (&[3][..], 4));
        assert_eq!(visible(Some("0"), 2).n_devices(2), 2);
        assert_eq!(visible(Some(""), 2).n_devices(2), 2);
        assert_eq!(visible(Some("15"), 1).n_devices(1), MAX_DEVICES);
    }

    #[test]
    fn a_uuid_of_a_phantom_names_it() {
        let text = |place| uuid_text(uuid(place));
        check(&text(2), &[2]);
        check(&format!("{},{}", text(1), text(0)), &[1, 0]);
        // Shortened it must still be unique.
        check(&text(2)[..20], &[]);
        assert_eq!(visible(Some(&text(0)[..20]), 1).places, [0]);
        assert_eq!(parse_uuid(&text(7)), Some(uuid(7)));
    }

    #[test]
    fn a_uuid_of_the_users_gpu_names_a_phantom_that_has_it() {
        const OWN: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
        let whole = visible(Some(OWN), 1);
        assert_eq!(whole.places, [0]);
        assert_eq!(uuid_text(whole.uuid(0)), OWN);
        let two = visible(Some("GPU-8932f937-d7,GPU-5d"), 1);
        assert_eq!((two.places.as_slice(), two.n_devices(1)), (&[0, 1][..], 2));
        for (place, prefix) in ["GPU-8932f937-d7", "GPU-5d"].into_iter().enumerate() {
            let text = uuid_text(two.uuid(place));
            assert!(
                text.starts_with(prefix) && text.len() == OWN.len(),
                "{text}"
            );
        }
        // Twice the same GPU, once shortened.
        check(&format!("{OWN},{}", &OWN[..12]), &[]);
        for malformed in ["GPU-x", "GPU-8932f9371", "GPU-8932-f937", "gpu-8932f937"] {
            check(malformed, &[]);
        }
        check(&format!("{OWN}0"), &[]);
    }

    #[test]
    fn a_multi_instance_part_is_seen_alone() {
        const PART: &str = "MIG-a53a3e1d-4f2e-5c1b-9c3f-0e8a1a6b2c3d";
        check(PART, &[0]);
        check("MIG-a53a3e1d", &[0]);
        check(&format!("{PART},MIG-b5"), &[0]);
        check(&format!("2,{PART}"), &[0]);
        check("MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0", &[0]);
        for malformed in [
            "MIG-",
            "MIG-x",
            "MIG-GPU-8932f937",
            "MIG-GPU-8932f937/1",
            "MIG-GPU-8932f937/a/0",
        ] {
            check(malformed, &[]);
        }
    }
}
