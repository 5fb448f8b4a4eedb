//! Control groups of the real kernel, made for one test and removed after it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A memory control group that exists as long as this value, with everything below it.
#[derive(Debug)]
pub struct TestGroup {
    folder: PathBuf,
    is_v2: bool,
}

/// Why this machine lets nobody make a memory group.
#[derive(Debug)]
pub struct NoGroups(pub String);

static COUNTER: AtomicU32 = AtomicU32::new(0);

impl TestGroup {
    /// A new group below the root of the memory hierarchy, v2 if it has the controller there, else v1.
    pub fn new() -> Result<TestGroup, NoGroups> {
        let v2_root = Path::new("/sys/fs/cgroup");
        let has_v2 = fs::read_to_string(v2_root.join("cgroup.subtree_control"))
            .is_ok_and(|controllers| controllers.split_whitespace().any(|name| name == "memory"));
        let (root, is_v2) = if has_v2 {
            (v2_root.to_owned(), true)
        } else {
            (v2_root.join("memory"), false)
        };
        let name = format!(
            "brimful-test-{}-{}",
            std::process::id(),
            COUNTER.fetch_add(1, Ordering::Relaxed)
        );
        let folder = root.join(name);
        fs::create_dir(&folder)
            .map_err(|error| NoGroups(format!("{} cannot be made: {error}", folder.display())))?;
        Ok(TestGroup { folder, is_v2 })
    }

    /// A group inside this one.
    pub fn child(&self, name: &str) -> io::Result<TestGroup> {
        if self.is_v2 {
            fs::write(self.folder.join("cgroup.subtree_control"), "+memory")?;
        }
        let folder = self.folder.join(name);
        fs::create_dir(&folder)?;
        Ok(TestGroup {
            folder,
            is_v2: self.is_v2,
        })
    }

    pub fn is_v2(&self) -> bool {
        self.is_v2
    }

    /// The group's name as the kernel shows it in `/proc/self/cgroup`.
    pub fn path(&self) -> String {
        let root = if self.is_v2 {
            "/sys/fs/cgroup"
        } else {
            "/sys/fs/cgroup/memory"
        };
        let below = self.folder.strip_prefix(root).expect("made below the root");
        format!("/{}", below.display())
    }

    /// Where the kernel shows the group.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Groups that others made inside this one, at any depth, inner ones first.
    pub fn groups_below(&self) -> Vec<PathBuf> {
        fn add(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    add(&entry.path(), found);
                    found.push(entry.path());
                }
            }
        }
        let mut found = Vec::new();
        add(&self.folder, &mut found);
        found
    }

    /// Processes in this group and in those below.
    pub fn processes(&self) -> Vec<u32> {
        let mut groups = self.groups_below();
        groups.push(self.folder.clone());
        groups
            .iter()
            .filter_map(|folder| fs::read_to_string(folder.join("cgroup.procs")).ok())
            .flat_map(|text| {
                text.lines()
                    .filter_map(|line| line.trim().parse().ok())
                    .collect::<Vec<u32>>()
            })
            .collect()
    }

    pub fn limit(&self, bytes: u64) -> io::Result<()> {
        let file = if self.is_v2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        fs::write(self.folder.join(file), bytes.to_string())
    }

    /// A command that will start inside this group.
    ///
    /// A shell joins the group and then becomes the program, so even its first page is charged here.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(r#"echo 0 > "$0/cgroup.procs" && exec "$@""#)
            .arg(&self.folder)
            .arg(program);
        command
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        // The kernel refuses while a killed process is still being taken apart.
        let give_up = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.folder).is_err() && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
