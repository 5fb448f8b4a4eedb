//! The installed wheel has no kernels for this card.

use crate::findings::{Rule, Severity, Told};
use crate::kernels;
use crate::machine::{ComputeCapability, Machine, PlatformName};

pub(super) const RULE: Rule = Rule {
    id: "no_kernels_for_card",
    severity: Severity::Fatal,
    about: "The official build of the installed torch carries no kernels for this card's compute capability: \
            everything imports and the GPU is seen, then the first operation fails with \"no kernel image is \
            available\". So it is with Pascal cards (P100, GTX 10) and current wheels, and with new cards and \
            old wheels. Without a torch to look at, cards that the newest default wheels left behind are named.",
    check,
};

/// What the default wheels of torch 2.11 to 2.15 are built for starts here.
const OLDEST_IN_CURRENT_WHEELS: (u32, u32) = (7, 5);

fn check(machine: &Machine) -> Option<Told> {
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
            return Some(Told {
                summary: format!("current torch wheels have no kernels for {}", gpu.label()),
                evidence: vec![
                    format!("{} has compute capability {card}", gpu.label()),
                    format!(
                        "the default wheels of torch 2.11 to 2.15 start at {}.{}",
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
        return Some(Told {
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
        "install the CUDA 12.6 build of torch (2.6 to 2.14 have one): it goes back to compute capability 5.0".into()
    } else {
        "install a newer torch: builds for CUDA 12.8 or later have kernels for the newest cards".into()
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
