//! What is found, and what is left over for a command, on recorded trees of machines with GPUs.

use super::*;
use crate::mounts::parse;

/// A machine: a path in each line, of a file, or with a slash at its end of an empty directory; `PATH -> TARGET` of a
/// link. Mounts follow as `mount FILE-SYSTEM PATH`.
struct Tree(&'static str);

/// What every machine has.
const USUAL: &str = "\
/bin -> usr/bin
/dev/fd -> /proc/self/fd
/dev/null
/dev/nvme0
/dev/nvram
/dev/ptmx
/dev/pts/0
/dev/shm/
/dev/zero
/etc/passwd
/home/ann/train.py
/proc/self/
/usr/bin/python3
";

/// A notebook: root in a container, with the libraries of the host's driver.
const COLAB: Tree = Tree(
    "\
/dev/nvidia-uvm
/dev/nvidia-uvm-tools
/dev/nvidia0
/dev/nvidiactl
/proc/driver/nvidia/version
/usr/lib64-nvidia/libcuda.so -> libcuda.so.1
/usr/lib64-nvidia/libcuda.so.1 -> libcuda.so.535.104.05
/usr/lib64-nvidia/libcuda.so.535.104.05
/usr/lib64-nvidia/libnvidia-ml.so.1
",
);

/// `docker run --gpus all`: nodes and libraries are mounted one by one.
const DOCKER: Tree = Tree(
    "\
/dev/nvidia-caps/nvidia-cap1
/dev/nvidia-caps/nvidia-cap2
/dev/nvidia-modeset
/dev/nvidia-uvm
/dev/nvidia0
/dev/nvidiactl
/proc/driver/nvidia/version
/usr/lib/x86_64-linux-gnu/libcuda.so.1
/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1
/opt/nvidia0
mount tmpfs /dev
mount devtmpfs /dev/nvidia0
mount devtmpfs /opt/nvidia0
mount ext4 /usr/lib/x86_64-linux-gnu/libcuda.so.1
",
);

/// A slice of an A100; other nodes belong to other slices.
const MIG: Tree = Tree(
    "\
/dev/nvidia-caps/nvidia-cap1
/dev/nvidia-caps/nvidia-cap12
/dev/nvidia-caps/nvidia-cap21
/dev/nvidia-caps-imex-channels/channel0
/dev/nvidia-nvswitchctl
/dev/nvidia0
/dev/nvidiactl
/proc/driver/nvidia/version
",
);

/// A workstation with a driver for an old card and one for a new card, and the graphics of its processor.
const SEVERAL_DRIVERS: Tree = Tree(
    "\
/dev/dri/by-path/pci-0000:00:02.0-card -> ../card0
/dev/dri/card0
/dev/dri/renderD128
/dev/nvidia0
/dev/nvidia1
/dev/nvidiactl
/proc/driver/nvidia/version
/usr/lib/x86_64-linux-gnu/libcuda.so.1 -> /etc/alternatives/libcuda.so.1
/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1
/usr/lib/x86_64-linux-gnu/nvidia/legacy-470/libcuda.so.1
mount devtmpfs /dev
",
);

const WSL2: Tree = Tree(
    "\
/dev/dxg
/usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libcuda.so.1.1
/usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libnvidia-ml.so.1
/usr/lib/wsl/lib/libcuda.so
/usr/lib/wsl/lib/libcuda.so.1
/usr/lib/wsl/lib/libnvidia-ml.so.1
mount devtmpfs /dev
mount 9p /usr/lib/wsl/drivers
",
);

const JETSON: Tree = Tree(
    "\
/dev/dri/renderD128
/dev/nvgpu/igpu0/channel
/dev/nvgpu/igpu0/ctrl
/dev/nvhost-ctrl-gpu
/dev/nvhost-gpu
/dev/nvmap
/usr/lib/aarch64-linux-gnu/tegra/libcuda.so
/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1
",
);

/// Kubernetes: the driver runs in a container, whose tree the host and other containers see.
const DRIVER_IN_A_CONTAINER: Tree = Tree(
    "\
/host/dev/null
/host/dev/nvidia0
/proc/driver/nvidia/version
/run/nvidia/driver/dev/nvidia0
/run/nvidia/driver/dev/null
/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.1
/run/nvidia/toolkit.pid
mount devtmpfs /host/dev
",
);

/// No node yet: the driver creates them when a program first asks for one.
const UNUSED_DRIVER: Tree = Tree("/proc/driver/nvidia/version\n");
const NO_GPU: Tree = Tree("");

impl Tree {
    fn lines(&self) -> impl Iterator<Item = &'static str> {
        USUAL.lines().chain(self.0.lines())
    }

    fn mounts(&self) -> Vec<Mount> {
        let table: Vec<String> = self
            .lines()
            .filter_map(|line| line.strip_prefix("mount ")?.split_once(' '))
            .map(|(kind, path)| format!("1 0 0:1 / {path} rw - {kind} none rw\n"))
            .collect();
        parse(table.concat().as_bytes())
    }

    fn entries(&self) -> impl Iterator<Item = Entry> {
        self.lines()
            .filter(|line| !line.starts_with("mount "))
            .map(|line| match line.split_once(" -> ") {
                Some((link, _)) => Entry::Link(link.into()),
                None => match line.strip_suffix('/') {
                    Some(directory) => Entry::Directory(directory.into()),
                    None => Entry::Other(line.into()),
                },
            })
    }

    fn list(&self, directory: &Path) -> Vec<Entry> {
        let mut found = Vec::new();
        for entry in self.entries() {
            let Ok(inside) = entry.path().strip_prefix(directory) else {
                continue;
            };
            let mut parts = inside.components();
            let entry = match (parts.next(), parts.next()) {
                (None, _) => continue,
                (Some(_), None) => entry,
                (Some(first), Some(_)) => Entry::Directory(directory.join(first)),
            };
            if !found.contains(&entry) {
                found.push(entry);
            }
        }
        found
    }

    fn gpus(&self) -> Gpus {
        let exists = |path: &Path| self.entries().any(|entry| entry.path() == path);
        Gpus::among(&self.mounts(), &|path| self.list(path), &exists)
    }

    fn nodes(&self) -> Vec<String> {
        let gpus = self.gpus();
        gpus.nodes
            .iter()
            .map(|it| it.display().to_string())
            .collect()
    }

    fn libraries(&self) -> Vec<String> {
        let gpus = self.gpus();
        let shown = gpus.libraries.iter().map(|it| it.display().to_string());
        shown.collect()
    }
}

