//! How weighted sums are made of each type of element: a resize is the same loops over one of these.

use super::filter::{Axis, WEIGHT_BITS};
use super::transpose::Transposable;

/// One kind of arithmetic. Small functions of plain numbers, so that the loops around them become vector code.
pub(super) trait Arithmetic {
    /// An element in memory. Floats are bytes here: files align nothing.
    type Stored: Transposable;
    /// What is multiplied by weights, and lies between the two passes.
    type Mid: Transposable;
    type Weight: Copy;
    type Sum: Copy;

    const ZERO: Self::Sum;

    fn weights(axis: &Axis) -> &[Self::Weight];
    fn widen(stored: Self::Stored) -> Self::Mid;
    fn add(sum: Self::Sum, value: Self::Mid, weight: Self::Weight) -> Self::Sum;
    /// What the first pass hands to the second.
    fn settle(sum: Self::Sum) -> Self::Mid;
    /// What the second pass stores.
    fn finish(sum: Self::Sum) -> Self::Stored;
}

/// Bits after the point of a value between the passes of [`FixedPoint`].
const MID_BITS: u32 = 6;

/// Bytes, in whole numbers.
///
/// The first pass multiplies bytes as they are, not shifted up: so one instruction multiplies and adds.
#[derive(Debug)]
pub(super) enum FixedPoint {}

impl Arithmetic for FixedPoint {
    type Stored = u8;
    type Mid = i16;
    type Weight = i16;
    type Sum = i32;

    const ZERO: i32 = 0;

    #[inline(always)]
    fn weights(axis: &Axis) -> &[i16] {
        axis.words()
    }

    #[inline(always)]
    fn widen(stored: u8) -> i16 {
        i16::from(stored)
    }

    #[inline(always)]
    fn add(sum: i32, value: i16, weight: i16) -> i32 {
        sum.wrapping_add(i32::from(value) * i32::from(weight))
    }

    /// Cuts off what a byte cannot hold, as PIL and torch do between the passes.
    #[inline(always)]
    fn settle(sum: i32) -> i16 {
        const DROPPED: u32 = WEIGHT_BITS - MID_BITS;
        ((sum + (1 << (DROPPED - 1))) >> DROPPED).clamp(0, 255 << MID_BITS) as i16
    }

    #[inline(always)]
    #[expect(clippy::cast_sign_loss, reason = "clamped to what fits")]
    fn finish(sum: i32) -> u8 {
        const DROPPED: u32 = WEIGHT_BITS + MID_BITS;
        ((sum + (1 << (DROPPED - 1))) >> DROPPED).clamp(0, 255) as u8
    }
}

/// Plain floats. Multiplied and added apart, not fused: so all processors give the same bits.
#[derive(Debug)]
pub(super) enum Floats {}

impl Arithmetic for Floats {
    type Stored = [u8; 4];
    type Mid = f32;
    type Weight = f32;
    type Sum = f32;

    const ZERO: f32 = 0.0;

    #[inline(always)]
    fn weights(axis: &Axis) -> &[f32] {
        axis.floats()
    }

    #[inline(always)]
    fn widen(stored: [u8; 4]) -> f32 {
        f32::from_ne_bytes(stored)
    }

    #[inline(always)]
    fn add(sum: f32, value: f32, weight: f32) -> f32 {
        sum + value * weight
    }

    #[inline(always)]
    fn settle(sum: f32) -> f32 {
        sum
    }

    #[inline(always)]
    fn finish(sum: f32) -> [u8; 4] {
        sum.to_ne_bytes()
    }
}
