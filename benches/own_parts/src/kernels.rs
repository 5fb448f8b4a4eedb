//! The resize of brimful-load, from its sources.

#![allow(dead_code, clippy::all, clippy::pedantic)]

#[path = "../../../crates/brimful-load/src/kernels/arithmetic.rs"]
mod arithmetic;
#[path = "../../../crates/brimful-load/src/kernels/filter.rs"]
pub(crate) mod filter;
#[path = "../../../crates/brimful-load/src/kernels/resize.rs"]
pub(crate) mod resize;
#[path = "../../../crates/brimful-load/src/kernels/transpose.rs"]
mod transpose;
