//! What the library saw, as JSON for the caller. Counters are atomics: a kernel launch takes no lock.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_char;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{self, lock};
use crate::machine;

/// How many names of unknown entry points are kept.
const MAX_NAMES: usize = 32;
/// Characters of a kernel's name that are kept.
const MAX_NAME: usize = 100;

pub(crate) static KERNELS: AtomicU64 = AtomicU64::new(0);
pub(crate) static READ_BACKS: AtomicU64 = AtomicU64::new(0);
pub(crate) static READ_BACK_BYTES: AtomicU64 = AtomicU64::new(0);
/// Convolutions and other cuDNN plans that were run.
pub(crate) static CUDNN_PLANS: AtomicU64 = AtomicU64::new(0);
/// The most managed memory at a time: the driver moves it between the host and the GPU.
pub(crate) static MANAGED_BYTES: AtomicU64 = AtomicU64::new(0);
pub(crate) static GRAPHS: AtomicU64 = AtomicU64::new(0);

static NOTES: Mutex<Notes> = Mutex::new(Notes::new());

#[derive(Debug)]
struct Notes {
    unknown: BTreeSet<String>,
    guesses: BTreeSet<&'static str>,
    /// Number of ranks to number of communicators.
    communicators: BTreeMap<i32, u64>,
    cudnn: Option<String>,
    /// Kernels that a program has loaded by itself.
    kernel_names: BTreeMap<usize, String>,
    /// What launched kernels outside of PyTorch's operators.
    outside: BTreeSet<String>,
}

impl Notes {
    const fn new() -> Self {
        Self {
            unknown: BTreeSet::new(),
            guesses: BTreeSet::new(),
            communicators: BTreeMap::new(),
            cudnn: None,
            kernel_names: BTreeMap::new(),
            outside: BTreeSet::new(),
        }
    }
}

/// Notes an entry point somebody asked for by name and which we do not have.
pub(crate) fn unknown(name: &str) {
    let mut notes = lock(&NOTES);
    if !name.is_empty() && notes.unknown.len() < MAX_NAMES {
        notes.unknown.insert(name.to_owned());
    }
}

/// Notes that an answer rests on a formula of ours.
pub(crate) fn guess(kind: &'static str) {
    lock(&NOTES).guesses.insert(kind);
}

pub(crate) fn communicator(ranks: i32) {
    *lock(&NOTES).communicators.entry(ranks).or_default() += 1;
}

pub(crate) fn cudnn(mode: String) {
    lock(&NOTES).cudnn = Some(mode);
}

/// Remembers the name under which a program asked for a kernel.
pub(crate) fn name_kernel(kernel: usize, name: String) {
    const MAX_KERNELS: usize = 4096;
    let mut notes = lock(&NOTES);
    if notes.kernel_names.len() < MAX_KERNELS {
        notes.kernel_names.insert(kernel, name);
    }
}

pub(crate) fn kernel_name(kernel: usize) -> String {
    (lock(&NOTES).kernel_names.get(&kernel).cloned()).unwrap_or_else(|| "a kernel".to_owned())
}

/// Notes what launched a kernel outside of PyTorch's operators.
pub(crate) fn launched_outside(name: &str) {
    let mut notes = lock(&NOTES);
    if notes.outside.len() < MAX_NAMES {
        notes.outside.insert(name.chars().take(MAX_NAME).collect());
    }
}

#[cfg(test)]
pub(crate) fn launched_outside_names() -> Vec<String> {
    lock(&NOTES).outside.iter().cloned().collect()
}

/// Writes the report as JSON with a terminating zero, shortened to `length`; gives the length it needs
/// without it.
#[unsafe(no_mangle)]
extern "C" fn brimful_phantom_report(buffer: *mut c_char, length: usize) -> usize {
    let text = std::panic::catch_unwind(json).unwrap_or_else(|_| "{}".to_owned());
    abi::put_text(buffer, length, &text);
    text.len()
}

