//! Kernels: registered, asked about, launched; never run.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::{self, SUCCESS, exports, put, put_handle};
use crate::launches;
use crate::machine;
use crate::properties;
use crate::report;
use crate::runtime::error;
use crate::stream;

/// `dim3`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

#[derive(Debug, Clone, Copy)]
struct Launch {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
}

thread_local! {
    /// What `<<<…>>>` pushed and the kernel's stub pops again.
    static PUSHED: Cell<Option<Launch>> = const { Cell::new(None) };
}

/// An address for device variables: inside our range, never handed out.
const VARIABLE: u64 = 0x4fff_ffe0_0000;

fn launched(function: usize) -> c_int {
    launches::launched(function);
    SUCCESS
}

fn launched_by_driver(function: usize) -> c_int {
    launches::launched_by_driver(function);
    SUCCESS
}

/// A kernel that a program has asked for by its name.
fn named(out: *mut usize, name: *const c_char) -> c_int {
    let kernel = abi::handle();
    report::name_kernel(kernel, abi::text(name));
    put(out, kernel);
    SUCCESS
}

fn occupancy(out: *mut c_int, threads: c_int, shared: usize) -> c_int {
    match machine::current() {
        Some(device) => {
            put(out, properties::resident_blocks(device, threads, shared));
            SUCCESS
        }
        None => error(machine::no_such_device()),
    }
}

/// `CUfunction_attribute`.
fn function_attribute(out: *mut c_int, number: c_int) -> c_int {
    let version = machine::current().map_or(0, |device| device.spec.cc.code_version());
    put(
        out,
        match number {
            0 => 1024,
            4 => 32,
            5 | 6 => version,
            8 => 48 << 10,
            9 => -1,
            _ => 0,
        },
    );
    SUCCESS
}

