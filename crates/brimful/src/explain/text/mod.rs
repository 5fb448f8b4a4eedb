//! What a text says: signs in it, and the one to believe.
//!
//! One file per family of messages; each is a table of phrases with their meaning. A new wording is a new line in the
//! table of its family, or in [`python`] where a whole line is needed.

#![expect(
    clippy::unnecessary_wraps,
    reason = "all readers of phrases have one signature, also those that always have an answer"
)]

mod clean;
mod cuda;
mod cuda_message;
mod dataloader;
mod exception;
mod host_allocation;
mod kernel_log;
mod launchers;
mod limits;
mod not_memory;
mod orchestrators;
mod own;
mod phrases;
mod python;
mod schedulers;
mod shape;
mod shm;
mod sign;
mod signal;
mod size;

use std::sync::LazyLock;

use crate::explain::text::phrases::Index;
use crate::explain::text::python::Places;
use crate::explain::{Cause, Detail};

pub(in crate::explain) use clean::Reading;
pub(in crate::explain) use cuda_message::CudaMessage;
pub(in crate::explain) use sign::{Rank, Sign};

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    Index::new(&[
        kernel_log::PHRASES,
        schedulers::PHRASES,
        orchestrators::PHRASES,
        cuda::PHRASES,
        dataloader::PHRASES,
        shm::PHRASES,
        limits::PHRASES,
        host_allocation::PHRASES,
        not_memory::PHRASES,
        signal::PHRASES,
        launchers::PHRASES,
        python::PHRASES,
    ])
});

/// What somebody says who has lost another process: it understands its own line, and none before it.
fn is_echo(sign: &Sign) -> bool {
    matches!(
        sign.detail,
        Detail::FailedElsewhere | Detail::WorkerVanished
    )
}

/// What a text says.
#[derive(Clone, Debug, Default)]
pub(in crate::explain) struct TextSigns {
    reading: Reading,
    /// The most decisive first, and the earliest among equals.
    pub(in crate::explain) signs: Vec<Sign>,
}

impl TextSigns {
    pub(in crate::explain) fn of(text: &str) -> TextSigns {
        let reading = Reading::new(text);
        let mut signs = INDEX.signs(&reading);
        let claimed: Vec<usize> = signs
            .iter()
            .filter(|sign| sign.rank <= Rank::Raised && !is_echo(sign))
            .map(|sign| sign.at)
            .collect();
        let all: Vec<usize> = signs.iter().map(|sign| sign.at).collect();
        let echoes = signs.iter().filter(|sign| is_echo(sign));
        let echoes: Vec<usize> = echoes.map(|sign| sign.at).collect();
        let places = Places::new(claimed, echoes, all);
        signs.extend(python::signs_of_lines(&reading, &places));
        signs.sort_by_key(|sign| (sign.rank, sign.at));
        let mut text = TextSigns { reading, signs };
        text.blame_workers();
        text
    }

    /// Whether brimful itself printed a part of the text.
    pub(in crate::explain) fn has_own_lines(&self) -> bool {
        self.reading.has_own_lines
    }

    /// The first sign of a cause.
    pub(in crate::explain) fn of_cause(&self, cause: Cause) -> Option<&Sign> {
        self.signs.iter().find(|sign| sign.cause == cause)
    }

    /// The line of a sign, for people.
    pub(in crate::explain) fn quote(&self, sign: &Sign) -> String {
        self.reading.quote(sign.at)
    }

    /// Whether the text holds these words, whatever white space is in it. In small letters, without white space.
    pub(in crate::explain) fn contains(&self, flat: &str) -> bool {
        self.reading.flat.contains(flat)
    }

    /// A kill that somebody reports, and a worker that was killed: the victim was the worker.
    fn blame_workers(&mut self) {
        let Some(leading) = self.signs.first() else {
            return;
        };
        if leading.cause != Cause::HostOomKill {
            return;
        }
        let victims: Vec<u32> = self
            .signs
            .iter()
            .filter(|sign| sign.cause == Cause::HostOomKill)
            .flat_map(|sign| sign.facts.pids.iter().copied())
            .collect();
        let worker = self.signs.iter().find(|sign| {
            sign.cause == Cause::DataloaderWorkerKilledOom
                || (sign.detail == Detail::WorkerVanished
                    && sign.facts.pids.iter().any(|pid| victims.contains(pid)))
        });
        if let Some(worker) = worker {
            let pids = worker.facts.pids.clone();
            if let Some(leading) = self.signs.first_mut() {
                leading.cause = Cause::DataloaderWorkerKilledOom;
                leading.facts.pids = pids;
            }
        }
    }
}
