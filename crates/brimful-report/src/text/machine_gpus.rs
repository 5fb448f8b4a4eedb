//! The GPUs of this machine, on the pages of `predict` and `compare`.

use brimful::printable::is_printable;
use brimful::units::Bytes;

use crate::json::{GpuProcess, GpusFrom, MachineGpu};
use crate::text::page::Page;

/// Processes that are named for each GPU.
const MAX_PROCESSES: usize = 4;

/// Adds a section: what is free on each GPU now, whether it is enough, and which processes hold the rest.
pub(super) fn section(out: &mut String, gpus: &[MachineGpu], page: &Page) {
    let lines: String = gpus.iter().map(|gpu| lines(gpu, page)).collect();
    page.section(out, "GPUs of this machine", &lines);
}

/// A line where usual models stand in for the machine's own.
pub(super) fn usual_line(from: &str, page: &Page) -> Option<String> {
    let line = "No GPU of this machine is in the catalogue, so these are usual ones. Choose others with `--gpu`.";
    (from == GpusFrom::Usual.id()).then(|| page.commands(&page.hang("  ", 2, line)))
}

fn lines(gpu: &MachineGpu, page: &Page) -> String {
    let free = match (gpu.free_bytes, gpu.total_bytes) {
        (Some(free), Some(total)) => format!("{} of {} free now", Bytes(free), Bytes(total)),
        (Some(free), None) => format!("{} free now", Bytes(free)),
        (None, _) => "free memory unknown".to_owned(),
    };
    let fits = match gpu.fits_now {
        Some(true) => ", enough for this run",
        Some(false) => ", not enough for this run",
        None => "",
    };
    let lead = format!("  {}  ", gpu.index);
    let mut out = page.hang(&lead, 5, &format!("{}: {free}{fits}", gpu.name));
    if let Some(held) = held(gpu) {
        out.push_str(&page.hang("     ", 5, &held));
    }
    out
}

/// What holds memory that is in use.
fn held(gpu: &MachineGpu) -> Option<String> {
    let used = gpu.used_bytes.filter(|used| *used >= Bytes::MIB);
    let mut processes: Vec<&GpuProcess> = gpu.processes.iter().flatten().collect();
    if processes.is_empty() {
        return used.map(|used| {
            format!(
                "{} is in use, by processes that are not visible here",
                Bytes(used)
            )
        });
    }
    processes.sort_by_key(|process| std::cmp::Reverse(process.used_bytes));
    let mut words: Vec<String> = processes
        .iter()
        .take(MAX_PROCESSES)
        .map(|it| held_by(it))
        .collect();
    if processes.len() > MAX_PROCESSES {
        words.push(format!("{} more", processes.len() - MAX_PROCESSES));
    }
    Some(format!("in use by {}", words.join(", ")))
}

fn held_by(process: &GpuProcess) -> String {
    let name = process.name.as_deref().unwrap_or("a process");
    let name: String = name.chars().filter(|c| is_printable(*c)).take(40).collect();
    match process.used_bytes {
        Some(used) => format!("{name} (PID {}): {}", process.pid, Bytes(used)),
        None => format!("{name} (PID {})", process.pid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t4(free_mib: u64, processes: Option<Vec<GpuProcess>>) -> MachineGpu {
        let total = Bytes::from_mib(14_912);
        let free = Bytes::from_mib(free_mib);
        MachineGpu {
            index: 0,
            name: "Tesla T4".into(),
            total_bytes: Some(total.get()),
            free_bytes: Some(free.get()),
            used_bytes: Some(total.saturating_sub(free).get()),
            processes,
            fits_now: None,
        }
    }

    fn process(pid: u32, name: Option<&str>, used_mib: Option<u64>) -> GpuProcess {
        GpuProcess {
            pid,
            name: name.map(Into::into),
            used_bytes: used_mib.map(|mib| Bytes::from_mib(mib).get()),
        }
    }

    fn shown(gpu: MachineGpu, need_mib: u64) -> String {
        let need = Bytes::from_mib(need_mib).get();
        let mut out = String::new();
        section(&mut out, &[gpu.with_need(Some(need))], &Page::plain(80));
        out
    }

    #[test]
    fn what_is_free_and_who_holds_the_rest() {
        let jupyter = process(4711, Some("python\u{1b}[2J"), Some(9000));
        let other = process(79, None, None);
        let text = shown(t4(5912, Some(vec![other, jupyter])), 6000);
        assert!(
            text.ends_with(
                "  0  Tesla T4: 5.77 GiB of 14.56 GiB free now, not enough for this run\n     \
                 in use by python[2J (PID 4711): 8.79 GiB, a process (PID 79)\n"
            ),
            "{text}"
        );
        let text = shown(t4(14_912, Some(Vec::new())), 6000);
        assert!(
            text.ends_with("14.56 GiB of 14.56 GiB free now, enough for this run\n"),
            "{text}"
        );
    }

    #[test]
    fn processes_that_are_not_visible_are_not_named() {
        for processes in [None, Some(Vec::new())] {
            let text = shown(t4(5912, processes), 6000);
            assert!(
                text.contains("8.79 GiB is in use, by processes that are not visible here"),
                "{text}"
            );
        }
        let many = (0..7)
            .map(|pid| process(pid, Some("python"), Some(100)))
            .collect();
        assert!(
            shown(t4(14_212, Some(many)), 1)
                .replace("\n     ", " ")
                .ends_with(", 3 more\n")
        );
    }

    #[test]
    fn what_is_not_known_is_not_claimed() {
        let unknown = MachineGpu {
            free_bytes: None,
            used_bytes: None,
            ..t4(0, None)
        };
        assert!(shown(unknown, 6000).ends_with("  0  Tesla T4: free memory unknown\n"));
    }

    #[test]
    fn usual_models_are_said_to_be_usual() {
        let page = Page::plain(80);
        assert!(usual_line("usual", &page).unwrap().contains("`--gpu`"));
        assert_eq!(usual_line("machine", &page), None);
    }
}
