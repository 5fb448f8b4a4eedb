//! What a cgroup's memory is made of.

use brimful::fact::{Fact, Gap};
use brimful::machine::Usage;
use brimful::units::Bytes;

use crate::files::Files;
use crate::files::parse::counter;

/// The lines of `memory.stat` that tell what a group's memory is made of, by the hierarchy's own names.
pub(super) struct Counters {
    pub(super) active_file: &'static str,
    pub(super) inactive_file: &'static str,
    pub(super) slab_reclaimable: Option<&'static str>,
    pub(super) shmem: &'static str,
    pub(super) anon: &'static str,
}

/// A group's use, from the file with its sum and the file with its parts.
pub(super) fn usage(files: &Files, sum: &str, stat: &str, counters: &Counters) -> Fact<Usage> {
    let current = match files.number(sum) {
        Fact::Known(bytes) => Bytes(bytes),
        Fact::Missing(gap) => return Fact::Missing(gap),
    };
    files.text(stat).and_then(|text| {
        let bytes = |name: &str| match counter(&text, name) {
            Some(bytes) => Fact::Known(Bytes(bytes)),
            None => Fact::Missing(Gap::FieldMissing {
                path: stat.into(),
                field: name.into(),
            }),
        };
        // The two lists that reclaim walks. The sum of all file pages would count shared memory too, which cannot be
        // dropped.
        let lists = bytes(counters.active_file).and_then(|active| {
            bytes(counters.inactive_file).map(|inactive| active.saturating_add(inactive))
        });
        let slab = counters
            .slab_reclaimable
            .and_then(|name| counter(&text, name));
        lists.map(|file_cache| Usage {
            current,
            file_cache,
            slab_reclaimable: Bytes(slab.unwrap_or(0)),
            shmem: bytes(counters.shmem),
            anon: bytes(counters.anon),
        })
    })
}
