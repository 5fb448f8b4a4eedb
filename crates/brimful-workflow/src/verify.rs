//! A prediction beside its measurement: the same steps on the phantom, then for real on this machine's GPU.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brimful::explain::{Cause, Verdict};
use brimful::machine::{Gpu, Machine};
use brimful::plan::{GpuMeasurement, held_context, peak_used};
use brimful::predict::Footprint;
use brimful::record::{Attempt, Record};
use brimful::units::Bytes;
use brimful_rehearse::stage::Stage;
use brimful_rehearse::{
    MeasuredDevice, MeasuredProcess, PredictionError, RealRun, RealRunRequest, RehearsalError,
    job_file, run_for_real,
};
use brimful_report::json::{VerifiedBytes, VerifiedGpu, VerifiedRate, VerifyDocument};
use brimful_supervise::{StateDir, explain_record};

use crate::chosen_gpus::ChosenGpus;
use crate::error::WorkflowError;
use crate::machine::{MachineRequest, describe_machine};
use crate::measured::command_digest;
use crate::nodes::torchrun;
use crate::options::RehearsalOptions;
use crate::predict::{PredictRequest, PredictedRun, predict_within};
use crate::progress::Progress;
use crate::verify_error::VerifyError;

/// The file that is written if no other is named.
pub const DEFAULT_VERIFY_FILE: &str = "brimful-verify.json";
/// More than any such file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The driver is asked once a second: what it said by this time after the end of the last step is of that moment.
const DRIVER_LAG_MS: u64 = 1000;
/// Fewer timed steps are no rate.
const MIN_TIMED_STEPS: u32 = 2;
/// How long the driver may take to take memory back from a process that has ended.
const SETTLING: Duration = Duration::from_secs(1);

/// What to verify.
#[derive(Clone, Debug)]
pub struct VerifyRequest {
    pub command: Vec<OsString>,
    /// Indexes of GPUs, as PyTorch numbers them.
    pub gpus: Vec<u32>,
    /// The machine that this process runs on.
    pub machine: MachineRequest,
    /// Where the script's output of the real run goes; nowhere without it.
    pub output: Option<PathBuf>,
    pub state: Option<StateDir>,
    pub rehearsal: RehearsalOptions,
}

/// Refuses a file of the user that a measurement would replace.
pub fn check_verify_path(path: &Path) -> Result<(), WorkflowError> {
    let Ok(file) = brimful_private::open_named(path) else {
        return Ok(());
    };
    let mut bytes = Vec::new();
    let read = file.take(MAX_FILE_BYTES).read_to_end(&mut bytes);
    if read.is_ok() && VerifyDocument::is_one(&bytes) {
        return Ok(());
    }
    let path = path.to_owned();
    Err(VerifyError::FileExists { path }.into())
}

