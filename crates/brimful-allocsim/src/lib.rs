//! An exact model of PyTorch's CUDA caching allocator, for every release from 2.9 to 2.15.
//!
//! It answers "what would have happened": on a smaller card, with `expandable_segments`, in another release of
//! PyTorch. It needs no GPU, no PyTorch and nothing else of brimful. Against the real allocator it is exact: after
//! every one of millions of random events allocated and reserved bytes are equal, and so are segments, peaks, retries
//! and failures (`cargo xtask differential`).
//!
//! Read first: [`allocator::Allocator`], the model; [`trace::Trace`], what a process did; [`replay::replay`], which
//! plays the one on the other. Traces come from PyTorch's memory snapshots ([`snapshot`], read by an unpickler that
//! can build no object: [`pickle`]) or from files of our own ([`mod@format`]).
//!
//! ```
//! use brimful_allocsim::replay::{Setup, replay};
//! use brimful_allocsim::settings::AllocatorSettings;
//! use brimful_allocsim::trace::Trace;
//! use brimful_allocsim::version::TorchVersion;
//!
//! const MIB: u64 = 1 << 20;
//! let version = TorchVersion::new(2, 13);
//!
//! // Three tensors, the middle one freed, then one that needs a hole of its size.
//! let mut trace = Trace::default();
//! let tensors: Vec<u32> = (0..3).map(|_| trace.alloc(30 * MIB, 0)).collect();
//! trace.free(tensors[1]);
//! trace.alloc(40 * MIB, 0);
//!
//! let on = |capacity, settings: &str| {
//!     let settings = AllocatorSettings::parse(settings, version).unwrap();
//!     replay(&trace, &Setup { capacity, held: 0, settings, version })
//! };
//! let outcome = on(1 << 30, "");
//! assert_eq!(outcome.statistics.allocated.peak, 100 * MIB);
//! assert_eq!(outcome.statistics.reserved.peak, 130 * MIB);
//!
//! // With 110 MiB the freed tensor must be given back first; 90 MiB are not enough.
//! assert_eq!(on(110 * MIB, "").statistics.retries, 1);
//! assert_eq!(on(90 * MIB, "").oom.unwrap().event, Some(4));
//! ```

pub mod agreement;
pub mod allocator;
pub mod by_line;
pub mod device;
pub mod format;
pub mod from_snapshot;
pub mod pickle;
pub mod replay;
pub mod settings;
pub mod snapshot;
pub mod trace;
pub mod version;

mod blocks;