const ALL: [&Tree; 9] = [
    &COLAB,
    &DOCKER,
    &MIG,
    &SEVERAL_DRIVERS,
    &WSL2,
    &JETSON,
    &DRIVER_IN_A_CONTAINER,
    &UNUSED_DRIVER,
    &NO_GPU,
];

#[test]
fn a_notebook_has_its_libraries_in_a_directory_of_their_own() {
    assert_eq!(
        COLAB.nodes(),
        [
            "/dev/nvidia-uvm",
            "/dev/nvidia-uvm-tools",
            "/dev/nvidia0",
            "/dev/nvidiactl"
        ]
    );
    assert_eq!(
        COLAB.libraries(),
        [
            "/usr/lib64-nvidia/libcuda.so.1",
            "/usr/lib64-nvidia/libcuda.so",
            "/usr/lib64-nvidia/libnvidia-ml.so.1"
        ]
    );
}

#[test]
fn nodes_are_found_where_they_are_mounted() {
    assert_eq!(
        DOCKER.nodes(),
        [
            "/dev/nvidia-caps/nvidia-cap1",
            "/dev/nvidia-caps/nvidia-cap2",
            "/dev/nvidia-modeset",
            "/dev/nvidia-uvm",
            "/dev/nvidia0",
            "/dev/nvidiactl",
            "/opt/nvidia0"
        ]
    );
    assert_eq!(
        DRIVER_IN_A_CONTAINER.nodes(),
        ["/host/dev/nvidia0", "/run/nvidia/driver/dev/nvidia0"]
    );
    assert_eq!(
        DRIVER_IN_A_CONTAINER.libraries(),
        ["/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.1"]
    );
}

#[test]
fn slices_and_switches_are_gpus_too() {
    assert_eq!(
        MIG.nodes(),
        [
            "/dev/nvidia-caps/nvidia-cap1",
            "/dev/nvidia-caps/nvidia-cap12",
            "/dev/nvidia-caps/nvidia-cap21",
            "/dev/nvidia-caps-imex-channels/channel0",
            "/dev/nvidia-nvswitchctl",
            "/dev/nvidia0",
            "/dev/nvidiactl"
        ]
    );
}

#[test]
fn libraries_of_several_drivers_are_found() {
    assert_eq!(
        SEVERAL_DRIVERS.nodes(),
        [
            "/dev/dri/card0",
            "/dev/dri/renderD128",
            "/dev/nvidia0",
            "/dev/nvidia1",
            "/dev/nvidiactl"
        ]
    );
    assert_eq!(
        SEVERAL_DRIVERS.libraries(),
        [
            "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1",
            "/usr/lib/x86_64-linux-gnu/nvidia/legacy-470/libcuda.so.1",
            "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
        ]
    );
}

#[test]
fn wsl_and_jetsons_have_nodes_of_other_names() {
    assert_eq!(WSL2.nodes(), ["/dev/dxg"]);
    assert_eq!(
        WSL2.libraries(),
        [
            "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_1/libnvidia-ml.so.1",
            "/usr/lib/wsl/lib/libcuda.so.1",
            "/usr/lib/wsl/lib/libcuda.so",
            "/usr/lib/wsl/lib/libnvidia-ml.so.1"
        ]
    );
    assert_eq!(
        JETSON.nodes(),
        [
            "/dev/dri/renderD128",
            "/dev/nvgpu/igpu0/channel",
            "/dev/nvgpu/igpu0/ctrl",
            "/dev/nvhost-ctrl-gpu",
            "/dev/nvhost-gpu",
            "/dev/nvmap"
        ]
    );
    assert_eq!(
        JETSON.libraries(),
        [
            "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",
            "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so"
        ]
    );
}

