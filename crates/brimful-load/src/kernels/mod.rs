//! Loops over plain slices, vectorized for the processor that they run on.
