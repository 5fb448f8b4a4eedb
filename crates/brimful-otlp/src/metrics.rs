//! The values of a run as metrics: names, units and attributes.

use brimful::live::{LiveRun, TimeRange};
use brimful::record::Outcome;

/// How values of an instrument are added up by whoever reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstrumentKind {
    /// Values of which a sum over processes or GPUs has a meaning.
    UpDownCounter,
    /// Values of which it has none, such as ratios.
    Gauge,
    /// Values that only rise.
    Counter,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instrument {
    pub name: &'static str,
    pub unit: &'static str,
    pub description: &'static str,
    pub kind: InstrumentKind,
}

/// One value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    pub name: &'static str,
    pub value: f64,
    pub attributes: Vec<(&'static str, String)>,
}

const fn instrument(
    name: &'static str,
    unit: &'static str,
    kind: InstrumentKind,
    description: &'static str,
) -> Instrument {
    Instrument {
        name,
        unit,
        description,
        kind,
    }
}

/// Every metric, in the order of the documentation. `hw.*`, `system.*` and `process.*` are named by OpenTelemetry's
/// semantic conventions (1.37), the others by brimful.
pub const INSTRUMENTS: &[Instrument] = &[
    instrument(
        "system.memory.usage",
        "By",
        InstrumentKind::UpDownCounter,
        "Host memory of the job that the kernel cannot take back.",
    ),
    instrument(
        "system.memory.limit",
        "By",
        InstrumentKind::UpDownCounter,
        "The nearest limit at which the kernel kills.",
    ),
    instrument(
        "system.memory.utilization",
        "1",
        InstrumentKind::Gauge,
        "Share of that limit that is in use, by the job and by others.",
    ),
    instrument(
        "hw.gpu.memory.usage",
        "By",
        InstrumentKind::UpDownCounter,
        "GPU memory in use, by all processes.",
    ),
    instrument(
        "hw.gpu.memory.limit",
        "By",
        InstrumentKind::UpDownCounter,
        "Size of the GPU's memory.",
    ),
    instrument(
        "hw.gpu.memory.utilization",
        "1",
        InstrumentKind::Gauge,
        "Share of the GPU's memory that is in use.",
    ),
    instrument(
        "process.memory.usage",
        "By",
        InstrumentKind::UpDownCounter,
        "Memory of a process that no other process maps.",
    ),
    instrument(
        "brimful.shm.usage",
        "By",
        InstrumentKind::UpDownCounter,
        "Used of /dev/shm.",
    ),
    instrument(
        "brimful.shm.limit",
        "By",
        InstrumentKind::UpDownCounter,
        "Size of /dev/shm.",
    ),
    instrument(
        "brimful.gpu.allocator.reserved",
        "By",
        InstrumentKind::UpDownCounter,
        "GPU memory that PyTorch's allocator holds.",
    ),
    instrument(
        "brimful.memory.stall",
        "1",
        InstrumentKind::Gauge,
        "Share of time in which tasks waited for memory.",
    ),
    instrument(
        "brimful.optimizer.steps",
        "{step}",
        InstrumentKind::Counter,
        "Optimizer steps of the process with the most, since its attempt began.",
    ),
    instrument(
        "brimful.alarms",
        "{alarm}",
        InstrumentKind::Counter,
        "Alarms since the run began.",
    ),
    instrument(
        "brimful.attempt",
        "{attempt}",
        InstrumentKind::Gauge,
        "Number of the attempt, from 1.",
    ),
    instrument(
        "brimful.run.ended",
        "1",
        InstrumentKind::Gauge,
        "1 after an attempt has ended, with its outcome and its cause; 0 while it runs.",
    ),
];

