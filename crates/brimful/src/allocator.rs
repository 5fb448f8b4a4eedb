//! The variables that configure PyTorch's CUDA allocator, and which of them a given torch reads.
//!
//! Established by loading the allocator libraries of the published Linux wheels 2.0.0 to 2.15.0 (November 2026) and
//! running their own parsers:
//!
//! | torch | `PYTORCH_CUDA_ALLOC_CONF` | `PYTORCH_ALLOC_CONF` | `PYTORCH_HIP_ALLOC_CONF` |
//! |---|---|---|---|
//! | to 2.8 | read | ignored without a word | ignored |
//! | 2.9 | read | ignored without a word (pytorch#183387) | ignored |
//! | from 2.10 | read, wins | read if the other two are not set | read if the first is not set |
//!
//! Nothing is merged: the first one that is set wins, even if it is empty. An unknown option is an error, never a
//! warning. ROCm builds were not measured.

use crate::fact::Fact;
use crate::machine::{Accelerator, Torch, TorchVersion};

/// A variable that is set, and whether the installed torch reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatorVariable {
    pub name: &'static str,
    pub value: String,
    pub read_by_torch: Fact<bool>,
}

/// One `key:value` of an allocator variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatorOption {
    pub key: String,
    pub value: String,
}

pub const CUDA: &str = crate::env_vars::PYTORCH_CUDA_ALLOC_CONF;
pub const HIP: &str = crate::env_vars::PYTORCH_HIP_ALLOC_CONF;
pub const GENERIC: &str = crate::env_vars::PYTORCH_ALLOC_CONF;
pub const NO_CACHING: &str = crate::env_vars::PYTORCH_NO_CUDA_MEMORY_CACHING;

/// In the order in which torch 2.10 and later look at them.
const CONFIGURING: [&str; 3] = [CUDA, HIP, GENERIC];

/// The first release that reads the other two.
const READS_ALL: TorchVersion = TorchVersion::new(2, 10, 0);

/// Every option and the first release that accepts it; what stands at 2.0 may be older. `None`: 2.15 accepts it, and
/// since when was not established.
pub const OPTIONS: &[(&str, Option<TorchVersion>)] = &[
    ("max_split_size_mb", Some(TorchVersion::new(2, 0, 0))),
    (
        "garbage_collection_threshold",
        Some(TorchVersion::new(2, 0, 0)),
    ),
    ("roundup_power2_divisions", Some(TorchVersion::new(2, 0, 0))),
    ("backend", Some(TorchVersion::new(2, 0, 0))),
    ("expandable_segments", Some(TorchVersion::new(2, 1, 0))),
    (
        "pinned_use_cuda_host_register",
        Some(TorchVersion::new(2, 2, 0)),
    ),
    (
        "pinned_num_register_threads",
        Some(TorchVersion::new(2, 2, 0)),
    ),
    (
        "release_lock_on_cudamalloc",
        Some(TorchVersion::new(2, 2, 0)),
    ),
    (
        "max_non_split_rounding_mb",
        Some(TorchVersion::new(2, 6, 0)),
    ),
    (
        "pinned_use_background_threads",
        Some(TorchVersion::new(2, 6, 0)),
    ),
    (
        "graph_capture_record_stream_reuse",
        Some(TorchVersion::new(2, 9, 0)),
    ),
    (
        "per_process_memory_fraction",
        Some(TorchVersion::new(2, 10, 0)),
    ),
    ("large_segment_size_mb", Some(TorchVersion::new(2, 11, 0))),
    ("expandable_segments_reserve", None),
    ("expandable_segments_reserve_by_class", None),
    ("pinned_free_catch_all", None),
    ("pinned_max_cached_size_mb", None),
    ("pinned_max_round_threshold_mb", None),
    ("pinned_reserve_segment_size_mb", None),
    ("pinned_use_hip_host_register", None),
    ("release_lock_on_hipmalloc", None),
    ("throw_on_cudamalloc_oom", None),
];

/// The newest release whose options are known: of what is newer nothing is claimed.
pub const NEWEST_KNOWN: TorchVersion = TorchVersion::new(2, 15, u32::MAX);

