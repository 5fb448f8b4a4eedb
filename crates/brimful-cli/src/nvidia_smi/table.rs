//! The table that `nvidia-smi` prints without options, and the list of `-L`.

use std::fmt::Write as _;

use brimful::units::Bytes;
use brimful_probe::{DriverStatus, GpuStatus};

use super::values::{Moment, NOT_KNOWN, cuda_version, driver_version, shown};

/// Characters of a name that has room.
const MAX_NAME: usize = 27;

const HEADING: &str = "\
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
";

const SEPARATOR: &str = "\
+-----------------------------------------+------------------------+----------------------+
";

const NO_PROCESSES: &str = "
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
";

/// As wide as what `nvidia-smi` of driver 580 prints: 91 columns.
pub(super) fn table(status: &DriverStatus, gpus: &[(usize, &GpuStatus)], now: Moment) -> String {
    let driver = driver_version(status);
    let cuda = cuda_version(status);
    let mut out = format!("{}       \n+{}+\n", now.words(), "-".repeat(89));
    let _ = writeln!(
        out,
        "| NVIDIA-SMI {driver:<23}Driver Version: {driver:<15}CUDA Version: {cuda:<9}|"
    );
    out.push_str(SEPARATOR);
    out.push_str(HEADING);
    for (index, gpu) in gpus {
        add_rows(&mut out, *index, gpu);
        out.push_str(SEPARATOR);
    }
    out.push_str(NO_PROCESSES);
    out
}

fn add_rows(out: &mut String, index: usize, gpu: &GpuStatus) {
    let name = short(gpu.name.as_deref().unwrap_or(NOT_KNOWN));
    let bus = gpu.bus_id.as_deref().unwrap_or(NOT_KNOWN);
    let _ = writeln!(
        out,
        "|{index:>4}  {name:<MAX_NAME$}    Off |   {bus:<16} Off |{NOT_KNOWN:>21} |"
    );
    let with_unit =
        |value: Option<u32>, unit: &str| shown(value.map(|value| format!("{value}{unit}")));
    let temperature = with_unit(gpu.temperature_celsius, "C");
    let power = with_unit(
        gpu.power_milliwatts.map(|milliwatts| milliwatts / 1000),
        "W",
    );
    let busy = with_unit(gpu.gpu_percent, "%");
    let memory = match gpu.memory {
        Some(memory) => {
            let mib = |bytes: Bytes| bytes.get() / Bytes::MIB;
            format!("{:>8}MiB / {:>6}MiB", mib(memory.used), mib(memory.total))
        }
        None => format!("{NOT_KNOWN:>20}   "),
    };
    let _ = writeln!(
        out,
        "|{NOT_KNOWN:>4}{temperature:>6}{NOT_KNOWN:>6}{power:>16} / {NOT_KNOWN:>5} |{memory} |{busy:>8}{:>13} |",
        "Default"
    );
    let _ = writeln!(out, "|{:41}|{:24}|{NOT_KNOWN:>21} |", "", "");
}

/// A long name ends with dots.
fn short(name: &str) -> String {
    if name.chars().count() <= MAX_NAME {
        return name.to_owned();
    }
    let begin: String = name.chars().take(MAX_NAME - 3).collect();
    format!("{begin}...")
}

pub(super) fn list(gpus: &[(usize, &GpuStatus)]) -> String {
    let mut out = String::new();
    for (index, gpu) in gpus {
        let name = gpu.name.as_deref().unwrap_or(NOT_KNOWN);
        let uuid = gpu.uuid.as_deref().unwrap_or(NOT_KNOWN);
        let _ = writeln!(out, "GPU {index}: {name} (UUID: {uuid})");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, printed, t4, two_t4};
    use super::*;

    #[test]
    fn the_table_is_that_of_driver_580() {
        insta::assert_snapshot!(printed(&["-i", "1"]).unwrap().replace("       \n", "\n"), @r"
        Fri Aug 21 08:54:01 2026
        +-----------------------------------------------------------------------------------------+
        | NVIDIA-SMI 580.00                 Driver Version: 580.00         CUDA Version: 13.0     |
        +-----------------------------------------+------------------------+----------------------+
        | GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
        | Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
        |                                         |                        |               MIG M. |
        |=========================================+========================+======================|
        |   1  Tesla T4                       Off |   00000000:00:05.0 Off |                  N/A |
        | N/A    0C   N/A              0W /   N/A |    1026MiB /  15360MiB |      0%      Default |
        |                                         |                        |                  N/A |
        +-----------------------------------------+------------------------+----------------------+

        +-----------------------------------------------------------------------------------------+
        | Processes:                                                                              |
        |  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
        |        ID   ID                                                               Usage      |
        |=========================================================================================|
        |  No running processes found                                                             |
        +-----------------------------------------------------------------------------------------+
        ");
    }

    #[test]
    fn every_line_is_91_columns_wide() {
        let mut status = two_t4();
        status.gpus[0] = GpuStatus::default();
        status.gpus[1].name = Some("NVIDIA RTX PRO 6000 Blackwell Server Edition".into());
        let mut large = t4(0);
        large.name = Some("NVIDIA H100 80GB HBM3".into());
        large.memory = large.memory.map(|memory| brimful_probe::MemoryStatus {
            total: Bytes::from_mib(284_208),
            used: Bytes::from_mib(284_208),
            ..memory
        });
        status.gpus.resize(10, t4(0));
        status.gpus.push(large);
        let gpus: Vec<_> = status.gpus.iter().enumerate().collect();
        let text = table(&status, &gpus, NOW);
        for line in text.lines().skip(1).filter(|line| !line.is_empty()) {
            assert_eq!(line.chars().count(), 91, "{line}");
        }
        assert!(text.contains("|   1  NVIDIA RTX PRO 6000 Blac...    Off |"));
        assert!(text.contains("|  10  NVIDIA H100 80GB HBM3          Off |"));
    }

    #[test]
    fn the_list_has_names_and_uuids() {
        assert_eq!(
            printed(&["-L"]).unwrap(),
            "GPU 0: Tesla T4 (UUID: GPU-6272696d-6675-6c2d-7068-616e746f6d00)\n\
             GPU 1: Tesla T4 (UUID: GPU-6272696d-6675-6c2d-7068-616e746f6d01)\n"
        );
    }
}
