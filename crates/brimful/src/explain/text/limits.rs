//! Limits on open files, mappings and shared-memory objects.

use crate::explain::Cause;
use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::{Rank, Sign};
use crate::explain::text::size::size_at_start;
use crate::units::Bytes;

use Cause::{FdOrShmLimit, HostAllocFailed, NotMemory};

pub(super) const PHRASES: &[Phrase] = &[
    means(
        "Too many open files",
        Rank::Named,
        FdOrShmLimit,
        "open_files",
    ),
    means("[Errno 24]", Rank::Named, FdOrShmLimit, "open_files"),
    means("[Errno 23]", Rank::Named, FdOrShmLimit, "open_files"),
    means("(os error 24)", Rank::Named, FdOrShmLimit, "open_files"),
    means("errno = 24", Rank::Named, FdOrShmLimit, "open_files"),
    ask("EMFILE", error_name),
    ask("ENFILE", error_name),
    means("打开的文件过多", Rank::Named, FdOrShmLimit, "open_files"),
    means(
        "Zu viele offene Dateien",
        Rank::Named,
        FdOrShmLimit,
        "open_files",
    ),
    means(
        "Trop de fichiers ouverts",
        Rank::Named,
        FdOrShmLimit,
        "open_files",
    ),
    means(
        "Demasiados archivos abiertos",
        Rank::Named,
        FdOrShmLimit,
        "open_files",
    ),
    means(
        "Demasiados ficheros abiertos",
        Rank::Named,
        FdOrShmLimit,
        "open_files",
    ),
    means(
        "Слишком много открытых файлов",
        Rank::Named,
        FdOrShmLimit,
        "open_files",
    ),
    means("items of ancdata", Rank::Named, FdOrShmLimit, "open_files"),
    means(
        "filedescriptor out of range in select",
        Rank::Named,
        FdOrShmLimit,
        "open_files",
    ),
    means(
        "inotify watch limit reached",
        Rank::Named,
        FdOrShmLimit,
        "inotify_watches",
    ),
    means(
        "inotify instance limit reached",
        Rank::Named,
        FdOrShmLimit,
        "inotify_watches",
    ),
    means("max_map_count", Rank::Hinted, FdOrShmLimit, "mappings"),
    ask("unable to open shared memory object", shared_object),
    ask("unable to open file </torch_", shared_object),
    ask("unable to mmap", mapping),
];

/// By its name, not as part of other words such as "open file".
fn error_name(reading: &Reading, hit: Hit) -> Option<Sign> {
    (reading.has_word(hit.at, "EMFILE") || reading.has_word(hit.at, "ENFILE"))
        .then(|| hit.sign(Rank::Named, FdOrShmLimit, "open_files"))
}

/// Opening a segment fails with the limit on open files, which older releases do not say.
fn shared_object(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 160);
    if after.contains("permissiondenied") {
        return Some(hit.sign(Rank::Named, NotMemory, "exception"));
    }
    if after.contains("nospaceleft") {
        return Some(hit.sign(Rank::Named, Cause::ShmExhausted, "full"));
    }
    Some(hit.sign(Rank::Named, FdOrShmLimit, "open_files"))
}

/// A small segment that cannot be mapped for want of memory: the count of mappings is used up, not memory.
fn mapping(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 240);
    let size = size_at_start(after);
    let is_refused = after.contains("cannotallocatememory") || after.contains("(12)");
    let is_segment = after.contains("</torch_") || after.contains("</dev/shm");
    let is_below = |limit| size.is_some_and(|size| size < limit);
    let is_count = is_below(Bytes::from_mib(1)) || (is_segment && is_below(Bytes::from_mib(64)));
    if after.contains("toomanyopenfiles") {
        return Some(hit.sign(Rank::Named, FdOrShmLimit, "open_files"));
    }
    if after.contains("nospaceleft") {
        return Some(hit.sign(Rank::Named, Cause::ShmExhausted, "full"));
    }
    let (cause, detail) = match (is_refused, is_count) {
        // Also without its reason, as people shorten it.
        (_, true) => (FdOrShmLimit, "mappings"),
        (true, false) => (HostAllocFailed, "refused"),
        (false, _) if after.contains("memory:youtriedtommap") => (HostAllocFailed, "refused"),
        (false, _) => return None,
    };
    let mut sign = hit.sign(Rank::Named, cause, detail);
    sign.facts.asked = size;
    Some(sign)
}
