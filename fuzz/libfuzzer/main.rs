//! Looks for new inputs of the target that `BRIMFUL_FUZZ_TARGET` names.
#![no_main]

use std::sync::LazyLock;

use brimful_fuzz::{TARGETS, Target, quiet_panics};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("BRIMFUL_FUZZ_TARGET").expect("cargo xtask fuzz sets it");
    TARGETS
        .iter()
        .find(|target| target.name == name)
        .expect("cargo xtask fuzz checks it")
});

fuzz_target!(init: quiet_panics(), |data: &[u8]| (TARGET.run)(data));