#[test]
fn a_machine_without_node_and_driver_has_nothing_to_hide() {
    assert!(NO_GPU.gpus().are_absent());
    assert!(NO_GPU.nodes().is_empty(), "nvme0 and nvram are no GPUs");
    assert!(!UNUSED_DRIVER.gpus().are_absent());
    assert!(!WSL2.gpus().are_absent());
}

#[test]
fn what_is_allowed_holds_everything_but_the_nodes() {
    for tree in ALL {
        let gpus = tree.gpus();
        let allowed = gpus.allowed_paths(&|path| tree.list(path));
        let is_allowed = |path: &Path| allowed.iter().any(|it| path.starts_with(it));
        for entry in tree.entries() {
            // The kernel looks at what a link leads to.
            if let Entry::Directory(path) | Entry::Other(path) = entry {
                assert_eq!(
                    is_allowed(&path),
                    !gpus.nodes.contains(&path),
                    "{}",
                    path.display()
                );
            }
        }
        for later in CREATED_LATER {
            assert!(!is_allowed(Path::new(later)), "{later}");
        }
    }
}

#[test]
fn the_fewest_paths_are_named() {
    let tree = DRIVER_IN_A_CONTAINER;
    let mut allowed = tree.gpus().allowed_paths(&|path| tree.list(path));
    allowed.sort();
    let shown: Vec<String> = allowed.iter().map(|it| it.display().to_string()).collect();
    assert_eq!(
        shown,
        [
            "/dev/null",
            "/dev/nvme0",
            "/dev/nvram",
            "/dev/ptmx",
            "/dev/pts",
            "/dev/shm",
            "/dev/zero",
            "/etc",
            "/home",
            "/host/dev/null",
            "/proc",
            "/run/nvidia/driver/dev/null",
            "/run/nvidia/driver/usr",
            "/run/nvidia/toolkit.pid",
            "/usr"
        ]
    );
}

#[test]
fn a_link_to_a_directory_of_nodes_opens_nothing() {
    let tree = Tree("/devices -> /dev\n/dev/nvidia0\n");
    let allowed = tree.gpus().allowed_paths(&|path| tree.list(path));
    assert!(!allowed.contains(&PathBuf::from("/devices")));
}

#[test]
fn landlock_comes_first_where_it_denies_nothing_else() {
    use GpuHidden::{Devices, Landlock, NoDriver};
    let landlock = |abi, tells_nodes_apart| super::Landlock {
        abi,
        tells_nodes_apart,
    };
    let ways =
        |tree: &Tree, isolation, abi| tree.gpus().ways_to_hide(isolation, landlock(abi, true));
    assert_eq!(ways(&NO_GPU, Isolation::Off, 0), [NoDriver]);
    assert_eq!(ways(&COLAB, Isolation::Off, 6), [Landlock, Devices]);
    assert_eq!(ways(&COLAB, Isolation::Off, 2), [Landlock, Devices]);
    assert_eq!(ways(&COLAB, Isolation::Off, 1), [Devices]);
    assert_eq!(ways(&COLAB, Isolation::Redirect, 1), [Landlock, Devices]);
    assert_eq!(ways(&UNUSED_DRIVER, Isolation::Off, 0), [Devices]);
    let alike = COLAB
        .gpus()
        .ways_to_hide(Isolation::Redirect, landlock(6, false));
    assert_eq!(alike, [Devices]);
}

#[test]
fn a_node_that_is_another_name_of_something_allowed_is_noticed() {
    let differ = |same: [&str; 2]| {
        let file_of = |path: &Path| {
            let number = COLAB.entries().position(|entry| entry.path() == path)?;
            let number = if same.iter().any(|it| path == Path::new(it)) {
                usize::MAX
            } else {
                number
            };
            Some((0, u64::try_from(number).unwrap()))
        };
        COLAB
            .gpus()
            .differ_from_allowed(&|path| COLAB.list(path), &file_of)
    };
    assert!(differ(["/dev/nvidia0", "/dev/nvidiactl"]));
    assert!(differ(["/dev/null", "/dev/zero"]));
    assert!(!differ(["/dev/null", "/dev/nvidia0"]));
}

#[test]
fn nodes_that_may_be_created_later_are_tried_too() {
    let gpus = UNUSED_DRIVER.gpus();
    assert!(gpus.paths().any(|path| path == Path::new("/dev/nvidia0")));
    let n_times = |gpus: &Gpus| gpus.paths().filter(|it| it.ends_with("nvidia0")).count();
    assert_eq!((n_times(&gpus), n_times(&COLAB.gpus())), (1, 1));
}

#[test]
fn every_directory_is_looked_at_only_so_deep() {
    let deep = Tree("/dev/nvgpu/1/2/3/4/5/ctrl\n");
    assert!(deep.nodes().is_empty());
}
