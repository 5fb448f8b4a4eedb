//! Starts, watches and ends a training process, and writes its run record. Decides nothing: what to make of a sample
//! and what to do next is asked of [`brimful::watch`], why it died of [`brimful::explain`].

pub mod gauge;
pub mod hook;
pub mod roles;
