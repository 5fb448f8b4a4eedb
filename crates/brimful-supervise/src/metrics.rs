//! Figures for Prometheus, in the text form that its node exporter collects from files.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use brimful::watch::Sample;

/// Writes the figures of a sample to a file, in one step: a reader sees the old ones or the new ones.
pub(crate) fn write(path: &Path, run: &str, sample: &Sample) -> io::Result<()> {
    brimful_private::replace_named(path, text(run, sample).as_bytes())
}

fn text(run: &str, sample: &Sample) -> String {
    let mut page = Page::default();
    let run = escaped(run);
    let of_run = format!("run=\"{run}\"");
    page.family("brimful_attempt_seconds", "Time since the training began.");
    page.value(&of_run, sample.at_ms as f64 / 1000.0);
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
            page.family(name, help);
            page.value(&of_run, bytes.get() as f64);
        }
    }
    if let Some(shm) = &sample.shm {
        page.family("brimful_shm_used_bytes", "Used of /dev/shm.");
        page.value(&of_run, shm.used.get() as f64);
        page.family("brimful_shm_size_bytes", "Size of /dev/shm.");
        page.value(&of_run, shm.total.get() as f64);
    }
    if let Some(stall) = &sample.stall {
        page.family(
            "brimful_memory_stall_ratio",
            "Share of time in which tasks waited for memory.",
        );
        page.value(
            &format!("{of_run},tasks=\"some\""),
            stall.some_percent / 100.0,
        );
        page.value(
            &format!("{of_run},tasks=\"all\""),
            stall.full_percent / 100.0,
        );
    }
    if !sample.gpus.is_empty() {
        page.family(
            "brimful_gpu_memory_used_bytes",
            "Used of the card, by everybody.",
        );
        for gpu in &sample.gpus {
            page.value(
                &format!("{of_run},gpu=\"{}\"", gpu.index),
                gpu.used.get() as f64,
            );
        }
        page.family("brimful_gpu_memory_size_bytes", "Memory of the card.");
        for gpu in &sample.gpus {
            page.value(
                &format!("{of_run},gpu=\"{}\"", gpu.index),
                gpu.total.get() as f64,
            );
        }
    }
    if !sample.gauges.is_empty() {
        page.counter("brimful_optimizer_steps_total", "Optimizer steps.");
        for gauge in &sample.gauges {
            page.value(
                &format!("{of_run},pid=\"{}\"", gauge.pid),
                gauge.steps as f64,
            );
        }
        page.family(
            "brimful_cuda_reserved_bytes",
            "Memory that PyTorch's allocator holds.",
        );
        for gauge in &sample.gauges {
            page.value(
                &format!("{of_run},pid=\"{}\"", gauge.pid),
                gauge.reserved.get() as f64,
            );
        }
    }
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
    name: &'static str,
}

impl Page {
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
