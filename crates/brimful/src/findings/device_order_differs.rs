//! `cuda:0` may not be GPU 0 of `nvidia-smi`.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{Gpu, GpuVendor, Machine};

pub(super) const RULE: Rule = Rule {
    id: "device_order_differs",
    severity: Severity::Note,
    about: "The machine has different NVIDIA GPUs and CUDA_DEVICE_ORDER is not PCI_BUS_ID: CUDA orders them fastest \
            first, `nvidia-smi` by PCI bus ID. A value that `nvidia-smi` shows for one may belong to the other.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let unordered = machine
        .gpus
        .devices
        .iter()
        .filter(|gpu| gpu.vendor == GpuVendor::Nvidia)
        .any(|gpu| gpu.torch_index.gap().is_some());
    let names: Vec<&str> = machine.gpus.devices.iter().map(Gpu::label).collect();
    // The number may be unknown for other reasons, such as a GPU in MIG mode next to one that is not.
    let differ = names.iter().any(|name| *name != names[0]);
    if !unordered || !differ {
        return None;
    }
    Some(Diagnosis {
        summary: "cuda:0 may not be GPU 0 of nvidia-smi".into(),
        evidence: vec![format!("the GPUs differ: {}", names.join(", "))],
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
