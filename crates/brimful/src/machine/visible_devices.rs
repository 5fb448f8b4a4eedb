//! Which GPUs PyTorch will see, and under which number.
//!
//! The rules of `CUDA_VISIBLE_DEVICES` (CUDA C++ Programming Guide, "CUDA Environment Variables"):
//! entries are indices, or UUIDs which may be shortened as long as they stay unique;
//! the first entry that names no device ends the list; an empty value or `-1` hides everything;
//! a device named twice makes the whole list void.

use crate::fact::Fact;

/// What tells a device apart in `CUDA_VISIBLE_DEVICES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceIdentity {
    pub name: Option<String>,
    pub uuid: Option<String>,
    /// UUIDs of its multi-instance parts; empty where that mode is off.
    pub mig_uuids: Vec<String>,
    pub mig_enabled: bool,
}

/// How CUDA numbers devices (`CUDA_DEVICE_ORDER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOrder {
    /// The default: by a speed estimate of the driver's own.
    FastestFirst,
    /// As the management library and `nvidia-smi` number them.
    PciBusId,
}

/// One device or one multi-instance part, seen or hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visibility {
    /// `Known(Some(n))`: PyTorch's `cuda:n`. `Known(None)`: hidden.
    pub torch_index: Fact<Option<u32>>,
    /// The same for each multi-instance part.
    pub mig: Vec<Fact<Option<u32>>>,
}

/// The outcome for all devices, in the order they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchDevices {
    pub devices: Vec<Visibility>,
    /// The entry that ended the list early, if one did.
    pub stopped_at: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Device(usize),
    Mig(usize, usize),
}

/// Numbers the devices as PyTorch will, from their identities and the two variables.
pub fn torch_devices(
    devices: &[DeviceIdentity],
    visible: Option<&str>,
    order: DeviceOrder,
) -> TorchDevices {
    // Different cards are ordered by a speed estimate that only the driver knows.
    let order_known = order == DeviceOrder::PciBusId
        || devices
            .iter()
            .all(|device| device.name.is_some() && device.name == devices[0].name);

    let mut stopped_at = None;
    let (targets, by_index) = match visible {
        None => (all_targets(devices), true),
        Some(list) => {
            let (targets, by_index, stop) = listed_targets(devices, list);
            stopped_at = stop;
            (targets, by_index)
        }
    };
    let targets = one_instance(targets);
    let duplicate = targets
        .iter()
        .enumerate()
        .any(|(at, target)| targets[..at].contains(target));
    let targets = if duplicate { Vec::new() } else { targets };

    let splits = devices.iter().filter(|device| device.mig_enabled).count();
    let mixed = visible.is_none() && splits > 0 && splits < devices.len();
    let index_of = |wanted: Target| -> Fact<Option<u32>> {
        if mixed {
            return Fact::unavailable(
                "some GPUs are in MIG mode and some are not, and CUDA does not document its choice; set CUDA_VISIBLE_DEVICES",
            );
        }
        if by_index && !order_known && !targets.is_empty() {
            return Fact::unavailable(
                "CUDA orders different GPUs by its own speed estimate; set CUDA_DEVICE_ORDER=PCI_BUS_ID for a fixed order",
            );
        }
        let position = targets.iter().position(|target| *target == wanted);
        Fact::Known(position.and_then(|position| u32::try_from(position).ok()))
    };
    let devices = devices
        .iter()
        .enumerate()
        .map(|(device_idx, device)| Visibility {
            torch_index: index_of(Target::Device(device_idx)),
            mig: (0..device.mig_uuids.len())
                .map(|mig_idx| index_of(Target::Mig(device_idx, mig_idx)))
                .collect(),
        })
        .collect();
    TorchDevices {
        devices,
        stopped_at,
    }
}

/// A process gets one multi-instance part at the most, and no whole card beside it (NVIDIA's MIG user guide).
fn one_instance(targets: Vec<Target>) -> Vec<Target> {
    match targets
        .iter()
        .find(|target| matches!(target, Target::Mig(..)))
    {
        Some(first) => vec![*first],
        None => targets,
    }
}

/// Without the variable: every whole card, or the first multi-instance part there is.
fn all_targets(devices: &[DeviceIdentity]) -> Vec<Target> {
    let whole: Vec<Target> = (0..devices.len())
        .filter(|idx| !devices[*idx].mig_enabled)
        .map(Target::Device)
        .collect();
    if !whole.is_empty() {
        return whole;
    }
    devices
        .iter()
        .position(|device| !device.mig_uuids.is_empty())
        .map(|device_idx| Target::Mig(device_idx, 0))
        .into_iter()
        .collect()
}

fn listed_targets(devices: &[DeviceIdentity], list: &str) -> (Vec<Target>, bool, Option<String>) {
    let mut targets = Vec::new();
    let mut by_index = false;
    for entry in list.split(',').take(256) {
        let entry = entry.trim();
        let numeric = leading_index(entry);
        by_index |= numeric.is_some();
        let target = match numeric {
            Some(idx) => usize::try_from(idx)
                .ok()
                .filter(|idx| *idx < devices.len())
                .map(|idx| {
                    let parts = devices[idx].mig_uuids.len();
                    if devices[idx].mig_enabled && parts > 0 {
                        Target::Mig(idx, 0)
                    } else {
                        Target::Device(idx)
                    }
                }),
            None => by_uuid(devices, entry),
        };
        let Some(target) = target else {
            let shown = entry.chars().take(60).collect();
            return (targets, by_index, Some(shown));
        };
        targets.push(target);
    }
    (targets, by_index, None)
}

