//! Real programs see what they wrote, exactly as they would without the library.

use crate::world::{World, command, fingerprint, library, script};

#[test]
fn python_sees_its_own_writes() {
    let world = World::new();
    let run = |tree: std::path::PathBuf| command!["python3", script("programs.py"), tree];
    let expected = world.run_plain(&run(world.copy()));
    assert!(expected.ends_with("exit Some(0)"), "{expected}");
    assert_eq!(world.run_redirected(&run(world.real())), expected);
}

#[test]
fn shell_tools_see_their_own_writes() {
    let world = World::new();
    let run = |tree: std::path::PathBuf| command!["bash", script("tools.sh"), tree];
    let expected = world.run_plain(&run(world.copy()));
    assert!(expected.ends_with("exit Some(0)"), "{expected}");
    assert_eq!(world.run_redirected(&run(world.real())), expected);
}

#[test]
fn without_a_scratch_directory_files_are_left_alone() {
    let world = World::new();
    let before = fingerprint(&world.real());
    let status = std::process::Command::new("sh")
        .args(["-c", "echo changed > \"$1/notes.txt\"", "sh"])
        .arg(world.real())
        .env("LD_PRELOAD", library())
        .status()
        .unwrap();
    assert!(status.success());
    assert_ne!(fingerprint(&world.real()), before);
}

#[test]
fn writes_below_a_passed_prefix_go_through() {
    let world = World::new();
    let passed = world.real().join("out");
    let output = world
        .redirected(&command![
            "sh",
            "-c",
            "cd \"$1\"; echo kept > out/kept.txt; mv notes.txt out/; echo lost > lost.txt; cat lost.txt",
            "sh",
            world.real()
        ])
        .env("BRIMFUL_REDIRECT_PASS", &passed)
        .output()
        .unwrap();
    // The sandbox does not know the prefix, so that what goes through is denied.
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("kept.txt") || errors.contains("no sandbox"),
        "{errors}"
    );
    assert!(!world.real().join("lost.txt").exists());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "lost\n");
}

#[test]
fn bad_pointers_and_names_are_errors() {
    let world = World::new();
    let program = r#"
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
open("made", "w").close()
calls = [
    libc.open(None, 0), libc.stat(None, None), libc.rename(None, b"x"), libc.rename(b"x", None), libc.unlink(None),
    libc.mkdir(None, 0), libc.chmod(None, 0), libc.access(None, 0), libc.symlink(None, b"x"), libc.link(None, b"x"),
    libc.open(b"x" * 300, 0o102, 0o600), libc.open(b"a/" * 3000, 0), libc.truncate(None, ctypes.c_long(0)),
    libc.utimes(None, None), libc.rmdir(b""), libc.readlink(b"made", None, ctypes.c_long(0)), libc.execv(None, None),
    libc.openat(9999, b"x", 0), libc.fchmod(9999, 0), libc.fstat(9999, ctypes.create_string_buffer(200)),
]
print(calls, ctypes.get_errno())
"#;
    let run = |tree| {
        command![
            "sh",
            "-c",
            "cd \"$1\" && exec python3 -c \"$2\"",
            "sh",
            tree,
            program
        ]
    };
    let expected = world.run_plain(&run(world.copy()));
    assert!(expected.ends_with("exit Some(0)"), "{expected}");
    assert_eq!(world.run_redirected(&run(world.real())), expected);
}

/// Rust's `tempfile`, and with it safetensors, renames by a system call of its own.
#[test]
#[cfg(target_arch = "x86_64")]
fn renames_past_libc_are_redirected() {
    let world = World::new();
    let program = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
RENAME, LINK, RENAMEAT, LINKAT, RENAMEAT2 = 82, 86, 264, 265, 316
open("made.tmp", "w").write("made")
print(libc.syscall(RENAME, b"made.tmp", b"made"), open("made").read())
print(libc.syscall(RENAMEAT, -100, b"notes.txt", -100, b"out/notes.txt"), open("out/notes.txt").read())
print(libc.syscall(RENAMEAT2, -100, b"made", -100, b"out/notes.txt", 1), ctypes.get_errno())
print(libc.syscall(RENAMEAT2, -100, b"data", -100, b"out", 2), sorted(os.listdir("data")))
print(libc.syscall(LINK, b"made", b"linked"), libc.syscall(LINKAT, -100, b"made", -100, b"data/linked", 0))
print(os.stat("made").st_nlink, libc.syscall(RENAME, b"missing", b"x"), ctypes.get_errno(), sorted(os.listdir(".")))
"#;
    let run = |tree| {
        command![
            "sh",
            "-c",
            "cd \"$1\" && exec python3 -c \"$2\"",
            "sh",
            tree,
            program
        ]
    };
    let expected = world.run_plain(&run(world.copy()));
    assert!(expected.ends_with("exit Some(0)"), "{expected}");
    assert_eq!(world.run_redirected(&run(world.real())), expected);
}

#[test]
fn shared_memory_and_semaphores_are_those_of_the_program() {
    let world = World::new();
    for method in ["fork", "spawn", "forkserver"] {
        let name = format!("brimful-test-{}-{method}", std::process::id());
        let outside = std::path::Path::new("/dev/shm").join(&name);
        std::fs::write(&outside, [b"data".as_slice(), &[0; 4092]].concat()).unwrap();
        let output = world.run_redirected(&command![
            "python3",
            script("shared_memory.py"),
            method,
            name
        ]);
        let kept = std::fs::read(&outside);
        let _ = std::fs::remove_file(&outside);
        assert!(output.starts_with("done\n"), "{method}: {output}");
        assert_eq!(&kept.unwrap()[..4], b"data", "{method}");
    }
}

#[test]
fn any_allocator_may_be_preloaded() {
    let world = World::new();
    let library_of = |name: &str| {
        [
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib64",
        ]
        .iter()
        .map(|directory| std::path::Path::new(directory).join(name))
        .find(|path| path.exists())
    };
    let script = "import json, os; open('new.txt', 'w').write(json.dumps(list(range(10000)))); \
                  print(os.path.getsize('new.txt'), os.readlink('/proc/self/cwd') == os.getcwd())";
    for name in [
        "libjemalloc.so.2",
        "libtcmalloc_minimal.so.4",
        "libmimalloc.so.2",
        "libasan.so.6",
    ] {
        let Some(allocator) = library_of(name) else {
            eprintln!("skipped: no {name} here");
            continue;
        };
        for preloaded in [[allocator.clone(), library()], [library(), allocator]] {
            if name.starts_with("libasan") && preloaded[0] == library() {
                // It refuses to be second.
                continue;
            }
            let list = preloaded.map(|path| path.display().to_string()).join(":");
            let output = world
                .redirected(&command!["timeout", "60", "python3", "-c", script])
                .current_dir(world.real())
                .env("SANDBOX_PRELOAD", &list)
                .env("ASAN_OPTIONS", "detect_leaks=0")
                .output()
                .unwrap();
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                "58890 True\n",
                "{list}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    assert!(!world.real().join("new.txt").exists());
}
