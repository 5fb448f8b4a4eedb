//! A script that brimful starts by itself reaches no GPU of this machine. `init` starts any command, so that no torch is
//! needed here.
//!
//! The machine has a GPU in a mount namespace of the test's own: `/dev` as it is there is a new one with more nodes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::context::program_for_all_users;

/// A Python that every user can start.
const PYTHON: &str = "/usr/bin/python3";

/// Replaces `/dev` in a mount namespace, covers `/proc/driver`, and becomes the command behind its two arguments: the kind
/// of the nodes, and a directory for the new `/dev`.
const BOX: &str = r#"
set -e
kind=$1
new=$2
shift 2
mount -t tmpfs -o mode=755,dev box "$new"
node() {
    mknod -m 666 "$new/$1" c "$2" "$3"
}
node null 1 3
node zero 1 5
node full 1 7
node random 1 8
node urandom 1 9
node tty 5 0
ln -s /proc/self/fd "$new/fd"
ln -s pts/ptmx "$new/ptmx"
mkdir "$new/pts" "$new/shm" "$new/nvidia-caps"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$new/pts"
mount -t tmpfs -o mode=1777 shm "$new/shm"
if test "$kind" = real; then
    node nvidia0 195 0
    node nvidiactl 195 255
    node nvidia-caps/nvidia-cap1 236 1
else
    for name in nvidia0 nvidiactl nvidia-caps/nvidia-cap1; do
        : > "$new/$name"
        mount --bind "$new/null" "$new/$name"
    done
fi
mount --move "$new" /dev
mount -t tmpfs driver /proc/driver
mkdir /proc/driver/nvidia
echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01' > /proc/driver/nvidia/version
exec "$@"
"#;

/// Tries to read and to write every node, and says how that failed.
const SCRIPT: &str = r#"
for node in nvidia0 nvidiactl nvidia-caps/nvidia-cap1; do
    cat "/dev/$node" && echo "reached $node"
    (echo x >> "/dev/$node") && echo "reached $node"
done 2>&1
test -e /proc/driver/nvidia/version && echo "sees the driver"
echo "preloaded $LD_PRELOAD"
exit 3
"#;

/// How the GPU's nodes are: as a driver makes them, or such that anybody can open them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Nodes {
    Real,
    Null,
}

/// A directory that every user may enter, with a copy of the program and its libraries.
struct GpuMachine {
    _held: tempfile::TempDir,
    root: PathBuf,
    program: PathBuf,
}

impl GpuMachine {
    /// Nothing, with the reason, where no machine with a GPU can be imitated.
    fn new() -> Option<GpuMachine> {
        let held = tempfile::tempdir().unwrap();
        let root = held.path().canonicalize().unwrap();
        let program = program_for_all_users(&root);
        for library in ["libbrimful_redirect.so", "libbrimful_phantom.so"] {
            let built = crate::context::program().with_file_name(library);
            if !built.is_file() {
                eprintln!("skipped: {library} was not built");
                return None;
            }
            let copy = root.join(library);
            std::fs::copy(built, &copy).unwrap();
            std::fs::set_permissions(copy, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        for directory in ["dev", "work"] {
            std::fs::create_dir(root.join(directory)).unwrap();
            let path = root.join(directory);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o1777)).unwrap();
        }
        let machine = GpuMachine {
            _held: held,
            root,
            program,
        };
        let tried = machine.boxed(Nodes::Null, &["true"]).output();
        match tried {
            Ok(output) if output.status.success() => Some(machine),
            Ok(output) => {
                eprintln!("skipped: no mount namespace here: {}", errors(&output));
                None
            }
            Err(error) => {
                eprintln!("skipped: unshare cannot be started: {error}");
                None
            }
        }
    }

    /// A command on a machine with a GPU.
    fn boxed(&self, nodes: Nodes, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-c", BOX, "sh"])
            .arg(if nodes == Nodes::Real { "real" } else { "null" })
            .arg(self.root.join("dev"))
            .args(words)
            .current_dir(self.root.join("work"))
            .env("HOME", self.root.join("work"))
            .env_remove("XDG_CACHE_HOME")
            .env_remove("LD_PRELOAD")
            .env("NO_COLOR", "1");
        command
    }

    /// `brimful init` there, behind the words of `prefix`.
    fn init(&self, nodes: Nodes, prefix: &[&str], options: &[&str], script: &str) -> Output {
        let program = self.program.to_str().unwrap();
        let words = [
            prefix,
            &[program, "init", "--output", "-"],
            options,
            &["--", "sh", "-c", script],
        ];
        self.boxed(nodes, &words.concat()).output().unwrap()
    }

