//! Where the memory of one step goes: by kind over time, and by module at the peak.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::Workload;
use super::kind::Kind;
use super::story::{Phase, Story};
use crate::units::Bytes;

/// Columns of the timeline.
const MAX_COLUMNS: usize = 480;
/// Bands of phases; a step with more of them (gradient accumulation) has none.
const MAX_BANDS: usize = 48;
/// Modules of the tree.
const MAX_MODULES: usize = 70;
/// Modules beside each other; the rest of them is summed up.
const MAX_BESIDE: usize = 16;
/// A path of modules that is deeper is cut.
const MAX_DEPTH: usize = 12;

/// The fullest step of a workload on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepTimeline {
    /// Which step it is, from 1; the last is followed by evaluation and saving, if these were rehearsed.
    pub step: u32,
    /// Allocations and frees in it.
    pub events: usize,
    /// Each shows its fullest moment, with the bytes of that moment.
    pub columns: Vec<TimelineColumn>,
    /// Phases, by column.
    pub phases: Vec<PhaseBand>,
    /// The column with the peak.
    pub peak_column: usize,
    /// What each module holds at the peak.
    pub modules: Vec<ModuleMemory>,
}

/// The fullest moment of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelineColumn {
    /// Requested bytes, in the order of [`Kind::ALL`].
    pub kinds: [u64; Kind::ALL.len()],
    pub allocated: Bytes,
    pub reserved: Bytes,
}

/// Columns in which a phase was at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseBand {
    pub phase: Phase,
    pub first_column: usize,
    pub n_columns: usize,
}

/// What a module and the modules inside it hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleMemory {
    /// The last part of its path, and its class where that is known.
    pub name: String,
    /// In the order of [`Kind::ALL`], with everything inside it.
    pub kinds: [u64; Kind::ALL.len()],
    pub inside: Vec<ModuleMemory>,
}

impl ModuleMemory {
    pub fn total(&self) -> u64 {
        self.kinds.iter().sum()
    }
}

/// Keeps the fullest step while a replay goes by.
pub(super) struct TimelineRecorder {
    /// First events of the steps, and the number of events.
    boundaries: Vec<usize>,
    /// The step at hand: `boundaries[at]` to `boundaries[at + 1]`.
    at: usize,
    current: Vec<TimelineColumn>,
    fullest: Vec<TimelineColumn>,
    fullest_at: usize,
    peak: u64,
    current_peak: u64,
}

impl TimelineRecorder {
    pub(super) fn new(story: &Story, n_events: usize) -> TimelineRecorder {
        let first = story
            .phases
            .iter()
            .find(|(_, phase)| *phase == Phase::Forward);
        let mut boundaries = vec![first.map_or(0, |(event, _)| *event)];
        boundaries.extend(story.step_ends.iter().map(|end| end + 1));
        boundaries.push(n_events);
        boundaries.sort_unstable();
        boundaries.dedup();
        TimelineRecorder {
            boundaries,
            at: 0,
            current: Vec::new(),
            fullest: Vec::new(),
            fullest_at: 0,
            peak: 0,
            current_peak: 0,
        }
    }

    fn bounds(&self, at: usize) -> (usize, usize) {
        let bound = |at: usize| self.boundaries.get(at).copied().unwrap_or(usize::MAX);
        (bound(at), bound(at + 1))
    }

    pub(super) fn see(&mut self, event: usize, now: TimelineColumn) {
        let (mut first, mut end) = self.bounds(self.at);
        while event >= end {
            self.keep_fullest();
            self.at += 1;
            (first, end) = self.bounds(self.at);
        }
        let Some(past) = event.checked_sub(first) else {
            return;
        };
        let column = past / width(first, end);
        if column >= self.current.len() {
            // Marks and what is not played leave a column as the one before it.
            let before = self.current.last().copied().unwrap_or(now);
            self.current.resize(column, before);
            self.current.push(now);
        } else if now.allocated > self.current[column].allocated {
            self.current[column] = now;
        }
        self.current_peak = self.current_peak.max(now.allocated.get());
    }

    fn keep_fullest(&mut self) {
        if self.current_peak > self.peak {
            self.fullest = std::mem::take(&mut self.current);
            self.fullest_at = self.at;
            self.peak = self.current_peak;
        }
        self.current.clear();
        self.current_peak = 0;
    }

    /// The fullest step, with the modules that hold its memory at the peak; nothing without a step.
    pub(super) fn timeline(
        mut self,
        story: &Story,
        modules: Vec<ModuleMemory>,
    ) -> Option<StepTimeline> {
        self.keep_fullest();
        let (first, end) = self.bounds(self.fullest_at);
        let last = self.boundaries.last().copied().unwrap_or(0);
        let end = end.min(last);
        let peak_column =
            (0..self.fullest.len()).max_by_key(|at| (self.fullest[*at].allocated, Reverse(*at)))?;
        Some(StepTimeline {
            step: u32::try_from(self.fullest_at + 1).unwrap_or(u32::MAX),
            events: end.saturating_sub(first),
            phases: bands(story, (first, end), self.fullest.len()),
            columns: self.fullest,
            peak_column,
            modules,
        })
    }
}

