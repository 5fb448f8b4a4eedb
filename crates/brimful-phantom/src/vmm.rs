//! Virtual memory management: reservations, physical handles, mappings. Expandable segments live on it.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::Mutex;

use crate::abi::{
    INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, exports, get, lock, put, zero,
};
use crate::machine;
use crate::memory::{AddressSpace, PAGE, VIRTUAL_BASE, VIRTUAL_END, round_up};
use crate::watched;

#[derive(Debug, Clone, Copy)]
struct Physical {
    /// Place of the device among all.
    device: usize,
    bytes: u64,
    /// The creator, each retain and each mapping hold it; memory returns when nobody does.
    holders: u32,
}

/// Reservations and what is mapped where.
#[derive(Debug)]
struct Virtual {
    space: Option<AddressSpace>,
    next: u64,
    physical: BTreeMap<u64, Physical>,
    /// Start of a mapping to its length and handle.
    mapped: BTreeMap<u64, (u64, u64)>,
}

static VIRTUAL: Mutex<Virtual> = Mutex::new(Virtual {
    space: None,
    next: 0x10,
    physical: BTreeMap::new(),
    mapped: BTreeMap::new(),
});

impl Virtual {
    fn space(&mut self) -> &mut AddressSpace {
        self.space
            .get_or_insert_with(|| AddressSpace::new(VIRTUAL_BASE, VIRTUAL_END, PAGE))
    }

    fn drop_holder(&mut self, handle: u64) -> c_int {
        let Some(block) = self.physical.get_mut(&handle) else {
            return INVALID_VALUE;
        };
        block.holders = block.holders.saturating_sub(1);
        if block.holders == 0 {
            let block = *block;
            self.physical.remove(&handle);
            if let Some(device) = machine::machine().devices.get(block.device) {
                let mut space = lock(&device.memory);
                space.refund(block.bytes);
                device.note_use(&space);
            }
        }
        SUCCESS
    }

    fn mapping_of(&self, address: u64) -> Option<(u64, u64, u64)> {
        let (&start, &(length, handle)) = self.mapped.range(..=address).next_back()?;
        (address - start < length).then_some((start, length, handle))
    }
}

/// The physical device behind a mapped address.
pub(crate) fn device_of(address: u64) -> Option<usize> {
    let state = lock(&VIRTUAL);
    let (_, _, handle) = state.mapping_of(address)?;
    state.physical.get(&handle).map(|block| block.device)
}

/// The reservation an address lies in, as start and length.
pub(crate) fn range_of(address: u64) -> Option<(u64, u64)> {
    lock(&VIRTUAL).space().range_of(address)
}

/// `CUmemAllocationProp`: type, handle types, location type, location id, …; the first four are `int`.
const LOCATION_ID: usize = 12;
const PROPERTIES_BYTES: usize = 32;

exports! {
    fn cuMemAddressReserve(out: *mut u64, bytes: usize, _align: usize, _wanted: u64, _flags: c_ulonglong) {
        match lock(&VIRTUAL).space().take(bytes as u64) {
            Some(address) => {
                put(out, address);
                SUCCESS
            }
            None => OUT_OF_MEMORY,
        }
    }
    fn cuMemAddressFree(address: u64, _bytes: usize) {
        if lock(&VIRTUAL).space().give_back(address).is_some() { SUCCESS } else { INVALID_VALUE }
    }
    fn cuMemCreate(out: *mut u64, bytes: usize, properties: *const c_void, _flags: c_ulonglong) {
        let ordinal = if properties.is_null() {
            machine::current_ordinal()
        } else {
            get(properties.wrapping_byte_add(LOCATION_ID).cast::<c_int>()).unwrap_or(0)
        };
        let Some(device) = machine::device(ordinal) else { return machine::no_such_device() };
        let Some(bytes) = round_up(bytes as u64, PAGE) else { return INVALID_VALUE };
        watched::check();
        {
            let mut space = lock(&device.memory);
            if space.charge(bytes).is_none() {
                return OUT_OF_MEMORY;
            }
            device.note_use(&space);
        }
        let mut state = lock(&VIRTUAL);
        let handle = state.next;
        state.next += 16;
        state.physical.insert(handle, Physical { device: device.index, bytes, holders: 1 });
        put(out, handle);
        SUCCESS
    }
    fn cuMemRelease(handle: u64) { lock(&VIRTUAL).drop_holder(handle) }
    fn cuMemMap(address: u64, bytes: usize, _offset: usize, handle: u64, _flags: c_ulonglong) {
        let mut state = lock(&VIRTUAL);
        match state.physical.get_mut(&handle) {
            Some(block) => block.holders += 1,
            None => return INVALID_VALUE,
        }
        state.mapped.insert(address, (bytes as u64, handle));
        SUCCESS
    }
    fn cuMemUnmap(address: u64, bytes: usize) {
        let mut state = lock(&VIRTUAL);
        let end = address.saturating_add(bytes as u64);
        let starts: Vec<u64> = state.mapped.range(address..end).map(|(start, _)| *start).collect();
        for start in starts {
            if let Some((_, handle)) = state.mapped.remove(&start) {
                state.drop_holder(handle);
            }
        }
        SUCCESS
    }
    fn cuMemSetAccess(_address: u64, _bytes: usize, _access: usize, _count: usize) { SUCCESS }
    fn cuMemGetAccess(flags: *mut c_ulonglong, _location: usize, _address: u64) { put(flags, 3); SUCCESS }
    fn cuMemGetAllocationGranularity(out: *mut usize, _properties: usize, _option: c_int) {
        put(out, usize::try_from(PAGE).unwrap_or(0));
        SUCCESS
    }
    fn cuMemGetAllocationPropertiesFromHandle(out: *mut c_void, handle: u64) {
        let Some(block) = lock(&VIRTUAL).physical.get(&handle).copied() else { return INVALID_VALUE };
        if out.is_null() {
            return INVALID_VALUE;
        }
        zero(out, PROPERTIES_BYTES);
        put(out.cast::<c_int>(), 1); // pinned
        put(out.wrapping_byte_add(8).cast::<c_int>(), 1); // on a device
        put(out.wrapping_byte_add(LOCATION_ID).cast::<c_int>(), machine::ordinal_of(block.device).unwrap_or(0));
        SUCCESS
    }
    fn cuMemRetainAllocationHandle(out: *mut u64, address: u64) {
        let mut state = lock(&VIRTUAL);
        let Some((_, _, handle)) = state.mapping_of(address) else { return INVALID_VALUE };
        if let Some(block) = state.physical.get_mut(&handle) {
            block.holders += 1;
        }
        put(out, handle);
        SUCCESS
    }
    // Other processes have their own phantom: there is nothing to share.
    fn cuMemExportToShareableHandle(_out: usize, _handle: u64, _kind: c_int, _flags: c_ulonglong) { NOT_SUPPORTED }
    fn cuMemImportFromShareableHandle(_out: usize, _from: usize, _kind: c_int) { NOT_SUPPORTED }
    fn cuMulticastCreate(_out: usize, _properties: usize) { NOT_SUPPORTED }
    fn cuMulticastGetGranularity(out: *mut usize, _properties: usize, _option: c_uint) {
        put(out, usize::try_from(PAGE).unwrap_or(0));
        SUCCESS
    }
}
