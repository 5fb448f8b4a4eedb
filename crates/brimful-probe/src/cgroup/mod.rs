//! Finds this process's cgroups and reads their memory files.

mod chain;
pub mod parse;
mod usage;
mod v1;
mod v2;

use brimful::fact::Fact;
use brimful::machine::{CgroupVersion, Cgroups, HiddenAncestors, Usage};

use crate::files::Files;

pub(crate) use chain::{Chain, Mounts};

/// The memory groups of this process with their limits and their use.
pub(crate) fn memory_groups(files: &Files, mounts: &Mounts) -> Fact<Cgroups> {
    mounts.chain("memory").map(|chain| match chain.version {
        _ if chain.out_of_sight => Cgroups {
            levels: Vec::new(),
            hidden: HiddenAncestors::OwnGroup,
        },
        CgroupVersion::V1 => v1::read(files, &chain),
        CgroupVersion::V2 => v2::read(files, &chain),
    })
}

/// What the memory of one group is made of, by its directory.
pub(crate) fn usage_of_group(
    files: &Files,
    version: CgroupVersion,
    directory: &str,
) -> Fact<Usage> {
    match version {
        CgroupVersion::V1 => v1::usage_of(files, directory),
        CgroupVersion::V2 => v2::usage_of(files, directory),
    }
}