/// Events of one column.
fn width(first: usize, end: usize) -> usize {
    end.saturating_sub(first).div_ceil(MAX_COLUMNS).max(1)
}

fn bands(story: &Story, (first, end): (usize, usize), n_columns: usize) -> Vec<PhaseBand> {
    let width = width(first, end);
    let column = |event: usize| (event.saturating_sub(first) / width).min(n_columns);
    let inside = story
        .phases
        .iter()
        .filter(|(event, _)| (first..end).contains(event));
    let mut starts = vec![(first, story.phase_at(first))];
    starts.extend(inside.copied());
    let mut bands: Vec<PhaseBand> = Vec::new();
    for (at, (event, phase)) in starts.iter().enumerate() {
        let next = starts
            .get(at + 1)
            .map_or(n_columns, |(event, _)| column(*event));
        let first_column = column(*event);
        if next <= first_column {
            continue;
        }
        match bands.last_mut() {
            Some(last) if last.phase == *phase => last.n_columns = next - last.first_column,
            _ => bands.push(PhaseBand {
                phase: *phase,
                first_column,
                n_columns: next - first_column,
            }),
        }
    }
    if bands.len() > MAX_BANDS {
        Vec::new()
    } else {
        bands
    }
}

/// What each module holds at an event: tensors by their names, everything else by the module at work when it was made.
pub(super) fn modules(
    workload: &Workload,
    story: &Story,
    kinds: &[Kind],
    names: &BTreeMap<u32, String>,
    at: usize,
) -> Vec<ModuleMemory> {
    let trace = &workload.trace;
    let classes = classes(&trace.labels);
    let mut root = Branch::default();
    for (number, allocation) in (0_u32..).zip(&trace.allocations) {
        let index = number as usize;
        let Some(birth) = story.births.get(index).copied().flatten() else {
            continue;
        };
        let is_gone = story.deaths[index].is_some_and(|death| death.event <= at);
        if birth.event > at || is_gone {
            continue;
        }
        let label = birth
            .module
            .and_then(|label| trace.labels.get(label as usize));
        let path = match (names.get(&number), label) {
            (Some(name), _) => holder(name),
            (None, Some(label)) => path_of(label).0,
            (None, None) if birth.phase == Phase::Forward && birth.model_called => "the loss",
            (None, None) => match birth.phase {
                Phase::Setup => "made before the first step",
                Phase::Forward => "the batch and other inputs",
                Phase::Backward => "the backward pass",
                Phase::Optimizer => "the optimizer",
                Phase::Evaluation => "the evaluation",
                Phase::Save => "the checkpoint",
            },
        };
        root.add(path, kinds[index], allocation.requested);
    }
    root.largest(&classes)
}

/// The module that a tensor belongs to: `h.0.attn` of `h.0.attn.weight`.
fn holder(tensor: &str) -> &str {
    tensor.rsplit_once('.').map_or(tensor, |(module, _)| module)
}

/// `h.0.attn` and `Attention` of `module:h.0.attn (Attention)`.
fn path_of(label: &str) -> (&str, Option<&str>) {
    let name = label.trim_start_matches("module:");
    match name.split_once(" (") {
        Some((path, class)) => (path, Some(class.trim_end_matches(')'))),
        None => (name, None),
    }
}

fn classes(labels: &[String]) -> BTreeMap<&str, &str> {
    labels
        .iter()
        .filter(|label| label.starts_with("module:"))
        .filter_map(|label| {
            let (path, class) = path_of(label);
            Some((path, class?))
        })
        .collect()
}

/// A module while the tree is built.
#[derive(Default)]
struct Branch {
    kinds: [u64; Kind::ALL.len()],
    inside: BTreeMap<String, Branch>,
}

impl Branch {
    fn add(&mut self, path: &str, kind: Kind, bytes: u64) {
        let mut branch = self;
        branch.kinds[kind.index()] = branch.kinds[kind.index()].saturating_add(bytes);
        // Names with spaces are words of ours, not paths.
        let n_parts = if path.contains(' ') { 1 } else { MAX_DEPTH };
        for part in path.splitn(n_parts, '.') {
            branch = branch.inside.entry(part.to_owned()).or_default();
            branch.kinds[kind.index()] = branch.kinds[kind.index()].saturating_add(bytes);
        }
    }

