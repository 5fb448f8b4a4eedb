//! Lets the library find the links beside it (`src/names.rs`).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-rpath,$ORIGIN");
    // DT_RPATH and not DT_RUNPATH: it is searched before LD_LIBRARY_PATH, where NVIDIA's libraries may be.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--disable-new-dtags");
}
