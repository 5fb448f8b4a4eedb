//! Host memory: `/proc/meminfo`, overcommit, pressure, and the cgroups.

use brimful::fact::{Fact, Gap};
use brimful::machine::{Host, Overcommit, OvercommitMode, Platform, Pressure, Swap};
use brimful::units::Bytes;

use crate::cgroup::{self, Mounts};
use crate::files::parse::{field, meminfo_bytes};
use crate::files::{Files, malformed};
use crate::killers;

const MEMINFO: &str = "/proc/meminfo";

pub(crate) fn read(files: &Files, mounts: &Mounts, platform: &Platform) -> Host {
    let meminfo = files.text(MEMINFO);
    let line = |name: &str| meminfo.as_ref().and_then(|text| meminfo_line(text, name));
    Host {
        // A container's file system that stands in for /proc has been seen to show 0 here (lxc/lxcfs).
        physical: line("MemTotal").and_then(|bytes| {
            if bytes == Bytes::ZERO {
                Fact::Missing(malformed(MEMINFO, "MemTotal: 0 kB"))
            } else {
                Fact::Known(bytes)
            }
        }),
        available: line("MemAvailable"),
        swap: line("SwapTotal").and_then(|total| line("SwapFree").map(|free| Swap { total, free })),
        given_limit: None,
        cgroups: cgroup::memory_groups(files, mounts),
        overcommit: overcommit(files, meminfo.known()),
        pressure: files.parsed("/proc/pressure/memory", pressure),
        oom_score_adj: files.number("/proc/self/oom_score_adj"),
        killers: killers::read(files, platform),
    }
}

fn meminfo_line(text: &str, name: &str) -> Fact<Bytes> {
    match meminfo_bytes(text, name) {
        Some(bytes) => Fact::Known(Bytes(bytes)),
        None => Fact::Missing(match field(text, name) {
            Some(found) => malformed(MEMINFO, &format!("{name}: {found}")),
            None => Gap::FieldMissing {
                path: MEMINFO.into(),
                field: name.into(),
            },
        }),
    }
}

fn overcommit(files: &Files, meminfo: Option<&String>) -> Fact<Overcommit> {
    let bytes = |name: &str| meminfo_bytes(meminfo?, name).map(Bytes);
    files
        .parsed("/proc/sys/vm/overcommit_memory", |text| match text.trim() {
            "0" => Some(OvercommitMode::Heuristic),
            "1" => Some(OvercommitMode::Always),
            "2" => Some(OvercommitMode::Never),
            _ => None,
        })
        .map(|mode| Overcommit {
            mode,
            commit_limit: bytes("CommitLimit"),
            committed: bytes("Committed_AS"),
        })
}

fn pressure(text: &str) -> Option<Pressure> {
    let share = |line: &str, name: &str| -> Option<f64> {
        let line = field(text, line)?;
        let value = line
            .split_ascii_whitespace()
            .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))?;
        value
            .parse()
            .ok()
            .filter(|share| (0.0..=100.0).contains(share))
    };
    Some(Pressure {
        some_avg10: share("some", "avg10")?,
        some_avg60: share("some", "avg60")?,
        full_avg10: share("full", "avg10")?,
        full_avg60: share("full", "avg60")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_or_refused_whole() {
        let text = "some avg10=1.50 avg60=0.25 avg300=0.00 total=9\nfull avg10=0.50 avg60=0.10 avg300=0.00 total=3\n";
        let found = pressure(text).unwrap();
        assert!((found.some_avg10 - 1.5).abs() < 1e-9);
        assert!((found.full_avg60 - 0.1).abs() < 1e-9);
        for text in [
            "",
            "some avg10=1",
            "some avg10=NaN avg60=0\nfull avg10=0 avg60=0",
            "full",
        ] {
            assert_eq!(pressure(text), None, "{text:?}");
        }
    }
}
