//! The installed wheel has no kernels for this GPU.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::kernels;
use crate::machine::{ComputeCapability, Machine, PlatformName};

pub(super) const RULE: Rule = Rule {
    id: "no_kernels_for_card",
    severity: Severity::Fatal,
    about: "The official build of the installed torch has no kernels for the compute capability of this GPU: \
            torch imports and detects the GPU, then the first operation fails with \"no kernel image is \
            available\". This affects Pascal GPUs (P100, GTX 10) with current wheels, and new GPUs with \
            old wheels. If torch is not installed, the finding names GPUs that the newest default wheels do not support.",
    check,
};

/// The lowest compute capability that the default wheels of torch 2.11 to 2.15 support.
const OLDEST_IN_CURRENT_WHEELS: (u32, u32) = (7, 5);

fn check(machine: &Machine) -> Option<Diagnosis> {
    let torch = machine
        .python
        .known()
        .and_then(|python| python.torch.known());
    for gpu in machine.gpus.devices.iter().filter(|gpu| gpu.may_be_seen()) {
        let Some(card) = gpu.compute_capability.known() else {
            continue;
        };
        let Some(torch) = torch else {
            let oldest = OLDEST_IN_CURRENT_WHEELS;
            if (card.major, card.minor) >= oldest {
                continue;
            }
            return Some(Diagnosis {
                summary: format!("current torch wheels have no kernels for {}", gpu.label()),
                evidence: vec![
                    format!("{} has compute capability {card}", gpu.label()),
                    format!(
                        "the default wheels of torch 2.11 to 2.15 require at least {}.{}",
                        oldest.0, oldest.1
                    ),
                ],
                remedies: remedies(machine, *card),
            });
        };
        let Some(built) = kernels::built_for(torch) else {
            continue;
        };
        if kernels::runs_on(&built, *card) {
            continue;
        }
        let list: Vec<String> = built.iter().map(ToString::to_string).collect();
        return Some(Diagnosis {
            summary: format!(
                "torch {} has no kernels for {}: the first operation on it fails",
                torch.version_text,
                gpu.label()
            ),
            evidence: vec![
                format!("{} has compute capability {card}", gpu.label()),
                format!("this build has kernels for {}", list.join(", ")),
            ],
            remedies: remedies(machine, *card),
        });
    }
    None
}

fn remedies(machine: &Machine, card: ComputeCapability) -> Vec<String> {
    let mut remedies = Vec::new();
    if machine.platform.is(PlatformName::Kaggle) {
        remedies.push("choose the accelerator \"GPU T4 x2\" in the notebook's settings".into());
    }
    let oldest = OLDEST_IN_CURRENT_WHEELS;
    remedies.push(if (card.major, card.minor) < oldest {
        "install a CUDA 12.6 build of torch (2.6 to 2.14), which supports compute capability 5.0 and later".into()
    } else {
        "install a newer torch; builds for CUDA 12.8 and later have kernels for the newest GPUs".into()
    });
    remedies
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet};
    use crate::machine::ComputeCapability;

    const ID: &str = "no_kernels_for_card";

    #[test]
    fn a_pascal_card_with_a_current_wheel() {
        check(
            ID,
            |m| m.gpus.devices[0].compute_capability = Fact::Known(ComputeCapability::new(6, 0)),
            "first operation",
        );
    }

    #[test]
    fn without_torch_only_what_every_wheel_left_behind() {
        check(
            ID,
            |m| {
                m.python = Fact::unavailable("none");
                m.gpus.devices[0].compute_capability = Fact::Known(ComputeCapability::new(6, 0));
            },
            "current torch wheels",
        );
        check_quiet(ID, |m| m.python = Fact::unavailable("none"));
    }
}