    fn total(&self) -> u64 {
        self.kinds
            .iter()
            .fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// The tree with its largest modules opened first, as far as the bound allows.
    fn largest(&self, classes: &BTreeMap<&str, &str>) -> Vec<ModuleMemory> {
        // Which modules are opened: the largest of all that are shown so far.
        let mut opened: BTreeSet<String> = BTreeSet::new();
        let mut waiting: BinaryHeap<(u64, Reverse<String>)> = BinaryHeap::new();
        waiting.push((self.total(), Reverse(String::new())));
        let mut n_modules = 0;
        while let Some((_, Reverse(path))) = waiting.pop() {
            let Some(branch) = self.find(&path) else {
                continue;
            };
            let n_inside = branch.inside.len().min(MAX_BESIDE + 1);
            if n_inside == 0 || n_modules + n_inside > MAX_MODULES {
                continue;
            }
            n_modules += n_inside;
            for (name, inside) in &branch.inside {
                waiting.push((inside.total(), Reverse(joined(&path, name))));
            }
            opened.insert(path);
        }
        self.shown("", &opened, classes)
    }

    fn find(&self, path: &str) -> Option<&Branch> {
        if path.is_empty() {
            return Some(self);
        }
        path.split('\0')
            .try_fold(self, |branch, part| branch.inside.get(part))
    }

    fn shown(
        &self,
        path: &str,
        opened: &BTreeSet<String>,
        classes: &BTreeMap<&str, &str>,
    ) -> Vec<ModuleMemory> {
        if !opened.contains(path) {
            return Vec::new();
        }
        let mut inside: Vec<(&String, &Branch)> = self.inside.iter().collect();
        inside.sort_by_key(|(_, branch)| Reverse(branch.total()));
        let (largest, rest) = inside.split_at(inside.len().min(MAX_BESIDE));
        let mut modules: Vec<ModuleMemory> = largest
            .iter()
            .map(|(name, branch)| {
                let own = joined(path, name);
                let dotted = own.replace('\0', ".");
                ModuleMemory {
                    name: match classes.get(dotted.as_str()) {
                        Some(class) => format!("{name} ({class})"),
                        None => (*name).clone(),
                    },
                    kinds: branch.kinds,
                    inside: branch.shown(&own, opened, classes),
                }
            })
            .collect();
        if !rest.is_empty() {
            let mut kinds = [0_u64; Kind::ALL.len()];
            for (_, branch) in rest {
                for (sum, bytes) in kinds.iter_mut().zip(branch.kinds) {
                    *sum = sum.saturating_add(bytes);
                }
            }
            modules.push(ModuleMemory {
                name: format!("{} more", rest.len()),
                kinds,
                inside: Vec::new(),
            });
        }
        modules
    }
}

/// A path whose parts no name can contain.
fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}\0{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(modules: &[ModuleMemory]) -> usize {
        modules.iter().map(|module| 1 + count(&module.inside)).sum()
    }

    #[test]
    fn modules_are_a_tree_of_bounded_size() {
        let mut root = Branch::default();
        for block in 0..40 {
            for part in ["attn", "mlp", "norm"] {
                root.add(&format!("h.{block}.{part}"), Kind::Activations, 10 + block);
            }
        }
        root.add("the loss", Kind::Temporaries, 7);
        root.add("wte", Kind::Weights, 5);
        let classes = BTreeMap::from([("h", "ModuleList"), ("h.39.mlp", "MLP")]);
        let tree = root.largest(&classes);
        let names: Vec<&str> = tree.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["h (ModuleList)", "the loss", "wte"]);
        assert_eq!(tree[0].inside.len(), MAX_BESIDE + 1);
        assert_eq!(tree[0].inside[MAX_BESIDE].name, "24 more");
        assert_eq!(tree[0].inside[0].inside[1].name, "mlp (MLP)");
        assert!(count(&tree) <= MAX_MODULES);
        let sum: u64 = tree[0].inside.iter().map(ModuleMemory::total).sum();
        assert_eq!(sum, tree[0].total(), "nothing is lost");
    }

    #[test]
    fn the_fullest_step_is_kept_in_columns_that_keep_their_peaks() {
        let story = Story {
            phases: vec![
                (0, Phase::Setup),
                (10, Phase::Forward),
                (2000, Phase::Backward),
            ],
            step_ends: vec![999, 4999],
            ..Story::default()
        };
        let mut recorder = TimelineRecorder::new(&story, 6000);
        for event in 0..6000_usize {
            let allocated = match event {
                3000 => 900,
                500 => 100,
                _ => 10,
            };
            let now = TimelineColumn {
                allocated: Bytes(allocated),
                ..TimelineColumn::default()
            };
            recorder.see(event, now);
        }
        let timeline = recorder.timeline(&story, Vec::new()).unwrap();
        assert_eq!((timeline.step, timeline.events), (2, 4000));
        assert!(timeline.columns.len() <= MAX_COLUMNS);
        assert_eq!(timeline.columns[timeline.peak_column].allocated, Bytes(900));
        let phases: Vec<Phase> = timeline.phases.iter().map(|band| band.phase).collect();
        assert_eq!(phases, [Phase::Forward, Phase::Backward]);
    }
}
