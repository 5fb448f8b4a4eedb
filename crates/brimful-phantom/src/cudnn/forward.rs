//! The backend interface, forwarded to a real cuDNN in deviceless mode.
//!
//! Since 9.8 a "device property" descriptor, made from JSON, may stand in for a handle wherever one is asked
//! for: in heuristics, engines and plans. The library then chooses engines and computes workspace sizes
//! without a device. It is asked for nothing else: plans are never executed. The attribute numbers are those
//! of `cudnn_graph.h`.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Mutex, OnceLock};

use crate::abi::{self, RTLD_LAZY, SUCCESS, lock};
use crate::card;
use crate::machine::{self, Device};
use crate::report::{self, quoted};
use crate::runtime::DRIVER_VERSION;

type Create = extern "C" fn(c_int, *mut usize) -> c_int;
type OnDescriptor = extern "C" fn(usize) -> c_int;
type Set = extern "C" fn(usize, c_int, c_int, i64, usize) -> c_int;
type Get = extern "C" fn(usize, c_int, c_int, i64, *mut i64, usize) -> c_int;
type LastError = extern "C" fn(*mut c_char, usize);
type Version = extern "C" fn() -> usize;

/// The functions of the real library.
pub(super) struct Library {
    pub(super) version: usize,
    pub(super) create: Create,
    pub(super) destroy: OnDescriptor,
    pub(super) finalize: OnDescriptor,
    pub(super) get: Get,
    pub(super) last_error: LastError,
    set: Set,
}

const OLDEST: usize = 90_800;

const DEVICE_PROPERTY_DESCRIPTOR: c_int = 38;
const TYPE_INT64: c_int = 3;
const TYPE_DESCRIPTOR: c_int = 15;
const TYPE_CHAR: c_int = 24;
const HEURISTIC_OPERATION_GRAPH: c_int = 201;
const HEURISTIC_DEVICE_PROPERTY: c_int = 204;
const PLAN_HANDLE: c_int = 400;
const PLAN_WORKSPACE_SIZE: c_int = 402;
const PLAN_DEVICE_PROPERTY: c_int = 407;
const GRAPH_HANDLE: c_int = 800;
const ENGINE_OPERATION_GRAPH: c_int = 1300;
const ENGINE_DEVICE_PROPERTY: c_int = 1307;
const DEVICE_PROPERTY_JSON: c_int = 2702;

/// The library named by `BRIMFUL_PHANTOM_CUDNN`, if it can be loaded and is new enough.
pub(super) fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            let path = machine::environment(crate::env_vars::BRIMFUL_PHANTOM_CUDNN)
                .filter(|path| !path.is_empty())?;
            match load(&path) {
                Ok(library) => {
                    let version = library.version;
                    report::cudnn(format!(
                        "deviceless {}.{}.{}",
                        version / 10_000,
                        version / 100 % 100,
                        version % 100
                    ));
                    Some(library)
                }
                Err(reason) => {
                    abi::say(&format!(
                        "BRIMFUL_PHANTOM_CUDNN: {reason}; convolutions get no workspace"
                    ));
                    None
                }
            }
        })
        .as_ref()
}

fn load(path: &str) -> Result<Library, String> {
    let file = CString::new(path).map_err(|_| format!("expected a path, found `{path}`"))?;
    // SAFETY: loads a library the person named; its initialisers run as they do under PyTorch.
    let library = unsafe { abi::dlopen(file.as_ptr(), RTLD_LAZY) };
    if library.is_null() {
        return Err(format!("expected a loadable libcudnn.so.9, found `{path}`"));
    }
    let find = |name: &std::ffi::CStr| {
        // SAFETY: a handle from `dlopen` that is never closed.
        let found = unsafe { abi::dlsym(library, name.as_ptr()) };
        if found.is_null() {
            Err(format!("expected `{}` in `{path}`", name.to_string_lossy()))
        } else {
            Ok(found)
        }
    };
    let version = find(c"cudnnGetVersion")?;
    // SAFETY: the function of this name has this type in every cuDNN.
    let version = unsafe { std::mem::transmute::<*mut c_void, Version>(version) }();
    if version < OLDEST {
        return Err(format!(
            "expected cuDNN 9.8 or later for its deviceless mode, found {version} in `{path}`"
        ));
    }
    // SAFETY: the types are those of `cudnn_graph.h`, with pointers as `usize`.
    unsafe {
        Ok(Library {
            version,
            create: std::mem::transmute::<*mut c_void, Create>(find(
                c"cudnnBackendCreateDescriptor",
            )?),
            destroy: std::mem::transmute::<*mut c_void, OnDescriptor>(find(
                c"cudnnBackendDestroyDescriptor",
            )?),
            finalize: std::mem::transmute::<*mut c_void, OnDescriptor>(find(
                c"cudnnBackendFinalize",
            )?),
            get: std::mem::transmute::<*mut c_void, Get>(find(c"cudnnBackendGetAttribute")?),
            last_error: std::mem::transmute::<*mut c_void, LastError>(find(
                c"cudnnGetLastErrorString",
            )?),
            set: std::mem::transmute::<*mut c_void, Set>(find(c"cudnnBackendSetAttribute")?),
        })
    }
}