/// The latest values of a run. What is not known is left out.
pub fn measurements(run: &LiveRun) -> Vec<Measurement> {
    let mut all = Vec::new();
    let mut add = |name, value, attributes: &[(&'static str, &str)]| {
        all.push(Measurement {
            name,
            value,
            attributes: attributes
                .iter()
                .map(|(key, value)| (*key, (*value).to_owned()))
                .collect(),
        });
    };
    if let Some(host) = run.host() {
        let limit = host.limit.get() as f64;
        let in_use = limit - host.headroom.get() as f64;
        add(
            "system.memory.usage",
            host.used.get() as f64,
            &[("system.memory.state", "used")],
        );
        add("system.memory.limit", limit, &[]);
        if limit > 0.0 {
            add("system.memory.utilization", in_use / limit, &[]);
        }
    }
    for gpu in run.gpus() {
        let index = gpu.index.to_string();
        let name = run.gpu_name(gpu.index).unwrap_or("GPU");
        let attributes = [("hw.id", index.as_str()), ("hw.name", name)];
        let (used, size) = (gpu.used.get() as f64, gpu.total.get() as f64);
        add("hw.gpu.memory.usage", used, &attributes);
        add("hw.gpu.memory.limit", size, &attributes);
        if size > 0.0 {
            add("hw.gpu.memory.utilization", used / size, &attributes);
        }
        if let Some(allocator) = &gpu.allocator {
            let reserved = allocator.reserved.get() as f64;
            add("brimful.gpu.allocator.reserved", reserved, &attributes);
        }
    }
    for process in run.processes(TimeRange::Minute) {
        let (pid, role) = (process.pid.to_string(), process.role.to_string());
        let attributes = [
            ("process.pid", pid.as_str()),
            ("process.executable.name", process.name.as_str()),
            ("brimful.process.role", role.as_str()),
        ];
        let private = process.private.get() as f64;
        add("process.memory.usage", private, &attributes);
    }
    if let Some(shm) = run.shm() {
        add("brimful.shm.usage", shm.used.get() as f64, &[]);
        add("brimful.shm.limit", shm.total.get() as f64, &[]);
    }
    if let Some(stall) = run.stall() {
        let shares = [("some", stall.some_percent), ("all", stall.full_percent)];
        for (tasks, percent) in shares {
            let attributes = [("brimful.tasks", tasks)];
            add("brimful.memory.stall", percent / 100.0, &attributes);
        }
    }
    if let Some(progress) = run.progress() {
        add("brimful.optimizer.steps", progress.steps as f64, &[]);
    }
    add("brimful.alarms", run.n_alarms() as f64, &[]);
    if let Some(attempt) = run.attempt() {
        add("brimful.attempt", f64::from(attempt.number), &[]);
    }
    match run.end() {
        Some(end) => {
            let verdict = end.verdict.as_ref();
            let verdict = verdict.filter(|_| end.outcome != Outcome::Finished);
            let cause = verdict.map_or("", |verdict| verdict.cause.id());
            let attributes = [
                ("brimful.outcome", end.outcome.id()),
                ("brimful.cause", cause),
            ];
            add("brimful.run.ended", 1.0, &attributes);
        }
        None => add("brimful.run.ended", 0.0, &[]),
    }
    all
}

#[cfg(test)]
mod tests {
    use brimful::record::{AttemptLine, GpuModel, Line, RunLine};
    use brimful::units::Bytes;
    use brimful::watch::{GpuSample, HostSample, Sample};

    use super::*;

    fn live() -> LiveRun {
        let mut live = LiveRun::default();
        live.take(Line::Run(RunLine::default()));
        live.take(Line::Attempt(AttemptLine {
            number: 2,
            gpus: vec![GpuModel {
                index: 0,
                name: "NVIDIA L4".into(),
                ..GpuModel::default()
            }],
            ..AttemptLine::default()
        }));
        live.take(Line::Sample(Sample {
            at_ms: 1000,
            host: Some(HostSample {
                used: Bytes(6),
                limit: Bytes(10),
                headroom: Bytes(2),
                swapped: None,
            }),
            gpus: vec![GpuSample {
                used: Bytes(3),
                total: Bytes(4),
                ..GpuSample::default()
            }],
            ..Sample::default()
        }));
        live
    }

    fn value(all: &[Measurement], name: &str) -> Option<f64> {
        all.iter().find(|one| one.name == name).map(|one| one.value)
    }

    #[test]
    fn values_have_the_names_of_the_conventions() {
        let all = measurements(&live());
        assert_eq!(value(&all, "system.memory.usage"), Some(6.0));
        assert_eq!(value(&all, "system.memory.utilization"), Some(0.8));
        assert_eq!(value(&all, "hw.gpu.memory.utilization"), Some(0.75));
        assert_eq!(value(&all, "brimful.attempt"), Some(2.0));
        assert_eq!(value(&all, "brimful.shm.usage"), None);
        let gpu = all.iter().find(|one| one.name == "hw.gpu.memory.usage");
        let attributes = &gpu.expect("a GPU").attributes;
        assert!(attributes.contains(&("hw.name", "NVIDIA L4".to_owned())));
    }

    #[test]
    fn every_value_belongs_to_an_instrument() {
        for one in measurements(&live()) {
            assert!(
                INSTRUMENTS.iter().any(|known| known.name == one.name),
                "{}",
                one.name
            );
        }
    }
}
