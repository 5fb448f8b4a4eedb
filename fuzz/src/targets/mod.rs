//! The targets, in alphabetical order.

mod arrow;
mod checkpoints;
mod config;
mod decode;
mod explain;
mod gauges;
mod hdf5;
mod hook_lines;
mod index_caches;
mod job;
mod lines;
mod machine;
mod npy;
mod object_store_answers;
mod off;
mod parquet;
mod parsers;
mod rehearsal_facts;
mod share;
mod snapshot;
mod tar;
mod tokenizer;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
}

macro_rules! targets {
    ($($name:ident)*) => {
        &[$(Target { name: stringify!($name), run: $name::run_input }),*]
    };
}

pub const TARGETS: &[Target] = targets! {
    arrow
    checkpoints
    config
    decode
    explain
    gauges
    hdf5
    hook_lines
    index_caches
    job
    lines
    machine
    npy
    object_store_answers
    off
    parquet
    parsers
    rehearsal_facts
    share
    snapshot
    tar
    tokenizer
};
