//! Whether a script has stopped making progress: its processes wait for something that never comes.
//!
//! Honest slow work is progress too: reading data, tokenizing, downloading and building a model all use CPU time, move
//! bytes or change memory. Only a tree of processes that does none of this for a long time counts as stalled, because
//! a wrong early end is worse than a wait.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::time::{Duration, Instant};

/// Time from one look at the processes to the next.
const INTERVAL: Duration = Duration::from_secs(2);
/// A longer gap means that brimful itself was stopped or starved, so that nothing is known about the script.
const MAX_GAP: Duration = Duration::from_secs(10);
/// Waiting for a busy server, for a lock that another job holds or between two retries takes less.
const MIN_PATIENCE: Duration = Duration::from_mins(1);
/// With the default timeout of 15 minutes a script may wait for 2.5 minutes.
const PATIENCE_FRACTION: u32 = 6;
/// Share of one CPU below which nothing is computed. brimful's own waiting process polls; it is estimated at below 1 %.
const MAX_CPU_PERCENT: u32 = 2;
/// Bytes read and written below which no data is read, downloaded or saved: messages and polls are smaller.
const MAX_MOVED_BYTES: u64 = 1 << 20;
/// Pages by which memory may grow or shrink.
const MAX_RESIDENT_PAGES: u64 = 1024;
/// Of the looks, one in this many may find a process that runs, waits for a disk or was stopped.
const AWAKE_LOOKS: usize = 10;
/// Linux reports CPU time in this unit on every architecture.
const TICK: Duration = Duration::from_millis(10);

/// For how long the processes of a rehearsal may do nothing.
pub(crate) fn patience(time_limit: Duration) -> Duration {
    (time_limit / PATIENCE_FRACTION).max(MIN_PATIENCE)
}

/// Looks at the processes of a script from time to time.
#[derive(Debug)]
pub(crate) struct StallWatch {
    ancestor: u32,
    patience: Duration,
    interval: Duration,
    counters: HashMap<ProcessKey, Counters>,
    looks: VecDeque<ActivitySample>,
}

/// A process; its number alone may be used again.
type ProcessKey = (u32, u64);

/// What one process has used since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    cpu: Duration,
    moved_bytes: u64,
}

/// What all processes did since the look before.
#[derive(Clone, Copy, Debug)]
struct ActivitySample {
    at: Instant,
    cpu: Duration,
    moved_bytes: u64,
    resident_pages: u64,
    awake: bool,
}

impl StallWatch {
    pub(crate) fn new(ancestor: u32, time_limit: Duration) -> Self {
        StallWatch {
            ancestor,
            patience: patience(time_limit),
            interval: INTERVAL,
            counters: HashMap::new(),
            looks: VecDeque::new(),
        }
    }

    /// The script has reported something.
    pub(crate) fn note_progress(&mut self) {
        self.looks.clear();
    }

    /// For how long the script has done nothing, if that is too long.
    pub(crate) fn check(&mut self, now: Instant) -> Option<Duration> {
        let since_last = self.looks.back().map(|look| now - look.at);
        if since_last.is_some_and(|since| since < self.interval) {
            return None;
        }
        if since_last.is_some_and(|since| since > MAX_GAP.max(2 * self.interval)) {
            self.looks.clear();
        }
        let Some(look) = self.look(now) else {
            self.looks.clear();
            return None;
        };
        self.looks.push_back(look);
        while (self.looks.get(1)).is_some_and(|second| now - second.at >= self.patience) {
            self.looks.pop_front();
        }
        stalled_for(&self.looks, self.patience)
    }

