//! Internal: answers in place of `nvidia-smi` for the phantom GPU of a rehearsal.
//!
//! Scripts start `nvidia-smi` to log the GPU or to choose one. The stage of a rehearsal puts a program of this name first
//! on the path, which starts brimful with the phantom as its management library. So it agrees with `torch.cuda` and
//! `pynvml`. Forms and messages are those of `nvidia-smi` 580; what is not known of a phantom is `N/A`. With `--loop`, it
//! prints once: nothing changes that a script could wait for, and no process is left behind.

mod arguments;
mod document;
mod fields;
mod table;
mod values;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use brimful_probe::{DriverStatus, GpuStatus};

use crate::exit::ExitStatus;
use arguments::{SmiArguments, SmiForm};
use values::{Moment, SmiRefusal, bus_address, codes, cuda_version, driver_version};

/// Answers with the management library that the first argument names, as `nvidia-smi` does for the others.
pub(crate) fn nvidia_smi(arguments: &[OsString]) -> ExitStatus {
    let Some((library, words)) = arguments.split_first() else {
        return ExitStatus::BadInput;
    };
    let words: Vec<String> = words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    match answer(Path::new(library), &words) {
        Ok(()) => ExitStatus::Success,
        Err(refusal) => {
            // A closed pipe is not a failure.
            let _ = writeln!(std::io::stdout().lock(), "{}", refusal.message);
            ExitStatus::Passed(refusal.code)
        }
    }
}

fn answer(library: &Path, words: &[String]) -> Result<(), SmiRefusal> {
    let arguments = arguments::parse(words)?;
    let status = DriverStatus::of_library(library).map_err(|_| SmiRefusal {
        message: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n".into(),
        code: codes::NO_DRIVER,
    })?;
    let text = page(&arguments, &status, Moment::now())?;
    match &arguments.file {
        None => {
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            Ok(())
        }
        Some(path) => {
            brimful_private::write_named(Path::new(path), text.as_bytes()).map_err(|error| {
                SmiRefusal {
                    message: format!("Failed to open file {path}: {error}"),
                    code: codes::OTHER,
                }
            })
        }
    }
}

/// What is printed.
fn page(
    arguments: &SmiArguments,
    status: &DriverStatus,
    now: Moment,
) -> Result<String, SmiRefusal> {
    let gpus = chosen(status, arguments.ids.as_deref())?;
    Ok(match &arguments.form {
        SmiForm::Help => arguments::HELP.to_owned(),
        SmiForm::Version => version(status),
        SmiForm::NothingChanged => "All done.\n".to_owned(),
        SmiForm::Table => table::table(status, &gpus, now),
        SmiForm::List => table::list(&gpus),
        SmiForm::Document { xml } => document::document(status, &gpus, now, *xml),
        SmiForm::Gpus { fields, csv } => fields::of_gpus(fields, *csv, status, &gpus, now)?,
        SmiForm::Processes { fields, csv } => fields::of_processes(fields, *csv)?,
    })
}

fn version(status: &DriverStatus) -> String {
    let driver = driver_version(status);
    format!(
        "NVIDIA-SMI version  : {driver}\nNVML version        : {driver}\nDRIVER version      : {driver}\nCUDA Version        : {}\n",
        cuda_version(status)
    )
}

/// The GPUs that `-i` names, with their indices; all without it.
fn chosen<'a>(
    status: &'a DriverStatus,
    ids: Option<&str>,
) -> Result<Vec<(usize, &'a GpuStatus)>, SmiRefusal> {
    let all = status.gpus.iter().enumerate();
    let gpus: Vec<_> = match ids {
        None => all.collect(),
        Some(ids) => {
            let ids: Vec<&str> = ids.split(',').map(str::trim).collect();
            let is_known = |id: &&str| all.clone().any(|(index, gpu)| is_named(index, gpu, id));
            if !ids.iter().all(is_known) {
                return Err(SmiRefusal::no_devices());
            }
            all.filter(|(index, gpu)| ids.iter().any(|id| is_named(*index, gpu, id)))
                .collect()
        }
    };
    if gpus.is_empty() {
        return Err(SmiRefusal::no_devices());
    }
    Ok(gpus)
}

