//! The GPUs that an answer is about, if none are named: those of this machine, else the usual ones.

use brimful::cards::{self, Card};
use brimful::machine::{Gpu, GpuVendor, Gpus};
use brimful::units::Bytes;
use brimful_probe::Environment;
use brimful_rehearse::USUAL_CARDS;
use brimful_report::json::{GpusFrom, MachineGpu};

use crate::machine::{MachineRequest, describe_machine};

/// More GPUs of one machine than the phantom emulates.
const MAX_COUNT: usize = 16;

/// GPU models, and where they come from.
#[derive(Debug, PartialEq)]
pub(crate) struct GpuChoice {
    /// Alternatives with commas between them, such as `2x t4,l4`.
    pub(crate) models: String,
    pub(crate) from: GpusFrom,
    /// This machine's GPUs, where the models are theirs.
    pub(crate) of_machine: Vec<MachineGpu>,
}

impl GpuChoice {
    /// What the user named.
    pub(crate) fn requested(models: String) -> GpuChoice {
        GpuChoice {
            models,
            from: GpusFrom::Requested,
            of_machine: Vec::new(),
        }
    }

    /// The GPUs of this machine that torch may see, by these variables; the usual models if none of them is known.
    pub(crate) fn here(environment: Environment) -> GpuChoice {
        let request = MachineRequest {
            environment,
            ..MachineRequest::default()
        };
        let machine = describe_machine(request).ok();
        machine
            .and_then(|machine| GpuChoice::of(&machine.gpus))
            .unwrap_or_else(|| GpuChoice {
                models: USUAL_CARDS.to_owned(),
                from: GpusFrom::Usual,
                of_machine: Vec::new(),
            })
    }

    fn of(gpus: &Gpus) -> Option<GpuChoice> {
        let mut counts: Vec<(&'static Card, usize)> = Vec::new();
        let mut of_machine = Vec::new();
        for (index, gpu) in (0..).zip(&gpus.devices) {
            for (card, shown) in usable(index, gpu) {
                match counts.iter_mut().find(|(known, _)| known.id == card.id) {
                    Some((_, count)) => *count += 1,
                    None => counts.push((card, 1)),
                }
                of_machine.push(shown);
            }
        }
        let models: Vec<String> = counts
            .into_iter()
            .map(|(card, count)| counted(card, count.min(MAX_COUNT)))
            .collect();
        (!models.is_empty()).then(|| GpuChoice {
            models: models.join(","),
            from: GpusFrom::Machine,
            of_machine,
        })
    }
}

/// `t4`, or `2x t4` for several in one machine.
pub(crate) fn counted(card: &Card, count: usize) -> String {
    if count > 1 {
        format!("{count}x {}", card.id)
    } else {
        card.id.to_owned()
    }
}

/// The catalogue's model of an NVIDIA GPU.
pub(crate) fn nvidia_card(name: &str, total: Option<Bytes>) -> Option<&'static Card> {
    cards::by_product(name, total).filter(|card| card.compute_capability.is_some())
}

