//! A whole machine whose files hold anything: read, judged and shown in every form.
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use brimful_probe::{Environment, Surroundings, probe};
use brimful_report::{html, json, text};
use tempfile::TempDir;

/// The files, in the order in which the input's parts are dealt to them.
const FILES: &[&str] = &[
    "/proc/self/cgroup",
    "/proc/self/mountinfo",
    "/proc/meminfo",
    "/proc/self/limits",
    "/proc/self/status",
    "/proc/pressure/memory",
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory.current",
    "/sys/fs/cgroup/memory.stat",
    "/sys/fs/cgroup/cpu.max",
    "/sys/devices/system/cpu/online",
    "/sys/class/kfd/kfd/topology/nodes/1/properties",
    "/x/bin/python",
    "/x/pyvenv.cfg",
    "/etc/os-release",
    "/proc/filesystems",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/user/max_user_namespaces",
    "/proc/self/attr/apparmor/current",
    "/sys/module/apparmor/parameters/enabled",
];

static ROOT: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().expect("a temporary folder"));

fn write(root: &Path, path: &str, content: &[u8]) {
    let target = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(target.parent().expect("a folder")).expect("writable");
    fs::write(target, content).expect("writable");
}

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let mut parts = data.split(|byte| *byte == 0xFF);
    for path in FILES {
        write(ROOT.path(), path, parts.next().unwrap_or_default());
    }
    let variable = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let env: Environment = [
        "CUDA_VISIBLE_DEVICES",
        "PYTORCH_CUDA_ALLOC_CONF",
        "SLURM_JOB_ID",
        "SLURM_MEM_PER_NODE",
    ]
    .into_iter()
    .map(|name| (name.to_owned(), variable.clone()))
    .chain([("PATH".to_owned(), "/x/bin".to_owned())])
    .collect();
    let machine = probe(&Surroundings::recorded(ROOT.path(), env));
    let page = text::probe(&machine, &text::Page::plain(80));
    assert!(
        !page.contains('\u{1b}'),
        "no escape of the machine's reaches the terminal"
    );
    let card = html::probe(&machine).expect("a card");
    assert!(
        !card.contains("<script"),
        "no markup of the machine's reaches a notebook"
    );
    json::to_text(&json::ProbeDocument::of(&machine)).expect("a document");
}
