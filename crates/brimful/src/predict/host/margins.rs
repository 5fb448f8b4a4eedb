//! What safe values have on top of likely ones, in one place.
//!
//! Fitted to the residuals of `benches/host_accuracy.py`; see docs/accuracy.md for the table.

use crate::units::Bytes;

/// The main process goes on growing after the rehearsed steps: malloc's heap gets holes, and modules are loaded late.
/// Parts of a thousand of what it takes besides its dataset.
pub(crate) const MAIN_DRIFT: u64 = 60;
/// The likely part of it.
pub(crate) const MAIN_DRIFT_LIKELY: u64 = 20;
/// A dataset is measured as it is; what is left is the share that the walk put to the program instead.
pub(crate) const DATASET: u64 = 10;
/// Steps differ: the last of three is not the largest of a thousand. Parts of a thousand of what a step takes.
pub(crate) const STEP: u64 = 250;
/// A worker's own heap, in the same way.
pub(crate) const WORKER: u64 = 60;
/// What the making of a batch takes differs from sample to sample, and with the holes in the heap: for each worker, and
/// once more for all of them, as they are not at their worst together.
pub(crate) const MAKING: u64 = 300;
pub(crate) const MAKING_ONCE: u64 = 700;
/// Of what passes with every sample of a batch, the part that is there as holes.
pub(crate) const HOLES_LIKELY: u64 = 500;
pub(crate) const MAX_HOLES_LIKELY: Bytes = Bytes::from_mib(64);
pub(crate) const MAX_HOLES: Bytes = Bytes::from_mib(128);
/// An unpickled dataset against its parts as they were walked over.
pub(crate) const FRESH_DATASET: u64 = 40;
/// Pages that one forked worker has for itself, apart from dataset and batches, where none was rehearsed.
pub(crate) const FORKED_LIKELY: Bytes = Bytes::from_mib(32);
pub(crate) const FORKED_SAFE: Bytes = Bytes::from_mib(64);
/// The most of it that every further worker has too: the rest is pages that the main process has written to since, of
/// which all workers together hold the old ones (measured: 28 MB for the first worker, 9 MB for each further one).
pub(crate) const FORKED_EACH_LIKELY: Bytes = Bytes::from_mib(12);
pub(crate) const FORKED_EACH_SAFE: Bytes = Bytes::from_mib(20);
/// What a forked worker copies of the program by and by: the collector writes to every object that it looks at.
pub(crate) const FORKED_LATER: Bytes = Bytes::from_mib(8);
/// Above this, what a rehearsed worker copied was not only the program; of the program it then was about so much.
pub(crate) const PROGRAM_PAGES: Bytes = Bytes::from_mib(24);
pub(crate) const USUAL_PROGRAM_PAGES: Bytes = Bytes::from_mib(8);
/// A resource tracker, and the server of forkserver: interpreters without torch.
pub(crate) const BESIDE_FRESH: Bytes = Bytes::from_mib(12);
/// What a fresh worker loads for its first batch, where none was rehearsed.
pub(crate) const FRESH_LIKELY: Bytes = Bytes::from_mib(4);
pub(crate) const FRESH_SAFE: Bytes = Bytes::from_mib(32);
/// Semaphores and what else queues have in `/dev/shm`.
pub(crate) const QUEUES: Bytes = Bytes::from_mib(1);
/// What the driver takes in a process that uses a card, of which the phantom has nothing: 116 MB of resident memory for
/// the first tensor on an RTX 3090 (pytorch/pytorch issue 113326). Not measured here, so only in the safe value.
pub(crate) const DRIVER: Bytes = Bytes::from_mib(112);