/// Predicts, runs the same steps for real, and compares.
pub fn verify(
    request: VerifyRequest,
    mut progress: impl FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<VerifyDocument, WorkflowError> {
    let words: Vec<String> = request
        .command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if torchrun(&words).is_some_and(|launcher| launcher.has_several_nodes()) {
        return Err(VerifyError::SeveralNodes.into());
    }
    let machine = describe_machine(request.machine.clone())?;
    let chosen = ChosenGpus::of(&machine, &request.gpus)?;
    // Before the rehearsal, which takes minutes.
    chosen.check(&machine, None).map_err(VerifyError::Busy)?;
    let options = &request.rehearsal;
    let protection = options
        .isolation
        .protection(&options.libraries, job_file::checkpoints_here())?;
    let predicted = predict_within(
        PredictRequest {
            command: request.command.clone(),
            shown_command: None,
            gpu: Some(chosen.as_request()),
            environment: request.machine.environment.clone(),
            with: Vec::new(),
            alloc_conf: None,
            output: None,
            // The prediction of the model is compared, not what an earlier measurement made of it.
            state: None,
            rehearsal: options.clone(),
        },
        protection.clone(),
        |told| match told {
            Progress::Line(line) => progress(Progress::Line(format!("rehearsing: {line}"))),
            told => progress(told),
        },
    )?;
    let Some(footprint) = predicted.footprints.first() else {
        return Err(PredictionError::NoFigures.into());
    };
    let machine = describe_machine(request.machine.clone())?;
    let notes = chosen.check(&machine, Some(footprint.device.likely));
    for note in notes.map_err(VerifyError::Busy)? {
        let _ = progress(Progress::Notice(note));
    }
    let _ = progress(Progress::RunningForReal {
        gpu: chosen.label(&machine),
        steps: options.steps,
        is_isolated: !options.isolation.allow_writes,
    });
    let at_unix_ms = unix_ms();
    let stage = Stage::without_card().map_err(stage_failed)?;
    let run_state = StateDir {
        directory: stage.path().join("state"),
    };
    let ran = run_for_real(
        &RealRunRequest {
            command: supervised(&options.libraries.program, &run_state, &request.command),
            stage: &stage,
            visible_gpus: chosen.as_variable(&machine),
            steps: options.steps,
            time_limit: options.time_limit,
            output: request.output.clone(),
            protection,
        },
        |told| match told.map(|told| Progress::of_event(&told.event)) {
            Some(Progress::Line(line)) => progress(Progress::Line(format!("on the GPU: {line}"))),
            Some(other) => progress(other),
            None => progress(Progress::Idle),
        },
    )
    .map_err(not_run)?;
    thread::sleep(SETTLING);
    let after = describe_machine(request.machine)?;
    let record = run_state.find(None).ok();
    let record = record.and_then(|run| Some((run.read().ok()?, run.directory)));
    let evidence = Measured {
        gpus: &chosen,
        before: &machine,
        after: &after,
        ran: &ran,
        record: record.as_ref(),
    };
    let (document, measurement) =
        evidence.compare(&predicted, footprint, options.steps, at_unix_ms)?;
    if let (Some(state), Some(found)) = (&request.state, measurement) {
        let job = command_digest(&request.command);
        let _ = state.remember_gpu(&GpuMeasurement { job, ..found });
    }
    Ok(document)
}

fn stage_failed(source: io::Error) -> WorkflowError {
    PredictionError::Rehearsal(RehearsalError::Stage(source)).into()
}

/// The words of a rehearsal's error that do not fit a real run.
fn not_run(error: RehearsalError) -> WorkflowError {
    match error {
        RehearsalError::TimeLimit {
            limit,
            made,
            steps,
            output,
            ..
        } => VerifyError::TimeLimit {
            limit,
            made,
            steps,
            output,
        }
        .into(),
        error => PredictionError::Rehearsal(error).into(),
    }
}

/// `brimful run -- COMMAND` with a state directory of its own: nothing of it stays.
fn supervised(program: &Path, state: &StateDir, command: &[OsString]) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![program.into(), "run".into()];
    words.extend(["--quiet", "--no-summary", "--no-status", "--state-dir"].map(OsString::from));
    words.push(state.directory.clone().into());
    words.push("--".into());
    words.extend(command.iter().cloned());
    words
}

/// All that was measured.
struct Measured<'a> {
    gpus: &'a ChosenGpus,
    before: &'a Machine,
    after: &'a Machine,
    ran: &'a RealRun,
    /// With its directory.
    record: Option<&'a (Record, PathBuf)>,
}

/// The fullest process on its fullest GPU.
struct Fullest<'a> {
    process: &'a MeasuredProcess,
    device: &'a MeasuredDevice,
    /// Its place among the machine's devices.
    place: usize,
}

