//! The driver's library, stood in for by `examples/fake_nvml.rs`: loaded by the real loader, asked through the real
//! C interface.

use std::path::PathBuf;

use brimful::fact::Fact;
use brimful::machine::ComputeCapability;
use brimful::units::Bytes;
use brimful_probe::snapshot_of_library;

/// Built by `cargo build --examples`, which cargo does before it runs this.
fn library(name: &str) -> PathBuf {
    let mut directory = std::env::current_exe().unwrap();
    directory.pop();
    directory.pop();
    directory.join("examples").join(name)
}

#[test]
fn the_library_is_asked_without_a_context() {
    let snapshot = snapshot_of_library(&library("libfake_nvml.so"));
    let snapshot = snapshot.known().unwrap_or_else(|| panic!("{snapshot:?}"));
    assert_eq!(snapshot.driver_version, Fact::Known("550.54.15".into()));
    assert_eq!(snapshot.cuda_version, Fact::Known((12, 4)));
    assert_eq!(snapshot.devices.len(), 2);

    let t4 = &snapshot.devices[0];
    assert_eq!(t4.name, Fact::Known("Tesla T4".into()));
    assert_eq!(
        t4.compute_capability,
        Fact::Known(ComputeCapability::new(7, 5))
    );
    assert_eq!(t4.total, Fact::Known(Bytes::from_mib(15_360)));
    assert_eq!(t4.reserved, Fact::Known(Bytes::from_mib(393)));
    assert_eq!(t4.used, Fact::Known(Bytes::from_mib(31)));
    assert_eq!(t4.ecc, Fact::Known(true));
    assert_eq!(t4.mig, Fact::Known(None));
    let processes = t4.processes.known().unwrap();
    assert_eq!(processes.len(), 2);
    assert_eq!(processes[0].pid, 4711);
    assert_eq!(processes[0].used, Fact::Known(Bytes::from_mib(100)));
    assert!(
        processes[1].used.gap().is_some(),
        "not available is not zero"
    );
}

#[test]
fn a_card_that_answers_nothing_is_all_gaps() {
    let snapshot = snapshot_of_library(&library("libfake_nvml.so"));
    let lost = &snapshot.known().unwrap().devices[1];
    assert!(lost.name.gap().is_some());
    assert!(lost.total.gap().is_some());
    assert!(lost.processes.gap().is_some());
}

#[test]
fn an_old_driver_is_asked_the_old_questions() {
    let snapshot = snapshot_of_library(&library("libfake_nvml_old.so"));
    let devices = &snapshot.known().unwrap().devices;
    let t4 = &devices[1];
    assert_eq!(t4.total, Fact::Known(Bytes::from_mib(15_109)));
    assert_eq!(t4.used, Fact::Known(Bytes::from_mib(3)));
    assert_eq!(
        t4.reserved.gap().unwrap().to_string(),
        "the NVIDIA driver is too old to answer this"
    );
    assert_eq!(t4.processes.known().unwrap()[0].pid, 4711);
    assert!(
        devices[0].name.gap().is_some(),
        "a lost card keeps its place"
    );
}

#[test]
fn no_library_is_a_reason_not_an_error() {
    let missing = snapshot_of_library("/nonexistent/libnvidia-ml.so.1".as_ref());
    assert_eq!(
        missing.gap().unwrap().to_string(),
        "no NVIDIA driver library (libnvidia-ml.so.1) is installed here"
    );
}
