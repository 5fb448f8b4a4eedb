//! `--query-gpu` and `--query-compute-apps`: values with commas between them.

use brimful::units::Bytes;
use brimful_probe::{DriverStatus, GpuStatus};

use super::arguments::CsvFormat;
use super::values::{Moment, SmiRefusal, bus_address};

/// What a value is made from.
struct FieldSource<'a> {
    status: &'a DriverStatus,
    gpu: &'a GpuStatus,
    index: usize,
    now: Moment,
}

/// A field that is known of a phantom.
struct SmiField {
    /// The first is the one in the header.
    names: &'static [&'static str],
    unit: &'static str,
    value: fn(&FieldSource<'_>) -> Option<String>,
}

const fn field(
    names: &'static [&'static str],
    unit: &'static str,
    value: fn(&FieldSource<'_>) -> Option<String>,
) -> SmiField {
    SmiField { names, unit, value }
}

fn mib(bytes: Bytes) -> String {
    (bytes.get() / Bytes::MIB).to_string()
}

fn text(value: Option<u32>) -> Option<String> {
    Some(value?.to_string())
}

/// A part of `00000000:00:04.0`, in hexadecimal digits.
fn bus_part(source: &FieldSource<'_>, place: usize, digits: usize) -> Option<String> {
    let part = bus_address(source.gpu.bus_id.as_deref()?)?;
    Some(format!("0x{:0digits$X}", part.get(place)?))
}

const FIELDS: &[SmiField] = &[
    field(&["timestamp"], "", |it| Some(it.now.stamp())),
    field(&["driver_version"], "", |it| {
        it.status.driver_version.clone()
    }),
    field(&["count"], "", |it| Some(it.status.gpus.len().to_string())),
    field(&["name", "gpu_name"], "", |it| it.gpu.name.clone()),
    field(&["uuid", "gpu_uuid"], "", |it| it.gpu.uuid.clone()),
    field(&["pci.bus_id", "gpu_bus_id"], "", |it| {
        it.gpu.bus_id.clone()
    }),
    field(&["pci.domain"], "", |it| bus_part(it, 0, 4)),
    field(&["pci.bus"], "", |it| bus_part(it, 1, 2)),
    field(&["pci.device"], "", |it| bus_part(it, 2, 2)),
    field(&["index"], "", |it| Some(it.index.to_string())),
    field(&["display_mode"], "", |_| Some("Disabled".into())),
    field(&["display_active"], "", |_| Some("Disabled".into())),
    field(&["persistence_mode"], "", |_| Some("Disabled".into())),
    field(&["compute_mode"], "", |_| Some("Default".into())),
    field(&["compute_cap"], "", |it| {
        Some(it.gpu.compute_capability?.to_string())
    }),
    field(&["memory.total"], "MiB", |it| {
        Some(mib(it.gpu.memory?.total))
    }),
    field(&["memory.reserved"], "MiB", |it| {
        Some(mib(it.gpu.memory?.reserved))
    }),
    field(&["memory.used"], "MiB", |it| Some(mib(it.gpu.memory?.used))),
    field(&["memory.free"], "MiB", |it| Some(mib(it.gpu.memory?.free))),
    field(&["utilization.gpu"], "%", |it| text(it.gpu.gpu_percent)),
    field(&["utilization.memory"], "%", |it| {
        text(it.gpu.memory_percent)
    }),
    field(&["utilization.encoder"], "%", |it| {
        text(it.gpu.encoder_percent)
    }),
    field(&["utilization.decoder"], "%", |it| {
        text(it.gpu.decoder_percent)
    }),
    field(&["temperature.gpu"], "", |it| {
        text(it.gpu.temperature_celsius)
    }),
    field(&["power.draw"], "W", power),
    field(&["power.draw.average"], "W", power),
    field(&["power.draw.instant"], "W", power),
    field(&["clocks.current.graphics", "clocks.gr"], "MHz", |it| {
        text(it.gpu.clocks.graphics)
    }),
    field(&["clocks.current.sm", "clocks.sm"], "MHz", |it| {
        text(it.gpu.clocks.sm)
    }),
    field(&["clocks.current.memory", "clocks.mem"], "MHz", |it| {
        text(it.gpu.clocks.memory)
    }),
    field(&["clocks.max.graphics", "clocks.max.gr"], "MHz", |it| {
        text(it.gpu.max_clocks.graphics)
    }),
    field(&["clocks.max.sm"], "MHz", |it| text(it.gpu.max_clocks.sm)),
    field(&["clocks.max.memory", "clocks.max.mem"], "MHz", |it| {
        text(it.gpu.max_clocks.memory)
    }),
];

fn power(source: &FieldSource<'_>) -> Option<String> {
    let milliwatts = source.gpu.power_milliwatts?;
    Some(format!(
        "{}.{:02}",
        milliwatts / 1000,
        milliwatts % 1000 / 10
    ))
}