/// What a job can use of a GPU: all of it, or its instances where it is in MIG mode. Only models of the catalogue.
fn usable(index: u32, gpu: &Gpu) -> Vec<(&'static Card, MachineGpu)> {
    if gpu.vendor != GpuVendor::Nvidia {
        return Vec::new();
    }
    if let Some(instances) = gpu.mig.known().and_then(Option::as_ref) {
        let seen = instances
            .iter()
            .filter(|instance| instance.torch_index.known() != Some(&None));
        return seen
            .filter_map(|instance| {
                let card = nvidia_card(instance.name.known()?, instance.total.known().copied())?;
                Some((card, MachineGpu::of_instance(index, card.name, instance)))
            })
            .collect();
    }
    let card = gpu
        .name
        .known()
        .filter(|_| gpu.torch_index.known() != Some(&None))
        .and_then(|name| nvidia_card(name, gpu.total.known().copied()));
    card.map(|card| (card, MachineGpu::of(index, card.name, gpu)))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use brimful::fact::Fact;
    use brimful::machine::{GpuProcess, MigInstance};
    use brimful::profiles;

    use super::*;

    fn gpus(profile: &str) -> Gpus {
        profiles::find(profile).unwrap().machine().gpus
    }

    fn instance(name: &str, mib: u64, torch_index: Option<u32>) -> MigInstance {
        MigInstance {
            uuid: Fact::Known("MIG-1".into()),
            name: Fact::Known(name.into()),
            total: Fact::Known(Bytes::from_mib(mib)),
            used: Fact::Known(Bytes::from_mib(1000)),
            torch_index: Fact::Known(torch_index),
        }
    }

    #[test]
    fn gpus_of_one_model_are_counted() {
        let found = GpuChoice::of(&gpus("kaggle-t4x2")).unwrap();
        assert_eq!(
            (found.models.as_str(), found.from),
            ("2x t4", GpusFrom::Machine)
        );
        let indices: Vec<u32> = found.of_machine.iter().map(|gpu| gpu.index).collect();
        assert_eq!(indices, [0, 1]);
    }

    #[test]
    fn different_models_are_alternatives() {
        let mut all = gpus("colab-t4");
        all.devices.extend(gpus("colab-l4").devices);
        assert_eq!(GpuChoice::of(&all).unwrap().models, "t4,l4");
    }

    #[test]
    fn what_torch_cannot_see_is_left_out() {
        let mut hidden = gpus("kaggle-t4x2");
        hidden.devices[0].torch_index = Fact::Known(None);
        let found = GpuChoice::of(&hidden).unwrap();
        assert_eq!(found.models, "t4");
        assert_eq!(found.of_machine[0].index, 1);
        hidden.devices.truncate(1);
        assert_eq!(GpuChoice::of(&hidden), None);
    }

    #[test]
    fn what_is_in_no_catalogue_is_left_out() {
        let mut unknown = gpus("colab-t4");
        unknown.devices[0].name = Fact::Known("NVIDIA GeForce RTX 9999".into());
        assert_eq!(GpuChoice::of(&unknown), None);
        unknown.devices[0] = gpus("colab-t4").devices.remove(0);
        unknown.devices[0].vendor = GpuVendor::Amd;
        assert_eq!(GpuChoice::of(&unknown), None);
    }

    #[test]
    fn a_gpu_in_mig_mode_is_its_instances() {
        let mut split = gpus("colab-a100-80gb");
        let name = "NVIDIA A100-SXM4-80GB MIG 3g.40gb";
        let parts = vec![
            instance(name, 40_192, Some(0)),
            instance(name, 40_192, None),
        ];
        split.devices[0].mig = Fact::Known(Some(parts));
        let found = GpuChoice::of(&split).unwrap();
        assert_eq!(found.models, "a100-80gb-mig-3g.40gb");
        assert_eq!(found.of_machine.len(), 1);
        assert_eq!(
            found.of_machine[0].free_bytes,
            Some(Bytes::from_mib(39_192).get())
        );
        // The whole GPU cannot be used, also where no instance is known.
        split.devices[0].mig = Fact::Known(Some(vec![instance("unknown", 5000, Some(0))]));
        assert_eq!(GpuChoice::of(&split), None);
    }

    #[test]
    fn what_is_free_and_held_is_said_of_each() {
        let mut busy = gpus("colab-t4");
        busy.devices[0].used = Fact::Known(Bytes::from_mib(9000));
        busy.devices[0].processes = Fact::Known(vec![GpuProcess {
            pid: 4711,
            name: Fact::Known("python".into()),
            used: Fact::Known(Bytes::from_mib(8990)),
        }]);
        let found = GpuChoice::of(&busy).unwrap();
        let t4 = &found.of_machine[0];
        let free = busy.devices[0].free().unwrap();
        assert_eq!(t4.free_bytes, Some(free.get()));
        assert_eq!(t4.used_bytes, Some(Bytes::from_mib(9000).get()));
        let processes = t4.processes.as_ref().unwrap();
        assert_eq!(
            (processes[0].pid, processes[0].name.as_deref()),
            (4711, Some("python"))
        );
        assert_eq!(t4.clone().with_need(Some(free.get())).fits_now, Some(true));
        assert_eq!(
            t4.clone().with_need(Some(free.get() + 1)).fits_now,
            Some(false)
        );
    }
}
