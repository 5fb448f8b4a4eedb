//! What each process of a job is for.

use brimful::record::LoaderLine;
use brimful::watch::Role;

/// What is known of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessHints {
    pub pid: u32,
    pub parent: u32,
    pub arguments: Vec<String>,
    pub local_rank: Option<u32>,
}

/// The role of each process, in the same order.
pub fn of(main_pid: u32, processes: &[ProcessHints], loaders: &[LoaderLine]) -> Vec<Role> {
    let _ = loaders;
    processes
        .iter()
        .map(|process| {
            if process.pid == main_pid {
                Role::Main
            } else {
                Role::Other
            }
        })
        .collect()
}
