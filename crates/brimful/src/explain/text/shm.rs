//! `/dev/shm` is full.

use crate::explain::text::clean::Reading;
use crate::explain::text::phrases::{Hit, Phrase, ask, means};
use crate::explain::text::sign::{Rank, Sign};
use crate::explain::{Cause, Detail};

use Cause::{FdOrShmLimit, NotMemory, ShmExhausted};

pub(super) const PHRASES: &[Phrase] = &[
    ask("unable to write to file <", torch_file),
    ask("unable to resize file <", torch_file),
    ask("unable to allocate shared memory", allocate_shared),
    ask("unable to stretch file <", stretched),
    ask("to requested size", region_size),
    means(
        "Please check that /dev/shm",
        Rank::Named,
        ShmExhausted,
        Detail::Full,
    ),
    ask("/dev/shm/nccl-", nccl_segment),
    ask("misc/shmutils.cc", nccl_segment),
    ask("Error while creating shared memory segment", nccl_segment),
    ask("No space left on device", no_space),
    ask("[Errno 28]", no_space),
    ask("(os error 28)", no_space),
    ask("ENOSPC", no_space),
    ask("设备上没有空间", no_space),
    ask("kein Speicherplatz mehr verfügbar", no_space),
    ask("Aucun espace disponible sur le périphérique", no_space),
    ask("No queda espacio en el dispositivo", no_space),
    ask("На устройстве не осталось свободного места", no_space),
    ask("デバイスに空き領域がありません", no_space),
    means(
        "not enough space for /dev/shm",
        Rank::Named,
        ShmExhausted,
        Detail::Full,
    ),
    means(
        "insufficient shared memory",
        Rank::Named,
        ShmExhausted,
        Detail::Full,
    ),
    means("/dev/shm is full", Rank::Named, ShmExhausted, Detail::Full),
    means(
        "try to raise your shared memory limit",
        Rank::Named,
        ShmExhausted,
        Detail::BusError,
    ),
    means(
        "increase the size of /dev/shm",
        Rank::Hinted,
        ShmExhausted,
        Detail::Full,
    ),
    means(
        "ObjectStoreFullError",
        Rank::Named,
        ShmExhausted,
        Detail::ObjectStore,
    ),
    // The disk, in the words of what was being written.
    means(
        "Disk quota exceeded",
        Rank::Named,
        NotMemory,
        Detail::DiskFull,
    ),
    means("[Errno 122]", Rank::Named, NotMemory, Detail::DiskFull),
    means("OutOfDiskError", Rank::Named, NotMemory, Detail::DiskFull),
    means(
        "There is not enough space on the disk",
        Rank::Named,
        NotMemory,
        Detail::DiskFull,
    ),
    means(
        "low on resource: ephemeral-storage",
        Rank::Named,
        NotMemory,
        Detail::DiskFull,
    ),
    ask("PytorchStreamWriter failed", stream_writer),
    ask("inline_container.cc", stream_writer),
];

/// What stands around an error about space when it is shared memory that is full.
const SHARED: &[&str] = &[
    "/dev/shm",
    "</torch_",
    "sharedmemory",
    "shared_memory",
    "semlock",
    "synchronize.py",
    "multiprocessing/heap.py",
    "_share_fd",
    "_share_filename",
    "share_memory_",
    "psm_",
    "nccl",
    "shm_open",
    "joblib_memmapping_folder",
    "plasma",
    "sem_open",
    "semaphore",
    "ctx.lock()",
    "memoryfilesystem",
];

/// And when it is a disk.
const DISK: &[&str] = &[
    "serialization.py",
    "torch.save",
    "pytorchstreamwriter",
    "shutil.py",
    "tempfile",
    "pymp-",
    "checkpoint",
    "/tmp",
    "wandb",
    "tensorboard",
    "download",
    "arrow_writer",
];

