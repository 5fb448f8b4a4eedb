//! One entry of the catalogue, and how each of its values is known.

use crate::fact::Fact;
use crate::machine::{
    ComputeCapability, DeviceIdentity, Gpu, GpuVendor, TorchMemory, TorchMemoryOrigin,
};
use crate::units::Bytes;

/// One kind of GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    pub id: &'static str,
    /// The product name as the driver prints it.
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub vendor: GpuVendor,
    pub architecture: &'static str,
    /// NVIDIA's generation number; AMD has none.
    pub compute_capability: Option<ComputeCapability>,
    pub multiprocessors: SourcedValue<u32>,
    /// What the driver's management library says the card has.
    pub total: SourcedValue<Bytes>,
    /// What PyTorch reports as the card's total.
    pub torch_visible: SourcedValue<Bytes>,
}

/// A number, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcedValue<T> {
    pub value: T,
    pub how: How,
    pub source: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Measured,
    DataSheet,
    Estimated,
}

impl Card {
    /// What PyTorch sees of such a card whose driver reports this total.
    ///
    /// With ECC on, a card has less than the catalogue says; the driver takes as much of it as ever. More than the
    /// catalogue says is never promised.
    pub fn torch_visible_of(&self, total: Bytes) -> (Bytes, How) {
        let taken = self.total.value.saturating_sub(self.torch_visible.value);
        let left = total.saturating_sub(taken);
        if left < self.torch_visible.value {
            (left, How::Estimated)
        } else {
            (self.torch_visible.value, self.torch_visible.how)
        }
    }

    /// What tells it apart when devices are numbered.
    pub fn identity(&self) -> DeviceIdentity {
        DeviceIdentity {
            name: Some(self.name.into()),
            uuid: None,
            mig_uuids: Vec::new(),
            mig_enabled: false,
        }
    }

    /// The card as a GPU of a machine, with the number PyTorch will give it.
    pub fn as_gpu(&self, torch_index: Fact<Option<u32>>) -> Gpu {
        let not_recorded = "not in the catalogue of GPU models";
        Gpu {
            vendor: self.vendor,
            name: Fact::Known(self.name.into()),
            uuid: Fact::unavailable(not_recorded),
            compute_capability: match self.compute_capability {
                Some(capability) => Fact::Known(capability),
                None => Fact::unavailable("AMD GPUs have no compute capability"),
            },
            multiprocessors: Fact::Known(self.multiprocessors.value),
            total: Fact::Known(self.total.value),
            used: Fact::unavailable(not_recorded),
            reserved: Fact::unavailable(not_recorded),
            torch_memory: Fact::Known(TorchMemory {
                bytes: self.torch_visible.value,
                origin: TorchMemoryOrigin::Catalogue {
                    how: self.torch_visible.how.name(),
                },
            }),
            torch_index,
            processes: Fact::unavailable(not_recorded),
            ecc: Fact::unavailable(not_recorded),
            mig: Fact::Known(None),
        }
    }
}

impl How {
    pub fn name(self) -> &'static str {
        match self {
            How::Measured => "measured",
            How::DataSheet => "data sheet",
            How::Estimated => "estimated",
        }
    }
}
