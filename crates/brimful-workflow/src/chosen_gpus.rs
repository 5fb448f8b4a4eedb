//! The GPUs of this machine that a run is to use.

use brimful::cards::Card;
use brimful::machine::{Gpu, GpuVendor, Machine};
use brimful::units::Bytes;

use crate::gpus::{counted, nvidia_card};
use crate::idle::{GpuBusy, use_before};
use crate::verify_error::VerifyError;

/// The GPUs of a run: their place among the machine's devices, in the order in which the script sees them.
#[derive(Debug)]
pub(crate) struct ChosenGpus {
    /// The number by which PyTorch knows each, and its place.
    pub(crate) places: Vec<(u32, usize)>,
    pub(crate) card: &'static Card,
}

impl ChosenGpus {
    pub(crate) fn of(machine: &Machine, indexes: &[u32]) -> Result<ChosenGpus, VerifyError> {
        let devices = &machine.gpus.devices;
        let numbered = |gpu: &Gpu| gpu.torch_index.known().copied().flatten();
        let is_seen = |gpu: &Gpu| gpu.vendor == GpuVendor::Nvidia && gpu.may_be_seen();
        let found = devices.iter().filter(|gpu| is_seen(gpu)).count();
        if found == 0 {
            let reason = machine.gpus.complete.gap().map(ToString::to_string);
            return Err(VerifyError::NoGpu { reason });
        }
        let mut chosen: Option<&'static Card> = None;
        let mut places = Vec::new();
        for &index in indexes {
            // With one GPU there is one answer, also where its number is not known.
            let is_only = |gpu: &Gpu| is_seen(gpu) && found == 1 && index == 0;
            let place = devices
                .iter()
                .position(|gpu| is_seen(gpu) && numbered(gpu) == Some(index))
                .or_else(|| devices.iter().position(is_only))
                .ok_or_else(|| not_found(devices, index, found))?;
            let gpu = &devices[place];
            if gpu.mig.known().is_some_and(Option::is_some) {
                return Err(VerifyError::Mig { index });
            }
            let card = nvidia_card(gpu.label(), gpu.total.known().copied()).ok_or_else(|| {
                VerifyError::UnknownModel {
                    name: gpu.label().to_owned(),
                }
            })?;
            if chosen
                .replace(card)
                .is_some_and(|other| other.id != card.id)
            {
                return Err(VerifyError::DifferentModels);
            }
            if !places.contains(&(index, place)) {
                places.push((index, place));
            }
        }
        let card = chosen.ok_or(VerifyError::NoSuchGpu { index: 0, found })?;
        Ok(ChosenGpus { places, card })
    }

    /// As `predict` is asked for them.
    pub(crate) fn as_request(&self) -> String {
        counted(self.card, self.places.len())
    }

    /// As `CUDA_VISIBLE_DEVICES` names them: by UUID, which no order of devices changes. Without one, as that variable
    /// does so far.
    pub(crate) fn as_variable(&self, machine: &Machine) -> String {
        let so_far = machine.gpus.visible_devices_variable.as_ref();
        let entry = |index: u32| {
            let (_, value) = so_far?;
            let name = value.split(',').nth(index as usize)?;
            Some(name.trim().to_owned())
        };
        let names = self.gpus(machine).map(|(index, gpu)| {
            let uuid = gpu.and_then(|gpu| gpu.uuid.known().cloned());
            uuid.or_else(|| entry(index))
                .unwrap_or_else(|| index.to_string())
        });
        names.collect::<Vec<_>>().join(",")
    }

    pub(crate) fn label(&self, machine: &Machine) -> String {
        let names = self.gpus(machine).map(|(index, gpu)| {
            format!("GPU {index} ({})", gpu.map_or(self.card.name, Gpu::label))
        });
        names.collect::<Vec<_>>().join(" and ")
    }

    fn gpus<'a>(&self, machine: &'a Machine) -> impl Iterator<Item = (u32, Option<&'a Gpu>)> {
        self.places
            .iter()
            .map(|(index, place)| (*index, machine.gpus.devices.get(*place)))
    }

    /// What is in use on each, in sentences, if that does not forbid a measurement.
    pub(crate) fn check(
        &self,
        machine: &Machine,
        needed: Option<Bytes>,
    ) -> Result<Vec<String>, GpuBusy> {
        let mut notes = Vec::new();
        for (index, gpu) in self.gpus(machine) {
            if let Some(gpu) = gpu {
                notes.extend(use_before(index, gpu, needed)?);
            }
        }
        Ok(notes)
    }
}

/// Different models may be numbered in any order.
fn not_found(devices: &[Gpu], index: u32, found: usize) -> VerifyError {
    if devices.iter().any(|gpu| gpu.torch_index.known().is_none()) {
        VerifyError::UnknownOrder
    } else {
        VerifyError::NoSuchGpu { index, found }
    }
}

#[cfg(test)]
mod tests {
    use brimful::cards;
    use brimful::fact::Fact;

    use super::*;

    fn machine(cards: &str) -> Machine {
        let colab = brimful::profiles::find("colab-t4").expect("a profile");
        let cards = cards::find_all(cards).expect("GPUs of the catalogue");
        colab.machine().with_cards(&cards)
    }

    #[test]
    fn gpus_are_chosen_by_pytorchs_numbers() {
        let two = machine("2x t4");
        let chosen = ChosenGpus::of(&two, &[1]).expect("there are two");
        assert_eq!(chosen.as_request(), "t4");
        assert_eq!(chosen.places, [(1, 1)]);
        let both = ChosenGpus::of(&two, &[0, 1]).expect("there are two");
        assert_eq!(both.as_request(), "2x t4");
        assert_eq!(both.as_variable(&two), "0,1");
        let mut hidden = machine("2x t4");
        hidden.gpus.devices[0].torch_index = Fact::Known(None);
        hidden.gpus.devices[1].torch_index = Fact::Known(Some(0));
        hidden.gpus.devices[1].uuid = Fact::Known("GPU-7".into());
        let visible = ChosenGpus::of(&hidden, &[0]).expect("one is visible");
        assert_eq!(visible.places, [(0, 1)]);
        assert_eq!(visible.as_variable(&hidden), "GPU-7");
    }

    #[test]
    fn what_cannot_be_verified_is_refused() {
        let error = |machine: &Machine, indexes: &[u32]| {
            ChosenGpus::of(machine, indexes)
                .expect_err("refused")
                .to_string()
        };
        assert!(error(&machine("2x t4"), &[2]).contains("no GPU 2; PyTorch sees 2"));
        let mut two = machine("t4 + l4");
        assert!(error(&two, &[0]).contains("does not say which of them"));
        for (place, gpu) in two.gpus.devices.iter_mut().enumerate() {
            gpu.torch_index = Fact::Known(u32::try_from(place).ok());
        }
        assert!(error(&two, &[0, 1]).contains("different models"));
        let mut unknown = machine("t4");
        unknown.gpus.devices[0].name = Fact::Known("NVIDIA Something".into());
        assert!(error(&unknown, &[0]).contains("`NVIDIA Something` is not in"));
        unknown.gpus.devices[0].mig = Fact::Known(Some(Vec::new()));
        assert!(error(&unknown, &[0]).contains("MIG"));
        unknown.gpus.devices.clear();
        assert!(error(&unknown, &[0]).contains("no NVIDIA GPU"));
    }
}
