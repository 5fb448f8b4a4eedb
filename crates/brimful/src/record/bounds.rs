//! How much of a line is kept: a record may come from anybody.

use crate::explain::Verdict;
use crate::record::line::{HookLine, Line};
use crate::watch::Sample;

/// The tail that brimful keeps of a stream, and room for replacement characters.
const MAX_TAIL: usize = 256 << 10;
/// Any other text. The longest of ours is a path or a sentence.
const MAX_TEXT: usize = 16 << 10;
/// Words of a command; the kernel takes 2 MiB of them.
const MAX_WORDS: usize = 4096;
const MAX_COMMAND: usize = 256 << 10;
/// Processes of one job.
const MAX_PROCESSES: usize = 4096;
/// GPUs of one machine, and settings that change between two attempts.
const MAX_FEW: usize = 256;

/// Cuts off what is longer than anything of ours.
pub(crate) fn bound(line: &mut Line) {
    match line {
        Line::Run(run) => {
            optional(&mut run.records);
            command(&mut run.command);
            for part in [
                &mut run.id,
                &mut run.brimful_version,
                &mut run.folder,
                &mut run.host_name,
                &mut run.job,
            ] {
                text(part);
            }
        }
        Line::Attempt(attempt) => {
            command(&mut attempt.command);
            text(&mut attempt.containment);
            for part in [
                &mut attempt.cgroup,
                &mut attempt.limit_set_by,
                &mut attempt.resumed_from,
                &mut attempt.why,
            ] {
                optional(part);
            }
            list(&mut attempt.gpus, MAX_FEW);
            for gpu in &mut attempt.gpus {
                text(&mut gpu.name);
            }
            list(&mut attempt.changed, MAX_FEW);
            list(&mut attempt.next_rung, MAX_FEW);
            list(&mut attempt.predicted, MAX_FEW);
            for brim in &mut attempt.predicted {
                text(&mut brim.name);
            }
        }
        Line::Gap(gap) => text(&mut gap.message),
        Line::Sample(found) => sample(found),
        Line::Alarm(alarm) => {
            text(&mut alarm.detector);
            text(&mut alarm.message);
        }
        Line::Action(action) => text(&mut action.done),
        Line::Checkpoint(checkpoint) => text(&mut checkpoint.path),
        Line::Hook(found) => hook(found),
        Line::Output(output) => shorten(&mut output.tail, MAX_TAIL),
        Line::End(end) => {
            list(&mut end.orphans, MAX_PROCESSES);
            list(&mut end.peaks.gpu_used, MAX_FEW);
            if let Some(last) = &mut end.last {
                sample(last);
            }
        }
        Line::Verdict(line) => verdict(&mut line.verdict),
        Line::Unknown => {}
    }
}

/// Parts of a sample of which each takes far more memory than its text.
pub(crate) fn n_parts(sample: &Sample) -> usize {
    let lowest = sample.lowest.as_ref();
    let n_lowest = lowest.map_or(0, |lowest| lowest.gpu_used.len());
    sample.gpus.len() + sample.processes.len() + sample.gauges.len() + n_lowest
}

fn sample(sample: &mut Sample) {
    list(&mut sample.gpus, MAX_FEW);
    list(&mut sample.processes, MAX_PROCESSES);
    list(&mut sample.gauges, MAX_PROCESSES);
    if let Some(lowest) = &mut sample.lowest {
        list(&mut lowest.gpu_used, MAX_FEW);
    }
}

fn hook(line: &mut HookLine) {
    match line {
        HookLine::Torch { version, cuda, .. } => {
            text(version);
            optional(cuda);
        }
        HookLine::Loader(loader) => {
            list(&mut loader.worker_pids, MAX_PROCESSES);
            text(&mut loader.dataset);
            optional(&mut loader.start_method);
        }
        HookLine::CudaOom(proof) => {
            text(&mut proof.message);
            optional(&mut proof.snapshot);
        }
        HookLine::Exception {
            type_name, message, ..
        } => {
            text(type_name);
            text(message);
        }
    }
}

fn verdict(verdict: &mut Verdict) {
    text(&mut verdict.summary);
    list(&mut verdict.evidence, MAX_FEW);
    list(&mut verdict.remedies, MAX_FEW);
    list(&mut verdict.would_settle, MAX_FEW);
    for proof in &mut verdict.evidence {
        text(&mut proof.text);
    }
    for remedy in &mut verdict.remedies {
        text(&mut remedy.text);
        optional(&mut remedy.effect);
    }
    for line in &mut verdict.would_settle {
        text(line);
    }
}

fn command(words: &mut Vec<String>) {
    list(words, MAX_WORDS);
    let mut left = MAX_COMMAND;
    for word in words {
        shorten(word, left.min(MAX_TEXT));
        left -= word.len().min(left);
    }
}

fn list<T>(items: &mut Vec<T>, max: usize) {
    if items.len() > max {
        items.truncate(max);
        items.shrink_to_fit();
    }
}

fn text(text: &mut String) {
    shorten(text, MAX_TEXT);
}

fn optional(part: &mut Option<String>) {
    if let Some(part) = part {
        text(part);
    }
}

fn shorten(text: &mut String, max: usize) {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.shrink_to_fit();
    }
}
