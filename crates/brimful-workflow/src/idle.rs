//! Whether a GPU is idle enough to measure a run on it.

use std::fmt::Write as _;

use brimful::fact::Fact;
use brimful::machine::{Gpu, GpuProcess};
use brimful::units::Bytes;
use brimful::user_error::{ErrorKind, Hint, UserError};

/// What other compute processes may hold, as a share of the GPU: with more, their work and their changes would be
/// measured too. An idle context on a GPU of 15 GiB is 1 to 4 %.
const MAX_SHARE_OF_OTHERS: f64 = 0.05;
/// Less than this in use is not worth a line: drivers count 1 to 20 MiB on a GPU that nobody uses.
const MIN_NOTABLE: Bytes = Bytes::from_mib(32);
/// Processes that are named.
const MAX_NAMED: usize = 5;

/// Others use too much of a GPU for a measurement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("GPU {index} ({name}) is in use: {used} of {total}{holders}; {why}")]
pub struct GpuBusy {
    pub index: u32,
    pub name: String,
    pub used: Bytes,
    pub total: Bytes,
    /// In words, with a separator in front.
    pub holders: String,
    pub why: String,
}

impl UserError for GpuBusy {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Environment
    }

    fn hints(&self) -> Vec<Hint> {
        vec![
            Hint::text(
                "wait until they have ended, or end them; a notebook returns its memory when its kernel restarts",
            ),
            Hint::text("pass `--gpu N` to use another GPU"),
        ]
    }
}

/// What is in use on a GPU before a run that is predicted to need `needed` bytes, in a sentence; nothing if it does not
/// matter. `index` is the number by which PyTorch knows the GPU.
pub(crate) fn use_before(
    index: u32,
    gpu: &Gpu,
    needed: Option<Bytes>,
) -> Result<Option<String>, GpuBusy> {
    let (Some(used), Some(total)) = (gpu.used.known(), gpu.total.known()) else {
        return Ok(Some(format!(
            "GPU {index}: the driver does not report how much of it is in use, so others may be measured too"
        )));
    };
    let processes = gpu.processes.known().map_or(&[][..], Vec::as_slice);
    let holders = holders(processes);
    let busy = |why: String| GpuBusy {
        index,
        name: gpu.label().to_owned(),
        used: *used,
        total: *total,
        holders: holders.clone(),
        why,
    };
    if held_by(processes, *used).share_of(*total) > MAX_SHARE_OF_OTHERS {
        return Err(busy(
            "what these processes do while the command runs would be measured too".to_owned(),
        ));
    }
    if let (Some(needed), Some(free)) = (needed, gpu.free())
        && needed > free
        && needed <= free.saturating_add(*used)
    {
        return Err(busy(format!(
            "the command is predicted to need {needed}, and {free} are free"
        )));
    }
    Ok((*used >= MIN_NOTABLE).then(|| {
        format!(
            "GPU {index}: {used} of {total} are in use before the run{holders}. This is subtracted; if it changes during \
             the run, context and total are off by the change"
        )
    }))
}

/// What compute processes hold. Where the driver does not say it of one of them, it may be all that is in use.
fn held_by(processes: &[GpuProcess], used: Bytes) -> Bytes {
    let mut sum = Bytes::ZERO;
    for process in processes {
        match &process.used {
            Fact::Known(bytes) => sum = sum.saturating_add(*bytes),
            Fact::Missing(_) => return used,
        }
    }
    sum
}

/// `, held by python (process 4711): 5 GiB`; nothing where the driver names nobody.
fn holders(processes: &[GpuProcess]) -> String {
    let mut words = String::new();
    for (at, process) in processes.iter().take(MAX_NAMED).enumerate() {
        words.push_str(if at == 0 { ", held by " } else { ", " });
        let name = process.name.known().map_or("a process", String::as_str);
        let _ = write!(words, "{name} (process {})", process.pid);
        if let Fact::Known(bytes) = &process.used {
            let _ = write!(words, ": {bytes}");
        }
    }
    if processes.len() > MAX_NAMED {
        let _ = write!(words, " and {} more", processes.len() - MAX_NAMED);
    }
    words
}

#[cfg(test)]
mod tests {
    use brimful::cards;

    use super::*;

    fn gpu(used_mib: u64, processes: &[(u32, Option<u64>)]) -> Gpu {
        let process = |(pid, mib): &(u32, Option<u64>)| GpuProcess {
            pid: *pid,
            name: Fact::Known("python".into()),
            used: match mib {
                Some(mib) => Fact::Known(Bytes::from_mib(*mib)),
                None => Fact::unavailable("WSL 2"),
            },
        };
        let card = cards::find("t4").expect("a GPU of the catalogue");
        Gpu {
            used: Fact::Known(Bytes::from_mib(used_mib)),
            processes: Fact::Known(processes.iter().map(process).collect()),
            ..card.as_gpu(Fact::Known(Some(0)))
        }
    }

    fn check(gpu: &Gpu, needed_gib: Option<u64>) -> Result<Option<String>, String> {
        let found = use_before(0, gpu, needed_gib.map(Bytes::from_gib));
        found.map_err(|busy| busy.to_string())
    }

    #[test]
    fn an_idle_gpu_needs_no_word() {
        assert_eq!(check(&gpu(3, &[]), Some(10)), Ok(None));
    }

    #[test]
    fn a_desktop_is_named_and_subtracted() {
        let note = check(&gpu(900, &[]), Some(10)).expect("enough is free");
        let note = note.expect("a note");
        assert!(
            note.starts_with("GPU 0: 900 MiB of 15 GiB are in use"),
            "{note}"
        );
        let idle = check(&gpu(300, &[(7, Some(290))]), None).expect("an idle context");
        assert!(
            idle.expect("a note")
                .contains("python (process 7): 290 MiB")
        );
    }

    #[test]
    fn other_work_on_the_gpu_is_a_refusal() {
        for processes in [&[(7, Some(5000))][..], &[(7, Some(100)), (8, None)]] {
            let error = check(&gpu(5100, processes), None).expect_err("busy");
            assert!(
                error.contains("4.98 GiB of 15 GiB, held by python"),
                "{error}"
            );
            assert!(error.contains("would be measured too"), "{error}");
        }
    }

    #[test]
    fn what_does_not_fit_beside_others_is_a_refusal() {
        let error = check(&gpu(5100, &[]), Some(12)).expect_err("busy");
        assert!(
            error.contains("predicted to need 12 GiB, and 9.58 GiB are free"),
            "{error}"
        );
        // It would not fit an empty GPU either: that is a result.
        assert!(check(&gpu(5100, &[]), Some(20)).is_ok());
        assert!(check(&gpu(5100, &[]), Some(8)).is_ok());
    }

    #[test]
    fn a_use_that_is_not_known_is_said() {
        let unknown = Gpu {
            used: Fact::unavailable("an old driver"),
            ..gpu(0, &[])
        };
        let note = check(&unknown, None).expect("nothing is known against it");
        assert!(note.expect("a note").contains("does not report"));
    }
}
