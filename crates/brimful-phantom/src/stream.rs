//! Streams, events and graph capture.
//!
//! Work is over the moment it is asked for, so streams and events are only handles. Capture is tracked
//! truthfully, since PyTorch's allocator turns to a private pool when the stream it allocates on is being
//! captured.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::abi::{INVALID_VALUE, SUCCESS, exports, handle, lock, put, put_handle, zero};
use crate::machine;
use crate::report;
use crate::runtime::error;

/// `cudaErrorIllegalState`.
const ILLEGAL_STATE: c_int = 401;
/// `cudaErrorStreamCaptureUnsupported`.
const CAPTURE_UNSUPPORTED: c_int = 900;
/// `cudaErrorStreamCaptureInvalidated`.
const CAPTURE_INVALIDATED: c_int = 901;
/// `cudaErrorStreamCaptureUnmatched`.
const CAPTURE_UNMATCHED: c_int = 903;

/// `cudaStreamCaptureStatusActive` and `…Invalidated`.
const ACTIVE: c_int = 1;
const INVALIDATED: c_int = 2;

/// Which streams are being captured into which graph.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    last_id: u64,
    running: BTreeMap<u64, Capture>,
    streams: BTreeMap<usize, u64>,
    /// Events recorded in a captured stream: who waits for one joins the capture.
    events: BTreeMap<usize, u64>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Capture {
    origin: usize,
    pub(crate) graph: usize,
    broken: bool,
}

impl Captures {
    const fn new() -> Self {
        Self {
            last_id: 0,
            running: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
        }
    }

    /// Starts a capture; the legacy default stream cannot be captured.
    pub(crate) fn begin(&mut self, stream: usize, graph: usize) -> Result<u64, c_int> {
        if stream <= 1 {
            return Err(CAPTURE_UNSUPPORTED);
        }
        if self.streams.contains_key(&stream) {
            return Err(ILLEGAL_STATE);
        }
        self.last_id += 1;
        let capture = Capture {
            origin: stream,
            graph,
            broken: false,
        };
        self.running.insert(self.last_id, capture);
        self.streams.insert(stream, self.last_id);
        Ok(self.last_id)
    }

    /// Ends the capture that began on this stream, for every stream that joined it.
    pub(crate) fn end(&mut self, stream: usize) -> Result<Capture, c_int> {
        let id = *self.streams.get(&stream).ok_or(ILLEGAL_STATE)?;
        let capture = *self.running.get(&id).ok_or(ILLEGAL_STATE)?;
        if capture.origin != stream {
            return Err(CAPTURE_UNMATCHED);
        }
        self.running.remove(&id);
        self.streams.retain(|_, other| *other != id);
        self.events.retain(|_, other| *other != id);
        if capture.broken {
            Err(CAPTURE_INVALIDATED)
        } else {
            Ok(capture)
        }
    }

    pub(crate) fn status(&self, stream: usize) -> Option<(u64, Capture)> {
        let id = *self.streams.get(&stream)?;
        Some((id, *self.running.get(&id)?))
    }

    pub(crate) fn record(&mut self, event: usize, stream: usize) {
        match self.streams.get(&stream) {
            Some(id) => {
                self.events.insert(event, *id);
            }
            None => {
                self.events.remove(&event);
            }
        }
    }

    pub(crate) fn wait(&mut self, stream: usize, event: usize) {
        if let Some(id) = self.events.get(&event) {
            self.streams.insert(stream, *id);
        }
    }

    /// Waiting for a captured stream is not possible and spoils its capture.
    pub(crate) fn touch(&mut self, stream: usize) -> c_int {
        let Some(id) = self.streams.get(&stream) else {
            return SUCCESS;
        };
        if let Some(capture) = self.running.get_mut(id) {
            capture.broken = true;
        }
        CAPTURE_UNSUPPORTED
    }

    fn forget_event(&mut self, event: usize) {
        self.events.remove(&event);
    }
}

static CAPTURES: Mutex<Captures> = Mutex::new(Captures::new());
/// Graphs with their number of nodes.
static GRAPHS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// `cudaStreamCaptureModeGlobal` to begin with.
    static MODE: Cell<c_int> = const { Cell::new(0) };
}

