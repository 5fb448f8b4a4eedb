//! A GPU, and a torch that cannot use it.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{Accelerator, GpuVendor, Machine};

pub(super) const RULE: Rule = Rule {
    id: "torch_without_gpu_support",
    severity: Severity::Fatal,
    about: "The machine has a GPU, but the installed torch was built without support for it: a CPU-only build, a CUDA build \
            with an AMD GPU, or a ROCm build with an NVIDIA GPU. Training silently runs on the CPU, or fails at the \
            first `.cuda()`.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let gpu = machine.gpus.devices.first()?;
    let python = machine.python.known()?;
    let torch = python.torch.known()?;
    let accelerator = torch.accelerator.known()?;
    let fits = matches!(
        (gpu.vendor, accelerator),
        (GpuVendor::Nvidia, Accelerator::Cuda { .. }) | (GpuVendor::Amd, Accelerator::Rocm(_))
    );
    if fits {
        return None;
    }
    let build = match gpu.vendor {
        GpuVendor::Nvidia => "CUDA",
        GpuVendor::Amd => "ROCm",
    };
    Some(Diagnosis {
        summary: format!(
            "torch {} ({accelerator}) does not support the {} in this machine",
            torch.version_text,
            gpu.label()
        ),
        evidence: vec![format!(
            "{} has torch {}, built for: {accelerator}",
            python.executable, torch.version_text
        )],
        remedies: vec![format!(
            "install the {build} build of torch into this Python (see \"Get started\" on pytorch.org)"
        )],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::Fact;
    use crate::findings::testing::{check, set_torch, torch};
    use crate::machine::TorchVersion;

    #[test]
    fn a_cpu_build_beside_a_card() {
        let mut cpu = torch(TorchVersion::new(2, 9, 1), (12, 8));
        cpu.accelerator = Fact::Known(Accelerator::None);
        check(
            "torch_without_gpu_support",
            |m| set_torch(m, cpu),
            "CPU only",
        );
    }
}
