//! The GPU made of addresses: one library that answers for NVIDIA's, so that unmodified PyTorch trains "on a
//! card" where there is none.
//!
//! Device memory is only addresses with a capacity. Kernel launches succeed without work. A copy from the
//! device gives zeros. Everything in PyTorch that decides how much memory a step takes is then the real code:
//! the caching allocator, autograd, the choice of kernels by compute capability, optimizers. CUDA 12 and CUDA
//! 13 builds both work.
//!
//! # How it is loaded
//!
//! Put the library into a directory, and beside it a link to it for each line of `sonames.txt`. Then either
//!
//! - `LD_PRELOAD=/directory/libbrimful_phantom.so python train.py`, which child processes inherit, or
//! - `ctypes.CDLL("/directory/libbrimful_phantom.so", ctypes.RTLD_GLOBAL)` before `import torch`.
//!
//! While loading it takes all those names for itself (`names`), so PyTorch needs no NVIDIA package at all,
//! and where they are installed they are not opened. Triton looks for `libcuda.so.1` as a file:
//! `TRITON_LIBCUDA_PATH=/directory`.
//!
//! # What it reads from the environment, at the first call that needs a device
//!
//! - `BRIMFUL_PHANTOM_DEVICES`: `name=Tesla T4,memory=15843721216,held=0,cc=7.5,multiprocessors=40`, devices
//!   separated by `;`. `memory`, `cc` and `multiprocessors` are needed. Without the variable there is one T4.
//!   `brimful_phantom_configure(text)` says the same from inside the process and wins.
//! - `CUDA_VISIBLE_DEVICES`, as CUDA reads it at its first call. An index or a UUID that names no device adds one.
//! - `BRIMFUL_REHEARSAL`, the directory in which the processes of a rehearsal note what they use (`shared`).
//! - `BRIMFUL_PHANTOM_CUDNN`: the full path of a real `libcudnn.so.9` of 9.8 or later, for its heuristics
//!   (`cudnn`). Read at load too: real cuBLASLt and NVRTC beside it keep their names (`names`).
//! - `BRIMFUL_PHANTOM_CUDNN_VERSION`: the version to pretend without one, such as `91002`.
//! - `BRIMFUL_PHANTOM_SHARED`: another directory for these notes, for tests in which the phantom stands for a real GPU,
//!   as is the key `context` of a device.
//!
//! # What it tells
//!
//! `brimful_phantom_report(buffer, length)` writes what was used, launched, asked for and guessed, as JSON;
//! `brimful_phantom_reset_peaks()` starts the peaks anew. Brimful's hook calls `brimful_phantom_watched()`; a process
//! of a rehearsal that uses torch without it is ended (`watched`). It counts what writes to device memory (`launches`).
//!
//! # What is guessed
//!
//! Workspaces of cuSOLVER, cuSPARSE and cuFFT (`solvers`); what cuDNN keeps for recurrent nets, batch
//! normalisation and dropout (`cudnn::legacy`); without a real cuDNN the workspaces of convolutions (none);
//! how many blocks of a kernel fit on a multiprocessor (`properties`); the buffers of NCCL, which are not
//! charged at all.
//!
//! # What is not here
//!
//! - Values. What is read is zero, except the few values that `mirror` keeps for collectives; brimful's hook knows more.
//! - Anything behind `cuGetExportTable`, or behind the integrity checks of NVIDIA's libraries: a program with
//!   a static CUDA runtime of its own finds no device.
//! - Memory shared between processes. Each may take the whole device, and sees what the others hold.

#![expect(unsafe_code, reason = "the whole crate is a C interface")]

mod abi;
mod card;
mod config;
mod cublas;
mod cudnn;
mod driver;
mod env_vars;
mod generation;
mod kernels;
mod launches;
mod machine;
mod memory;
mod mirror;
mod names;
mod nccl;
mod noops;
mod nvml;
mod others;
mod properties;
mod report;
mod runtime;
mod shared;
mod solvers;
mod stream;
mod vmm;
mod watched;