/// A call that does work right away in the calling thread, such as a host callback, does not while captured.
pub(crate) fn is_captured(stream: usize) -> bool {
    lock(&CAPTURES).status(stream).is_some()
}

fn begin(stream: usize, graph: usize) -> c_int {
    match lock(&CAPTURES).begin(stream, graph) {
        Ok(_) => SUCCESS,
        Err(code) => error(code),
    }
}

/// Answers the questions of every version of `StreamGetCaptureInfo`; there are no dependencies to show.
pub(crate) fn capture_info(
    stream: usize,
    status: *mut c_int,
    id: *mut c_ulonglong,
    graph: *mut usize,
    count: *mut usize,
) -> c_int {
    let found = lock(&CAPTURES).status(stream);
    let (state, number, captured) = match found {
        Some((number, capture)) => (
            if capture.broken { INVALIDATED } else { ACTIVE },
            number,
            capture.graph,
        ),
        None => (0, 0, 0),
    };
    put(status, state);
    put(id, number);
    put(graph, captured);
    put(count, 0);
    SUCCESS
}

exports! {
    fn cudaStreamCreate(out: *mut usize) { created(out) }
    fn cudaStreamCreateWithFlags(out: *mut usize, _flags: c_uint) { created(out) }
    fn cudaStreamCreateWithPriority(out: *mut usize, _flags: c_uint, _priority: c_int) { created(out) }
    fn cudaStreamDestroy(_stream: usize) { SUCCESS }
    fn cudaStreamGetPriority(_stream: usize, priority: *mut c_int) { put(priority, 0); SUCCESS }
    fn cudaStreamGetFlags(_stream: usize, flags: *mut c_uint) { put(flags, 1); SUCCESS }
    fn cudaStreamGetId(stream: usize, id: *mut c_ulonglong) { put(id, stream as c_ulonglong); SUCCESS }
    fn cudaStreamGetDevice(_stream: usize, device: *mut c_int) { put(device, machine::current_ordinal()); SUCCESS }
    fn cudaStreamSynchronize(stream: usize) { error(lock(&CAPTURES).touch(stream)) }
    fn cudaStreamQuery(stream: usize) { error(lock(&CAPTURES).touch(stream)) }
    fn cudaStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) {
        lock(&CAPTURES).wait(stream, event);
        SUCCESS
    }
    fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        put(least, 0);
        put(greatest, -5);
        SUCCESS
    }

    fn cudaEventCreate(out: *mut usize) { put_handle(out) }
    fn cudaEventCreateWithFlags(out: *mut usize, _flags: c_uint) { put_handle(out) }
    fn cudaEventDestroy(event: usize) { lock(&CAPTURES).forget_event(event); SUCCESS }
    fn cudaEventRecord(event: usize, stream: usize) { lock(&CAPTURES).record(event, stream); SUCCESS }
    fn cudaEventRecordWithFlags(event: usize, stream: usize, _flags: c_uint) {
        lock(&CAPTURES).record(event, stream);
        SUCCESS
    }
    // A thousandth of a second: a timing that divides by it stays finite.
    fn cudaEventElapsedTime(out: *mut f32, _from: usize, _to: usize) { put(out, 1.0); SUCCESS }

    fn cudaStreamIsCapturing(stream: usize, status: *mut c_int) {
        capture_info(stream, status, std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut())
    }
    // CUDA 12 has the name without edge data as `_v2`, CUDA 13 the one with it as the plain name.
    fn cudaStreamGetCaptureInfo_v2(
        stream: usize, status: *mut c_int, id: *mut c_ulonglong, graph: *mut usize,
        dependencies: *mut usize, count: *mut usize,
    ) {
        put(dependencies, 0);
        capture_info(stream, status, id, graph, count)
    }
    fn cudaStreamGetCaptureInfo_v3(
        stream: usize, status: *mut c_int, id: *mut c_ulonglong, graph: *mut usize,
        dependencies: *mut usize, edges: *mut usize, count: *mut usize,
    ) {
        put(dependencies, 0);
        put(edges, 0);
        capture_info(stream, status, id, graph, count)
    }
    fn cudaStreamGetCaptureInfo(
        stream: usize, status: *mut c_int, id: *mut c_ulonglong, graph: *mut usize,
        dependencies: *mut usize, edges: *mut usize, count: *mut usize,
    ) {
        // In CUDA 12 this name had three arguments: what stands in the other registers is not an out-pointer.
        if crate::generation::cuda_major() >= 13 {
            put(dependencies, 0);
            put(edges, 0);
            capture_info(stream, status, id, graph, count)
        } else {
            capture_info(stream, status, id, std::ptr::null_mut(), std::ptr::null_mut())
        }
    }
    fn cudaStreamBeginCapture(stream: usize, _mode: c_int) {
        let graph = handle();
        lock(&GRAPHS).insert(graph, 0);
        begin(stream, graph)
    }
    fn cudaStreamBeginCaptureToGraph(
        stream: usize, graph: usize, _dependencies: usize, _edges: usize, _count: usize, _mode: c_int,
    ) {
        begin(stream, graph)
    }
    fn cudaStreamEndCapture(stream: usize, graph: *mut usize) {
        let ended = lock(&CAPTURES).end(stream);
        match ended {
            Ok(capture) => {
                // One node stands for all the work, which is not counted where a library does it: what PyTorch
                // asks is only whether the graph is empty.
                lock(&GRAPHS).insert(capture.graph, 1);
                report::GRAPHS.fetch_add(1, Ordering::Relaxed);
                put(graph, capture.graph);
                SUCCESS
            }
            Err(code) => {
                put(graph, 0);
                error(code)
            }
        }
    }
    fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) {
        let Some(wanted) = crate::abi::get(mode) else { return error(INVALID_VALUE) };
        put(mode, MODE.replace(wanted));
        SUCCESS
    }

    fn cudaGraphCreate(out: *mut usize, _flags: c_uint) {
        let graph = handle();
        lock(&GRAPHS).insert(graph, 0);
        put(out, graph);
        SUCCESS
    }
    fn cudaGraphDestroy(graph: usize) { lock(&GRAPHS).remove(&graph); SUCCESS }
    fn cudaGraphClone(out: *mut usize, _graph: usize) { put_handle(out) }
    fn cudaGraphInstantiate(out: *mut usize, _graph: usize, _flags: c_ulonglong) { put_handle(out) }
    fn cudaGraphInstantiateWithFlags(out: *mut usize, _graph: usize, _flags: c_ulonglong) { put_handle(out) }
    fn cudaGraphInstantiateWithParams(out: *mut usize, _graph: usize, _params: usize) { put_handle(out) }
    fn cudaGraphGetNodes(graph: usize, nodes: *mut usize, count: *mut usize) {
        let known = lock(&GRAPHS).get(&graph).copied().unwrap_or(0);
        if known > 0 {
            put(nodes, graph + 1);
        }
        put(count, known);
        SUCCESS
    }
    fn cudaGraphNodeGetType(_node: usize, kind: *mut c_int) { put(kind, 0); SUCCESS }
    fn cudaGraphNodeGetDependencies(_node: usize, _out: usize, third: *mut usize, fourth: *mut usize) {
        // The count is the third argument in CUDA 12, the fourth in CUDA 13.
        put(if crate::generation::cuda_major() >= 13 { fourth } else { third }, 0);
        SUCCESS
    }
    fn cudaGraphAddEmptyNode(out: *mut usize, _graph: usize, _dependencies: usize, _count: usize) { put_handle(out) }
    fn cudaGraphAddNode(out: *mut usize) { put_handle(out) }
    fn cudaGraphConditionalHandleCreate(out: *mut c_ulonglong, _graph: usize, _value: c_uint, _flags: c_uint) {
        put(out, handle() as c_ulonglong);
        SUCCESS
    }
    fn cudaGraphDebugDotPrint(_graph: usize, _path: *const c_char, _flags: c_uint) { SUCCESS }
    // Objects live as long as the process: a graph that runs nothing has no moment to let them go.
    fn cudaUserObjectCreate(out: *mut usize, _object: usize, _destroy: usize, _count: c_uint, _flags: c_uint) {
        put_handle(out)
    }
    fn cudaDeviceGetGraphMemAttribute(_device: c_int, _attribute: c_int, out: *mut c_void) { zero(out, 8); SUCCESS }

    fn cuStreamCreate(out: *mut usize, _flags: c_uint) { created(out) }
    fn cuStreamCreateWithPriority(out: *mut usize, _flags: c_uint, _priority: c_int) { created(out) }
    fn cuStreamIsCapturing(stream: usize, status: *mut c_int) { cudaStreamIsCapturing(stream, status) }
    fn cuStreamGetCaptureInfo(stream: usize, status: *mut c_int, id: *mut c_ulonglong) {
        capture_info(stream, status, id, std::ptr::null_mut(), std::ptr::null_mut())
    }
    fn cuStreamGetCaptureInfo_v2(
        stream: usize, status: *mut c_int, id: *mut c_ulonglong, graph: *mut usize,
        dependencies: *mut usize, count: *mut usize,
    ) {
        cudaStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count)
    }
    fn cuStreamGetCaptureInfo_v3(
        stream: usize, status: *mut c_int, id: *mut c_ulonglong, graph: *mut usize,
        dependencies: *mut usize, edges: *mut usize, count: *mut usize,
    ) {
        cudaStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count)
    }
    fn cuStreamWaitEvent(stream: usize, event: usize, flags: c_uint) { cudaStreamWaitEvent(stream, event, flags) }
    fn cuStreamSynchronize(stream: usize) { cudaStreamSynchronize(stream) }
    fn cuEventCreate(out: *mut usize, _flags: c_uint) { put_handle(out) }
    fn cuEventRecord(event: usize, stream: usize) { cudaEventRecord(event, stream) }
    fn cuEventElapsedTime(out: *mut f32, from: usize, to: usize) { cudaEventElapsedTime(out, from, to) }
    fn cuEventElapsedTime_v2(out: *mut f32, from: usize, to: usize) { cudaEventElapsedTime(out, from, to) }
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) { cudaThreadExchangeStreamCaptureMode(mode) }
}