impl Measured<'_> {
    fn compare(
        &self,
        predicted: &PredictedRun,
        footprint: &Footprint,
        requested_steps: u32,
        at_unix_ms: u64,
    ) -> Result<(VerifyDocument, Option<GpuMeasurement>), WorkflowError> {
        let fullest = self.fullest();
        let made = fullest.as_ref().map_or(0, |found| found.process.steps);
        // A script that has made its steps has done what was asked, whatever its launcher says.
        let is_complete = made >= requested_steps || (made > 0 && self.ran.failure.is_none());
        let out_of_memory = !is_complete && self.ran_out_of_memory();
        if !is_complete && !out_of_memory {
            return Err(self.failed().into());
        }
        let fullest = fullest.filter(|_| is_complete);
        let bytes = fullest.as_ref().map(|found| self.bytes_of(found));
        let rate = fullest.as_ref().and_then(Fullest::rate);
        let place = fullest
            .as_ref()
            .map_or(self.gpus.places[0].1, |found| found.place);
        let term = |of: fn(&brimful::predict::Term) -> Bytes| {
            let outside = footprint.terms.iter();
            outside
                .filter(|term| matches!(term.id, "context" | "nccl"))
                .fold(Bytes::ZERO, |sum, term| sum.saturating_add(of(term)))
        };
        let speed = predicted.rehearsed.speed(0);
        let gpu = self.gpu(place);
        let process = fullest.as_ref().map(|found| found.process);
        let document = VerifyDocument {
            schema_version: VerifyDocument::SCHEMA_VERSION,
            brimful_version: env!("CARGO_PKG_VERSION").into(),
            world_size: process.map_or(predicted.rehearsed.world_size, |of| of.world_size),
            torch_version: release(
                process.map_or(&predicted.rehearsed.torch_version, |of| &of.torch),
            ),
            cuda_version: process.and_then(|of| of.cuda.as_deref()).map(release),
            cudnn_version: process.and_then(|of| of.cudnn),
            alloc_conf: footprint.settings.clone(),
            outcome: if out_of_memory {
                VerifyDocument::OUT_OF_MEMORY.into()
            } else {
                VerifyDocument::FINISHED.into()
            },
            requested_steps,
            steps: if is_complete {
                made
            } else {
                self.ran.last_step.step
            },
            timed_steps: process.map_or(0, |of| of.timed_steps),
            isolation: self.ran.isolation.name().to_owned(),
            allocated: VerifiedBytes::of(
                footprint.peak_allocated,
                None,
                fullest
                    .as_ref()
                    .map(|of| Bytes(of.device.peak_allocated_bytes)),
            ),
            reserved: VerifiedBytes::of(
                footprint.peak_reserved,
                None,
                fullest
                    .as_ref()
                    .map(|of| Bytes(of.device.peak_reserved_bytes)),
            ),
            context: VerifiedBytes::of(
                term(|term| term.likely),
                Some(term(|term| term.safe)),
                bytes.and_then(|bytes| bytes.context),
            ),
            total: VerifiedBytes::of(
                footprint.device.likely,
                Some(footprint.device.safe),
                bytes.and_then(|bytes| bytes.total),
            ),
            steps_per_second: VerifiedRate::of(
                speed.map(|speed| speed.steps_per_second.into()),
                rate,
            ),
            retries: fullest.as_ref().map_or(0, |of| of.device.retries),
            caveats: (footprint.caveats.iter())
                .map(|caveat| caveat.kind.id().to_owned())
                .collect(),
            gpu,
        };
        let measurement = fullest
            .zip(bytes)
            .and_then(|(found, bytes)| self.measurement(&found, bytes, at_unix_ms));
        Ok((document, measurement))
    }

    /// The process that reserved the most on one of the chosen GPUs.
    fn fullest(&self) -> Option<Fullest<'_>> {
        let devices = self.ran.processes.iter().flat_map(|process| {
            let devices = process.devices.iter();
            devices.filter_map(move |device| Some((process, device, self.place_of(device)?)))
        });
        devices
            .max_by_key(|(_, device, _)| device.peak_reserved_bytes)
            .map(|(process, device, place)| Fullest {
                process,
                device,
                place,
            })
    }

    /// The script sees the chosen GPUs in their order, and no others.
    fn place_of(&self, device: &MeasuredDevice) -> Option<usize> {
        let (_, place) = self.gpus.places.get(device.device as usize)?;
        Some(*place)
    }

    fn bytes_of(&self, found: &Fullest<'_>) -> OnDevice {
        let reserved = Bytes(found.device.peak_reserved_bytes);
        let context = self.context(found);
        let total = context.map(|context| {
            let most = self.attempt().zip(self.used_before(found.place));
            let most = most.map_or(Bytes::ZERO, |(attempt, before)| {
                peak_used(attempt, driver_index(found.place)).saturating_sub(before)
            });
            most.max(reserved.saturating_add(context))
        });
        OnDevice { context, total }
    }

    /// What the GPU held beside the allocators of all processes while they waited at the end.
    fn context(&self, found: &Fullest<'_>) -> Option<Bytes> {
        let on_it = self
            .ran
            .processes
            .iter()
            .flat_map(|process| &process.devices);
        let on_it = on_it.filter(|device| self.place_of(device) == Some(found.place));
        let reserved: u64 = on_it.map(|device| device.reserved_bytes).sum();
        held_context(
            self.attempt()?,
            driver_index(found.place),
            self.used_before(found.place)?,
            Bytes(reserved),
            found.process.held_from_ms + DRIVER_LAG_MS..=found.process.held_until_ms,
        )
    }

    fn used_before(&self, place: usize) -> Option<Bytes> {
        self.before.gpus.devices.get(place)?.used.known().copied()
    }

    fn attempt(&self) -> Option<&Attempt> {
        self.record?.0.last_attempt()
    }

    fn verdict(&self) -> Option<Verdict> {
        let (record, directory) = self.record?;
        Some(explain_record(record, Some(directory)))
    }

    fn ran_out_of_memory(&self) -> bool {
        self.verdict().is_some_and(|verdict| {
            matches!(
                verdict.cause,
                Cause::CudaOomExhausted | Cause::CudaOomFragmented
            )
        })
    }

    fn failed(&self) -> VerifyError {
        let output = self.ran.output.clone();
        match self.ran.failure {
            Some(ended) => VerifyError::Failed {
                ended,
                after: self.ran.last_step.to_string(),
                summary: self.verdict().map_or_else(
                    || "the cause is not known".to_owned(),
                    |found| found.summary,
                ),
                output,
            },
            None => VerifyError::NoStep { output },
        }
    }

    fn gpu(&self, place: usize) -> VerifiedGpu {
        let before = self.before.gpus.devices.get(place);
        let after = self.after.gpus.devices.get(place);
        let driver = self.before.gpus.driver_version.known();
        VerifiedGpu {
            name: before.map_or(self.gpus.card.name, Gpu::label).to_owned(),
            model: self.gpus.card.id.to_owned(),
            total_bytes: before
                .and_then(|gpu| gpu.total.known())
                .map(|total| total.get()),
            driver_version: driver.map(|driver| release(driver)),
            used_before_bytes: self.used_before(place).map(Bytes::get),
            used_after_bytes: after
                .and_then(|gpu| gpu.used.known())
                .map(|used| used.get()),
        }
    }

    /// What later predictions use, where it is of one process on one GPU.
    fn measurement(
        &self,
        found: &Fullest<'_>,
        bytes: OnDevice,
        at_unix_ms: u64,
    ) -> Option<GpuMeasurement> {
        if self.ran.processes.len() != 1 || found.process.devices.len() != 1 {
            return None;
        }
        let gpu = self.gpu(found.place);
        let used_before = Bytes(gpu.used_before_bytes?);
        Some(GpuMeasurement {
            at_unix_ms,
            job: String::new(),
            total: Bytes(gpu.total_bytes?),
            used_before,
            peak_used: bytes.total?.saturating_add(used_before),
            peak_allocated: Bytes(found.device.peak_allocated_bytes),
            peak_reserved: Bytes(found.device.peak_reserved_bytes),
            context: bytes.context?,
            steps: u64::from(found.process.steps),
            steps_per_second: found.rate(),
            driver: gpu.driver_version,
            torch: found.process.torch.clone(),
            cuda: found.process.cuda.clone(),
            gpu: gpu.name,
        })
    }
}

