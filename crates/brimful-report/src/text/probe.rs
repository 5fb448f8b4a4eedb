//! The page of `brimful probe`.

use std::collections::BTreeMap;
use std::fmt::Write;

use brimful::fact::Fact;
use brimful::findings::{self, Finding, Severity};
use brimful::machine::{
    CpuLimiter, ExpectedIsolation, Gpu, IsolationSupport, LimitEffect, Machine, PlatformName,
    Rlimit, SubjectKind, Swap, TorchMemoryOrigin,
};
use brimful::units::Bytes;

use crate::json::ProbeDocument;
use crate::text::page::{Page, Role, width_of};

/// Where the text of a labelled line begins.
const COLUMN: usize = 14;

/// One page: the limits of the machine, then its problems, then the facts that are missing.
pub fn probe(machine: &Machine, page: &Page) -> String {
    let mut out = String::new();
    out.push_str(&title(machine, page));
    page.section(&mut out, "Host memory", &host(machine, page));
    page.section(&mut out, "Shared memory", &shm(machine, page));
    page.section(&mut out, "CPUs", &cpus(machine, page));
    page.section(&mut out, "GPUs", &gpus(machine, page));
    page.section(&mut out, "Python", &python(machine, page));
    page.section(&mut out, "Process limits", &process_limits(machine, page));
    page.section(&mut out, "Rehearsals", &isolation(machine, page));
    out.push_str(&bites(machine, page));
    out.push_str(&gaps(machine, page));
    page.section(&mut out, "Sources", &sources(machine, page));
    out
}

/// A labelled line, wrapped below its own text.
fn line(page: &Page, label: &str, text: &str) -> String {
    let padded = format!("  {label:<width$}", width = COLUMN - 2);
    page.hang(&page.paint(Role::Label, &padded), COLUMN, text)
}

fn title(machine: &Machine, page: &Page) -> String {
    let mut parts = Vec::new();
    match &machine.subject.kind {
        SubjectKind::ThisMachine => parts.push("This machine".to_owned()),
        SubjectKind::Profile { id, title } => parts.push(format!("{title} (profile {id})")),
    }
    if machine.subject.kind == SubjectKind::ThisMachine
        && machine.platform.name() != PlatformName::Plain
    {
        let layers: Vec<&str> = machine
            .platform
            .layers
            .iter()
            .map(|layer| layer.name.title())
            .collect();
        parts.push(layers.join(page.dot()));
    }
    if let Fact::Known(system) = &machine.platform.system {
        parts.push(system.clone());
    }
    let mut out = String::new();
    for wrapped in page.hang("", 0, &parts.join(page.dot())).lines() {
        out.push_str(&page.paint(Role::Strong, wrapped));
        out.push('\n');
    }
    for replaced in &machine.subject.replaced {
        out.push_str(&page.hang("", 0, &format!("with {replaced}")));
    }
    out
}

