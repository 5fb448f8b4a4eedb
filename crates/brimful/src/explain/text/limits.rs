//! Limits on open files, mappings and shared-memory objects.

use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::{Rank, Sign};
use crate::explain::text::size::size_at_start;
use crate::explain::{Cause, Detail};
use crate::units::Bytes;

use Cause::{FdOrShmLimit, HostAllocFailed, NotMemory};

pub(super) const PHRASES: &[Phrase] = &[
    means(
        "Too many open files",
        Rank::Named,
        FdOrShmLimit,
        Detail::OpenFiles,
    ),
    means("[Errno 24]", Rank::Named, FdOrShmLimit, Detail::OpenFiles),
    means("[Errno 23]", Rank::Named, FdOrShmLimit, Detail::OpenFiles),
    means(
        "(os error 24)",
        Rank::Named,
        FdOrShmLimit,
        Detail::OpenFiles,
    ),
    means("errno = 24", Rank::Named, FdOrShmLimit, Detail::OpenFiles),
    ask("EMFILE", error_name),
    ask("ENFILE", error_name),
    means(
        "打开的文件过多",
        Rank::Named,
        FdOrShmLimit,
        Detail::OpenFiles,
    ),
    means(
        "Zu viele offene Dateien",
        Rank::Named,
        FdOrShmLimit,
        Detail::OpenFiles,
    ),
    means(
        "Trop de fichiers ouverts",
        Rank::Named,
        FdOrShmLimit,
        Detail::OpenFiles,
    ),
    means(
        "Demasiados archivos abiertos",
        Rank::Named,
        FdOrShmLimit,
        Detail::OpenFiles,
    ),
    means(
        "Demasiados ficheros abiertos",
        Rank::Named,
        FdOrShmLimit,
        Detail::OpenFiles,
    ),
    means(
        "Слишком много открытых файлов",
        Rank::Named,
        FdOrShmLimit,
        Detail::OpenFiles,
    ),
    means(
        "items of ancdata",
        Rank::Named,
        FdOrShmLimit,
        Detail::OpenFiles,
    ),
    means(
        "filedescriptor out of range in select",
        Rank::Named,
        FdOrShmLimit,
        Detail::OpenFiles,
    ),
    means(
        "inotify watch limit reached",
        Rank::Named,
        FdOrShmLimit,
        Detail::InotifyWatches,
    ),
    means(
        "inotify instance limit reached",
        Rank::Named,
        FdOrShmLimit,
        Detail::InotifyWatches,
    ),
    means(
        "max_map_count",
        Rank::Hinted,
        FdOrShmLimit,
        Detail::Mappings,
    ),
    ask("unable to open shared memory object", shared_object),
    ask("unable to open file </torch_", shared_object),
    ask("unable to mmap", mapping),
];

/// By its name, not as part of other words such as "open file".
fn error_name(reading: &Reading, hit: Hit) -> Option<Sign> {
    (reading.has_word(hit.at, "EMFILE") || reading.has_word(hit.at, "ENFILE"))
        .then(|| hit.sign(Rank::Named, FdOrShmLimit, Detail::OpenFiles))
}

/// Opening a segment fails with the limit on open files, which older releases do not say.
fn shared_object(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 160);
    if after.contains("permissiondenied") {
        return Some(hit.sign(Rank::Named, NotMemory, Detail::Exception));
    }
    if after.contains("nospaceleft") {
        return Some(hit.sign(Rank::Named, Cause::ShmExhausted, Detail::Full));
    }
    Some(hit.sign(Rank::Named, FdOrShmLimit, Detail::OpenFiles))
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
        return Some(hit.sign(Rank::Named, FdOrShmLimit, Detail::OpenFiles));
    }
    if after.contains("nospaceleft") {
        return Some(hit.sign(Rank::Named, Cause::ShmExhausted, Detail::Full));
    }
    let (cause, detail) = match (is_refused, is_count) {
        // Also without its reason, as people shorten it.
        (_, true) => (FdOrShmLimit, Detail::Mappings),
        (true, false) => (HostAllocFailed, Detail::Refused),
        (false, _) if after.contains("memory:youtriedtommap") => (HostAllocFailed, Detail::Refused),
        (false, _) => return None,
    };
    let mut sign = hit.sign(Rank::Named, cause, detail);
    sign.facts.asked = size;
    Some(sign)
}
