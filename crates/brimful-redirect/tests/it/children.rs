//! Children get what is brimful's, whatever environment they are given, and NVIDIA's libraries and program are the
//! phantom's.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::world::{World, command, library, script};

/// Stands for the phantom.
const PHANTOM: &str = "int cuInit(unsigned flags) { return 7 + (int)flags; }";
/// Stands for the driver of the machine, which must never be loaded.
const DRIVER: &str =
    "#include <stdlib.h>\n__attribute__((constructor)) static void loaded(void) { abort(); }";
const ASKING: &str = "#include <dlfcn.h>\n\
    int ask(void) {\n\
    void *found = dlopen(\"libanswering.so\", RTLD_NOW);\n\
    return found ? ((int (*)(void))dlsym(found, \"answer\"))() : -1;\n\
    }";

fn compile(code: &str, library: &Path, arguments: &[&str]) {
    std::fs::create_dir_all(library.parent().unwrap()).unwrap();
    let source = library.with_extension("c");
    std::fs::write(&source, code).unwrap();
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([library, source.as_path()])
        .args(arguments)
        .status()
        .unwrap();
    assert!(status.success());
}

fn write_program(path: &Path, code: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, code).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Libraries and programs, as on the stage of a rehearsal and on a machine with a driver.
fn lay_out(stage: &Path) {
    compile(PHANTOM, &stage.join("libraries/libbrimful_phantom.so"), &[]);
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        symlink("libbrimful_phantom.so", stage.join("libraries").join(name)).unwrap();
    }
    compile(DRIVER, &stage.join("real/libcuda.so.1"), &[]);
    for name in ["libcuda.so.535.309.01", "libnvidia-ml.so.1"] {
        symlink("libcuda.so.1", stage.join("real").join(name)).unwrap();
    }
    compile("int own(void) { return 3; }", &stage.join("libown.so"), &[]);
    let answering = stage.join("asking/libanswering.so");
    compile("int answer(void) { return 5; }", &answering, &[]);
    let run_path = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN", "-ldl"];
    compile(ASKING, &stage.join("asking/libasking.so"), &run_path);
    let program = |says: &str| format!("#!/bin/sh\necho {says} \"$@\"\n");
    write_program(&stage.join("bin/nvidia-smi"), &program("phantom"));
    write_program(&stage.join("real/nvidia-smi"), &program("real"));
    write_program(&stage.join("real/not-nvidia-smi"), &program("real"));
    std::fs::create_dir(stage.join("hook")).unwrap();
}

fn has_compiler() -> bool {
    Command::new("cc").arg("--version").output().is_ok()
}

/// Runs `children.py` with the preloads and variables of a rehearsal.
fn check(in_sandbox: bool) {
    let world = World::new();
    let directory = tempfile::TempDir::new().unwrap();
    let stage = directory.path();
    lay_out(stage);
    let preload = format!(
        "{}:{}:{}",
        stage.join("libraries/libbrimful_phantom.so").display(),
        stage.join("libown.so").display(),
        library().display(),
    );
    let words = command!["python3", script("children.py"), stage];
    let mut program = if in_sandbox {
        let mut program = world.redirected(&words);
        program.env("SANDBOX_PRELOAD", preload);
        program
    } else {
        let mut program = Command::new(&words[0]);
        program.args(&words[1..]).env("LD_PRELOAD", preload);
        program
    };
    let output = program
        .env(
            "PYTHONPATH",
            format!("{}:/own", stage.join("hook").display()),
        )
        .env("BRIMFUL_HOOK", stage.join("hook"))
        .env("BRIMFUL_REHEARSAL", stage.join("results"))
        .env("BRIMFUL_NVIDIA_SMI", stage.join("bin/nvidia-smi"))
        .env("TRITON_LIBCUDA_PATH", stage.join("libraries"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "ok\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn children_get_what_is_brimfuls_whatever_environment_they_are_given() {
    if !has_compiler() {
        eprintln!("skipped: needs a C compiler");
        return;
    }
    check(false);
}

#[test]
fn so_do_children_whose_files_are_redirected() {
    if !has_compiler() {
        eprintln!("skipped: needs a C compiler");
        return;
    }
    check(true);
}
