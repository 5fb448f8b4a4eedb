//! Multi-instance (MIG) mode: a process gets only a part of a GPU.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::Machine;

pub(super) const RULE: Rule = Rule {
    id: "gpu_split_into_instances",
    severity: Severity::Note,
    about: "A GPU is in multi-instance (MIG) mode. A process sees only one instance, with the memory of that \
            instance, not the whole GPU.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let (gpu, instances) = machine
        .gpus
        .devices
        .iter()
        .find_map(|gpu| Some((gpu, gpu.mig.known()?.as_ref()?)))?;
    let seen = instances
        .iter()
        .find(|instance| matches!(instance.torch_index.known(), Some(Some(_))));
    let what = match seen.and_then(|instance| instance.total.known()) {
        Some(total) => format!("PyTorch can use one instance of {total}"),
        None => "PyTorch can use at most one instance".into(),
    };
    Some(Diagnosis {
        summary: format!(
            "{} is split into {} instances; {what}",
            gpu.label(),
            instances.len()
        ),
        evidence: instances
            .iter()
            .take(8)
            .map(|instance| {
                format!(
                    "{}: {}",
                    instance.name.known().map_or("instance", String::as_str),
                    instance
                        .total
                        .known()
                        .map_or_else(|| "size unknown".into(), ToString::to_string),
                )
            })
            .chain([format!("multi-instance mode is on for {}", gpu.label())])
            .collect(),
        remedies: vec![
            "choose an instance with `CUDA_VISIBLE_DEVICES=MIG-…` (`nvidia-smi -L` lists them)"
                .into(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::check;
    use crate::machine::MigInstance;
    use crate::units::Bytes;

    #[test]
    fn the_instance_that_is_seen_gives_its_size() {
        let instance = |torch_index| MigInstance {
            uuid: Fact::Known("MIG-1".into()),
            name: Fact::Known("MIG 1g.5gb".into()),
            total: Fact::Known(Bytes::from_mib(4864)),
            used: Fact::Known(Bytes::ZERO),
            torch_index: Fact::Known(torch_index),
        };
        check(
            "gpu_split_into_instances",
            |m| m.gpus.devices[0].mig = Fact::Known(Some(vec![instance(None), instance(Some(0))])),
            "4.75 GiB",
        );
    }
}