    /// Nothing where the processes cannot be read.
    fn look(&mut self, now: Instant) -> Option<ActivitySample> {
        let mut look = ActivitySample {
            at: now,
            cpu: Duration::ZERO,
            moved_bytes: 0,
            resident_pages: 0,
            awake: false,
        };
        let mut counters = HashMap::new();
        for (pid, stat) in tree(self.ancestor) {
            // A process whose bytes are hidden may be reading data. One that has ended meanwhile reads nothing.
            let io = fs::read_to_string(format!("/proc/{pid}/io"));
            let moved_bytes = match io {
                Ok(io) => moved_bytes(&io),
                Err(_) if stat.state == 'Z' || !fs::exists(format!("/proc/{pid}")).ok()? => {
                    continue;
                }
                Err(_) => return None,
            };
            let now = Counters {
                cpu: stat.cpu,
                moved_bytes,
            };
            let key = (pid, stat.started);
            let before = self.counters.get(&key).copied().unwrap_or_default();
            look.cpu += now.cpu.saturating_sub(before.cpu);
            look.moved_bytes += now.moved_bytes.saturating_sub(before.moved_bytes);
            look.resident_pages += stat.resident_pages;
            look.awake |= matches!(stat.state, 'R' | 'D' | 'T' | 't');
            counters.insert(key, now);
        }
        let is_empty = counters.is_empty();
        self.counters = counters;
        (!is_empty).then_some(look)
    }
}

/// For how long these looks have seen nothing happen, if that is at least `patience`.
///
/// What the first look has counted was before the time that is judged.
fn stalled_for(looks: &VecDeque<ActivitySample>, patience: Duration) -> Option<Duration> {
    let span = looks.back()?.at - looks.front()?.at;
    if span < patience {
        return None;
    }
    let after_first = || looks.iter().skip(1);
    let cpu: Duration = after_first().map(|look| look.cpu).sum();
    let moved_bytes: u64 = after_first().map(|look| look.moved_bytes).sum();
    let awake = after_first().filter(|look| look.awake).count();
    let resident_pages = || looks.iter().map(|look| look.resident_pages);
    let changed_pages = resident_pages().max()? - resident_pages().min()?;
    let quiet = cpu <= span * MAX_CPU_PERCENT / 100
        && moved_bytes <= MAX_MOVED_BYTES
        && changed_pages <= MAX_RESIDENT_PAGES
        && awake * AWAKE_LOOKS <= looks.len();
    quiet.then_some(span)
}

/// Of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: u32,
    /// Its own, and that of children that have ended.
    cpu: Duration,
    started: u64,
    resident_pages: u64,
}

/// The processes below one.
fn tree(ancestor: u32) -> Vec<(u32, Stat)> {
    let mut children: HashMap<u32, Vec<(u32, Stat)>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        let text = fs::read(entry.path().join("stat")).unwrap_or_default();
        if let Some(stat) = stat_of(&String::from_utf8_lossy(&text)) {
            children.entry(stat.parent).or_default().push((pid, stat));
        }
    }
    let mut found = Vec::new();
    let mut next = vec![ancestor];
    while let Some(pid) = next.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        next.extend(below.iter().map(|(pid, _)| *pid));
        found.extend(below);
    }
    found
}

/// The second field is a name that may hold anything.
fn stat_of(text: &str) -> Option<Stat> {
    let (_, after_name) = text.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // Fields are numbered from 1 in proc(5), and the first one here is the third.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = number(14)? + number(15)? + number(16)? + number(17)?;
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: u32::try_from(number(4)?).ok()?,
        cpu: TICK * u32::try_from(ticks).unwrap_or(u32::MAX),
        started: number(22)?,
        resident_pages: number(24)?,
    })
}