/// Sets an attribute; where a handle belongs, the current device's description takes its place.
pub(super) fn set_attribute(
    real: &Library,
    descriptor: usize,
    name: c_int,
    kind: c_int,
    count: i64,
    values: usize,
) -> c_int {
    let with_device = |attribute: c_int| match device_property(real) {
        Some(property) => (real.set)(
            descriptor,
            attribute,
            TYPE_DESCRIPTOR,
            1,
            (&raw const property) as usize,
        ),
        None => super::BAD_PARAM,
    };
    match name {
        GRAPH_HANDLE => SUCCESS,
        PLAN_HANDLE => with_device(PLAN_DEVICE_PROPERTY),
        HEURISTIC_OPERATION_GRAPH => match (real.set)(descriptor, name, kind, count, values) {
            SUCCESS => with_device(HEURISTIC_DEVICE_PROPERTY),
            code => code,
        },
        ENGINE_OPERATION_GRAPH => match (real.set)(descriptor, name, kind, count, values) {
            SUCCESS => with_device(ENGINE_DEVICE_PROPERTY),
            code => code,
        },
        _ => (real.set)(descriptor, name, kind, count, values),
    }
}

/// Finalises a descriptor. A plan that wants more workspace than the card has is refused: on the card PyTorch would
/// run out of memory with it and take the next plan, which a rehearsal with endless room must not miss.
pub(super) fn finalize(real: &Library, descriptor: usize) -> c_int {
    let code = (real.finalize)(descriptor);
    let Some(device) = machine::current().filter(|device| device.spec.room > device.spec.memory)
    else {
        return code;
    };
    let mut workspace = 0_i64;
    let mut count = 0_i64;
    let told = code == SUCCESS
        && (real.get)(
            descriptor,
            PLAN_WORKSPACE_SIZE,
            TYPE_INT64,
            1,
            &raw mut count,
            (&raw mut workspace) as usize,
        ) == SUCCESS;
    if told && u64::try_from(workspace).is_ok_and(|bytes| bytes > device.spec.memory) {
        return super::NOT_SUPPORTED;
    }
    code
}

/// The finalised description of the current device, made once for each.
fn device_property(real: &Library) -> Option<usize> {
    static MADE: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
    let device = machine::current()?;
    let mut made = lock(&MADE);
    if let Some(known) = made.get(&device.index) {
        return Some(*known);
    }
    let text = CString::new(json(device)).ok()?;
    let bytes = i64::try_from(text.as_bytes_with_nul().len()).ok()?;
    let mut property = 0;
    let failed = (real.create)(DEVICE_PROPERTY_DESCRIPTOR, &raw mut property) != SUCCESS
        || (real.set)(
            property,
            DEVICE_PROPERTY_JSON,
            TYPE_CHAR,
            bytes,
            text.as_ptr() as usize,
        ) != SUCCESS
        || (real.finalize)(property) != SUCCESS;
    if failed {
        abi::say("cuDNN did not take the description of the device; convolutions will fail");
        return None;
    }
    made.insert(device.index, property);
    Some(property)
}

/// The device in the words of cuDNN's device property descriptor.
fn json(device: &Device) -> String {
    let (limits, board, spec) = (&device.limits, &device.board, &device.spec);
    format!(
        "{{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \
         \"regsPerBlock\": {registers}, \"multiProcessorCount\": {sm}, \"warpSize\": {warp}, \
         \"maxSharedMemoryPerBlock\": {shared}, \"maxSharedMemoryPerBlockOptin\": {optin}, \
         \"reservedSharedMemoryPerBlock\": {reserved}, \"maxRegistersPerSM\": {registers}, \"maxCtasPerSM\": {blocks}, \
         \"maxThreadsPerBlock\": {threads}, \"maxThreadsPerSM\": {threads_sm}, \"l2CacheSize\": {l2}, \
         \"smClockRateKHz\": {clock}, \"memClockRateKHz\": {memory_clock}, \"driverVer\": {driver}, \
         \"deviceVer\": {version}, \"pciDeviceId\": {pci}, \"isTccDriver\": 0, \"supportCoopLaunch\": 1, \
         \"cudaDeviceId\": 0, \"totalGlobalMem\": {memory}, \"deviceName\": {name}}}",
        registers = card::REGISTERS,
        sm = spec.multiprocessors,
        warp = card::WARP,
        shared = card::SHARED_PER_BLOCK,
        optin = limits.shared_per_block_optin,
        reserved = limits.shared_reserved_per_block,
        blocks = limits.blocks_per_multiprocessor,
        threads = card::THREADS_PER_BLOCK,
        threads_sm = limits.threads_per_multiprocessor,
        l2 = board.l2_bytes,
        clock = board.clock_khz,
        memory_clock = board.memory_clock_khz,
        driver = DRIVER_VERSION,
        version = spec.cc.major * 100 + spec.cc.minor * 10,
        pci = machine::pci_slot(device.index),
        memory = spec.memory,
        name = quoted(&spec.name),
    )
}