/// Fields of which nothing is known of a phantom: names, the first being the one in the header, and the unit.
const UNKNOWN: &[(&[&str], &str)] = &[
    (&["serial", "gpu_serial"], ""),
    (&["vbios_version"], ""),
    (&["pci.device_id"], ""),
    (&["pci.sub_device_id"], ""),
    (&["pci.baseClass"], ""),
    (&["pci.subClass"], ""),
    (&["pcie.link.gen.current"], ""),
    (&["pcie.link.gen.gpucurrent"], ""),
    (&["pcie.link.gen.max"], ""),
    (&["pcie.link.gen.gpumax"], ""),
    (&["pcie.link.gen.hostmax"], ""),
    (&["pcie.link.width.current"], ""),
    (&["pcie.link.width.max"], ""),
    (&["addressing_mode"], ""),
    (&["accounting.mode"], ""),
    (&["accounting.buffer_size"], ""),
    (&["driver_model.current"], ""),
    (&["driver_model.pending"], ""),
    (&["gom.current", "gpu_operation_mode.current"], ""),
    (&["gom.pending", "gpu_operation_mode.pending"], ""),
    (&["fan.speed"], "%"),
    (&["pstate"], ""),
    (&["utilization.jpeg"], "%"),
    (&["utilization.ofa"], "%"),
    (&["temperature.gpu.tlimit"], ""),
    (&["temperature.memory"], ""),
    (&["power.management"], ""),
    (&["power.limit"], "W"),
    (&["enforced.power.limit"], "W"),
    (&["power.default_limit"], "W"),
    (&["power.min_limit"], "W"),
    (&["power.max_limit"], "W"),
    (&["clocks.current.video", "clocks.video"], "MHz"),
    (
        &["clocks.applications.graphics", "clocks.applications.gr"],
        "MHz",
    ),
    (
        &["clocks.applications.memory", "clocks.applications.mem"],
        "MHz",
    ),
    (
        &[
            "clocks.default_applications.graphics",
            "clocks.default_applications.gr",
        ],
        "MHz",
    ),
    (
        &[
            "clocks.default_applications.memory",
            "clocks.default_applications.mem",
        ],
        "MHz",
    ),
    (&["ecc.mode.current"], ""),
    (&["ecc.mode.pending"], ""),
    (&["mig.mode.current"], ""),
    (&["mig.mode.pending"], ""),
    (&["gsp.mode.current"], ""),
    (&["gsp.mode.default"], ""),
    (&["c2c.mode"], ""),
    (&["fabric.state"], ""),
    (&["fabric.status"], ""),
    (&["protected_memory.total"], "MiB"),
    (&["protected_memory.used"], "MiB"),
    (&["protected_memory.free"], "MiB"),
];

/// Beginnings of more such fields: counters of errors, and reasons for lower clocks.
const UNKNOWN_GROUPS: &[&str] = &[
    "clocks_event_reasons.",
    "clocks_event_reasons_counters.",
    "clocks_throttle_reasons.",
    "ecc.errors.",
    "encoder.stats.",
    "inforom.",
    "module.",
    "retired_pages.",
];

/// What is known of a field by this name.
enum Meaning<'a> {
    Known(&'static SmiField),
    Unknown(&'a str, &'static str),
}

fn meaning(name: &str) -> Result<Meaning<'_>, SmiRefusal> {
    if let Some(field) = FIELDS.iter().find(|field| field.names.contains(&name)) {
        return Ok(Meaning::Known(field));
    }
    if let Some((names, unit)) = UNKNOWN.iter().find(|(names, _)| names.contains(&name)) {
        return Ok(Meaning::Unknown(names[0], unit));
    }
    let is_in = |group: &&str| {
        name.strip_prefix(*group)
            .is_some_and(|rest| !rest.is_empty())
    };
    if UNKNOWN_GROUPS.iter().any(is_in) {
        return Ok(Meaning::Unknown(name, ""));
    }
    Err(invalid(name))
}

fn invalid(name: &str) -> SmiRefusal {
    SmiRefusal::invalid(format!("Field \"{name}\" is not a valid field to query.\n"))
}

impl Meaning<'_> {
    fn heading(&self) -> String {
        match self {
            Meaning::Known(field) => heading(field.names[0], field.unit),
            Meaning::Unknown(name, unit) => heading(name, unit),
        }
    }

    fn value(&self, source: &FieldSource<'_>, csv: CsvFormat) -> String {
        let Meaning::Known(field) = self else {
            return "[N/A]".into();
        };
        match (field.value)(source) {
            None => "[N/A]".into(),
            Some(value) if csv.has_units && !field.unit.is_empty() => {
                format!("{value} {}", field.unit)
            }
            Some(value) => value,
        }
    }
}

fn heading(name: &str, unit: &str) -> String {
    match unit {
        "" => name.to_owned(),
        unit => format!("{name} [{unit}]"),
    }
}

fn row(cells: impl Iterator<Item = String>) -> String {
    let mut line = cells.collect::<Vec<_>>().join(", ");
    line.push('\n');
    line
}

