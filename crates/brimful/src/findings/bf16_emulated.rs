//! bfloat16 that is not in the hardware.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "bf16_emulated",
    severity: Severity::Note,
    about: "GPUs below compute capability 8.0 have no bfloat16 units. `torch.cuda.is_bf16_supported()` still returns \
            true (torch 2.3 and later include emulation; 2.4 and later can exclude it), and training in bf16 is \
            slower than in fp32 (pytorch#148322).",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let (gpu, capability) = machine
        .gpus
        .devices
        .iter()
        .filter(|gpu| gpu.may_be_seen())
        .find_map(|gpu| {
            let capability = gpu.compute_capability.known()?;
            (capability.major < 8).then_some((gpu, capability))
        })?;
    Some(Diagnosis {
        summary: format!(
            "bf16 is emulated on {}: it is slow, although torch reports it as supported",
            gpu.label()
        ),
        evidence: vec![format!(
            "{} has compute capability {capability}; bfloat16 requires 8.0",
            gpu.label()
        )],
        remedies: vec![
            "use fp16 with a GradScaler (`--fp16`, `precision=\"16-mixed\"`)".into(),
            "check with `torch.cuda.is_bf16_supported(including_emulation=False)` (torch 2.4 and later)"
                .into(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use crate::cards;
    use crate::fact::Fact;
    use crate::findings::testing::check;

    #[test]
    fn the_t4_of_every_free_notebook() {
        check(
            "bf16_emulated",
            |m| m.gpus.devices[0] = cards::find("t4").unwrap().as_gpu(Fact::Known(Some(0))),
            "7.5",
        );
    }
}
