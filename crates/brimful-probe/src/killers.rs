//! Programs in user space that kill when memory is short.

use brimful::fact::Fact;
use brimful::machine::{Killer, KillerKind, Platform};

use crate::files::Files;

/// More processes than this are not looked through: a probe stays cheap on a busy login node.
const MAX_PROCESSES: usize = 32_768;

pub(crate) fn read(files: &Files, platform: &Platform) -> Fact<Vec<Killer>> {
    let found = files.names("/proc", MAX_PROCESSES).map(|names| {
        names
            .iter()
            .filter_map(|name| name.parse::<u32>().ok())
            .filter_map(|pid| killer(files, pid))
            .collect::<Vec<Killer>>()
    });
    if platform.is_container() && found.known().is_none_or(Vec::is_empty) {
        return Fact::unavailable("the host's processes cannot be seen from inside a container");
    }
    found
}

fn killer(files: &Files, pid: u32) -> Option<Killer> {
    let name = files.text_up_to(&format!("/proc/{pid}/comm"), 64);
    let name = name.known()?.trim();
    let (_, kind) = KillerKind::ALL
        .into_iter()
        .find(|(known, _)| *known == name)?;
    let arguments = files
        .text_up_to(&format!("/proc/{pid}/cmdline"), 4096)
        .known()
        .map(|text| {
            text.split('\0')
                .skip(1)
                .filter(|part| !part.is_empty())
                .map(Into::into)
                .collect()
        })
        .unwrap_or_default();
    Some(Killer {
        kind,
        pid,
        arguments,
    })
}