pub(super) fn of_gpus(
    names: &[String],
    csv: CsvFormat,
    status: &DriverStatus,
    gpus: &[(usize, &GpuStatus)],
    now: Moment,
) -> Result<String, SmiRefusal> {
    let fields = names.iter().map(|name| meaning(name));
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let mut out = String::new();
    if csv.has_header {
        out += &row(fields.iter().map(Meaning::heading));
    }
    for (index, gpu) in gpus {
        let source = FieldSource {
            status,
            gpu,
            index: *index,
            now,
        };
        out += &row(fields.iter().map(|field| field.value(&source, csv)));
    }
    Ok(out)
}

/// The header alone: no process computes on a phantom but its own.
pub(super) fn of_processes(names: &[String], csv: CsvFormat) -> Result<String, SmiRefusal> {
    let heading_of = |name: &String| match name.as_str() {
        "timestamp" | "gpu_name" | "gpu_serial" | "gpu_uuid" | "gpu_bus_id" | "pid"
        | "process_name" => Ok(name.clone()),
        "name" => Ok("process_name".to_owned()),
        "used_gpu_memory" | "used_memory" => Ok(heading("used_gpu_memory", "MiB")),
        other => Err(invalid(other)),
    };
    let headings = names.iter().map(heading_of);
    let headings = headings.collect::<Result<Vec<_>, _>>()?;
    if csv.has_header {
        Ok(row(headings.into_iter()))
    } else {
        Ok(String::new())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::printed;
    use super::*;

    fn check(fields: &str, format: &str, expected: &str) {
        let query = format!("--query-gpu={fields}");
        let format = format!("--format={format}");
        let found = printed(&["-i", "0", &query, &format]);
        assert_eq!(found.as_deref(), Ok(expected), "{fields}");
    }

    #[test]
    fn values_have_headers_and_units_unless_they_are_left_out() {
        let fields = "index,name,memory.total,memory.used,utilization.gpu";
        check(
            fields,
            "csv",
            "index, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%]\n\
             0, Tesla T4, 15360 MiB, 1026 MiB, 0 %\n",
        );
        check(
            fields,
            "csv,noheader",
            "0, Tesla T4, 15360 MiB, 1026 MiB, 0 %\n",
        );
        check(
            fields,
            "csv,noheader,nounits",
            "0, Tesla T4, 15360, 1026, 0\n",
        );
        check(
            fields,
            "csv,nounits",
            "index, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%]\n\
             0, Tesla T4, 15360, 1026, 0\n",
        );
    }

    #[test]
    fn each_gpu_has_a_line() {
        let found = printed(&["--query-gpu=count,pci.bus_id", "--format=csv,noheader"]);
        let expected = "2, 00000000:00:04.0\n2, 00000000:00:05.0\n";
        assert_eq!(found.as_deref(), Ok(expected));
    }

    #[test]
    fn a_field_has_several_names_and_one_header() {
        check(
            "gpu_name,gpu_uuid",
            "csv,noheader",
            "Tesla T4, GPU-6272696d-6675-6c2d-7068-616e746f6d00\n",
        );
        check(
            "clocks.sm,clocks.max.mem",
            "csv",
            "clocks.current.sm [MHz], clocks.max.memory [MHz]\n0 MHz, 5001 MHz\n",
        );
        check(
            "pci.domain,pci.bus,pci.device",
            "csv,noheader",
            "0x0000, 0x00, 0x04\n",
        );
        check(
            "timestamp,driver_version,compute_cap",
            "csv,noheader",
            "2026/08/21 08:54:01.740, 580.00, 7.5\n",
        );
        check(
            "power.draw,temperature.gpu",
            "csv,noheader,nounits",
            "0.00, 0\n",
        );
    }

    #[test]
    fn what_is_not_known_is_written_as_nvidia_smi_does() {
        check("power.limit,fan.speed", "csv,noheader", "[N/A], [N/A]\n");
        check(
            "ecc.errors.corrected.volatile.total",
            "csv,noheader,nounits",
            "[N/A]\n",
        );
        for unknown in ["cuda_version", "memory", "", "ecc.errors."] {
            let query = format!("--query-gpu=name,{unknown}");
            let refused = printed(&[&query, "--format=csv"]).unwrap_err();
            let expected = format!("Field \"{unknown}\" is not a valid field to query.\n");
            assert_eq!((refused.code, refused.message), (2, expected));
        }
    }

    #[test]
    fn no_process_is_listed() {
        let query = "--query-compute-apps=pid,process_name,used_memory";
        let found = printed(&[query, "--format=csv"]);
        assert_eq!(
            found.as_deref(),
            Ok("pid, process_name, used_gpu_memory [MiB]\n")
        );
        let found = printed(&[query, "--format=csv,noheader,nounits"]);
        assert_eq!(found.as_deref(), Ok(""));
        let refused = printed(&["--query-compute-apps=pids", "--format=csv"]).unwrap_err();
        assert_eq!(refused.code, 2);
    }

    #[test]
    fn no_field_is_listed_twice() {
        let known = FIELDS.iter().flat_map(|field| field.names);
        let all = known.chain(UNKNOWN.iter().flat_map(|(names, _)| *names));
        let mut names: Vec<_> = all.collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
