//! Whose GPU memory is: the job's, another process's, or unknown.
//!
//! In a container the driver gives the host's process numbers, none, or only those of the container, and nobody says
//! which.

use brimful::units::Bytes;
use brimful::watch::GpuSample;
use brimful_probe::{GpuUse, Processes};

/// Whose a process is that the driver lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Ours,
    Another,
    Unknown,
}

/// What the driver counts, by those who hold it. A process that cannot be proved to be of the job or of another is
/// unknown.
pub(crate) fn by_owner(uses: &[GpuUse], ours: &[u32], processes: &Processes) -> Vec<GpuSample> {
    let listed = |gpu: &GpuUse| gpu.processes.known().cloned().unwrap_or_default();
    let pids: Vec<u32> = (uses.iter().flat_map(listed))
        .map(|process| process.pid)
        .collect();
    let are_numbered_as_here = processes.are_numbered_as_here(&pids);
    let whose = |pid: u32| {
        if !are_numbered_as_here {
            Whose::Unknown
        } else if ours.contains(&pid) {
            Whose::Ours
        } else if processes.one(pid).is_some_and(|found| !found.is_zombie) {
            Whose::Another
        } else {
            // It has ended, and may have been of the job; or it cannot be seen.
            Whose::Unknown
        }
    };
    let sample = |gpu: &GpuUse| {
        let mut sample = GpuSample {
            index: gpu.index,
            used: gpu.used,
            total: gpu.total,
            ..GpuSample::default()
        };
        let mut held_by_us = Vec::new();
        for process in listed(gpu) {
            let held = process.used.known().copied();
            match whose(process.pid) {
                Whose::Ours => held_by_us.push(held),
                Whose::Another => sample.others.push((process.pid, held)),
                Whose::Unknown => sample.unknown.push((process.pid, held)),
            }
        }
        // An unknown one may be of the job too.
        if sample.unknown.is_empty() && !held_by_us.is_empty() {
            sample.ours = held_by_us
                .into_iter()
                .try_fold(Bytes::ZERO, |sum, held| Some(sum.saturating_add(held?)));
        }
        sample
    };
    uses.iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use brimful::explain::{Cause, Confidence, Evidence, explain};
    use brimful::fact::Fact;
    use brimful::record::Outcome;
    use brimful::watch::{Gauge, Sample, Watch};
    use brimful_probe::NvmlProcess;
    use tempfile::TempDir;

    use super::*;
    use crate::recorder::end_line;

    /// The training process, its DataLoader worker, and a shell: only the first uses the GPU.
    const OURS: u32 = 40;
    const WORKER: u32 = 41;
    const SHELL: u32 = 42;
    /// As the host numbers the training process and its neighbour.
    const OURS_ON_HOST: u32 = 5_000_040;
    const NEIGHBOUR_ON_HOST: u32 = 5_000_077;
    const SECONDS: u64 = 60;

    /// What the driver answers in a container.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Seen {
        HostNumbers,
        /// The numbers on the host are those of other processes here.
        HostNumbersThatExistHere,
        Nobody,
        OnlyOurs,
        /// Of a whole GPU, while the container has a share of it; or of the share, with what is used of the whole.
        TotalOfMore,
        TotalOfLess,
    }

    const SEEN: [Seen; 6] = [
        Seen::HostNumbers,
        Seen::HostNumbersThatExistHere,
        Seen::Nobody,
        Seen::OnlyOurs,
        Seen::TotalOfMore,
        Seen::TotalOfLess,
    ];

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Story {
        RunsOut,
        NeighbourTakesAll,
        Finishes,
    }

    /// A process of each number in a PID namespace of its own.
    fn container() -> TempDir {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        for pid in [OURS, WORKER, SHELL] {
            let directory = proc.join(format!("{pid}/fd"));
            fs::create_dir_all(&directory).unwrap();
            let stat = format!("{pid} (python) R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0");
            fs::write(proc.join(format!("{pid}/stat")), stat).unwrap();
        }
        symlink("/dev/nvidia-uvm", proc.join(format!("{OURS}/fd/9"))).unwrap();
        fs::create_dir_all(proc.join("self/ns")).unwrap();
        symlink("pid:[4026532281]", proc.join("self/ns/pid")).unwrap();
        root
    }

    /// GiB that the job and its neighbour hold of 16.
    fn held(story: Story, second: u64) -> (u64, u64) {
        let grown = |to: u64| 1 + second * (to - 1) / (SECONDS - 1);
        match story {
            Story::RunsOut => (grown(14), 1),
            Story::NeighbourTakesAll => (2, grown(13)),
            Story::Finishes => (grown(9), 2),
        }
    }

    fn gpu_use(seen: Seen, (ours, neighbours): (u64, u64)) -> GpuUse {
        let listed: &[(u32, u64)] = match seen {
            Seen::HostNumbers => &[(OURS_ON_HOST, ours), (NEIGHBOUR_ON_HOST, neighbours)],
            Seen::HostNumbersThatExistHere => &[(SHELL, ours), (WORKER, neighbours)],
            Seen::Nobody => &[],
            Seen::OnlyOurs | Seen::TotalOfMore | Seen::TotalOfLess => &[(OURS, ours)],
        };
        let (elsewhere, total) = match seen {
            Seen::TotalOfMore => (50, 80),
            Seen::TotalOfLess => (0, 2),
            _ => (0, 16),
        };
        GpuUse {
            index: 0,
            total: Bytes::from_gib(total),
            used: Bytes::from_gib(ours + neighbours + elsewhere),
            processes: Fact::Known(
                listed
                    .iter()
                    .map(|(pid, gib)| NvmlProcess {
                        pid: *pid,
                        used: Fact::Known(Bytes::from_gib(*gib)),
                    })
                    .collect(),
            ),
        }
    }

    fn samples(seen: Seen, story: Story, with_hook: bool) -> Vec<Sample> {
        let root = container();
        let processes = Processes::below(root.path());
        (0..SECONDS)
            .map(|second| {
                let held = held(story, second);
                let gauge = Gauge {
                    pid: OURS,
                    device: Some(0),
                    reserved: Bytes::from_gib(held.0),
                    ..Gauge::default()
                };
                Sample {
                    at_ms: second * 1000,
                    gpus: by_owner(&[gpu_use(seen, held)], &[OURS, WORKER], &processes),
                    gauges: with_hook.then_some(gauge).into_iter().collect(),
                    ..Sample::default()
                }
            })
            .collect()
    }

    /// As PyTorch prints it, which asks the driver for the same list.
    fn message(seen: Seen, story: Story) -> String {
        let (ours, neighbours) = held(story, SECONDS - 1);
        let others = match seen {
            Seen::HostNumbers => format!(
                "Process {OURS_ON_HOST} has {ours}.00 GiB memory in use. Process {NEIGHBOUR_ON_HOST} has \
                 {neighbours}.00 GiB memory in use."
            ),
            Seen::HostNumbersThatExistHere => format!(
                "Process {SHELL} has {ours}.00 GiB memory in use. Process {WORKER} has {neighbours}.00 GiB \
                 memory in use."
            ),
            Seen::Nobody => String::new(),
            Seen::OnlyOurs | Seen::TotalOfMore | Seen::TotalOfLess => format!(
                "Including non-PyTorch memory, this process has {ours}.00 GiB memory in use."
            ),
        };
        format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 \
             GiB of which 1.00 GiB is free. {others} Of the allocated memory {}.50 GiB is allocated by PyTorch, and \
             100.00 MiB is reserved by PyTorch but unallocated.",
            ours - 1
        )
    }

    fn cases(stories: &[Story]) -> impl Iterator<Item = (Seen, Story, bool)> {
        SEEN.into_iter().flat_map(move |seen| {
            stories
                .iter()
                .flat_map(move |story| [(seen, *story, true), (seen, *story, false)])
        })
    }

    #[test]
    fn no_alarm_blames_somebody_else_for_what_the_job_takes() {
        for (seen, story, with_hook) in cases(&[Story::RunsOut, Story::Finishes]) {
            let mut watch = Watch::default();
            for sample in samples(seen, story, with_hook) {
                let alarms = watch.observe(&sample);
                let blaming = alarms
                    .iter()
                    .find(|alarm| alarm.detector == "other_process_on_gpu");
                assert_eq!(blaming, None, "{seen:?}, {story:?}");
            }
        }
    }

    #[test]
    fn the_verdict_names_who_is_proved_to_hold_the_gpu() {
        for (seen, story, with_hook) in cases(&[Story::RunsOut, Story::NeighbourTakesAll]) {
            for text in [
                message(seen, story),
                "RuntimeError: CUDA error: out of memory".to_owned(),
            ] {
                let evidence = Evidence {
                    end: Some(end_line(SECONDS * 1000, Outcome::Failed { code: 1 })),
                    samples: samples(seen, story, with_hook),
                    text,
                    ..Evidence::default()
                };
                let verdict = explain(&evidence);
                let case = format!("{seen:?}, {story:?}, {}\n{verdict:#?}", evidence.text);
                let has_figures = evidence.text.contains("GiB");
                let knows_itself = evidence.text.contains("this process has");
                let expected = match story {
                    Story::NeighbourTakesAll if has_figures => Cause::CudaOomOtherProcess,
                    _ => Cause::CudaOomExhausted,
                };
                assert_eq!(verdict.cause, expected, "{case}");
                let blames_others = expected == Cause::CudaOomOtherProcess;
                assert_eq!(
                    verdict.confidence == Confidence::Proved,
                    has_figures && (knows_itself || !blames_others),
                    "{case}"
                );
                // No process is named that may be the job's own.
                let names_a_process = verdict
                    .remedies
                    .iter()
                    .any(|remedy| remedy.text.contains("on the GPU: "));
                assert!(!names_a_process, "{case}");
            }
        }
    }

    #[test]
    fn a_run_that_finishes_accuses_nobody() {
        for (seen, story, with_hook) in cases(&[Story::Finishes]) {
            let verdict = explain(&Evidence {
                end: Some(end_line(SECONDS * 1000, Outcome::Finished)),
                samples: samples(seen, story, with_hook),
                ..Evidence::default()
            });
            assert_eq!(verdict.cause, Cause::NotMemory, "{seen:?}: {verdict:#?}");
        }
    }

    #[test]
    fn on_the_machine_itself_neighbours_are_known() {
        let root = container();
        let namespace = root.path().join("proc/self/ns/pid");
        fs::remove_file(&namespace).unwrap();
        symlink("pid:[4026531836]", &namespace).unwrap();
        let processes = Processes::below(root.path());
        let listed = [(OURS, 4), (WORKER, 1), (NEIGHBOUR_ON_HOST, 2)];
        let gpu = GpuUse {
            processes: Fact::Known(
                listed
                    .iter()
                    .map(|(pid, gib)| NvmlProcess {
                        pid: *pid,
                        used: Fact::Known(Bytes::from_gib(*gib)),
                    })
                    .collect(),
            ),
            ..gpu_use(Seen::Nobody, (4, 3))
        };
        let gpus = [gpu];
        let found = by_owner(&gpus, &[OURS], &processes);
        assert_eq!(found[0].others, [(WORKER, Some(Bytes::from_gib(1)))]);
        // It has ended since the driver listed it.
        assert_eq!(
            found[0].unknown,
            [(NEIGHBOUR_ON_HOST, Some(Bytes::from_gib(2)))]
        );
        assert_eq!(found[0].ours, None, "it may have been of the job");
        let found = by_owner(&gpus, &[OURS, NEIGHBOUR_ON_HOST], &processes);
        assert_eq!(found[0].ours, Some(Bytes::from_gib(6)));
    }
}
