//! `CUDA_VISIBLE_DEVICES` names a card that is not there, and what follows is lost.

use crate::findings::{Rule, Severity, Told};
use crate::machine::{Gpu, Machine};

pub(super) const RULE: Rule = Rule {
    id: "visible_devices_cut_short",
    severity: Severity::Risk,
    about: "CUDA reads the list up to the first entry that names no card, and leaves the rest out without a word: \
            `0,7,1` on a machine of two cards is one card. A run of two ranks then fails at the second.",
    check,
};

fn check(machine: &Machine) -> Option<Told> {
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
    let shown: String = value.chars().take(60).collect();
    let here: Vec<&str> = machine.gpus.devices.iter().map(Gpu::label).collect();
    Some(Told {
        summary: format!(
            "{name} names no card with {end_at:?}: torch sees {seen}, and what follows is left out"
        ),
        evidence: vec![
            format!("{name}={shown}"),
            format!("cards here: {}", here.join(", ")),
        ],
        remedies: vec![format!(
            "leave the entry out; the highest number here is {}",
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
            "highest number here is 0",
        );
        check_quiet(ID, |m| {
            m.gpus.visible_devices_variable = Some(("CUDA_VISIBLE_DEVICES".into(), "0".into()));
        });
    }
}