/// Bytes that a process read and wrote, also through the page cache, and those of mapped files.
fn moved_bytes(io: &str) -> u64 {
    let value = |name: &str| {
        io.lines()
            .find_map(|line| {
                line.strip_prefix(name)?
                    .strip_prefix(": ")?
                    .parse::<u64>()
                    .ok()
            })
            .unwrap_or(0)
    };
    value("rchar") + value("wchar") + value("read_bytes")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn looks(n: u64, one: impl Fn(u64) -> ActivitySample) -> VecDeque<ActivitySample> {
        (0..n).map(one).collect()
    }

    /// Looks two seconds apart of processes that do nothing, with one thing changed.
    fn changed(change: impl Fn(u64, &mut ActivitySample)) -> Option<Duration> {
        let start = Instant::now();
        let looks = looks(31, |number| {
            let mut look = ActivitySample {
                at: start + INTERVAL * u32::try_from(number).expect("small"),
                cpu: TICK,
                moved_bytes: 100,
                resident_pages: 100_000,
                awake: false,
            };
            change(number, &mut look);
            look
        });
        stalled_for(&looks, MIN_PATIENCE)
    }

    #[test]
    fn processes_that_do_nothing_are_stalled() {
        assert_eq!(changed(|_, _| {}), Some(MIN_PATIENCE));
        assert_eq!(changed(|_, look| look.at += INTERVAL), Some(MIN_PATIENCE));
    }

    #[test]
    fn what_was_used_before_the_first_look_does_not_count() {
        let first = |number, look: &mut ActivitySample| {
            if number == 0 {
                look.cpu = Duration::from_secs(100);
                look.moved_bytes = 1 << 40;
            }
        };
        assert!(changed(first).is_some());
    }

    #[test]
    fn slow_work_of_any_kind_is_progress() {
        assert_eq!(changed(|_, look| look.cpu = TICK * 10), None, "computing");
        assert_eq!(changed(|_, look| look.moved_bytes = 64 << 10), None, "data");
        let growing = |number, look: &mut ActivitySample| look.resident_pages += 64 * number;
        assert_eq!(changed(growing), None, "receiving into memory");
        assert_eq!(changed(|_, look| look.awake = true), None, "a slow disk");
        let once = |number, look: &mut ActivitySample| {
            look.cpu = TICK * if number == 15 { 400 } else { 0 }
        };
        assert_eq!(changed(once), None, "one burst");
    }

    #[test]
    fn a_short_time_is_no_evidence() {
        let start = Instant::now();
        let look = |number| ActivitySample {
            at: start + INTERVAL * u32::try_from(number).expect("small"),
            cpu: Duration::ZERO,
            moved_bytes: 0,
            resident_pages: 1,
            awake: false,
        };
        assert_eq!(stalled_for(&looks(30, look), MIN_PATIENCE), None);
        assert_eq!(stalled_for(&VecDeque::new(), MIN_PATIENCE), None);
    }

    #[test]
    fn patience_grows_with_the_timeout_and_has_a_minimum() {
        assert_eq!(patience(Duration::from_mins(15)), Duration::from_secs(150));
        assert_eq!(patience(Duration::from_mins(1)), MIN_PATIENCE);
    }

    #[test]
    fn a_stat_line_is_read_behind_any_name() {
        let line = "12 (a) b) S 34 12 12 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 9 0 777 1000 55 18446744073709551615";
        let stat = stat_of(line).expect("a line");
        assert_eq!((stat.state, stat.parent), ('S', 34));
        assert_eq!((stat.cpu, stat.started), (TICK * 26, 777));
        assert_eq!(stat.resident_pages, 55);
        assert_eq!(stat_of("12 (x"), None);
    }

    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Whether a shell's command is found stalled within three times the patience.
    fn is_stalled(command: &str) -> bool {
        let script = format!("({command}) & wait");
        let child = Command::new("sh")
            .args(["-c", &script])
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a shell");
        let child = Running(child);
        let mut watch = StallWatch::new(child.0.id(), Duration::ZERO);
        watch.patience = Duration::from_millis(600);
        watch.interval = Duration::from_millis(50);
        let start = Instant::now();
        let stalled = loop {
            if watch.check(Instant::now()).is_some() {
                break true;
            }
            if start.elapsed() > 3 * watch.patience {
                break false;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let group = format!("-{}", child.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        stalled
    }

    #[test]
    fn a_real_process_that_sleeps_is_stalled_and_one_that_works_is_not() {
        assert!(is_stalled("sleep 60"));
        assert!(!is_stalled("while :; do :; done"));
        assert!(!is_stalled(
            "while :; do head -c 300000 /dev/zero; sleep 0.05; done"
        ));
    }
}
