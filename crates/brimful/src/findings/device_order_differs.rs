//! `cuda:0` may not be the card that `nvidia-smi` calls 0.

use crate::findings::{Rule, Severity, Told};
use crate::machine::{Gpu, GpuVendor, Machine};

pub(super) const RULE: Rule = Rule {
    id: "device_order_differs",
    severity: Severity::Note,
    about: "Different NVIDIA cards are here and CUDA_DEVICE_ORDER is not PCI_BUS_ID: CUDA numbers the fastest first, \
            `nvidia-smi` by slot. A memory figure read off one may belong to the other card.",
    check,
};

fn check(machine: &Machine) -> Option<Told> {
    let unordered = machine
        .gpus
        .devices
        .iter()
        .filter(|gpu| gpu.vendor == GpuVendor::Nvidia)
        .any(|gpu| gpu.torch_index.gap().is_some());
    let names: Vec<&str> = machine.gpus.devices.iter().map(Gpu::label).collect();
    // The number may be unknown for other reasons, such as a card that is split into instances beside a whole one.
    let differ = names.iter().any(|name| *name != names[0]);
    if !unordered || !differ {
        return None;
    }
    Some(Told {
        summary: "cuda:0 may be another card than GPU 0 of nvidia-smi".into(),
        evidence: vec![format!("different cards: {}", names.join(", "))],
        remedies: vec!["`export CUDA_DEVICE_ORDER=PCI_BUS_ID`".into()],
    })
}

#[cfg(test)]
mod tests {
    use crate::cards;
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet};

    const ID: &str = "device_order_differs";

    #[test]
    fn an_unknown_order_of_different_cards_is_said() {
        let unknown = || Fact::unavailable("order unknown");
        check(
            ID,
            |m| {
                m.gpus.devices[0].torch_index = unknown();
                m.gpus
                    .devices
                    .push(cards::find("t4").unwrap().as_gpu(unknown()));
            },
            "PCI_BUS_ID",
        );
        check_quiet(ID, |m| m.gpus.devices[0].torch_index = unknown());
    }
}