/// Lets every device's peak begin anew at what is used now.
#[unsafe(no_mangle)]
extern "C" fn brimful_phantom_reset_peaks() {
    abi::guard(|| {
        for device in &machine::machine().devices {
            lock(&device.memory).reset_peak();
        }
        0
    });
}

fn json() -> String {
    let mut out = String::from("{");
    let _ = write!(
        out,
        "\"version\":{},\"devices\":[",
        quoted(env!("CARGO_PKG_VERSION"))
    );
    for (place, device) in machine::machine().devices.iter().enumerate() {
        let memory = lock(&device.memory);
        let comma = if place == 0 { "" } else { "," };
        let _ = write!(
            out,
            "{comma}{{\"name\":{},\"capacity\":{},\"held\":{},\"used\":{},\"peak_used\":{},\
             \"mallocs\":{},\"frees\":{},\"out_of_memory\":{}}}",
            quoted(&device.spec.name),
            memory.capacity(),
            device.spec.held,
            memory.used(),
            memory.peak(),
            memory.mallocs,
            memory.frees,
            memory.out_of_memory,
        );
    }
    let notes = lock(&NOTES);
    let _ = write!(
        out,
        "],\"added_devices\":{},\"kernels\":{},\"device_to_host\":{{\"count\":{},\"bytes\":{}}},\"graphs_captured\":{},\"managed_bytes\":{},\"cudnn_plans\":{},\"cudnn\":{}",
        machine::machine().n_added(),
        KERNELS.load(Ordering::Relaxed),
        READ_BACKS.load(Ordering::Relaxed),
        READ_BACK_BYTES.load(Ordering::Relaxed),
        GRAPHS.load(Ordering::Relaxed),
        MANAGED_BYTES.load(Ordering::Relaxed),
        CUDNN_PLANS.load(Ordering::Relaxed),
        quoted(notes.cudnn.as_deref().unwrap_or("none")),
    );
    let _ = write!(
        out,
        ",\"guesses\":[{}]",
        joined(notes.guesses.iter().map(|kind| quoted(kind)))
    );
    let _ = write!(
        out,
        ",\"unknown_entry_points\":[{}]",
        joined(notes.unknown.iter().map(|name| quoted(name)))
    );
    let _ = write!(
        out,
        ",\"launched_outside\":[{}]",
        joined(notes.outside.iter().map(|name| quoted(name)))
    );
    let communicators = notes
        .communicators
        .iter()
        .map(|(ranks, count)| format!("{{\"ranks\":{ranks},\"count\":{count}}}"));
    let _ = write!(out, ",\"nccl_communicators\":[{}]}}", joined(communicators));
    out
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

/// A JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if u32::from(c) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }

    #[test]
    fn the_report_is_one_object_and_tells_its_length() {
        unknown("cuNothing");
        guess("rnn");
        communicator(8);
        let mut buffer = vec![1_i8; 8192];
        let length = brimful_phantom_report(buffer.as_mut_ptr().cast(), buffer.len());
        let text: String = buffer[..length]
            .iter()
            .map(|b| char::from(b.unsigned_abs()))
            .collect();
        assert_eq!(buffer[length], 0);
        assert!(
            text.starts_with("{\"version\":\"") && text.ends_with("]}"),
            "{text}"
        );
        for part in [
            "\"cuNothing\"",
            "\"rnn\"",
            "{\"ranks\":8,\"count\":1}",
            "\"capacity\":",
        ] {
            assert!(text.contains(part), "{text} should have {part}");
        }
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }

    #[test]
    fn a_short_buffer_gets_a_short_text() {
        let mut buffer = [7_i8; 4];
        assert!(brimful_phantom_report(buffer.as_mut_ptr().cast(), 4) > 4);
        assert_eq!((buffer[0].unsigned_abs(), buffer[3]), (b'{', 0));
        assert!(brimful_phantom_report(std::ptr::null_mut(), 0) > 4);
    }
}
