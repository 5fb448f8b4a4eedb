//! The driver is older than the CUDA that torch was built with.

use crate::findings::{Diagnosis, Rule, Severity};
use crate::machine::{Accelerator, Machine};

pub(super) const RULE: Rule = Rule {
    id: "driver_too_old_for_torch",
    severity: Severity::Fatal,
    about: "torch was built for a newer major version of CUDA than the driver supports. Minor versions may differ, \
            major versions may not: `torch.cuda.is_available()` returns false, with a warning about an old driver.",
    check,
};

fn check(machine: &Machine) -> Option<Diagnosis> {
    let (driver_major, driver_minor) = *machine.gpus.driver_cuda.known()?;
    let torch = machine.python.known()?.torch.known()?;
    let Accelerator::Cuda { major, minor } = torch.accelerator.known()? else {
        return None;
    };
    if driver_major >= *major {
        return None;
    }
    let driver = machine
        .gpus
        .driver_version
        .known()
        .map_or("?", String::as_str);
    Some(Diagnosis {
        summary: format!(
            "torch {} requires a driver for CUDA {major}, but this one supports only CUDA {driver_major}.{driver_minor}",
            torch.version_text
        ),
        evidence: vec![
            format!("driver {driver} supports CUDA up to {driver_major}.{driver_minor}"),
            format!("torch was built with CUDA {major}.{minor}"),
        ],
        remedies: vec![
            format!("install a torch built for CUDA {driver_major}"),
            "update the driver, if you have permission".into(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use crate::fact::Fact;
    use crate::findings::testing::{check, check_quiet, set_torch, torch};
    use crate::machine::TorchVersion;

    const ID: &str = "driver_too_old_for_torch";

    #[test]
    fn major_versions_count_minor_ones_do_not() {
        check(
            ID,
            |m| {
                m.gpus.driver_cuda = Fact::Known((12, 4));
                set_torch(m, torch(TorchVersion::new(2, 11, 0), (13, 0)));
            },
            "CUDA 12.4",
        );
        check_quiet(ID, |m| m.gpus.driver_cuda = Fact::Known((12, 4)));
    }
}