    /// The script is started, and reaches nothing.
    fn check(&self, nodes: Nodes, prefix: &[&str], options: &[&str], denied: &str) {
        let output = self.init(nodes, prefix, options, SCRIPT);
        let said = errors(&output);
        let case = format!("{nodes:?} {prefix:?} {options:?}: {said}");
        assert!(said.contains("libbrimful_phantom.so"), "{case}");
        assert!(!said.contains("reached "), "{case}");
        assert!(said.contains(denied), "{case}");
        let covers = denied == ABSENT;
        assert_eq!(said.contains("sees the driver"), !covers, "{case}");
    }

    /// No command that rehearses starts the script, and the message says why.
    fn check_refused(&self, nodes: Nodes, prefix: &[&str], options: &[&str], why: &str) {
        let work = self.root.join("work");
        let started = work.join("started");
        let job = "[job]\ncommand = [\"sh\", \"-c\", \"echo x > started\", \"{workers}\"]\n\
                   [knobs]\nworkers = [0, 1]\n";
        std::fs::write(work.join("brimful.toml"), job).unwrap();
        let program = self.program.to_str().unwrap();
        let script: &[&str] = &["--", "sh", "-c", "echo x > started"];
        for (command, script) in [
            (["init", "--output", "-"].as_slice(), script),
            (&["predict", "--gpu", "t4"], script),
            (&["predict", "--gpu", "2x t4", "--json"], script),
            (&["compare", "--gpu", "t4,l4"], script),
            (&["plan", "--gpu", "t4"], &[]),
        ] {
            let words = [prefix, &[program], command, options, script].concat();
            let output = self.boxed(nodes, &words).output().unwrap();
            let said = errors(&output);
            let case = format!("{command:?} {options:?}: {said}");
            assert_eq!(output.status.code(), Some(97), "{case}");
            assert!(
                said.contains("this machine's GPU cannot be hidden"),
                "{case}"
            );
            assert!(said.contains(why), "{case}");
            assert!(!started.exists(), "{case}");
        }
    }
}

/// What `cat` says of a node that is not there, and of one that may not be opened.
const ABSENT: &str = "No such file";
const DENIED: &str = "denied";

const ISOLATIONS: [&[&str]; 3] = [
    &["--isolation", "overlay"],
    &["--isolation", "redirect"],
    &["--allow-writes"],
];

const AS_USER: [&str; 6] = [
    "setpriv",
    "--reuid",
    "54321",
    "--regid",
    "54321",
    "--clear-groups",
];

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Without privileges, and without these system calls.
fn refused(calls: &str) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/refuse_calls.py");
    [
        "setpriv",
        "--inh-caps=-all",
        "--bounding-set=-all",
        PYTHON,
        script.to_str().unwrap(),
        calls,
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Calls `test` with what it means to be root and to be an ordinary user.
fn as_everybody(test: impl Fn(&[&str])) {
    test(&[]);
    test(&AS_USER);
}

#[test]
fn nodes_are_absent_from_an_overlay_and_denied_elsewhere() {
    let Some(machine) = GpuMachine::new() else {
        return;
    };
    as_everybody(|prefix| {
        for (options, denied) in ISOLATIONS.into_iter().zip([ABSENT, DENIED, DENIED]) {
            machine.check(Nodes::Real, prefix, options, denied);
        }
    });
}

/// Landlock cannot tell such a node from `/dev/null`, which it has to allow.
#[test]
fn nodes_that_anybody_can_open_are_absent_everywhere() {
    let Some(machine) = GpuMachine::new() else {
        return;
    };
    as_everybody(|prefix| {
        for options in ISOLATIONS {
            machine.check(Nodes::Null, prefix, options, ABSENT);
        }
    });
}

#[test]
fn without_landlock_and_namespaces_the_script_is_not_started() {
    let Some(machine) = GpuMachine::new() else {
        return;
    };
    let without_both = refused("unshare,landlock");
    let prefix: Vec<&str> = without_both.iter().map(String::as_str).collect();
    machine.check_refused(
        Nodes::Real,
        &prefix,
        &["--allow-writes"],
        "cannot leave the mount namespace",
    );
}

#[test]
fn where_landlock_is_not_enough_and_there_is_nothing_else_the_script_is_not_started() {
    let Some(machine) = GpuMachine::new() else {
        return;
    };
    let only_landlock = refused("unshare");
    let prefix: Vec<&str> = only_landlock.iter().map(String::as_str).collect();
    for options in [["--allow-writes"].as_slice(), &["--isolation", "redirect"]] {
        let why = "cannot leave the mount namespace";
        machine.check_refused(Nodes::Null, &prefix, options, why);
        // The same where Landlock is enough.
        machine.check(Nodes::Real, &prefix, options, DENIED);
    }
}

/// Another library of the driver's name than the phantom, which here takes no names.
#[test]
fn where_the_canary_loads_a_driver_the_script_is_not_started() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let program = program_for_all_users(&root);
    let Some(library) = some_library() else {
        eprintln!("skipped: no libm.so.6 here");
        return;
    };
    for name in ["libbrimful_phantom.so", "libcuda.so.1"] {
        std::fs::copy(&library, root.join(name)).unwrap();
    }
    let output = Command::new(program)
        .args(["init", "--output", "-", "--allow-writes", "--"])
        .args(["sh", "-c", "echo x > started"])
        .current_dir(&root)
        .env("LD_LIBRARY_PATH", &root)
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(97), "{said}");
    assert!(
        said.contains("loading libcuda.so.1 finds the driver"),
        "{said}"
    );
    assert!(!root.join("started").exists());
}

