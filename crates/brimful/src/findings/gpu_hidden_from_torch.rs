//! `CUDA_VISIBLE_DEVICES` hides every GPU.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{Gpu, Machine};

pub(super) const RULE: Rule = Rule {
    id: "gpu_hidden_from_torch",
    severity: Severity::Fatal,
    about: "The machine has GPUs, but `CUDA_VISIBLE_DEVICES` (or the equivalent for AMD) hides all of them from PyTorch: it is \
            empty, or lists an index that does not exist or a device twice. `torch.cuda.is_available()` returns false.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let (name, value) = machine.gpus.visible_devices_variable.as_ref()?;
    let devices = &machine.gpus.devices;
    let all_hidden = !devices.iter().any(Gpu::may_be_seen);
    if devices.is_empty() || !all_hidden {
        return None;
    }
    let shown: String = value.chars().take(60).collect();
    Some(Diagnosis {
        summary: format!("PyTorch will see no GPU: {name} is {shown:?}"),
        evidence: vec![
            format!(
                "the machine has {} GPU(s): {}",
                devices.len(),
                devices[0].label()
            ),
            format!("{name}={shown}"),
        ],
        remedies: vec![format!(
            "`unset {name}`, or list GPUs from 0 to {}",
            devices.len().saturating_sub(1)
        )],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet};

    const ID: &str = "gpu_hidden_from_torch";

    #[test]
    fn a_variable_that_hides_all() {
        check(
            ID,
            |m| {
                m.gpus.visible_devices_variable = Some(("CUDA_VISIBLE_DEVICES".into(), "3".into()));
                m.gpus.devices[0].torch_index = Fact::Known(None);
            },
            "CUDA_VISIBLE_DEVICES=3",
        );
        check_quiet(ID, |m| {
            m.gpus.visible_devices_variable = Some(("CUDA_VISIBLE_DEVICES".into(), "0".into()));
        });
    }
}
