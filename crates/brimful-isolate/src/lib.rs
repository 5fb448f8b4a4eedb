//! Runs a command so that nothing it writes, deletes, renames or truncates reaches the user's files.
//!
//! A rehearsal runs the user's own training script. The script saves checkpoints, appends to logs and clears its output
//! directory, as it would in a real run; all of that must end in a private directory that is removed afterwards, and the
//! script must not notice. This crate starts the command in the strongest [`Isolation`] that the machine offers:
//!
//! 1. [`Isolation::Overlay`]: a mount namespace in which every writable directory is covered by an overlay file system.
//! 2. [`Isolation::Redirect`]: Landlock and seccomp deny writes, and a preloaded library redirects them.
//! 3. [`Isolation::Off`]: only where the user allows writes.
//!
//! In the first two it reaches no memory, queue or process of other programs either ([`Containment`]), and of the
//! descriptors that it would inherit it gets copies.
//!
//! In each of them the command reaches no GPU of this machine ([`GpuHidden`]): it has a `/dev` without their nodes, or
//! Landlock denies them.
//!
//! The work is done by a second process, the *keeper* ([`program()`]): brimful started again with [`ARGUMENT`]. It sets up
//! the isolation while it has one thread, proves it with canaries, starts the command, and ends every process of it when
//! the command ends or when brimful does, even by SIGKILL.
//!
//! It does not know what a rehearsal is, and it decides nothing about what the command may do besides writing.
//!
//! Read first: [`start()`], the side of brimful; [`program()`], the side of the keeper; [`Scratch`], where the writes go.

mod request;
mod scratch;

#[cfg(target_os = "linux")]
mod canary;
#[cfg(target_os = "linux")]
mod copied_up;
#[cfg(target_os = "linux")]
mod descriptors;
#[cfg(target_os = "linux")]
mod devices;
#[cfg(target_os = "linux")]
mod gpus;
#[cfg(target_os = "linux")]
mod listing;
#[cfg(target_os = "linux")]
mod mounting;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
mod overlay;
#[cfg(target_os = "linux")]
mod process_calls;
#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
mod reach;
#[cfg(target_os = "linux")]
mod redirect;
#[cfg(target_os = "linux")]
mod seccomp;
#[cfg(target_os = "linux")]
mod sockets;
#[cfg(target_os = "linux")]
mod start;
#[cfg(target_os = "linux")]
mod tree;
#[cfg(not(target_os = "linux"))]
mod unsupported;

#[cfg(target_os = "linux")]
pub use program::{ARGUMENT, program};
pub use request::{Contained, Containment, GpuHidden, Isolation, Network, SharedDirectory};
pub use scratch::{LargestFile, Scratch, ScratchFull};
#[cfg(target_os = "linux")]
pub use start::{Isolated, IsolationSettings, StartError, start};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{ARGUMENT, Isolated, IsolationSettings, StartError, program, start};

/// Where the part inside the command finds what is mounted, to branch off (one process per GPU model).
pub const ISOLATION_VARIABLE: &str = brimful::env_vars::BRIMFUL_ISOLATION;