/// The allocator variables that are set in an environment, and whether `torch` reads each.
pub fn variables<'a>(
    environment: impl IntoIterator<Item = (&'a str, &'a str)>,
    torch: Option<&Torch>,
) -> Vec<AllocatorVariable> {
    let set: Vec<(&'static str, &str)> = environment
        .into_iter()
        .filter_map(|(name, value)| {
            let known = CONFIGURING
                .iter()
                .chain([&NO_CACHING])
                .find(|known| **known == name)?;
            Some((*known, value))
        })
        .collect();
    set.iter()
        .map(|(name, value)| AllocatorVariable {
            name,
            value: value.chars().take(4096).collect(),
            read_by_torch: is_read(
                name,
                |other| set.iter().any(|(name, _)| *name == other),
                torch,
            ),
        })
        .collect()
}

fn is_read(name: &str, is_set: impl Fn(&str) -> bool, torch: Option<&Torch>) -> Fact<bool> {
    let Some(torch) = torch else {
        return Fact::unavailable("torch was not found");
    };
    if name == NO_CACHING {
        return Fact::Known(true);
    }
    match &torch.accelerator {
        Fact::Known(Accelerator::Cuda { .. }) => {}
        Fact::Known(Accelerator::None) => return Fact::Known(false),
        Fact::Known(Accelerator::Rocm(_)) => {
            return Fact::unavailable("the variables that ROCm builds of torch read are unknown");
        }
        Fact::Missing(gap) => return Fact::Missing(gap.clone()),
    }
    if torch.version < READS_ALL {
        return Fact::Known(name == CUDA);
    }
    let winner = CONFIGURING.into_iter().find(|candidate| is_set(candidate));
    Fact::Known(winner == Some(name))
}

/// Splits a variable's value into its options; brackets keep the lists of `roundup_power2_divisions` together.
///
/// ```
/// use brimful::allocator::options;
/// let found = options("expandable_segments:True,roundup_power2_divisions:[256:1,>:4]");
/// assert_eq!(found[0].key, "expandable_segments");
/// assert_eq!(found[1].value, "[256:1,>:4]");
/// ```
pub fn options(value: &str) -> Vec<AllocatorOption> {
    let mut parts = vec![String::new()];
    let mut depth = 0_u32;
    for c in value.chars().filter(|c| !c.is_whitespace()) {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match (c, depth, parts.last_mut()) {
            (',', 0, _) | (_, _, None) => parts.push(String::new()),
            (_, _, Some(last)) => last.push(c),
        }
    }
    parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (key, value) = part.split_once(':').unwrap_or((&part, ""));
            AllocatorOption {
                key: key.into(),
                value: value.into(),
            }
        })
        .collect()
}

impl AllocatorVariable {
    pub fn option(&self, key: &str) -> Option<String> {
        options(&self.value)
            .into_iter()
            .find(|option| option.key == key)
            .map(|option| option.value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn torch(version: TorchVersion) -> Torch {
        Torch {
            version,
            version_text: version.to_string(),
            accelerator: Fact::Known(Accelerator::Cuda {
                major: 12,
                minor: 8,
            }),
        }
    }

    fn check(version: TorchVersion, set: &[&'static str], expected: &[bool]) {
        let found = variables(set.iter().map(|name| (*name, "x:1")), Some(&torch(version)));
        let read: Vec<bool> = found
            .iter()
            .map(|variable| *variable.read_by_torch.known().unwrap())
            .collect();
        assert_eq!(read, expected, "{version} {set:?}");
    }

    #[test]
    fn what_each_release_reads() {
        check(TorchVersion::new(2, 8, 0), &[GENERIC], &[false]);
        check(TorchVersion::new(2, 9, 1), &[GENERIC], &[false]);
        check(TorchVersion::new(2, 9, 1), &[CUDA, GENERIC], &[true, false]);
        check(TorchVersion::new(2, 10, 0), &[GENERIC], &[true]);
        check(
            TorchVersion::new(2, 10, 0),
            &[CUDA, GENERIC],
            &[true, false],
        );
        check(TorchVersion::new(2, 15, 0), &[HIP, GENERIC], &[true, false]);
    }

    #[test]
    fn without_torch_nobody_can_say() {
        let found = variables(
            [(GENERIC, "expandable_segments:True"), ("PATH", "/bin")],
            None,
        );
        assert_eq!(found.len(), 1);
        assert!(found[0].read_by_torch.gap().is_some());
    }

    proptest! {
        #[test]
        fn no_value_panics(value in "(?s)[a-z:,\\[\\]> ]{0,60}|.{0,40}") {
            let _ = options(&value);
        }
    }
}
