//! Builds the wheel: the extension by maturin, and the native program beside it.
//!
//! Both are linked against glibc 2.17 by zig, so that the wheel runs on the old systems of clusters.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};

use crate::build::built;
use crate::shell::{cache, program, read, root, run};
use crate::tools::{PythonEnvironment, python_tools};

/// The platform that xtask itself was built for: each wheel is built on a machine of its own architecture.
const TARGET: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};
/// The oldest glibc that Rust itself supports; manylinux2014.
const GLIBC: (u32, u32) = (2, 17);
const MAX_BYTES: u64 = 12 << 20;
/// The highest of Deflate: 3% smaller than with the default.
const COMPRESSION_LEVEL: &str = "9";
/// Libraries that are preloaded into a user's script, with the packages they come from.
const PRELOADED: [(&str, &str); 2] = [
    ("brimful-phantom", "libbrimful_phantom.so"),
    ("brimful-redirect", "libbrimful_redirect.so"),
];

/// Builds the wheel for users into `out` and returns its path.
pub(crate) fn build(out: &Path) -> Result<PathBuf> {
    ensure!(
        cfg!(all(
            target_os = "linux",
            any(target_arch = "x86_64", target_arch = "aarch64")
        )),
        "cannot build a wheel here: only Linux on x86-64 and aarch64 is supported"
    );
    let tools = python_tools()?;
    // A directory for each of the two: they link by different wrappers around zig, and in one directory each would find
    // everything that the other has built out of date.
    let target_dir = cache().join("wheel-target");
    let program = build_program(&tools, &cache().join("program-target"))?;
    lay_out_data(&program)?;

    remove_wheels(out)?;
    run(tools
        .tool(
            "maturin",
            &["build", "--zig", "--quiet", "--target", TARGET],
        )
        .args(["--profile", "release"])
        .args(["--compression-level", COMPRESSION_LEVEL])
        .arg("--compatibility")
        .arg(format!("manylinux_{}_{}", GLIBC.0, GLIBC.1))
        .arg("--target-dir")
        .arg(&target_dir)
        .arg("--out")
        .arg(out)
        .arg("--")
        .arg(format!("-Clink-arg={}", unwinder()?.display())))?;
    let wheel = wheels_in(out).pop().context("maturin wrote no wheel")?;
    let size = fs::metadata(&wheel)?.len();
    ensure!(
        size <= MAX_BYTES,
        "expected a wheel of at most {MAX_BYTES} bytes, found {size}: move what is heavy into an extension of its own"
    );
    Ok(wheel)
}

/// Makes a wheel for this machine of what `cargo build` has built, with the metadata and the layout of the one for users.
pub(crate) fn assemble(out: &Path) -> Result<PathBuf> {
    lay_out_data(&built("brimful"))?;
    let folder = tempfile::tempdir()?;
    let tools = python_tools()?;
    run(tools
        .tool(
            "maturin",
            &["pep517", "write-dist-info", "--metadata-directory"],
        )
        .arg(folder.path())
        .stdout(Stdio::null()))?;
    let package = folder.path().join("brimful");
    copy_tree(&root().join("python/brimful"), &package)?;
    fs::copy(built("lib_native.so"), package.join("_native.abi3.so"))?;
    let data = format!("brimful-{}.data", env!("CARGO_PKG_VERSION"));
    copy_tree(&root().join("brimful.data"), &folder.path().join(data))?;

    fs::create_dir_all(out)?;
    remove_wheels(out)?;
    run(tools
        .python(&["-m", "wheel", "pack", "--dest-dir"])
        .arg(out)
        .arg(folder.path())
        .stdout(Stdio::null()))?;
    wheels_in(out).pop().context("no wheel was packed")
}

