//! The devices of this process, read at the first call that needs them.

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, OnceLock};

use crate::abi::{self, INVALID_DEVICE, NO_DEVICE, exports, lock};
use crate::card::{self, Board, Limits};
use crate::config::{self, DeviceSpec};
use crate::memory::DeviceMemory;
use crate::shared;

/// One device and its memory.
#[derive(Debug)]
pub(crate) struct Device {
    /// Place among all devices; `CUDA_VISIBLE_DEVICES` changes ordinals, not this.
    pub(crate) index: usize,
    pub(crate) uuid: [u8; 16],
    pub(crate) spec: DeviceSpec,
    pub(crate) limits: Limits,
    pub(crate) board: Board,
    pub(crate) memory: Mutex<DeviceMemory>,
    /// Whether the program has used it, so that a primary context exists.
    pub(crate) active: AtomicBool,
}

impl Device {
    /// Total, free and used bytes as the driver would report them: with what other processes use.
    pub(crate) fn shown_memory(&self) -> [u64; 3] {
        let others = shared::others(self.index);
        let others = others
            .into_iter()
            .fold(0, |sum: u64, (_, held)| sum.saturating_add(held));
        let memory = lock(&self.memory);
        let total = self.spec.memory;
        [
            total,
            memory.free().saturating_sub(others),
            memory.used().saturating_add(others).min(total),
        ]
    }

    /// Total, kept by the driver, free and used bytes as NVML reports them.
    pub(crate) fn managed_memory(&self) -> [u64; 4] {
        let [total, free, used] = self.shown_memory();
        [self.spec.total, self.spec.total - total, free, used]
    }

    /// Brings the primary context into being, at its first use.
    pub(crate) fn activate(&self) {
        if !self.active.swap(true, Ordering::Relaxed) {
            let mut memory = lock(&self.memory);
            memory.hold(self.spec.context);
            self.note_use(&memory);
        }
    }

    /// Lets other processes see what this one uses.
    pub(crate) fn note_use(&self, memory: &DeviceMemory) {
        shared::note(self.index, memory.used().saturating_sub(self.spec.held));
    }
}

/// All devices, and those the program may see.
#[derive(Debug, Default)]
pub(crate) struct PhantomDevices {
    pub(crate) devices: Vec<Device>,
    pub(crate) visible: Vec<usize>,
    /// How many devices were described; those behind them were added for `CUDA_VISIBLE_DEVICES`.
    described: usize,
}

impl PhantomDevices {
    /// How many of the devices that the program sees were added.
    pub(crate) fn n_added(&self) -> usize {
        let added = self
            .visible
            .iter()
            .filter(|place| **place >= self.described);
        added.count()
    }
}

static CONFIGURED: Mutex<Option<String>> = Mutex::new(None);
static MACHINE: OnceLock<PhantomDevices> = OnceLock::new();

thread_local! {
    static CURRENT: Cell<c_int> = const { Cell::new(0) };
}

exports! {
    /// Describes the devices from inside the process; wins over the environment.
    ///
    /// Gives 0, or 1 if the devices were already read, or 2 if the text is malformed (the reason goes to
    /// stderr).
    fn brimful_phantom_configure(text: *const c_char) {
        if MACHINE.get().is_some() {
            abi::say("brimful_phantom_configure came after the first CUDA call; the devices stay as they are");
            return 1;
        }
        let text = abi::text(text);
        if let Err(reason) = config::parse_devices(&text) {
            abi::say(&reason);
            return 2;
        }
        *lock(&CONFIGURED) = Some(text);
        0
    }
}

/// The devices as CUDA has them, from its first call on.
pub(crate) fn machine() -> &'static PhantomDevices {
    MACHINE.get_or_init(read)
}

/// The devices as NVML shows them. To ask fixes nothing: until CUDA's first call the program may still choose others.
pub(crate) fn listed<T>(answer: impl FnOnce(&PhantomDevices) -> T) -> T {
    match MACHINE.get() {
        Some(machine) => answer(machine),
        None => answer(&read()),
    }
}

fn read() -> PhantomDevices {
    let text = lock(&CONFIGURED)
        .clone()
        .or_else(|| environment(crate::env_vars::BRIMFUL_PHANTOM_DEVICES))
        .unwrap_or_else(|| config::DEFAULT.to_owned());
    match config::parse_devices(&text) {
        Ok(specs) => build(
            specs,
            environment(crate::env_vars::CUDA_VISIBLE_DEVICES).as_deref(),
        ),
        Err(reason) => {
            say_once(&format!("BRIMFUL_PHANTOM_DEVICES: {reason}"));
            PhantomDevices::default()
        }
    }
}

fn say_once(message: &str) {
    static SAID: Once = Once::new();
    SAID.call_once(|| abi::say(message));
}

