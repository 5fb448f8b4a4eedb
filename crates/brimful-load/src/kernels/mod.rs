//! Loops over plain slices, vectorized for the processor that they run on.
//!
//! Nothing here checks what it is given beyond its own loops: the ops do, before they call.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is not compiled for the processor"
)]

mod arithmetic;
pub mod cast;
pub mod filter;
pub mod flip;
pub mod normalize;
pub mod permute;
pub mod resize;
#[cfg(test)]
mod resize_tests;
mod turn;
