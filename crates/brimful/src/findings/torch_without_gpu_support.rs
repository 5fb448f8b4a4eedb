//! A GPU, and a torch that cannot use it.

use crate::findings::{Rule, Severity, Told};
use crate::machine::{Accelerator, GpuVendor, Machine};

pub(super) const RULE: Rule = Rule {
    id: "torch_without_gpu_support",
    severity: Severity::Fatal,
    about: "A GPU is here, but the installed torch was built without support for it: a CPU build, or a CUDA build \
            on an AMD machine and the other way round. Training silently runs on the processor, or fails at the \
            first `.cuda()`.",
    check,
};

fn check(machine: &Machine) -> Option<Told> {
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
    Some(Told {
        summary: format!(
            "torch {} ({accelerator}) cannot use the {} that is here",
            torch.version_text,
            gpu.label()
        ),
        evidence: vec![format!(
            "{} has torch {}, built for: {accelerator}",
            python.executable, torch.version_text
        )],
        remedies: vec![format!(
            "install the {build} build of torch into this Python (pytorch.org, \"Get started\", names the command)"
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