fn created(out: *mut usize) -> c_int {
    match machine::current() {
        Some(_) => put_handle(out),
        None => error(machine::no_such_device()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_ends_where_it_began() {
        let mut captures = Captures::new();
        let id = captures.begin(32, 7).unwrap();
        assert_eq!(
            captures.status(32).map(|(id, capture)| (id, capture.graph)),
            Some((id, 7))
        );
        assert!(captures.status(48).is_none());
        assert_eq!(captures.end(48).unwrap_err(), ILLEGAL_STATE);
        assert_eq!(captures.end(32).unwrap().graph, 7);
        assert!(captures.status(32).is_none());
    }

    #[test]
    fn a_stream_joins_by_waiting_for_an_event() {
        let mut captures = Captures::new();
        captures.record(5, 32);
        captures.wait(48, 5);
        assert!(
            captures.status(48).is_none(),
            "the event was recorded before the capture"
        );
        let id = captures.begin(32, 7).unwrap();
        captures.record(5, 32);
        captures.wait(48, 5);
        assert_eq!(captures.status(48).map(|(id, _)| id), Some(id));
        assert_eq!(captures.end(48).unwrap_err(), CAPTURE_UNMATCHED);
        captures.end(32).unwrap();
        assert!(captures.status(48).is_none());
    }

    #[test]
    fn the_default_stream_cannot_be_captured_nor_one_twice() {
        let mut captures = Captures::new();
        assert_eq!(captures.begin(0, 7), Err(CAPTURE_UNSUPPORTED));
        captures.begin(32, 7).unwrap();
        assert_eq!(captures.begin(32, 7), Err(ILLEGAL_STATE));
    }

    #[test]
    fn waiting_for_a_captured_stream_spoils_the_capture() {
        let mut captures = Captures::new();
        assert_eq!(captures.touch(32), SUCCESS);
        captures.begin(32, 7).unwrap();
        assert_eq!(captures.touch(32), CAPTURE_UNSUPPORTED);
        assert_eq!(captures.end(32).unwrap_err(), CAPTURE_INVALIDATED);
        assert!(captures.status(32).is_none());
    }

    #[test]
    fn two_captures_have_different_numbers() {
        let mut captures = Captures::new();
        let first = captures.begin(32, 7).unwrap();
        let second = captures.begin(48, 8).unwrap();
        assert_ne!(first, second);
        captures.end(32).unwrap();
        assert!(captures.status(48).is_some());
    }
}