/// Whether an ID means this GPU: its index, its UUID or the address of its bus.
fn is_named(index: usize, gpu: &GpuStatus, id: &str) -> bool {
    if id.contains(':') {
        let own = gpu.bus_id.as_deref().and_then(bus_address);
        return own.is_some() && own == bus_address(id);
    }
    let is_uuid = |uuid: &String| uuid.eq_ignore_ascii_case(id);
    id.parse() == Ok(index) || gpu.uuid.as_ref().is_some_and(is_uuid)
}

#[cfg(test)]
mod tests {
    use brimful::machine::ComputeCapability;
    use brimful::units::Bytes;
    use brimful_probe::{ClockStatus, MemoryStatus};

    use super::*;

    pub(super) const NOW: Moment = Moment {
        days: 20_686,
        milliseconds: 32_041_740,
    };

    pub(super) fn t4(index: u32) -> GpuStatus {
        GpuStatus {
            name: Some("Tesla T4".into()),
            uuid: Some(format!("GPU-6272696d-6675-6c2d-7068-616e746f6d0{index}")),
            bus_id: Some(format!("00000000:00:{:02X}.0", 4 + index)),
            minor_number: Some(index),
            compute_capability: Some(ComputeCapability::new(7, 5)),
            memory: Some(MemoryStatus {
                total: Bytes::from_mib(15_360),
                reserved: Bytes::from_mib(449),
                used: Bytes::from_mib(1026),
                free: Bytes::from_mib(13_885),
            }),
            gpu_percent: Some(0),
            memory_percent: Some(0),
            encoder_percent: Some(0),
            decoder_percent: Some(0),
            temperature_celsius: Some(0),
            power_milliwatts: Some(0),
            clocks: ClockStatus {
                graphics: Some(0),
                sm: Some(0),
                memory: Some(0),
            },
            max_clocks: ClockStatus {
                graphics: Some(1590),
                sm: Some(1590),
                memory: Some(5001),
            },
        }
    }

    pub(super) fn two_t4() -> DriverStatus {
        DriverStatus {
            driver_version: Some("580.00".into()),
            cuda_version: Some((13, 0)),
            gpus: vec![t4(0), t4(1)],
        }
    }

    /// What two T4 print for these arguments.
    pub(super) fn printed(words: &[&str]) -> Result<String, SmiRefusal> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        page(&arguments::parse(&words)?, &two_t4(), NOW)
    }

    fn check_id(id: &str, expected: &[&str]) {
        let query = ["-i", id, "--query-gpu=index", "--format=csv,noheader"];
        let found = printed(&query);
        match expected {
            [] => assert_eq!(found, Err(SmiRefusal::no_devices()), "{id}"),
            expected => assert_eq!(found.unwrap().lines().collect::<Vec<_>>(), expected, "{id}"),
        }
    }

    #[test]
    fn an_id_is_an_index_a_uuid_or_a_bus() {
        check_id("0", &["0"]);
        check_id("1", &["1"]);
        check_id("1,0", &["0", "1"]);
        check_id("GPU-6272696d-6675-6c2d-7068-616e746f6d01", &["1"]);
        check_id("00000000:00:05.0", &["1"]);
        check_id("0000:00:04.0", &["0"]);
        check_id("00:05.0", &["1"]);
        // An index is no bus, and part of a UUID is no UUID.
        for unknown in ["2", "4", "00:06.0", "0000:00", "GPU-6272696d", "", "0,7"] {
            check_id(unknown, &[]);
        }
    }

    #[test]
    fn without_gpus_there_are_no_devices() {
        let none = DriverStatus::default();
        let arguments = arguments::parse(&[]).unwrap();
        assert_eq!(page(&arguments, &none, NOW), Err(SmiRefusal::no_devices()));
    }

    #[test]
    fn versions_are_those_of_the_library() {
        let text = printed(&["--version"]).unwrap();
        assert!(text.contains("DRIVER version      : 580.00\nCUDA Version        : 13.0\n"));
    }
}