/// Without what Python has compiled.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "__pycache__" {
            copy_tree(&path, &to.join(name))?;
        } else if path.is_file() {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

fn remove_wheels(folder: &Path) -> Result<()> {
    for old in wheels_in(folder) {
        fs::remove_file(old)?;
    }
    Ok(())
}

/// Builds the source distribution into `out`.
///
/// It holds the Python package and the crates. What pip builds from it is the extension alone: the native program and
/// the preloaded libraries are built by `cargo xtask wheel`.
pub(crate) fn build_source(out: &Path) -> Result<()> {
    // maturin looks for the directory although nothing of it goes into a source distribution.
    fs::create_dir_all(root().join("brimful.data"))?;
    run(python_tools()?
        .tool("maturin", &["sdist", "--out"])
        .arg(out))
}

fn build_program(tools: &PythonEnvironment, target_dir: &Path) -> Result<PathBuf> {
    let versioned = format!("{TARGET}.{}.{}", GLIBC.0, GLIBC.1);
    run(tools
        .tool(
            "cargo-zigbuild",
            &[
                "zigbuild",
                "--release",
                "--locked",
                "--quiet",
                "--package",
                "brimful-cli",
            ],
        )
        .args(
            PRELOADED
                .iter()
                .flat_map(|(package, _)| ["--package", package]),
        )
        .args(["--target", &versioned])
        .arg("--target-dir")
        .arg(target_dir))?;
    let program = target_dir.join(TARGET).join("release").join("brimful");
    let libraries = PRELOADED.map(|(_, name)| program.with_file_name(name));
    for built in libraries.iter().chain([&program]) {
        let newest = newest_glibc(&fs::read(built)?);
        if newest > GLIBC {
            bail!(
                "expected {} for glibc {}.{}, found symbols of {}.{}",
                built.display(),
                GLIBC.0,
                GLIBC.1,
                newest.0,
                newest.1
            );
        }
    }
    Ok(program)
}

/// The system's unwinder, in place of the one that zig would link into the extension. Python before 3.14 ends a daemon
/// thread by having the system unwind it, and asks the extension for its frames in the system's own form: with another
/// unwinder inside, every such end was a segmentation fault.
fn unwinder() -> Result<PathBuf> {
    const NAME: &str = "libgcc_s.so.1";
    let path = read(&mut program("cc", &[&format!("-print-file-name={NAME}")]))?;
    let path = PathBuf::from(path.trim());
    ensure!(
        path.is_absolute(),
        "expected {NAME} beside the C compiler, found none: install GCC's library (Debian: libgcc-s1)"
    );
    Ok(path)
}

/// What maturin puts beside the package: `scripts/` goes to `bin`, `data/` to the environment's root.
fn lay_out_data(program: &Path) -> Result<()> {
    let data = root().join("brimful.data");
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    let scripts = data.join("scripts");
    fs::create_dir_all(&scripts)?;
    fs::copy(program, scripts.join("brimful"))?;

    // Where the program looks for them: `../lib/brimful` from its own directory.
    let libraries = data.join("data/lib/brimful");
    fs::create_dir_all(&libraries)?;
    for (_, name) in PRELOADED {
        fs::copy(program.with_file_name(name), libraries.join(name))?;
    }

    let manual = data.join("data/share/man/man1");
    fs::create_dir_all(&manual)?;
    clap_mangen::generate_to(brimful_cli::args::definition(), &manual)?;

    for (shell, folder) in [
        (clap_complete::Shell::Bash, "bash-completion/completions"),
        (clap_complete::Shell::Zsh, "zsh/site-functions"),
        (clap_complete::Shell::Fish, "fish/vendor_completions.d"),
    ] {
        let folder = data.join("data/share").join(folder);
        fs::create_dir_all(&folder)?;
        let made = clap_complete::generate_to(
            shell,
            &mut brimful_cli::args::definition(),
            "brimful",
            &folder,
        )?;
        if shell == clap_complete::Shell::Bash {
            // bash-completion looks for the command's own name.
            fs::rename(made, folder.join("brimful"))?;
        }
    }
    Ok(())
}

fn wheels_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("brimful-") && name.ends_with(".whl")
        })
        .collect()
}

/// The newest `GLIBC_x.y` that a program asks for.
fn newest_glibc(program: &[u8]) -> (u32, u32) {
    const MARK: &[u8] = b"GLIBC_";
    program
        .windows(MARK.len())
        .enumerate()
        .filter(|(_, window)| *window == MARK)
        .filter_map(|(at, _)| {
            let rest = &program[at + MARK.len()..];
            let end = rest
                .iter()
                .position(|b| !(b.is_ascii_digit() || *b == b'.'))?;
            let text = std::str::from_utf8(&rest[..end]).ok()?;
            let mut parts = text.split('.').map(|part| part.parse::<u32>().ok());
            Some((parts.next()??, parts.next()??))
        })
        .max()
        .unwrap_or((0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_counts() {
        assert_eq!(
            newest_glibc(b"..GLIBC_2.2.5\0GLIBC_2.17\0GLIBC_PRIVATE\0"),
            (2, 17)
        );
        assert_eq!(newest_glibc(b""), (0, 0));
    }
}