#[derive(Clone, Copy)]
struct OnDevice {
    context: Option<Bytes>,
    total: Option<Bytes>,
}

impl Fullest<'_> {
    fn rate(&self) -> Option<f64> {
        let process = self.process;
        let is_enough = process.timed_steps >= MIN_TIMED_STEPS && process.timed_seconds > 0.0;
        is_enough.then(|| f64::from(process.timed_steps) / process.timed_seconds)
    }
}

/// The devices of a machine are in the order of the driver, those of NVIDIA first.
fn driver_index(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// A version without anything that a build of the user's own may have put into it.
fn release(version: &str) -> String {
    let is_of_a_version = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+');
    let plain: String = version
        .chars()
        .take_while(is_of_a_version)
        .take(24)
        .collect();
    match plain.split_once('+') {
        // `+cu130` is PyTorch's; another suffix may be anything.
        Some((release, build)) if !is_of_pytorch(build) => release.to_owned(),
        _ => plain,
    }
}

fn is_of_pytorch(build: &str) -> bool {
    let cuda = build.strip_prefix("cu");
    build == "cpu"
        || cuda.is_some_and(|cuda| !cuda.is_empty() && cuda.bytes().all(|c| c.is_ascii_digit()))
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_releases_are_kept_of_versions() {
        for (version, expected) in [
            ("2.13.0+cu130", "2.13.0+cu130"),
            ("2.9.0a0+gitdeadbeef", "2.9.0a0"),
            ("2.9.0+ann.smith", "2.9.0"),
            ("2.9.0+customer", "2.9.0"),
            ("535.104.05", "535.104.05"),
            ("2.9.0 /home/ann", "2.9.0"),
        ] {
            assert_eq!(release(version), expected);
        }
    }
}
