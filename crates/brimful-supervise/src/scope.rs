//! A scope of systemd as the job's own cgroup, where brimful may not make one itself.
//!
//! On a workstation with cgroup v2 the groups of a login session belong to systemd. It makes one for the asking: the
//! helper `systemd-run --scope` registers itself and then becomes the training, so the process stays our child.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use brimful::machine::CgroupVersion;
use brimful_probe::{Cgroup, Meter};

/// A scope that can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    unit: String,
    user: bool,
}

/// A scope for this run, if systemd gives one now and leaving our own group for it escapes no limit.
pub(crate) fn available(meter: &Meter, id: &str) -> Option<Scope> {
    let booted = Path::new("/run/systemd/system").is_dir();
    let own = meter.own_group();
    let is_v2 = own
        .known()
        .is_some_and(|group| group.version == CgroupVersion::V2);
    // A limit on the way up is somebody's will: a scope elsewhere would escape it.
    if !booted || !is_v2 || meter.is_limited_by_group() {
        return None;
    }
    let scope = Scope {
        unit: format!("brimful-{id}.scope"),
        user: !rustix::process::geteuid().is_root(),
    };
    // Asked once with something harmless, because a scope that is refused later would be a training not started.
    let trial = Scope {
        unit: format!("brimful-{id}-trial.scope"),
        ..scope.clone()
    };
    let words = trial.prefix();
    let (program, arguments) = words.split_first()?;
    let tried = Command::new(program)
        .args(arguments)
        .arg("true")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success()).then_some(scope)
}

impl Scope {
    /// What stands before the training's own words.
    pub(crate) fn prefix(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["systemd-run".into()];
        if self.user {
            words.push("--user".into());
        }
        words.extend(["--scope", "--quiet", "--collect", "--unit"].map(OsString::from));
        words.push(self.unit.clone().into());
        words.push("--".into());
        words
    }

    /// The scope's group, once the process is in it.
    pub(crate) fn group_of(&self, pid: u32, within: Duration) -> Option<Cgroup> {
        let give_up = Instant::now() + within;
        loop {
            let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
            if let Some(path) = path_in(&text, &self.unit) {
                let directory = PathBuf::from(format!("/sys/fs/cgroup{path}"));
                return directory.is_dir().then(|| Cgroup {
                    version: CgroupVersion::V2,
                    path: path.to_owned(),
                    directory,
                });
            }
            if Instant::now() >= give_up {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The v2 path of a process, if it is in this unit.
fn path_in<'a>(cgroup_file: &'a str, unit: &str) -> Option<&'a str> {
    let path = cgroup_file
        .lines()
        .find_map(|line| line.strip_prefix("0::"))?;
    path.rsplit('/')
        .next()
        .is_some_and(|name| name == unit)
        .then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_training_becomes_the_last_words() {
        let scope = Scope {
            unit: "brimful-x.scope".into(),
            user: true,
        };
        assert_eq!(
            scope.prefix(),
            [
                "systemd-run",
                "--user",
                "--scope",
                "--quiet",
                "--collect",
                "--unit",
                "brimful-x.scope",
                "--"
            ]
        );
    }

    #[test]
    fn only_the_unit_itself_counts() {
        let file = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/brimful-x.scope\n";
        assert!(
            path_in(file, "brimful-x.scope")
                .unwrap()
                .ends_with("app.slice/brimful-x.scope")
        );
        assert_eq!(
            path_in("0::/user.slice/session-2.scope\n", "brimful-x.scope"),
            None
        );
        assert_eq!(
            path_in("4:memory:/brimful-x.scope\n", "brimful-x.scope"),
            None
        );
    }
}
