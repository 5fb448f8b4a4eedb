//! What `brimful run` prints while a job runs: a status line, one line per alarm, and a closing line.

use std::fmt::Write as _;

use brimful::record::{ActionLine, Outcome, Peaks};
use brimful::units::Bytes;
use brimful::watch::{Action, Alarm, Sample, Urgency};

use crate::text::page::Page;

/// What every line of ours begins with, between the lines of the script.
const NAME: &str = "brimful";
const CELLS: usize = 12;

/// The status line: a bar to the brim, the trend, the GPU. At most as wide as the page.
pub fn status(
    sample: &Sample,
    rate: Option<f64>,
    time_to_brim_ms: Option<u64>,
    page: &Page,
) -> String {
    let mut parts = Vec::new();
    if let Some(host) = &sample.host {
        let used = host.limit.saturating_sub(host.headroom);
        let (used_text, limit_text) = pair(used, host.limit);
        let bar = page.bar(used.share_of(host.limit), CELLS);
        parts.push(format!("{bar} {used_text}/{limit_text}"));
    }
    if let Some(rate) = rate.filter(|rate| rate.abs() >= Bytes::MIB as f64 / 4.0) {
        let sign = if rate > 0.0 { "+" } else { "-" };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the absolute value of a rate of bytes fits"
        )]
        let bytes = Bytes(rate.abs() as u64);
        let mut text = format!("{sign}{}/s", short(bytes));
        if let Some(ms) = time_to_brim_ms {
            let _ = write!(text, ", limit in {}", duration(ms));
        }
        parts.push(text);
    }
    for gpu in sample.gpus.iter().take(4) {
        let (used, total) = pair(gpu.used, gpu.total);
        parts.push(format!("GPU{} {used}/{total}", gpu.index));
    }
    if let Some(shm) = &sample.shm
        && shm.used.share_of(shm.total) > 0.5
    {
        let (used, total) = pair(shm.used, shm.total);
        parts.push(format!("shm {used}/{total}"));
    }
    if let Some(steps) = sample.gauges.iter().map(|gauge| gauge.steps).max()
        && steps > 0
    {
        parts.push(format!("step {steps}"));
    }
    let line = format!("{NAME} {}", parts.join(page.dot()));
    line.chars().take(page.width).collect()
}

/// An alarm as a single line.
pub fn alarm(alarm: &Alarm) -> String {
    let word = match alarm.urgency {
        Urgency::Note => "note",
        Urgency::Warning => "warning",
        Urgency::Critical => "critical",
    };
    format!("{NAME}: {word}: {}", alarm.message)
}

/// What brimful does, or would do.
pub fn action(line: &ActionLine) -> String {
    let (what, reason) = match &line.action {
        Action::KeepWatching => return String::new(),
        Action::AskForCheckpoint { reason } => ("requesting a checkpoint", reason),
        Action::AskToStop { reason } => ("asking the run to stop", reason),
        Action::Kill { reason } => ("killing the run", reason),
    };
    let would = if line.dry_run { "dry run: " } else { "" };
    format!("{NAME}: {would}{what}: {} ({})", line.done, reason.message)
}

/// Something that could not be done.
pub fn gap(message: &str) -> String {
    format!("{NAME}: {message}")
}

/// The last word about a run that did not die.
pub fn last_word(
    outcome: &Outcome,
    peaks: &Peaks,
    limit: Option<Bytes>,
    n_false_alarms: u32,
    page: &Page,
) -> String {
    let mut parts = vec![format!("the run {}", self::outcome(outcome))];
    if let Some(used) = peaks.host_used {
        let of = limit.map_or_else(String::new, |limit| format!(" of {limit}"));
        parts.push(format!("peak host memory {used}{of}"));
    }
    for (index, used) in &peaks.gpu_used {
        parts.push(format!("peak GPU {index} memory {used}"));
    }
    match n_false_alarms {
        0 => {}
        1 => parts.push("1 false alarm".into()),
        n => parts.push(format!("{n} false alarms")),
    }
    format!("{NAME}: {}", parts.join(page.dot()))
}

/// How it ended, in a few words.
pub fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Finished => "finished".into(),
        Outcome::Failed { code } => format!("exited with code {code}"),
        Outcome::Killed { signal } => format!("was killed by {}", signal_name(*signal)),
        Outcome::StoppedByUs { message, .. } => format!("was stopped by brimful: {message}"),
        Outcome::StoppedByUser { signal } => {
            format!("was stopped by the user ({})", signal_name(*signal))
        }
        Outcome::Unseen => "ended, exit status unknown".into(),
        Outcome::NotStarted { error } => format!("failed to start: {error}"),
    }
}

/// The usual name of a signal.
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

/// A short time for people: "40 s", "4 min", "3 h".
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5999 => format!("{} min", (seconds + 30) / 60),
        6000..=172_799 => format!("{} h", (seconds + 1800) / 3600),
        _ => format!("{} days", (seconds + 43_200) / 86_400),
    }
}

/// A size in three digits, for a line that has no room.
pub fn short(bytes: Bytes) -> String {
    let (value, unit) = scaled(bytes);
    format!("{} {unit}", digits(value))
}

/// Two sizes in the unit of the second.
pub fn pair(part: Bytes, whole: Bytes) -> (String, String) {
    let (value, unit) = scaled(whole);
    let scale = if value > 0.0 {
        whole.get() as f64 / value
    } else {
        1.0
    };
    let part = part.get() as f64 / scale;
    (digits(part), format!("{} {unit}", digits(value)))
}

fn digits(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

fn scaled(bytes: Bytes) -> (f64, &'static str) {
    let bytes = bytes.get();
    let steps = [
        (Bytes::TIB, "TiB"),
        (Bytes::GIB, "GiB"),
        (Bytes::MIB, "MiB"),
        (Bytes::KIB, "KiB"),
    ];
    for (unit, name) in steps {
        if bytes >= unit {
            return (bytes as f64 / unit as f64, name);
        }
    }
    (bytes as f64, "B")
}

#[cfg(test)]
mod tests {
    use brimful::watch::{GpuSample, HostSample};

    use super::*;

    #[test]
    fn the_status_line_has_a_bar_a_trend_and_the_cards() {
        let sample = Sample {
            host: Some(HostSample {
                used: Bytes::from_gib(9),
                limit: Bytes::from_centi_gib(1270),
                headroom: Bytes::from_centi_gib(290),
                swapped: None,
            }),
            gpus: vec![GpuSample {
                index: 0,
                used: Bytes::from_gib(14),
                total: Bytes::from_gib(15),
                ..GpuSample::default()
            }],
            ..Sample::default()
        };
        let page = Page::plain(79);
        assert_eq!(
            status(&sample, Some(12.0 * 1_048_576.0), Some(240_000), &page),
            "brimful █████████░░░ 9.8/12.7 GiB · +12.0 MiB/s, limit in 4 min · GPU0 14.0/15.0 GiB"
                .chars()
                .take(79)
                .collect::<String>()
        );
        assert_eq!(status(&Sample::default(), None, None, &page), "brimful ");
    }

    #[test]
    fn times_are_told_as_people_tell_them() {
        assert_eq!(duration(0), "0 s");
        assert_eq!(duration(40_000), "40 s");
        assert_eq!(duration(240_000), "4 min");
        assert_eq!(duration(3 * 3_600_000), "3 h");
        assert_eq!(duration(u64::MAX / 2).split(' ').nth(1), Some("days"));
    }
}
