//! Takes samples: cheap figures every time, expensive ones seldom.

use std::time::{Duration, Instant};

use brimful::env_vars;
use brimful::fact::Fact;
use brimful::record::{GpuModel, KernelCounts};
use brimful::units::Bytes;
use brimful::watch::{
    GpuSample, HostSample, ProcessSample, Role, Sample, SharedMemorySample, Stall,
};
use brimful_probe::{CgroupCounts, GpuMeter, Meter, ProcessFacts, Processes, StallTotals};

use crate::contain::Containment;
use crate::gauge;
use crate::gpu_owners::by_owner;
use crate::kernel_log::KernelLog;
use crate::pressure::PressureFile;
use crate::roles::{KnownWorker, Process, roles};

/// Processes whose pages are counted at one look; a job with more shows the others by their cheap figures.
const MAX_COUNTED: usize = 128;
/// The kernel walks over every page of every process: at most this share of the time.
const SHARE_FOR_PROCESSES: u32 = 500;
const PROCESSES_EVERY: Duration = Duration::from_secs(10);
/// How often the memory of a job without a counting cgroup is added up, and the share of the time that this takes at most.
const TREE_EVERY: Duration = Duration::from_millis(100);
const SHARE_FOR_TREE: u32 = 200;
/// Nobody keeps the peak of such a job. A short one would be over before a second look, so it is looked at often at first.
pub(crate) const FIRST_LOOKS_MS: u64 = 2000;
const SHARE_FOR_FIRST_LOOKS: u32 = 5;
const GPUS_EVERY: Duration = Duration::from_secs(1);
/// The hook writes them no oftener.
const GAUGES_EVERY: Duration = Duration::from_millis(500);

/// Reads the machine for one attempt.
#[derive(Debug)]
pub(crate) struct Sampler {
    meter: Meter,
    processes: Processes,
    gpus: Option<GpuMeter>,
    /// As the driver described them before the start.
    models: Vec<GpuModel>,
    driver: Option<String>,
    gauges: Option<std::path::PathBuf>,
    pressure: PressureFile,
    started: Instant,
    last_stall: Option<(Instant, StallTotals)>,
    gpus_due: Instant,
    last_gpus: Vec<GpuSample>,
    gauges_due: Instant,
    readings: Vec<gauge::Reading>,
    processes_due: Instant,
    /// Memory of all processes of the job, where no group counts it.
    tree_used: Option<Bytes>,
    tree_due: Instant,
    main_pid: u32,
    counts_at_start: CountsAtStart,
    kernel_log: Option<KernelLog>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CountsAtStart {
    own: CgroupCounts,
    around: CgroupCounts,
    machine: Option<u64>,
}

impl Sampler {
    pub(crate) fn new(meter: Meter, gpus: Option<GpuMeter>, started: Instant) -> Sampler {
        Sampler {
            meter,
            processes: Processes::live(),
            models: gpus.as_ref().map(models).unwrap_or_default(),
            driver: gpus.as_ref().and_then(GpuMeter::driver_version),
            gpus,
            gauges: None,
            pressure: PressureFile::default(),
            started,
            last_stall: None,
            gpus_due: started,
            last_gpus: Vec::new(),
            gauges_due: started,
            readings: Vec::new(),
            processes_due: started + Duration::from_secs(2),
            tree_used: None,
            tree_due: started,
            main_pid: 0,
            counts_at_start: CountsAtStart::default(),
            kernel_log: KernelLog::open(),
        }
    }

    /// Begins with an attempt: what the kernel counts from here on is the attempt's.
    pub(crate) fn begin(&mut self, contained: &Containment, gauges: Option<std::path::PathBuf>) {
        self.pressure = gauges
            .as_deref()
            .map(PressureFile::create)
            .unwrap_or_default();
        self.gauges = gauges;
        self.counts_at_start = self.counts_now(contained);
    }

