//! All values, as the text of `nvidia-smi -q` or the XML of `nvidia-smi -q -x`.

use std::fmt::Write as _;

use brimful::units::Bytes;
use brimful_probe::{ClockStatus, DriverStatus, GpuStatus};

use super::values::{Moment, NOT_KNOWN, bus_address, cuda_version, driver_version, shown};

/// A value or a group of values: its XML element, and what the text calls it.
struct Entry {
    element: &'static str,
    label: &'static str,
    content: EntryContent,
}

enum EntryContent {
    Value(String),
    Group(Vec<Entry>),
    /// A group without entries, and what the text writes for it.
    Empty(&'static str),
}

fn value(element: &'static str, label: &'static str, value: impl Into<String>) -> Entry {
    Entry {
        element,
        label,
        content: EntryContent::Value(value.into()),
    }
}

fn group(element: &'static str, label: &'static str, entries: Vec<Entry>) -> Entry {
    Entry {
        element,
        label,
        content: EntryContent::Group(entries),
    }
}

fn unknown(element: &'static str, label: &'static str) -> Entry {
    value(element, label, NOT_KNOWN)
}

pub(super) fn document(
    status: &DriverStatus,
    gpus: &[(usize, &GpuStatus)],
    now: Moment,
    xml: bool,
) -> String {
    let head = [
        value("timestamp", "Timestamp", now.words()),
        value("driver_version", "Driver Version", driver_version(status)),
        value("cuda_version", "CUDA Version", cuda_version(status)),
        value(
            "attached_gpus",
            "Attached GPUs",
            status.gpus.len().to_string(),
        ),
    ];
    let mut out = String::new();
    if xml {
        out.push_str("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v13.dtd\">\n<nvidia_smi_log>\n");
        add_xml(&mut out, &head, 1);
        for (_, gpu) in gpus {
            let id = escaped(&shown(gpu.bus_id.as_ref()));
            let _ = writeln!(out, "\t<gpu id=\"{id}\">");
            add_xml(&mut out, &entries(gpu), 2);
            out.push_str("\t</gpu>\n\n");
        }
        out.push_str("</nvidia_smi_log>\n");
    } else {
        out.push_str("\n==============NVSMI LOG==============\n\n");
        add_text(&mut out, &head, 0);
        for (_, gpu) in gpus {
            let _ = writeln!(out, "GPU {}", shown(gpu.bus_id.as_ref()));
            add_text(&mut out, &entries(gpu), 1);
            out.push('\n');
        }
    }
    out
}

fn add_xml(out: &mut String, entries: &[Entry], depth: usize) {
    let indent = "\t".repeat(depth);
    for Entry {
        element, content, ..
    } in entries
    {
        if let EntryContent::Value(value) = content {
            let _ = writeln!(out, "{indent}<{element}>{}</{element}>", escaped(value));
            continue;
        }
        let _ = writeln!(out, "{indent}<{element}>");
        if let EntryContent::Group(entries) = content {
            add_xml(out, entries, depth + 1);
        }
        let _ = writeln!(out, "{indent}</{element}>");
    }
}

fn add_text(out: &mut String, entries: &[Entry], depth: usize) {
    /// The column of the colons.
    const COLON: usize = 42;
    for entry in entries {
        let heading = format!("{}{}", "    ".repeat(depth), entry.label);
        let words = match &entry.content {
            EntryContent::Value(value) => value.as_str(),
            EntryContent::Empty(words) => *words,
            EntryContent::Group(entries) => {
                let _ = writeln!(out, "{heading}");
                add_text(out, entries, depth + 1);
                continue;
            }
        };
        let _ = writeln!(out, "{heading:<COLON$}: {words}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The values of one GPU, in the order of `nvidia-smi`.
fn entries(gpu: &GpuStatus) -> Vec<Entry> {
    vec![
        value("product_name", "Product Name", shown(gpu.name.as_ref())),
        value(
            "product_architecture",
            "Product Architecture",
            architecture(gpu),
        ),
        value("display_active", "Display Active", "Disabled"),
        value("persistence_mode", "Persistence Mode", "Disabled"),
        group(
            "mig_mode",
            "MIG Mode",
            vec![
                unknown("current_mig", "Current"),
                unknown("pending_mig", "Pending"),
            ],
        ),
        unknown("accounting_mode", "Accounting Mode"),
        unknown("serial", "Serial Number"),
        value("uuid", "GPU UUID", shown(gpu.uuid.as_ref())),
        value("minor_number", "Minor Number", shown(gpu.minor_number)),
        unknown("vbios_version", "VBIOS Version"),
        group("pci", "PCI", pci(gpu)),
        unknown("fan_speed", "Fan Speed"),
        unknown("performance_state", "Performance State"),
        group("fb_memory_usage", "FB Memory Usage", memory(gpu)),
        value("compute_mode", "Compute Mode", "Default"),
        group(
            "utilization",
            "Utilization",
            vec![
                value("gpu_util", "GPU", with_unit(gpu.gpu_percent, "%")),
                value("memory_util", "Memory", with_unit(gpu.memory_percent, "%")),
                value(
                    "encoder_util",
                    "Encoder",
                    with_unit(gpu.encoder_percent, "%"),
                ),
                value(
                    "decoder_util",
                    "Decoder",
                    with_unit(gpu.decoder_percent, "%"),
                ),
            ],
        ),
        group(
            "ecc_mode",
            "ECC Mode",
            vec![
                unknown("current_ecc", "Current"),
                unknown("pending_ecc", "Pending"),
            ],
        ),
        group(
            "temperature",
            "Temperature",
            vec![
                value(
                    "gpu_temp",
                    "GPU Current Temp",
                    with_unit(gpu.temperature_celsius, "C"),
                ),
                unknown("memory_temp", "Memory Current Temp"),
            ],
        ),
        group("gpu_power_readings", "GPU Power Readings", power(gpu)),
        group("clocks", "Clocks", clocks(gpu.clocks)),
        group("max_clocks", "Max Clocks", clocks(gpu.max_clocks)),
        Entry {
            element: "processes",
            label: "Processes",
            content: EntryContent::Empty("None"),
        },
    ]
}

fn with_unit(value: Option<u32>, unit: &str) -> String {
    shown(value.map(|value| format!("{value} {unit}")))
}

fn architecture(gpu: &GpuStatus) -> &'static str {
    let version = gpu
        .compute_capability
        .map(|found| (found.major, found.minor));
    match version {
        Some((6, _)) => "Pascal",
        Some((7, 0)) => "Volta",
        Some((7, _)) => "Turing",
        Some((8, 9)) => "Ada Lovelace",
        Some((8, _)) => "Ampere",
        Some((9, _)) => "Hopper",
        Some((10..=12, _)) => "Blackwell",
        _ => NOT_KNOWN,
    }
}

fn pci(gpu: &GpuStatus) -> Vec<Entry> {
    let address = gpu.bus_id.as_deref().and_then(bus_address);
    let part = |place: usize, digits: usize| {
        let part = address.and_then(|address| address.get(place).copied());
        shown(part.map(|part| format!("{part:0digits$X}")))
    };
    vec![
        value("pci_bus", "Bus", part(1, 2)),
        value("pci_device", "Device", part(2, 2)),
        value("pci_domain", "Domain", part(0, 4)),
        value("pci_bus_id", "Bus Id", shown(gpu.bus_id.as_ref())),
    ]
}

fn memory(gpu: &GpuStatus) -> Vec<Entry> {
    let mib = |bytes: Option<Bytes>| {
        shown(bytes.map(|bytes| format!("{} MiB", bytes.get() / Bytes::MIB)))
    };
    let memory = gpu.memory;
    vec![
        value("total", "Total", mib(memory.map(|memory| memory.total))),
        value(
            "reserved",
            "Reserved",
            mib(memory.map(|memory| memory.reserved)),
        ),
        value("used", "Used", mib(memory.map(|memory| memory.used))),
        value("free", "Free", mib(memory.map(|memory| memory.free))),
    ]
}

fn power(gpu: &GpuStatus) -> Vec<Entry> {
    let draw = shown(
        gpu.power_milliwatts
            .map(|milliwatts| format!("{}.{:02} W", milliwatts / 1000, milliwatts % 1000 / 10)),
    );
    vec![
        unknown("power_state", "Power State"),
        value("average_power_draw", "Average Power Draw", draw.clone()),
        value("instant_power_draw", "Instantaneous Power Draw", draw),
        unknown("current_power_limit", "Current Power Limit"),
        unknown("requested_power_limit", "Requested Power Limit"),
        unknown("default_power_limit", "Default Power Limit"),
        unknown("min_power_limit", "Min Power Limit"),
        unknown("max_power_limit", "Max Power Limit"),
    ]
}

fn clocks(clocks: ClockStatus) -> Vec<Entry> {
    vec![
        value(
            "graphics_clock",
            "Graphics",
            with_unit(clocks.graphics, "MHz"),
        ),
        value("sm_clock", "SM", with_unit(clocks.sm, "MHz")),
        value("mem_clock", "Memory", with_unit(clocks.memory, "MHz")),
        unknown("video_clock", "Video"),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, printed, two_t4};
    use super::*;

    #[test]
    fn the_xml_has_the_elements_that_scripts_read() {
        let text = printed(&["-q", "-x"]).unwrap();
        assert!(text.starts_with("<?xml version=\"1.0\" ?>\n"));
        for part in [
            "\t<attached_gpus>2</attached_gpus>\n\t<gpu id=\"00000000:00:04.0\">\n\t\t<product_name>Tesla T4</product_name>\n",
            "\t\t<fb_memory_usage>\n\t\t\t<total>15360 MiB</total>\n\t\t\t<reserved>449 MiB</reserved>\n\t\t\t<used>1026 MiB</used>\n\t\t\t<free>13885 MiB</free>\n\t\t</fb_memory_usage>\n",
            "\t\t\t<gpu_util>0 %</gpu_util>\n",
            "\t\t\t<gpu_temp>0 C</gpu_temp>\n",
            "\t\t\t<instant_power_draw>0.00 W</instant_power_draw>\n",
            "\t\t<max_clocks>\n\t\t\t<graphics_clock>1590 MHz</graphics_clock>\n",
            "\t\t<processes>\n\t\t</processes>\n\t</gpu>\n\n</nvidia_smi_log>\n",
        ] {
            assert!(text.contains(part), "{part}\nin\n{text}");
        }
        let opened = text.matches('<').count() - text.matches("</").count() - 2;
        assert_eq!(opened, text.matches("</").count());
    }

    #[test]
    fn the_text_says_the_same() {
        let text = printed(&["-q", "-i", "1"]).unwrap();
        for part in [
            "Attached GPUs                             : 2\nGPU 00000000:00:05.0\n",
            "    Product Name                          : Tesla T4\n",
            "    FB Memory Usage\n        Total                             : 15360 MiB\n",
            "    Processes                             : None\n",
        ] {
            assert!(text.contains(part), "{part}\nin\n{text}");
        }
        assert!(!text.contains("00:04.0"));
    }

    #[test]
    fn names_are_escaped() {
        let mut status = two_t4();
        status.gpus[0].name = Some("<&>".into());
        let gpus: Vec<_> = status.gpus.iter().enumerate().collect();
        let text = document(&status, &gpus, NOW, true);
        assert!(text.contains("<product_name>&lt;&amp;&gt;</product_name>"));
    }

    #[test]
    fn what_is_missing_is_not_available() {
        let gpu = GpuStatus::default();
        let text = document(&DriverStatus::default(), &[(0, &gpu)], NOW, true);
        assert!(text.contains("<gpu id=\"N/A\">") && text.contains("<used>N/A</used>"));
    }
}
