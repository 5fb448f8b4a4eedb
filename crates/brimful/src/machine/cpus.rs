//! The processors that can really be used.

use crate::fact::Fact;

/// How many processors the machine has, and how many of them this process gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Cpus {
    /// What `os.cpu_count()` shows.
    pub online: Fact<u32>,
    /// Allowed by the process's own affinity mask (`taskset`, Slurm).
    pub affinity: Fact<u32>,
    /// Allowed by the nearest cpuset group; `Known(None)` where no cpuset is in force.
    pub cpuset: Fact<Option<u32>>,
    /// Processor time allowed by the tightest group, in processors; `Known(None)` is "no quota".
    pub quota: Fact<Option<f64>>,
}

/// What holds the number of usable processors down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuLimiter {
    Machine,
    Affinity,
    Cpuset,
    Quota,
}

impl Cpus {
    /// Processors that can run at the same time, and what holds the number down.
    pub fn usable(&self) -> Fact<(f64, CpuLimiter)> {
        let count = |fact: &Fact<u32>| fact.known().map(|n| f64::from(*n));
        [
            (count(&self.online), CpuLimiter::Machine),
            (count(&self.affinity), CpuLimiter::Affinity),
            (
                self.cpuset.known().copied().flatten().map(f64::from),
                CpuLimiter::Cpuset,
            ),
            (self.quota.known().copied().flatten(), CpuLimiter::Quota),
        ]
        .into_iter()
        .filter_map(|(value, limiter)| value.map(|value| (value, limiter)))
        // `min_by` keeps the first of equals, so the plain machine is named before a limit that takes nothing away.
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(
            || match &self.online {
                Fact::Missing(gap) => Fact::Missing(gap.clone()),
                Fact::Known(_) => Fact::unavailable("the number of CPUs could not be read"),
            },
            Fact::Known,
        )
    }
}

impl CpuLimiter {
    pub fn name(self) -> &'static str {
        match self {
            CpuLimiter::Machine => "machine",
            CpuLimiter::Affinity => "affinity",
            CpuLimiter::Cpuset => "cpuset",
            CpuLimiter::Quota => "quota",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(online: u32, affinity: u32, quota: Option<f64>, expected: (f64, CpuLimiter)) {
        let cpus = Cpus {
            online: Fact::Known(online),
            affinity: Fact::Known(affinity),
            cpuset: Fact::Known(None),
            quota: Fact::Known(quota),
        };
        assert_eq!(cpus.usable(), Fact::Known(expected));
    }

    #[test]
    fn the_tightest_limit_is_named() {
        check(64, 64, None, (64.0, CpuLimiter::Machine));
        check(64, 8, None, (8.0, CpuLimiter::Affinity));
        check(64, 8, Some(2.5), (2.5, CpuLimiter::Quota));
        check(4, 4, Some(4.0), (4.0, CpuLimiter::Machine));
    }
}