    pub(crate) fn watch_process(&mut self, main_pid: u32) {
        self.main_pid = main_pid;
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(crate) fn processes(&self) -> &Processes {
        &self.processes
    }

    /// Looks at the processes at the next sample, whenever the last look was.
    pub(crate) fn look_closely(&mut self) {
        let soon = Instant::now();
        self.processes_due = self.processes_due.min(soon);
    }

    pub(crate) fn sample(&mut self, contained: &Containment) -> Sample {
        let now = Instant::now();
        if now >= self.gauges_due {
            self.gauges_due = now + GAUGES_EVERY;
            self.readings = self
                .gauges
                .as_deref()
                .map(gauge::read_with_workers)
                .unwrap_or_default();
        }
        let processes = if now >= self.processes_due {
            let found = self.process_samples(contained);
            let cost = now.elapsed();
            self.processes_due = now + PROCESSES_EVERY.max(cost * SHARE_FOR_PROCESSES);
            found
        } else {
            Vec::new()
        };
        if now >= self.gpus_due {
            self.last_gpus = self.gpu_samples(contained);
            self.gpus_due = now + GPUS_EVERY;
        }
        let host = self.host(contained);
        if let Some(host) = &host {
            self.pressure.tell(host.pressure());
        }
        Sample {
            at_ms: self.at_ms(),
            host,
            shm: self.shm(),
            stall: self.stall(contained, now),
            gpus: self.last_gpus.clone(),
            processes,
            gauges: self
                .readings
                .iter()
                .map(|reading| reading.gauge.clone())
                .collect(),
            lowest: None,
        }
    }

    pub(crate) fn at_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn host(&mut self, contained: &Containment) -> Option<HostSample> {
        let brim = self.meter.brim();
        let brim = brim.known()?;
        let headroom = *brim.headroom.known()?;
        let limit = brim.limit;
        let group = contained.counting_group();
        // All that is used inside the limit, by others too. Processes that end while they are counted make the sum of
        // the tree larger than that.
        let in_all = limit.saturating_sub(headroom);
        let used = match group {
            Some(group) => self.meter.usage(group).known()?.unreclaimable(),
            None if contained.is_attached() => in_all,
            None => self.memory_of_tree(contained).min(in_all),
        };
        Some(HostSample {
            used,
            limit,
            headroom,
            swapped: group.and_then(|group| self.meter.swapped(group)),
        })
    }

    /// The memory of the job's processes. What the machine uses beside them is not the job's.
    fn memory_of_tree(&mut self, contained: &Containment) -> Bytes {
        let now = Instant::now();
        if now >= self.tree_due {
            let memory = contained
                .processes(&self.processes)
                .iter()
                .take(MAX_COUNTED)
                .filter_map(|process| self.processes.memory(process.pid))
                .fold(Bytes::ZERO, |sum, memory| {
                    sum.saturating_add(memory.proportional)
                });
            self.tree_used = Some(memory);
            let share = if self.at_ms() < FIRST_LOOKS_MS {
                SHARE_FOR_FIRST_LOOKS
            } else {
                SHARE_FOR_TREE
            };
            self.tree_due = now + TREE_EVERY.max(now.elapsed() * share);
        }
        self.tree_used.unwrap_or(Bytes::ZERO)
    }

    fn shm(&self) -> Option<SharedMemorySample> {
        let space = self.meter.shm();
        let space = space.known()?;
        Some(SharedMemorySample {
            used: space.total.saturating_sub(space.free),
            total: space.total,
        })
    }

    fn stall(&mut self, contained: &Containment, now: Instant) -> Option<Stall> {
        let totals = self.meter.stall(contained.counting_group())?;
        let (then, before) = self.last_stall.replace((now, totals))?;
        let elapsed_us = now.duration_since(then).as_micros();
        if elapsed_us == 0 {
            return None;
        }
        let percent = |now: u64, before: u64| {
            let share = now.saturating_sub(before) as f64 / elapsed_us as f64 * 100.0;
            (share.clamp(0.0, 100.0) * 10.0).round() / 10.0
        };
        Some(Stall {
            some_percent: percent(totals.some_us, before.some_us),
            full_percent: percent(totals.full_us, before.full_us),
        })
    }

    /// The GPUs of the machine as they were before the start, and the version of their driver.
    pub(crate) fn gpu_models(&self) -> (Vec<GpuModel>, Option<String>) {
        (self.models.clone(), self.driver.clone())
    }

    fn gpu_samples(&self, contained: &Containment) -> Vec<GpuSample> {
        let Some(gpus) = &self.gpus else {
            return Vec::new();
        };
        let ours: Vec<u32> = contained
            .processes(&self.processes)
            .iter()
            .map(|process| process.pid)
            .collect();
        by_owner(&gpus.read(), &ours, &self.processes)
    }

    fn process_samples(&mut self, contained: &Containment) -> Vec<ProcessSample> {
        let facts = contained.processes(&self.processes);
        let told: Vec<Process> = facts.iter().map(|process| self.told(process)).collect();
        let workers: Vec<KnownWorker> = self
            .readings
            .iter()
            .flat_map(|reading| reading.workers.iter().copied())
            .collect();
        let stepping: Vec<u32> = self
            .readings
            .iter()
            .filter(|reading| reading.gauge.steps > 0)
            .map(|reading| reading.gauge.pid)
            .collect();
        let roles = roles(self.main_pid, &told, &workers, &stepping);
        let mut fair_share = Bytes::ZERO;
        let samples = facts
            .into_iter()
            .take(MAX_COUNTED)
            .filter_map(|process| {
                let role = roles.get(&process.pid).copied().unwrap_or(Role::Other);
                let memory = self.processes.memory(process.pid)?;
                fair_share = fair_share.saturating_add(memory.proportional);
                Some(ProcessSample {
                    pid: process.pid,
                    role,
                    name: process.name,
                    private: memory.private,
                    shared: memory.shared,
                    swapped: memory.swapped,
                })
            })
            .collect();
        // Of a process that is watched from outside everything counts that is used inside the limit: it is read each time.
        if contained.counting_group().is_none() && !contained.is_attached() {
            self.tree_used = Some(fair_share);
        }
        samples
    }

    fn told(&self, process: &ProcessFacts) -> Process {
        Process {
            pid: process.pid,
            parent: process.parent,
            arguments: self.processes.arguments(process.pid),
            local_rank: self
                .processes
                .variables(process.pid, &[env_vars::LOCAL_RANK])
                .get(env_vars::LOCAL_RANK)
                .and_then(|rank| rank.parse().ok()),
        }
    }

    fn counts_now(&self, contained: &Containment) -> CountsAtStart {
        let own = contained.counting_group();
        let around = match self.meter.own_group() {
            Fact::Known(group) => self.meter.counts(&group),
            Fact::Missing(_) => CgroupCounts::default(),
        };
        CountsAtStart {
            own: own
                .map(|group| self.meter.counts(group))
                .unwrap_or_default(),
            around,
            machine: self.meter.machine_oom_kills(),
        }
    }

    /// What the kernel has counted since [`Sampler::begin`].
    pub(crate) fn kernel_counts(&mut self, contained: &Containment) -> KernelCounts {
        let now = self.counts_now(contained);
        let before = self.counts_at_start;
        let since = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        KernelCounts {
            oom_kills: since(now.own.oom_kills, before.own.oom_kills),
            oom_group_kills: since(now.own.oom_group_kills, before.own.oom_group_kills),
            // The machine's count has everybody's in it; it stands in only where the group's cannot be read.
            oom_kills_around: since(now.around.oom_kills, before.around.oom_kills)
                .or(since(now.machine, before.machine)),
            limit_hits: since(now.own.limit_hits, before.own.limit_hits)
                .max(since(now.around.limit_hits, before.around.limit_hits)),
            log: self
                .kernel_log
                .as_mut()
                .map(KernelLog::about_memory)
                .unwrap_or_default(),
        }
    }
}

/// The GPUs of the machine, with what is in use now.
fn models(gpus: &GpuMeter) -> Vec<GpuModel> {
    let uses = gpus.read();
    gpus.names()
        .into_iter()
        .map(|(index, name)| {
            let found = uses.iter().find(|gpu| gpu.index == index);
            GpuModel {
                index,
                name,
                total: found.map(|gpu| gpu.total),
                used: found.map(|gpu| gpu.used),
            }
        })
        .collect()
}
