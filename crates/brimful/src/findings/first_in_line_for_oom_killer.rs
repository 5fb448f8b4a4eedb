//! The kernel OOM killer picks this process first.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{Machine, PlatformName};

pub(super) const RULE: Rule = Rule {
    id: "first_in_line_for_oom_killer",
    severity: Severity::Note,
    about: "`oom_score_adj` is 300 or more. Editors and browsers set it for their child processes, and Kubernetes for \
            pods whose memory request is below their limit. If the machine runs out of memory, the kernel kills this \
            process before larger ones.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let score = *machine.host.oom_score_adj.known()?;
    (score >= 300).then(|| Diagnosis {
        summary: "the kernel OOM killer picks this process first, even if others use more memory"
            .into(),
        evidence: vec![format!("/proc/self/oom_score_adj is {score}")],
        remedies: vec![if machine.platform.is(PlatformName::Kubernetes) {
            "set the pod's memory request equal to its limit".into()
        } else {
            "start the run from a regular terminal, not from an editor's".into()
        }],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet};

    #[test]
    fn only_a_raised_score_counts() {
        check(
            "first_in_line_for_oom_killer",
            |m| m.host.oom_score_adj = Fact::Known(999),
            "999",
        );
        check_quiet("first_in_line_for_oom_killer", |m| {
            m.host.oom_score_adj = Fact::Known(200);
        });
        check_quiet("first_in_line_for_oom_killer", |m| {
            m.host.oom_score_adj = Fact::Known(-997);
        });
    }
}