fn build(mut specs: Vec<DeviceSpec>, visible: Option<&str>) -> PhantomDevices {
    let described = specs.len();
    let visible = config::visible(visible, described);
    if let Some(last) = specs.last().cloned() {
        specs.resize(visible.n_devices(described), last);
    }
    let devices: Vec<Device> = specs
        .into_iter()
        .enumerate()
        .filter_map(|(index, spec)| {
            Some(Device {
                index,
                uuid: visible.uuid(index),
                limits: card::limits(spec.cc)?,
                board: card::nearest_board(spec.cc, spec.multiprocessors, spec.memory)?,
                memory: Mutex::new(DeviceMemory::new(index, spec.room, spec.held)),
                active: AtomicBool::new(false),
                spec,
            })
        })
        .collect();
    PhantomDevices {
        devices,
        visible: visible.places,
        described,
    }
}

/// A variable's text, asked of the C library and not of a copy made at start.
///
/// Python's `os.environ` writes through `putenv`, which this sees.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

pub(crate) fn count() -> c_int {
    c_int::try_from(machine().visible.len()).unwrap_or(0)
}

/// The device with this ordinal among the visible ones.
pub(crate) fn device(ordinal: c_int) -> Option<&'static Device> {
    let machine = machine();
    let index = machine.visible.get(usize::try_from(ordinal).ok()?)?;
    machine.devices.get(*index)
}

/// The ordinal of a device among the visible ones.
pub(crate) fn ordinal_of(index: usize) -> Option<c_int> {
    let place = machine().visible.iter().position(|shown| *shown == index)?;
    c_int::try_from(place).ok()
}

pub(crate) fn current_ordinal() -> c_int {
    CURRENT.get()
}

/// The calling thread's device; using it brings its context into being.
pub(crate) fn current() -> Option<&'static Device> {
    let found = device(CURRENT.get())?;
    found.activate();
    Some(found)
}

/// Changes the calling thread's device; the CUDA error code.
pub(crate) fn set_current(ordinal: c_int) -> c_int {
    match device(ordinal) {
        Some(found) => {
            found.activate();
            CURRENT.set(ordinal);
            abi::SUCCESS
        }
        None => no_such_device(),
    }
}

/// What to answer for an ordinal that names nothing.
pub(crate) fn no_such_device() -> c_int {
    if machine().visible.is_empty() {
        NO_DEVICE
    } else {
        INVALID_DEVICE
    }
}

/// The PCI address under which runtime and NVML agree on a device.
pub(crate) fn pci_address(index: usize) -> String {
    format!("0000:00:{:02X}.0", pci_slot(index))
}

pub(crate) fn pci_slot(index: usize) -> usize {
    4 + index
}

/// The reverse of [`pci_address`], also where there is no such device; NVML also writes the domain with eight digits.
pub(crate) fn index_of_pci(text: &str) -> Option<usize> {
    let slot = text.split(':').nth(2)?.split('.').next()?;
    let slot = usize::from_str_radix(slot, 16).ok()?;
    slot.checked_sub(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_get_new_ordinals_but_keep_their_memory() {
        let specs = config::parse_devices(
            "memory=100,cc=7.5,multiprocessors=1;memory=200,cc=8.0,multiprocessors=1;memory=300,cc=9.0,multiprocessors=1",
        )
        .unwrap();
        let machine = build(specs, Some("2,0"));
        assert_eq!(machine.visible, [2, 0]);
        let first = &machine.devices[machine.visible[0]];
        assert_eq!((first.index, first.spec.memory), (2, 300));
        assert_eq!(machine.n_added(), 0);
    }

    #[test]
    fn devices_that_a_script_names_are_added_as_copies_of_the_last() {
        let specs = || config::parse_devices("memory=100,cc=7.5,multiprocessors=1").unwrap();
        let machine = build(specs(), Some("3"));
        assert_eq!((machine.devices.len(), machine.n_added()), (4, 1));
        let seen = &machine.devices[machine.visible[0]];
        assert_eq!((seen.index, seen.spec.memory), (3, 100));
        assert_eq!(build(specs(), Some("-1")).devices.len(), 1);
        let named = build(specs(), Some("GPU-8932f937"));
        assert_eq!((named.devices.len(), named.n_added()), (1, 0));
        assert!(config::uuid_text(named.devices[0].uuid).starts_with("GPU-8932f937-"));
    }

    #[test]
    fn pci_addresses_are_read_back() {
        assert_eq!(pci_address(2), "0000:00:06.0");
        assert_eq!(index_of_pci("00000000:00:06.0"), Some(2));
        assert_eq!(index_of_pci("0000:00:03.0"), None);
    }
}