/// Any library of this machine's architecture: one that this process has loaded.
fn some_library() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.split_whitespace().map(PathBuf::from);
    paths.find(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("libm.so") || name.starts_with("libgcc_s.so"))
    })
}

#[test]
fn descriptors_of_a_gpu_do_not_reach_the_script() {
    let Some(machine) = GpuMachine::new() else {
        return;
    };
    let program = machine.program.to_str().unwrap();
    // As from a notebook that has used the GPU.
    let start = "exec 8</dev/zero 9</dev/nvidia0; exec \"$@\"";
    let script = "for n in 8 9; do test -e /proc/self/fd/$n && echo \"has $n\"; done; exit 3";
    for options in ISOLATIONS {
        let words = [
            &["sh", "-c", start, "sh", program, "init", "--output", "-"],
            options,
            &["--", "sh", "-c", script],
        ];
        let output = machine
            .boxed(Nodes::Null, &words.concat())
            .output()
            .unwrap();
        let said = errors(&output);
        assert!(said.contains("has 8"), "{said}");
        assert!(!said.contains("has 9"), "{said}");
    }
}

#[test]
fn terminals_and_shared_memory_work_in_a_new_dev() {
    let Some(machine) = GpuMachine::new() else {
        return;
    };
    let script = format!(
        "{PYTHON} -c '
import os
parent, child = os.openpty()
os.write(parent, b\"a\\n\")
print(\"read\", os.read(child, 9), os.ttyname(child))
open(\"/dev/shm/x\", \"w\").write(\"y\")
print(\"wrote\", len(os.urandom(3)), open(\"/dev/null\", \"w\").write(\"z\"))
'; exit 3"
    );
    as_everybody(|prefix| {
        for options in ISOLATIONS {
            let said = errors(&machine.init(Nodes::Null, prefix, options, &script));
            assert!(said.contains("read b'a\\n' /dev/pts/"), "{said}");
            assert!(said.contains("wrote 3 1"), "{said}");
        }
    });
}

#[test]
fn root_cannot_make_a_node_of_its_own() {
    let Some(machine) = GpuMachine::new() else {
        return;
    };
    let script = "mknod own c 1 3; cat own; echo \"ended $?\"; exit 3";
    for options in ISOLATIONS {
        let said = errors(&machine.init(Nodes::Null, &[], options, script));
        assert!(
            said.contains("not permitted") || said.contains("denied"),
            "{said}"
        );
        assert!(said.contains("ended 1"), "{said}");
    }
}

#[test]
fn files_can_be_moved_between_directories_behind_landlock() {
    let Some(machine) = GpuMachine::new() else {
        return;
    };
    let script = format!(
        "mkdir -p from to && echo x > from/a && \
         {PYTHON} -c 'import os; os.rename(\"from/a\", \"to/a\"); os.link(\"to/a\", \"from/b\")' && \
         cat to/a from/b && rm -r from to; echo \"ended $?\"; exit 3"
    );
    as_everybody(|prefix| {
        for options in &ISOLATIONS[1..] {
            let said = errors(&machine.init(Nodes::Real, prefix, options, &script));
            assert!(said.contains("ended 0"), "{said}");
        }
    });
}

/// Other processes mount, unmount and remove directories below the temporary directory all the time.
#[test]
fn mounts_that_come_and_go_are_in_nobodys_way() {
    let Some(machine) = GpuMachine::new() else {
        return;
    };
    let program = machine.program.to_str().unwrap();
    let start = "
        mount --make-rshared /
        rm -f stop
        mkdir -p busy
        export TMPDIR=\"$PWD\"
        while ! test -e stop; do
            for at in busy/a busy/b; do
                mkdir -p $at && mount -t tmpfs busy $at && mkdir $at/in && mount -t tmpfs busy $at/in
            done
            umount -R busy/a busy/b && rmdir busy/a busy/b
        done 2>/dev/null &
        i=0
        while test $i -lt 10; do
            i=$((i + 1))
            \"$@\"
        done
        : > stop
        wait
    ";
    as_everybody(|prefix| {
        let words = [
            &["sh", "-c", start, "sh"],
            prefix,
            &[program, "init", "--output", "-", "--isolation", "overlay"],
            &["--", "sh", "-c", "echo \"used $BRIMFUL_ISOLATION\"; exit 3"],
        ];
        let mut command = machine.boxed(Nodes::Real, &words.concat());
        let said = errors(&command.output().unwrap());
        let n_used = said.matches("used overlay:").count();
        assert_eq!(n_used, 10, "{said}");
    });
}
