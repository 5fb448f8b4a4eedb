//! A copy-on-write view of the file system for one rehearsal: what a program writes goes into a scratch directory, and
//! what it reads afterwards comes from there. The library changes nothing outside scratch; what it misses, the kernel
//! denies (Landlock and seccomp, set up by the program that starts the script).
//!
//! # How it is loaded
//!
//! `LD_PRELOAD=libbrimful_redirect.so`, with `BRIMFUL_REDIRECT=/scratch`. Children inherit it, also those that the script
//! gives another environment (`inherited`). It stands beside the phantom GPU in either order.
//!
//! # What it reads from the environment
//!
//! - `BRIMFUL_REDIRECT`: the scratch directory, which must exist. Absent or empty: files are left alone.
//! - `BRIMFUL_REDIRECT_PASS`: `p1:p2`, prefixes whose writes go through. `/proc`, `/sys`, `/dev` and scratch always do.
//! - `BRIMFUL_REDIRECT_SHARED`: `prefix=layer:…`, prefixes whose writes go into a layer that all branches share.
//! - `BRIMFUL_REDIRECT_LAYERS`: `top:…:bottom`, the branch layers. Absent: `scratch/layer-0`.
//! - `BRIMFUL_REDIRECT_TOKEN`: hexadecimal; the sixth argument of the calls that the seccomp filter guards.
//! - `BRIMFUL_CONNECTIONS`: a file that gets a line of JSON for each new address that is connected to, and for each that
//!   is listened on (`connections`).
//! - `BRIMFUL_KEEPER`: the number of the process whose descendants belong to the rehearsal (`processes`).
//! - `BRIMFUL_NVIDIA_SMI`: the program that is started for every path that ends in `/nvidia-smi`.
//! - `LD_PRELOAD`: where the phantom lies. Every `libcuda.so*` and `libnvidia-ml.so*` that is opened is the phantom, or
//!   does not exist where there is none (`gpu`).
//! - What `inherited` lists, to hand it on to children.
//!
//! In the lists `\` escapes `:`, `=` and itself. They are read once, at the first call that needs them.
//!
//! `int brimful_redirect_branch(const char *layer)` puts a new layer on top of the stack of this process and of the
//! children it starts from then on.
//!
//! `int brimful_redirect_leave_stage(void)` lets what this process starts from then on see neither the phantom nor the
//! hook.
//!
//! # What lies in scratch
//!
//! - `state`: a page that all processes map, with the number of changes of directories in any layer. Zero: nothing was
//!   ever written, and every read goes straight to the kernel.
//! - `u/`: sockets under short names, and beside each a link `NAME.name` to the path that the script gave it.
//! - `layer-0/`, and any layer that a branch names: `t/` holds unfinished work and the lock, `f/` the files, each under
//!   its absolute path without links.
//!
//! Below `f/`:
//!
//! - A link to `brimful-whiteout:` hides whatever lies below at its path, also a directory with all its names. It is the
//!   entry itself, so that a rename over it makes the name visible again in one step.
//! - A link to `brimful-reference:/path` stands for the file at that physical path. Renaming a file that lies below
//!   makes one, in place of a copy; opening it for writing replaces it by a copy.
//! - A directory is merged with those of its path below it, unless it holds the name `.brimful-opaque`.
//! - A directory is always writable by its owner. If the script is to see another mode, the directory's set-user-ID bit
//!   is set, and it holds a link `.brimful-mode` to the mode and to `ro` if the script may not create names in it.
//!
//! Every change of one name is a single rename or link in the layer, or is made under `t/` first: readers in other
//! processes never see half of it.
//!
//! # What differs from the real file system
//!
//! - A descriptor that was opened for reading keeps showing the file as it was, when the file is written through
//!   another one later; so does the file behind it.
//! - A hard link between two real files is cut when one of them is written.
//! - A real directory that is renamed leaves its open descriptors, and a working directory in it, at the old name.
//! - A copy belongs to the user who made it, and its number (`st_ino`) differs from the original's.
//! - Programs that make system calls themselves are not redirected, except for renames and hard links (`raw_calls`):
//!   their writes fail.
//! - `fts_open` and `wordexp` of libc list the real files only.
//! - A program that is itself linked with NVIDIA's libraries gets those that the loader finds first; `dlmopen` and
//!   `pidfd_spawn` are left to libc.
//! - A static program, which cannot be redirected, dies of SIGSYS when it renames a file (`raw_calls`).
//! - Opening a named semaphore twice gives two addresses, which count as one semaphore all the same.
//! - A thread needs about 100 KiB of stack for a call that copies a file up: paths live there, not on the heap.

#![expect(unsafe_code, reason = "the whole crate is a C interface")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "arguments and results of system calls are registers"
)]

mod abi;
mod allocator;
mod cache;
mod change;
mod config;
mod connections;
mod copy;
mod dir;
mod dir_state;
mod directory_mode;
mod entries;
mod environment;
mod errno;
mod exec;
mod gpu;
mod inherited;
mod layer;
mod list;
mod markers;
mod names;
mod open;
mod others;
mod path;
mod processes;
mod raw_calls;
mod read;
mod rename;
mod resolve;
mod semaphores;
mod shared_memory;
mod shell;
mod socket;
mod stdio;
mod strings;
mod sys;
mod tree_walk;
