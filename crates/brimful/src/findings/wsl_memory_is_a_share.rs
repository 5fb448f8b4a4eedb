//! WSL 2 gives Linux a part of the computer's memory.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{Machine, PlatformName};

pub(super) const RULE: Rule = Rule {
    id: "wsl_memory_is_a_share",
    severity: Severity::Note,
    about: "By default, WSL 2 gives Linux half of the computer's memory. GPU memory is shared with Windows \
            programs, whose usage is not reported separately.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    if !machine.platform.is(PlatformName::Wsl) {
        return None;
    }
    let physical = *machine.host.physical.known()?;
    Some(Diagnosis {
        summary: format!("WSL 2 provides {physical}, by default half of the computer's memory"),
        evidence: machine
            .platform
            .layers
            .iter()
            .filter(|layer| layer.name == PlatformName::Wsl)
            .map(|layer| layer.evidence.clone())
            .collect(),
        remedies: vec![
            "set `memory=` under `[wsl2]` in %UserProfile%\\.wslconfig, then `wsl --shutdown`"
                .into(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use crate::findings::testing::check;
    use crate::machine::{Layer, PlatformName};

    #[test]
    fn the_share_is_named() {
        let layer = Layer {
            name: PlatformName::Wsl,
            evidence: "/dev/dxg is there".into(),
        };
        check(
            "wsl_memory_is_a_share",
            |m| m.platform.layers.push(layer),
            ".wslconfig",
        );
    }
}
