//! Figures for Prometheus, in the text form that its node exporter collects from files.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use brimful::watch::Sample;

use crate::start_step::StartStep;
use crate::steps::step;

/// The node exporter reads its files every few seconds.
const INTERVAL: Duration = Duration::from_secs(5);

/// The file that holds the figures of the last sample.
pub(crate) struct MetricsFile<'a> {
    path: &'a Path,
    run_id: &'a str,
    written_at: Option<Instant>,
}

impl<'a> MetricsFile<'a> {
    pub(crate) fn new(path: &'a Path, run_id: &'a str) -> MetricsFile<'a> {
        MetricsFile {
            path,
            run_id,
            written_at: None,
        }
    }

    /// Writes the figures of a sample if they are due. Only the first failure is an error: the others are the same.
    pub(crate) fn update(&mut self, sample: &Sample) -> Result<(), String> {
        if self.written_at.is_some_and(|at| at.elapsed() < INTERVAL) {
            return Ok(());
        }
        let is_first = self.written_at.replace(Instant::now()).is_none();
        if !is_first {
            let _ = self.write(sample);
            return Ok(());
        }
        step(StartStep::Metrics, || self.write(sample))
            .map_err(|error| format!("{} cannot be written: {error}", self.path.display()))
    }

    /// In one step: a reader sees the old figures or the new ones.
    fn write(&self, sample: &Sample) -> io::Result<()> {
        brimful_private::replace_named(self.path, text(self.run_id, sample).as_bytes())
    }
}

fn text(run: &str, sample: &Sample) -> String {
    let mut metrics = MetricsText::default();
    let run = escaped(run);
    let of_run = format!("run=\"{run}\"");
    metrics.family("brimful_attempt_seconds", "Time since the training began.");
    metrics.value(&of_run, sample.at_ms as f64 / 1000.0);
    if let Some(host) = &sample.host {
        let figures = [
            (
                "brimful_host_memory_used_bytes",
                "Host memory of the job that the kernel cannot take back.",
                host.used,
            ),
            (
                "brimful_host_memory_limit_bytes",
                "The nearest limit at which the kernel kills.",
                host.limit,
            ),
            (
                "brimful_host_memory_headroom_bytes",
                "Bytes left to that limit.",
                host.headroom,
            ),
        ];
        for (name, help, bytes) in figures {
            metrics.family(name, help);
            metrics.value(&of_run, bytes.get() as f64);
        }
    }
    if let Some(shm) = &sample.shm {
        metrics.family("brimful_shm_used_bytes", "Used of /dev/shm.");
        metrics.value(&of_run, shm.used.get() as f64);
        metrics.family("brimful_shm_size_bytes", "Size of /dev/shm.");
        metrics.value(&of_run, shm.total.get() as f64);
    }
    if let Some(stall) = &sample.stall {
        metrics.family(
            "brimful_memory_stall_ratio",
            "Share of time in which tasks waited for memory.",
        );
        metrics.value(
            &format!("{of_run},tasks=\"some\""),
            stall.some_percent / 100.0,
        );
        metrics.value(
            &format!("{of_run},tasks=\"all\""),
            stall.full_percent / 100.0,
        );
    }
    if !sample.gpus.is_empty() {
        metrics.family(
            "brimful_gpu_memory_used_bytes",
            "Memory of the GPU in use, by all processes.",
        );
        for gpu in &sample.gpus {
            metrics.value(
                &format!("{of_run},gpu=\"{}\"", gpu.index),
                gpu.used.get() as f64,
            );
        }
        metrics.family("brimful_gpu_memory_size_bytes", "Memory of the GPU.");
        for gpu in &sample.gpus {
            metrics.value(
                &format!("{of_run},gpu=\"{}\"", gpu.index),
                gpu.total.get() as f64,
            );
        }
    }
    if !sample.gauges.is_empty() {
        metrics.counter("brimful_optimizer_steps_total", "Optimizer steps.");
        for gauge in &sample.gauges {
            metrics.value(
                &format!("{of_run},pid=\"{}\"", gauge.pid),
                gauge.steps as f64,
            );
        }
        metrics.family(
            "brimful_cuda_reserved_bytes",
            "Memory that PyTorch's allocator holds.",
        );
        for gauge in &sample.gauges {
            metrics.value(
                &format!("{of_run},pid=\"{}\"", gauge.pid),
                gauge.reserved.get() as f64,
            );
        }
    }
    metrics.text
}

#[derive(Default)]
struct MetricsText {
    text: String,
    name: &'static str,
}

impl MetricsText {
    fn family(&mut self, name: &'static str, help: &str) {
        self.head(name, help, "gauge");
    }

    fn counter(&mut self, name: &'static str, help: &str) {
        self.head(name, help, "counter");
    }

    fn head(&mut self, name: &'static str, help: &str, kind: &str) {
        self.name = name;
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn value(&mut self, labels: &str, value: f64) {
        let _ = writeln!(self.text, "{}{{{labels}}} {value}", self.name);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use brimful::units::Bytes;
    use brimful::watch::{Gauge, GpuSample, HostSample};

    use super::*;

    #[test]
    fn names_have_base_units_and_labels_are_escaped() {
        let sample = Sample {
            at_ms: 1500,
            host: Some(HostSample {
                used: Bytes(7),
                limit: Bytes(9),
                headroom: Bytes(2),
                swapped: None,
            }),
            gpus: vec![GpuSample {
                used: Bytes(5),
                total: Bytes(6),
                ..GpuSample::default()
            }],
            gauges: vec![Gauge {
                pid: 3,
                steps: 4,
                ..Gauge::default()
            }],
            ..Sample::default()
        };
        let text = text("a\"b", &sample);
        assert!(text.contains("brimful_attempt_seconds{run=\"a\\\"b\"} 1.5\n"));
        assert!(text.contains("brimful_host_memory_headroom_bytes{run=\"a\\\"b\"} 2\n"));
        assert!(text.contains("# TYPE brimful_optimizer_steps_total counter\n"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(
                line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(),
                "{line}"
            );
        }
    }
}