/// CUDA reads an index as `strtol` does: leading digits count, what follows is passed over.
fn leading_index(entry: &str) -> Option<u64> {
    let digits: String = entry.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn by_uuid(devices: &[DeviceIdentity], prefix: &str) -> Option<Target> {
    if !(prefix.starts_with("GPU-") || prefix.starts_with("MIG-")) {
        return None;
    }
    let mut matching = Vec::new();
    for (device_idx, device) in devices.iter().enumerate() {
        if device
            .uuid
            .as_deref()
            .is_some_and(|uuid| uuid.starts_with(prefix))
        {
            matching.push(Target::Device(device_idx));
        }
        for (mig_idx, uuid) in device.mig_uuids.iter().enumerate() {
            if uuid.starts_with(prefix) {
                matching.push(Target::Mig(device_idx, mig_idx));
            }
        }
    }
    match matching[..] {
        [only] => Some(only),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn card(name: &str, uuid: &str) -> DeviceIdentity {
        DeviceIdentity {
            name: Some(name.into()),
            uuid: Some(uuid.into()),
            mig_uuids: vec![],
            mig_enabled: false,
        }
    }

    fn two_t4() -> Vec<DeviceIdentity> {
        vec![card("Tesla T4", "GPU-aaa1"), card("Tesla T4", "GPU-aab2")]
    }

    fn check(visible: Option<&str>, expected: [Option<u32>; 2]) {
        let seen = torch_devices(&two_t4(), visible, DeviceOrder::FastestFirst);
        let indices: Vec<_> = seen
            .devices
            .iter()
            .map(|device| device.torch_index.known().copied().unwrap())
            .collect();
        assert_eq!(indices, expected, "{visible:?}");
    }

    #[test]
    fn the_documented_forms() {
        check(None, [Some(0), Some(1)]);
        check(Some(""), [None, None]);
        check(Some("-1"), [None, None]);
        check(Some("NoDevFiles"), [None, None]);
        check(Some("1"), [None, Some(0)]);
        check(Some("1,0"), [Some(1), Some(0)]);
        check(Some("0,7,1"), [Some(0), None]);
        check(Some("0,0"), [None, None]);
        check(Some("GPU-aaa"), [Some(0), None]);
        check(Some("GPU-aab2,GPU-aaa1"), [Some(1), Some(0)]);
        check(Some("GPU-aa"), [None, None]); // names two cards, so it names none
    }

    #[test]
    fn the_entry_that_ends_the_list_is_named() {
        let seen = torch_devices(&two_t4(), Some("0,x,1"), DeviceOrder::FastestFirst);
        assert_eq!(seen.stopped_at.as_deref(), Some("x"));
    }

    #[test]
    fn different_cards_have_no_known_order_unless_asked_for() {
        let cards = [card("Tesla T4", "GPU-1"), card("NVIDIA A100", "GPU-2")];
        let seen = torch_devices(&cards, None, DeviceOrder::FastestFirst);
        assert!(seen.devices[0].torch_index.gap().is_some());
        let seen = torch_devices(&cards, None, DeviceOrder::PciBusId);
        assert_eq!(seen.devices[0].torch_index, Fact::Known(Some(0)));
        // A UUID says which card is meant whatever the order.
        let seen = torch_devices(&cards, Some("GPU-2"), DeviceOrder::FastestFirst);
        assert_eq!(seen.devices[1].torch_index, Fact::Known(Some(0)));
    }

    #[test]
    fn one_multi_instance_part_is_seen_at_a_time() {
        let mut split = card("NVIDIA A100-SXM4-40GB", "GPU-1");
        split.mig_enabled = true;
        split.mig_uuids = vec!["MIG-11".into(), "MIG-22".into()];
        let seen = torch_devices(&[split.clone()], None, DeviceOrder::FastestFirst);
        assert_eq!(seen.devices[0].torch_index, Fact::Known(None));
        assert_eq!(
            seen.devices[0].mig,
            [Fact::Known(Some(0)), Fact::Known(None)]
        );
        let two = torch_devices(
            &[split.clone()],
            Some("MIG-22,MIG-11"),
            DeviceOrder::FastestFirst,
        );
        assert_eq!(
            two.devices[0].mig,
            [Fact::Known(None), Fact::Known(Some(0))]
        );
        let whole = card("NVIDIA A100-SXM4-40GB", "GPU-9");
        let mixed = torch_devices(&[split.clone(), whole], None, DeviceOrder::FastestFirst);
        assert!(mixed.devices[1].torch_index.gap().is_some());
        let seen = torch_devices(&[split], Some("MIG-22"), DeviceOrder::FastestFirst);
        assert_eq!(
            seen.devices[0].mig,
            [Fact::Known(None), Fact::Known(Some(0))]
        );
    }

    proptest! {
        #[test]
        fn every_number_is_given_once(list in "[-0-9a-zG,UPMI ]{0,20}") {
            let seen = torch_devices(&two_t4(), Some(&list), DeviceOrder::PciBusId);
            let mut indices: Vec<u32> = seen
                .devices
                .iter()
                .filter_map(|device| device.torch_index.known().copied().flatten())
                .collect();
            indices.sort_unstable();
            let expected: Vec<u32> = (0..u32::try_from(indices.len()).unwrap()).collect();
            prop_assert_eq!(indices, expected);
        }
    }
}
