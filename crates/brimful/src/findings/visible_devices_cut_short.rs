//! `CUDA_VISIBLE_DEVICES` lists a GPU that does not exist, so that later entries are ignored.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{Gpu, Machine};

pub(super) const RULE: Rule = Rule {
    id: "visible_devices_cut_short",
    severity: Severity::Risk,
    about: "CUDA stops at the first entry that does not exist and silently ignores the rest: with two GPUs, `0,7,1` \
            selects only one. A run with two ranks then fails on the second rank.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let (name, value) = machine.gpus.visible_devices_variable.as_ref()?;
    let end_at = machine.gpus.visible_devices_end_at.as_ref()?;
    // Where nothing is left at all, `gpu_hidden_from_torch` has said it.
    let seen = machine
        .gpus
        .devices
        .iter()
        .filter(|gpu| gpu.may_be_seen())
        .count();
    if seen == 0 {
        return None;
    }
    let noun = if seen == 1 { "GPU" } else { "GPUs" };
    let shown: String = value.chars().take(60).collect();
    let here: Vec<&str> = machine.gpus.devices.iter().map(Gpu::label).collect();
    Some(Diagnosis {
        summary: format!(
            "{name} lists {end_at:?}, which does not exist: torch ignores it and all later entries, and sees {seen} {noun}"
        ),
        evidence: vec![
            format!("{name}={shown}"),
            format!("GPUs: {}", here.join(", ")),
        ],
        remedies: vec![format!(
            "remove the entry; the highest GPU index is {}",
            here.len().saturating_sub(1)
        )],
    })
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::{check, check_quiet};

    const ID: &str = "visible_devices_cut_short";

    #[test]
    fn an_index_too_many() {
        check(
            ID,
            |m| {
                m.gpus.visible_devices_variable =
                    Some(("CUDA_VISIBLE_DEVICES".into(), "0,1".into()));
                m.gpus.visible_devices_end_at = Some("1".into());
            },
            "highest GPU index is 0",
        );
        check_quiet(ID, |m| {
            m.gpus.visible_devices_variable = Some(("CUDA_VISIBLE_DEVICES".into(), "0".into()));
        });
    }
}