fn torch_file(reading: &Reading, hit: Hit) -> Option<Sign> {
    let after = reading.after(hit.end, 200);
    if after.contains("toomanyopenfiles") {
        return Some(hit.sign(Rank::Named, FdOrShmLimit, Detail::OpenFiles));
    }
    if after.contains("permissiondenied") {
        return Some(hit.sign(Rank::Named, NotMemory, Detail::Exception));
    }
    Some(hit.sign(Rank::Named, ShmExhausted, Detail::Full))
}

/// `Unable to initialize shared memory key '…' to requested size`
fn region_size(reading: &Reading, hit: Hit) -> Option<Sign> {
    reading
        .before(hit.at, 120)
        .contains("sharedmemory")
        .then(|| hit.sign(Rank::Named, ShmExhausted, Detail::Full))
}

/// Lua's torch, which maps files of any place.
fn stretched(reading: &Reading, hit: Hit) -> Option<Sign> {
    let path = reading.after(hit.end, 20);
    Some(
        if path.starts_with("/torch_") || path.starts_with("/dev/shm") {
            hit.sign(Rank::Named, ShmExhausted, Detail::Full)
        } else {
            hit.sign(Rank::Named, NotMemory, Detail::DiskFull)
        },
    )
}

fn allocate_shared(reading: &Reading, hit: Hit) -> Option<Sign> {
    torch_file(reading, hit)
}

/// NCCL's own segments; it names them also when all is well.
fn nccl_segment(reading: &Reading, hit: Hit) -> Option<Sign> {
    let near = reading.around(hit.at, 160, 240);
    if near.contains("toomanyopenfiles") {
        return Some(hit.sign(Rank::Named, FdOrShmLimit, Detail::OpenFiles));
    }
    let is_attached = reading.around(hit.at, 80, 40).contains("attaching");
    if near.contains("nosuchfile")
        || near.contains("permissiondenied")
        || (is_attached && !near.contains("nospaceleft"))
    {
        return Some(hit.sign(Rank::Raised, NotMemory, Detail::NcclError));
    }
    let is_failure = [
        "ncclwarn",
        "fail",
        "error",
        "nospaceleft",
        "unable",
        "buserror",
    ]
    .iter()
    .any(|word| near.contains(word));
    is_failure.then(|| hit.sign(Rank::Named, ShmExhausted, Detail::Nccl))
}

/// No room: on a disk, unless something nearby speaks of shared memory.
fn no_space(reading: &Reading, hit: Hit) -> Option<Sign> {
    if reading.around(hit.at, 80, 80).contains("inotify") {
        return Some(hit.sign(Rank::Named, FdOrShmLimit, Detail::InotifyWatches));
    }
    if reading.around(hit.at, 120, 40).contains("shmget")
        || reading.around(hit.at, 120, 40).contains("semget")
    {
        return Some(hit.sign(Rank::Named, FdOrShmLimit, Detail::SystemVObjects));
    }
    let nearest = |words: &[&str]| {
        let before = reading.before(hit.at, 1500);
        let after = reading.after(hit.at, 800);
        let in_front = words
            .iter()
            .filter_map(|word| before.rfind(word).map(|at| before.len() - at))
            .min();
        let behind = words.iter().filter_map(|word| after.find(word)).min();
        in_front.into_iter().chain(behind).min()
    };
    let is_shared = match (nearest(SHARED), nearest(DISK)) {
        (Some(shared), Some(disk)) => shared < disk,
        (shared, _) => shared.is_some(),
    };
    Some(if is_shared {
        hit.sign(Rank::Named, ShmExhausted, Detail::Full)
    } else {
        hit.sign(Rank::Named, NotMemory, Detail::DiskFull)
    })
}

/// `torch.save` could not write: with a full disk, which it does not say.
fn stream_writer(reading: &Reading, hit: Hit) -> Option<Sign> {
    let near = reading.around(hit.at, 20, 160);
    ["writefailed", "failedwriting", "unexpectedpos"]
        .iter()
        .any(|word| near.contains(word))
        .then(|| hit.sign(Rank::Named, NotMemory, Detail::DiskFull))
}