exports! {
    fn cudaLaunchKernel(function: usize) { launched(function) }
    fn cudaLaunchKernelExC(_configuration: usize, function: usize) { launched(function) }
    fn cudaLaunchCooperativeKernel(function: usize) { launched(function) }
    fn __cudaLaunchKernel(function: usize) { launched(function) }
    fn cuLaunchKernel(function: usize) { launched_by_driver(function) }
    fn cuLaunchKernelEx(_configuration: usize, function: usize) { launched_by_driver(function) }
    fn cuLaunchCooperativeKernel(function: usize) { launched_by_driver(function) }
    fn cudaGraphLaunch(graph: usize) { launched_by_driver(graph) }
    fn cuGraphLaunch(graph: usize) { launched_by_driver(graph) }

    fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: usize) {
        PUSHED.set(Some(Launch { grid, block, shared, stream }));
        SUCCESS
    }
    fn __cudaPopCallConfiguration(grid: *mut Dim3, block: *mut Dim3, shared: *mut usize, stream: *mut usize) {
        let launch = PUSHED.take();
        put(grid, launch.map(|l| l.grid).unwrap_or_default());
        put(block, launch.map(|l| l.block).unwrap_or_default());
        put(shared, launch.map_or(0, |l| l.shared));
        put(stream, launch.map_or(0, |l| l.stream));
        SUCCESS
    }
    fn __cudaGetKernel(out: *mut usize, function: usize) { put(out, function); SUCCESS }
    // "Initialised" is yes: a C `char`.
    fn __cudaInitModule(_module: usize) { 1 }

    fn cudaFuncGetAttributes(out: *mut c_void, _function: usize) {
        match machine::current() {
            Some(device) => {
                properties::fill_function(out, device);
                SUCCESS
            }
            None => error(machine::no_such_device()),
        }
    }
    fn cudaFuncGetName(out: *mut *const c_char, _function: usize) { put(out, c"phantom".as_ptr()); SUCCESS }
    fn cudaGetFuncBySymbol(out: *mut usize, symbol: usize) { put(out, symbol); SUCCESS }
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(out: *mut c_int, _function: usize, threads: c_int, shared: usize) {
        occupancy(out, threads, shared)
    }
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: *mut c_int, _function: usize, threads: c_int, shared: usize, _flags: c_uint,
    ) {
        occupancy(out, threads, shared)
    }
    fn cudaOccupancyMaxActiveClusters(out: *mut c_int, _function: usize, _launch: usize) { clusters(out) }
    fn cudaOccupancyMaxPotentialClusterSize(out: *mut c_int, _function: usize, _launch: usize) { put(out, 8); SUCCESS }
    fn cudaGetSymbolAddress(out: *mut u64, _symbol: usize) { put(out, VARIABLE); SUCCESS }
    fn cudaLibraryLoadData(out: *mut usize) { put_handle(out) }
    fn cudaLibraryLoadFromFile(out: *mut usize) { put_handle(out) }
    fn cudaLibraryGetKernel(out: *mut usize, _library: usize, _name: usize) { put_handle(out) }
    fn cudaLibraryGetKernelCount(out: *mut c_uint, _library: usize) { put(out, 0); SUCCESS }
    fn cudaLibraryGetGlobal(out: *mut u64, bytes: *mut usize, _library: usize, _name: usize) {
        put(out, VARIABLE);
        put(bytes, 8);
        SUCCESS
    }
    fn cudaLibraryGetManaged(out: *mut u64, bytes: *mut usize, _library: usize, _name: usize) {
        put(out, VARIABLE);
        put(bytes, 8);
        SUCCESS
    }
    fn cudaLibraryGetUnifiedFunction(out: *mut usize, _library: usize, _name: usize) { put_handle(out) }

    fn cudaLaunchHostFunc(stream: usize, function: Option<extern "C" fn(*mut c_void)>, data: *mut c_void) {
        // While captured, the call belongs to the graph.
        if let Some(function) = function
            && !stream::is_captured(stream)
        {
            function(data);
        }
        SUCCESS
    }
    fn cudaStreamAddCallback(
        stream: usize, function: Option<extern "C" fn(usize, c_int, *mut c_void)>, data: *mut c_void, _flags: c_uint,
    ) {
        if let Some(function) = function {
            function(stream, SUCCESS, data);
        }
        SUCCESS
    }
    fn cuLaunchHostFunc(stream: usize, function: Option<extern "C" fn(*mut c_void)>, data: *mut c_void) {
        cudaLaunchHostFunc(stream, function, data)
    }

    fn cuModuleLoad(out: *mut usize) { put_handle(out) }
    fn cuModuleLoadData(out: *mut usize) { put_handle(out) }
    fn cuModuleLoadDataEx(out: *mut usize) { put_handle(out) }
    fn cuModuleLoadFatBinary(out: *mut usize) { put_handle(out) }
    fn cuModuleGetFunction(out: *mut usize, _module: usize, name: *const c_char) { named(out, name) }
    fn cuModuleGetFunctionCount(out: *mut c_uint, _module: usize) { put(out, 0); SUCCESS }
    fn cuModuleGetGlobal_v2(out: *mut u64, bytes: *mut usize, _module: usize, _name: usize) {
        put(out, VARIABLE);
        put(bytes, 8);
        SUCCESS
    }
    fn cuModuleGetGlobal(out: *mut u64, bytes: *mut usize, module: usize, name: usize) {
        cuModuleGetGlobal_v2(out, bytes, module, name)
    }
    fn cuModuleGetLoadingMode(out: *mut c_int) { put(out, 2); SUCCESS }
    fn cuLibraryLoadData(out: *mut usize) { put_handle(out) }
    fn cuLibraryLoadFromFile(out: *mut usize) { put_handle(out) }
    fn cuLibraryGetKernel(out: *mut usize, _library: usize, name: *const c_char) { named(out, name) }
    fn cuLibraryGetModule(out: *mut usize, _library: usize) { put_handle(out) }
    fn cuLibraryGetGlobal(out: *mut u64, bytes: *mut usize, library: usize, name: usize) {
        cuModuleGetGlobal_v2(out, bytes, library, name)
    }
    fn cuLibraryGetKernelCount(out: *mut c_uint, _library: usize) { put(out, 0); SUCCESS }
    fn cuKernelGetFunction(out: *mut usize, kernel: usize) { put(out, kernel); SUCCESS }
    fn cuKernelGetAttribute(out: *mut c_int, number: c_int, _kernel: usize, _device: c_int) {
        function_attribute(out, number)
    }
    fn cuKernelGetName(out: *mut *const c_char, _kernel: usize) { put(out, c"phantom".as_ptr()); SUCCESS }
    fn cuFuncGetAttribute(out: *mut c_int, number: c_int, _function: usize) { function_attribute(out, number) }
    fn cuFuncGetModule(out: *mut usize, _function: usize) { put_handle(out) }
    fn cuFuncGetName(out: *mut *const c_char, _function: usize) { put(out, c"phantom".as_ptr()); SUCCESS }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(out: *mut c_int, _function: usize, threads: c_int, shared: usize) {
        occupancy(out, threads, shared)
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: *mut c_int, _function: usize, threads: c_int, shared: usize, _flags: c_uint,
    ) {
        occupancy(out, threads, shared)
    }
    fn cuOccupancyMaxActiveClusters(out: *mut c_int, _function: usize, _launch: usize) { clusters(out) }
    fn cuOccupancyMaxPotentialClusterSize(out: *mut c_int, _function: usize, _launch: usize) { put(out, 8); SUCCESS }
    fn cuLinkCreate_v2(_count: c_uint, _options: usize, _values: usize, out: *mut usize) { put_handle(out) }
    fn cuLinkComplete(_state: usize, image: *mut *const c_void, bytes: *mut usize) {
        put(image, c"phantom".as_ptr().cast());
        put(bytes, 8);
        SUCCESS
    }
    fn cuTensorMapEncodeTiled(out: *mut c_void) { abi::zero(out, 128); SUCCESS }
    fn cuTensorMapEncodeIm2col(out: *mut c_void) { abi::zero(out, 128); SUCCESS }
}

fn clusters(out: *mut c_int) -> c_int {
    let multiprocessors = machine::current().map_or(1, |device| device.spec.multiprocessors);
    put(
        out,
        c_int::try_from(multiprocessors / 2).unwrap_or(1).max(1),
    );
    SUCCESS
}

/// A fat binary's handle is a pointer to pointers which nobody but the runtime reads.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(_binary: usize) -> *const usize {
    static CELLS: [usize; 4] = [0; 4];
    CELLS.as_ptr()
}

/// PyTorch's static initialisers call this some ten thousand times: it must cost nothing.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFunction() {}
