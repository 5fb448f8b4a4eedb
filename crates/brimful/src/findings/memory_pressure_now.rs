//! The machine is already short of memory.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "memory_pressure_now",
    severity: Severity::Risk,
    about: "Tasks were stalled on memory for more than 5 % of the last minute. Other processes use most of the memory, \
            or the machine is swapping.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let pressure = machine.host.pressure.known()?;
    (pressure.some_avg60 > 5.0).then(|| Diagnosis {
        summary: "the machine is already short of memory".into(),
        evidence: vec![format!(
            "/proc/pressure/memory: some tasks were stalled for {:.1} % of the last minute, all tasks for {:.1} %",
            pressure.some_avg60, pressure.full_avg60
        )],
        remedies: vec!["find the processes that use the most memory: `ps -eo pid,rss,comm --sort=-rss | head`".into()],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::check;
    use crate::machine::Pressure;

    #[test]
    fn waiting_is_said_with_its_share() {
        let pressure = Pressure {
            some_avg10: 40.0,
            some_avg60: 23.5,
            full_avg10: 30.0,
            full_avg60: 11.0,
        };
        check(
            "memory_pressure_now",
            |m| m.host.pressure = Fact::Known(pressure),
            "23.5 %",
        );
    }
}