fn host(machine: &Machine, page: &Page) -> String {
    let host = &machine.host;
    let mut out = String::new();
    match host.brim() {
        Fact::Known(brim) => {
            if let Fact::Known(headroom) = brim.headroom {
                let spent = brim.limit.saturating_sub(headroom);
                let words = format!(" {spent} of {} used", brim.limit);
                let cells = page.width.saturating_sub(width_of(&words) + 2).clamp(4, 44);
                let share = spent.share_of(brim.limit);
                let role = match share {
                    share if share >= 0.9 => Role::Fatal,
                    share if share >= 0.7 => Role::Risk,
                    _ => Role::Command,
                };
                let bar = page.paint(role, &page.bar(share, cells));
                let _ = writeln!(out, "  {bar}{words}");
            }
            out.push_str(&line(
                page,
                "brim",
                &format!("{}, set by {}", brim.limit, brim.set_by),
            ));
            out.push_str(&line(page, "headroom", &headroom(machine, &brim.headroom)));
        }
        Fact::Missing(gap) => out.push_str(&line(page, "brim", &format!("unknown: {gap}"))),
    }
    let known: Vec<String> = [
        host.physical
            .known()
            .map(|bytes| format!("{bytes} physical")),
        host.available
            .known()
            .map(|bytes| format!("{bytes} available")),
        host.swap.known().map(swap),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !known.is_empty() {
        out.push_str(&line(page, "machine", &known.join(", ")));
    }
    let limits = host.limits();
    if limits.len() > 1 {
        for (idx, limit) in limits.iter().enumerate() {
            let left = match &limit.headroom {
                Fact::Known(left) => format!("{left} left"),
                Fact::Missing(_) => "headroom unknown".into(),
            };
            let effect = match limit.effect {
                LimitEffect::Kills => "",
                LimitEffect::Throttles => ", throttles only",
            };
            let label = if idx == 0 { "limits" } else { "" };
            out.push_str(&line(
                page,
                label,
                &format!("{}, {left}{effect}: {}", limit.bytes, limit.set_by),
            ));
        }
    }
    if let Some(job) = &machine.platform.slurm
        && let Fact::Known(request) = &job.memory_request
    {
        let request = request.map_or("the whole node".into(), |bytes| bytes.to_string());
        out.push_str(&line(
            page,
            "requested",
            &format!("{request} from Slurm (job {})", job.job_id),
        ));
    }
    if let Fact::Known(pressure) = &host.pressure
        && pressure.some_avg60 >= 0.1
    {
        out.push_str(&line(
            page,
            "pressure",
            &format!(
                "tasks stalled on memory for {:.1} % of the last minute",
                pressure.some_avg60
            ),
        ));
    }
    out
}

fn headroom(machine: &Machine, headroom: &Fact<Bytes>) -> String {
    match headroom {
        Fact::Known(left) => {
            let swap = match machine.host.swap_headroom() {
                Fact::Known(Bytes(0)) => ", no swap".into(),
                Fact::Known(swap) => format!(", then {swap} of swap"),
                Fact::Missing(_) => String::new(),
            };
            let freezes = machine
                .host
                .brim_group()
                .is_some_and(|group| group.oom_kill_disabled.known() == Some(&true));
            let end = if freezes { "suspends the run" } else { "kills" };
            format!("{left} until the kernel {end}{swap}")
        }
        Fact::Missing(gap) => format!("unknown: {gap}"),
    }
}

fn swap(swap: &Swap) -> String {
    if swap.total == Bytes::ZERO {
        "no swap".into()
    } else {
        format!("{} of {} swap free", swap.free, swap.total)
    }
}

fn shown(fact: &Fact<Bytes>) -> String {
    fact.known().map_or("unknown".into(), ToString::to_string)
}

fn shm(machine: &Machine, page: &Page) -> String {
    let shm = &machine.shm;
    let Fact::Known(total) = &shm.total else {
        return line(page, &shm.path, "unknown");
    };
    let free = match &shm.free {
        Fact::Known(free) => format!(", {free} free"),
        Fact::Missing(_) => String::new(),
    };
    let counts = match &shm.counts_against_brim {
        Fact::Known(true) => "; its contents count against the brim",
        Fact::Known(false) => "; does not count against the brim",
        Fact::Missing(_) => "",
    };
    line(page, &shm.path, &format!("{total}{free}{counts}"))
}

fn cpus(machine: &Machine, page: &Page) -> String {
    let text = match machine.cpus.usable() {
        Fact::Missing(gap) => format!("unknown: {gap}"),
        Fact::Known((usable, limiter)) => {
            let of = match machine.cpus.online.known() {
                Some(online) if f64::from(*online) > usable => format!(" of {online}"),
                _ => String::new(),
            };
            let by = match limiter {
                CpuLimiter::Machine => "",
                CpuLimiter::Affinity => ", limited by the affinity mask",
                CpuLimiter::Cpuset => ", limited by the cgroup cpuset",
                CpuLimiter::Quota => ", limited by the cgroup CPU quota",
            };
            format!("{}{of}{by}", (usable * 100.0).round() / 100.0)
        }
    };
    line(page, "usable", &text)
}

fn gpus(machine: &Machine, page: &Page) -> String {
    let gpus = &machine.gpus;
    let mut out: String = gpus
        .devices
        .iter()
        .enumerate()
        .map(|(idx, device)| gpu(idx, device, page))
        .collect();
    if gpus.devices.is_empty() {
        let why = match &gpus.complete {
            Fact::Known(()) => "none".into(),
            Fact::Missing(gap) if machine.subject.kind == SubjectKind::ThisMachine => {
                format!("none found: {gap}")
            }
            Fact::Missing(gap) => format!("unknown: {gap}"),
        };
        out.push_str(&page.hang("  ", 2, &why));
    }
    if let (Fact::Known(driver), Fact::Known((major, minor))) =
        (&gpus.driver_version, &gpus.driver_cuda)
    {
        out.push_str(&line(
            page,
            "driver",
            &format!("{driver}, supports CUDA up to {major}.{minor}"),
        ));
    }
    if let Some((name, value)) = &gpus.visible_devices_variable {
        out.push_str(&page.hang("  ", 2, &format!("{name}={value}")));
    }
    out
}

fn gpu(idx: usize, gpu: &Gpu, page: &Page) -> String {
    let mut about = vec![gpu.label().to_owned()];
    if let Fact::Known(capability) = &gpu.compute_capability {
        about.push(format!("compute capability {capability}"));
    }
    let mut out = page.hang(&format!("  {idx}  "), 5, &about.join(page.dot()));
    let mut sizes = Vec::new();
    match &gpu.torch_memory {
        Fact::Known(memory) => {
            let how = match memory.origin {
                TorchMemoryOrigin::Driver => String::new(),
                TorchMemoryOrigin::Catalogue { how } => format!(" ({how})"),
            };
            sizes.push(format!("torch sees {}{how}", memory.bytes));
        }
        Fact::Missing(_) => sizes.push("memory visible to torch unknown".into()),
    }
    sizes.push(format!("driver reports {}", shown(&gpu.total)));
    if let Fact::Known(used) = &gpu.used {
        sizes.push(format!("{used} in use"));
    }
    match &gpu.torch_index {
        Fact::Known(Some(index)) => sizes.push(format!("will be cuda:{index}")),
        Fact::Known(None) if gpu.mig.known().is_some_and(Option::is_some) => {}
        Fact::Known(None) => sizes.push("hidden from torch".into()),
        Fact::Missing(_) => sizes.push("torch index unknown".into()),
    }
    out.push_str(&page.hang("     ", 5, &sizes.join(", ")));
    for instance in gpu
        .mig
        .known()
        .and_then(Option::as_ref)
        .into_iter()
        .flatten()
    {
        let index = match instance.torch_index.known().copied().flatten() {
            Some(index) => format!(", will be cuda:{index}"),
            None => ", hidden from torch".into(),
        };
        let name = instance.name.known().map_or("instance", String::as_str);
        out.push_str(&page.hang(
            "     ",
            5,
            &format!("{name}: {}{index}", shown(&instance.total)),
        ));
    }
    out
}

fn python(machine: &Machine, page: &Page) -> String {
    let mut out = String::new();
    match &machine.python {
        Fact::Missing(_) if machine.subject.kind != SubjectKind::ThisMachine => return out,
        Fact::Missing(gap) => out.push_str(&page.hang("  ", 2, &format!("unknown: {gap}"))),
        Fact::Known(python) => {
            let version = match &python.version {
                Fact::Known(version) => version.to_string(),
                Fact::Missing(_) => "python".into(),
            };
            out.push_str(&line(
                page,
                &version,
                &format!("{} ({})", python.executable, python.found_by),
            ));
            let torch = match &python.torch {
                Fact::Known(torch) => match &torch.accelerator {
                    Fact::Known(accelerator) => format!("{} ({accelerator})", torch.version_text),
                    Fact::Missing(_) => torch.version_text.clone(),
                },
                Fact::Missing(gap) => format!("none: {gap}"),
            };
            out.push_str(&line(page, "torch", &torch));
        }
    }
    for variable in &machine.allocator_variables {
        let read = match &variable.read_by_torch {
            Fact::Known(true) => "",
            Fact::Known(false) => " (not read by this torch)",
            Fact::Missing(_) => " (unknown whether torch reads it)",
        };
        out.push_str(&page.hang(
            "  ",
            2,
            &format!("{}={}{read}", variable.name, variable.value),
        ));
    }
    out
}

fn process_limits(machine: &Machine, page: &Page) -> String {
    let limits = &machine.process_limits;
    let count = |name: &str, fact: &Fact<Rlimit>| {
        fact.known().map(|limit| match limit {
            Rlimit::Unlimited => format!("{name} unlimited"),
            Rlimit::Finite(value) => format!("{name} {value}"),
        })
    };
    let size = |name: &str, fact: &Fact<Rlimit>| {
        fact.known().map(|limit| match limit {
            Rlimit::Unlimited => format!("{name} unlimited"),
            Rlimit::Finite(value) => format!("{name} {}", Bytes(*value)),
        })
    };
    let known: Vec<String> = [
        count("open files", &limits.open_files),
        size("address space", &limits.address_space),
        size("data", &limits.data),
        size("locked memory", &limits.locked_memory),
        limits
            .max_map_count
            .known()
            .map(|count| format!("memory mappings {count}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if known.is_empty() {
        return String::new();
    }
    page.hang("  ", 2, &known.join(page.dot()))
}

/// One line; the first obstacle is enough there, and the finding and the JSON name all.
fn isolation(machine: &Machine, page: &Page) -> String {
    if machine.subject.kind != SubjectKind::ThisMachine && machine.isolation.gap().is_some() {
        return String::new();
    }
    let expected = machine
        .isolation
        .as_ref()
        .and_then(IsolationSupport::expected);
    let text = match expected {
        Fact::Known(expected) => {
            let why = match &expected {
                ExpectedIsolation::Overlay(privilege) => privilege.to_string(),
                ExpectedIsolation::Redirect { obstacles } => obstacles
                    .first()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
                ExpectedIsolation::None { .. } => "rehearsals need --allow-writes".into(),
            };
            format!("{} expected: {why}", expected.name())
        }
        Fact::Missing(gap) => format!("unknown: {gap}"),
    };
    line(page, "isolation", &text)
}

fn bites(machine: &Machine, page: &Page) -> String {
    let found = findings::of(machine);
    let mut out = String::from("\n");
    if found.is_empty() {
        let unknown = ProbeDocument::of(machine).gaps.len();
        let words = match unknown {
            0 => "Problems: none found".to_owned(),
            _ => format!("Problems: none found ({unknown} values are unknown)"),
        };
        for wrapped in page.hang("", 0, &words).lines() {
            out.push_str(&page.paint(Role::Heading, wrapped));
            out.push('\n');
        }
        return out;
    }
    out.push_str(&page.paint(Role::Heading, &format!("Problems ({})", found.len())));
    out.push('\n');
    for (idx, finding) in found.iter().enumerate() {
        if idx > 0 {
            out.push('\n');
        }
        out.push_str(&bite(finding, page));
    }
    out
}

fn bite(finding: &Finding, page: &Page) -> String {
    let role = match finding.severity {
        Severity::Fatal => Role::Fatal,
        Severity::Risk => Role::Risk,
        Severity::Note => Role::Note,
    };
    let severity = format!("  {:<5}  ", finding.severity.name());
    let mut out = String::new();
    let summary = page.hang(&page.paint(role, &severity), 9, &finding.summary);
    out.push_str(&page.commands(&summary));
    for (idx, evidence) in finding.evidence.iter().enumerate() {
        let lead = if idx == 0 {
            "         why  "
        } else {
            "              "
        };
        out.push_str(&page.hang(&page.paint(Role::Label, lead), COLUMN, evidence));
    }
    for (idx, remedy) in finding.remedies.iter().enumerate() {
        let lead = if idx == 0 {
            "         fix  "
        } else {
            "         or   "
        };
        let text = page.hang(&page.paint(Role::Label, lead), COLUMN, remedy);
        out.push_str(&page.commands(&text));
    }
    let id = page.hang("         ", 9, &format!("[{}]", finding.id));
    out.push_str(&page.paint(Role::Label, id.trim_end()));
    out.push('\n');
    out
}

/// Facts that are missing, gathered by their reason.
fn gaps(machine: &Machine, page: &Page) -> String {
    let document = ProbeDocument::of(machine);
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for gap in &document.gaps {
        by_reason.entry(&gap.reason).or_default().push(&gap.path);
    }
    if by_reason.is_empty() {
        return String::new();
    }
    let mut body = String::new();
    for (reason, paths) in by_reason {
        const MOST: usize = 4;
        let more = paths.len().saturating_sub(MOST);
        let mut shown = paths[..paths.len().min(MOST)].join(", ");
        if more > 0 {
            let _ = write!(shown, " and {more} more");
        }
        body.push_str(&page.hang("  ", 2, &format!("{reason}: {shown}")));
    }
    let mut out = String::new();
    page.section(
        &mut out,
        &format!("Unknown ({}; --json lists each)", document.gaps.len()),
        &body,
    );
    out
}

fn sources(machine: &Machine, page: &Page) -> String {
    machine
        .subject
        .sources
        .iter()
        .map(|source| page.hang("  ", 2, source))
        .collect()
}
