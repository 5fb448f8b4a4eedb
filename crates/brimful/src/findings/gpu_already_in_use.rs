//! Another process uses the GPU.

use crate::fact::Fact;
use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{Gpu, Machine};
use crate::units::Bytes;

pub(super) const RULE: Rule = Rule {
    id: "gpu_already_in_use",
    severity: Severity::Risk,
    about: "A GPU that PyTorch will see has more than 1 GiB or 10 % of its memory in use. Often the cause is an earlier \
            run of your own that is still alive, or a notebook kernel.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let busy: Vec<(&Gpu, Bytes, Bytes)> = machine
        .gpus
        .devices
        .iter()
        .filter(|gpu| gpu.may_be_seen())
        .filter_map(|gpu| {
            let used = *gpu.used.known()?;
            let total = *gpu.total.known()?;
            (used > Bytes::from_gib(1) || used.share_of(total) > 0.1).then_some((gpu, used, total))
        })
        .collect();
    let (first, used, total) = busy.first()?;
    let mut evidence = Vec::new();
    for (gpu, used, total) in &busy {
        evidence.push(format!("{}: {used} of {total} in use", gpu.label()));
        evidence.extend(processes(gpu, machine.platform.is_container()));
    }
    Some(Diagnosis {
        summary: format!("{used} of {total} on {} is already in use", first.label()),
        evidence,
        remedies: vec![
            "stop the process if it is yours; closing a notebook tab does not stop its kernel"
                .into(),
            "choose another GPU with `CUDA_VISIBLE_DEVICES`".into(),
        ],
    })
}

fn processes(gpu: &Gpu, in_container: bool) -> Vec<String> {
    // In a container another process may have the number here.
    let unseen = if in_container {
        "by the host's numbers; not visible here"
    } else {
        "not visible"
    };
    match &gpu.processes {
        Fact::Missing(gap) => vec![format!("the processes that use it are unknown: {gap}")],
        Fact::Known(processes) if processes.is_empty() => {
            vec!["the driver lists no process (in a container it may not)".into()]
        }
        Fact::Known(processes) => processes
            .iter()
            .take(5)
            .map(|process| {
                let name = process.name.known().map_or(unseen, String::as_str);
                match &process.used {
                    Fact::Known(used) => format!("process {} ({name}) holds {used}", process.pid),
                    Fact::Missing(_) => format!("process {} ({name}) uses it", process.pid),
                }
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::testing::{check, check_quiet};
    use crate::machine::{GpuProcess, Layer, PlatformName};

    const ID: &str = "gpu_already_in_use";

    #[test]
    fn the_holder_is_named() {
        check(
            ID,
            |m| {
                m.gpus.devices[0].used = Fact::Known(Bytes::from_gib(12));
                m.gpus.devices[0].processes = Fact::Known(vec![GpuProcess {
                    pid: 4711,
                    name: Fact::Known("python".into()),
                    used: Fact::Known(Bytes::from_gib(11)),
                }]);
            },
            "process 4711 (python) holds 11 GiB",
        );
    }

    #[test]
    fn a_number_of_the_host_is_not_taken_for_one_of_here() {
        check(
            ID,
            |m| {
                m.platform.layers.push(Layer {
                    name: PlatformName::Docker,
                    evidence: String::new(),
                });
                m.gpus.devices[0].used = Fact::Known(Bytes::from_gib(12));
                m.gpus.devices[0].processes = Fact::Known(vec![GpuProcess {
                    pid: 4711,
                    name: Fact::unavailable("not here"),
                    used: Fact::Known(Bytes::from_gib(11)),
                }]);
            },
            "process 4711 (by the host's numbers; not visible here) holds 11 GiB",
        );
    }

    #[test]
    fn a_hidden_card_may_be_busy() {
        check_quiet(ID, |m| {
            m.gpus.devices[0].used = Fact::Known(Bytes::from_gib(12));
            m.gpus.devices[0].torch_index = Fact::Known(None);
        });
    }
}
