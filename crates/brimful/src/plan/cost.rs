//! How fast settings train: the cost model.
//!
//! It orders settings of the same science. Its figures are estimates and are shown as such, except where an earlier run
//! measured the very same settings.
//!
//! **The model.** Seconds of one micro-batch of `m` samples on each rank:
//!
//! - *On processors*, the seconds that the rehearsal measured at this micro-batch. Between rehearsed micro-batches a
//!   straight line with a fixed cost per micro-step. Where one micro-batch was rehearsed only, that fixed cost is taken
//!   to be a tenth of it, 10 ms at most.
//! - *On a card*, kernels run beside the Python that launches them, so it is the longer of launching and computing. What
//!   the phantom measured is launching, since it computes nothing, and does not depend on `m`. Computing is `m` times a
//!   time per sample that is the same for all micro-batches, so that a larger one is never slower. That time comes from
//!   earlier runs of the job. Before the first one it is the time to move a sample's activations, whose bytes are what
//!   one more sample adds to the card's memory, five times through the card's memory (written and read in the forward
//!   pass; read, and their gradients written and read, in the backward pass) at 300 GB/s, the memory rate of the slowest
//!   card that is still widely used (T4: 320 GB/s by its data sheet). It is a lower bound for compute-bound models.
//! - *Activation checkpointing* makes the forward pass twice. A backward pass costs twice a forward pass (its two matrix
//!   products for each of the forward's one; Chen et al. 2016, "Training deep nets with sublinear memory cost"), so the
//!   model's time is multiplied by 4/3. A time that was measured with checkpointing has it in already.
//! - *The optimizer's step* comes once per effective batch, which is the same for all settings: it changes no order and
//!   is left out.
//! - *Data without workers* is made between the steps: its time is added.
//! - *Data from `w` workers* is made beside the steps, at most as many samples at once as there are processors. The
//!   training pays for taking over each batch. The time is the longest of: making the batch; computing it and taking it
//!   over; all processor time of the batch divided by the processors. On processors, torch's own threads are taken to
//!   use them all, so that workers only take time from the model.
//! - *Prefetch 1* costs 2 %: a worker that has no second batch in hand waits for each to be taken. More than 2 gains
//!   nothing. *Workers that are started anew* each epoch cost 0.5 %, *memory that is not pinned* 1 % on a card; both are
//!   there to decide between otherwise equal settings, not measured. So are 2 % for *computing again* on a card where
//!   something else is the bottleneck.
//!
//! Taking over a batch costs 0.5 ms where it was not measured: the processor time of the main process per batch of 32
//! small tensors, torch 2.13, two shared processors, November 2026, against 0.12 ms without workers. So with samples that
//! cost next to nothing, such as tokens of a list, no workers win; measured, they were up to 15 times slower there.

/// How much longer a step takes with activation checkpointing.
pub(crate) const RECOMPUTE: f64 = 4.0 / 3.0;
/// Seconds to take over a batch where it was not measured.
const HANDOVER_SECONDS: f64 = 0.5e-3;
/// No step of PyTorch is shorter.
const LEAST_STEP_SECONDS: f64 = 1e-4;
/// Share of a step that does not shrink with the micro-batch, on processors.
const FIXED_SHARE: f64 = 0.1;
/// The same at most: Python around a step of a model of some hundred modules.
const MAX_FIXED_SECONDS: f64 = 0.01;
/// Times that activations go through a card's memory.
const PASSES: f64 = 5.0;
/// Bytes per second of a card's memory.
const CARD_BYTES_PER_SECOND: f64 = 300e9;
const PREFETCH_ONE: f64 = 1.02;
const STARTED_ANEW: f64 = 1.005;
const NOT_PINNED: f64 = 1.01;
const RECOMPUTED: f64 = 1.02;

/// What one micro-batch costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    /// Samples of a micro-batch.
    pub(crate) micro: u64,
    /// Ranks that train together and share the processors.
    pub(crate) world: u64,
    /// Seconds of the model: measured on processors, launching on a card. Checkpointing is in it.
    pub(crate) step_seconds: f64,
    /// Seconds of the card per sample, without checkpointing.
    pub(crate) card_seconds: f64,
    pub(crate) recomputes: bool,
    pub(crate) on_cpu: bool,
    pub(crate) sample_seconds: f64,
    pub(crate) handover_seconds: f64,
    /// For a job whose workers are no knob.
    pub(crate) rehearsed_workers: u64,
}

/// How data is handed over, as far as it changes the speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Feed {
    pub(crate) workers: u64,
    pub(crate) prefetch: u64,
    pub(crate) pin_memory: bool,
    pub(crate) persistent: bool,
}

/// Samples per second over all ranks; finite and above zero.
pub(crate) fn samples_per_second(work: &Work, feed: Feed, cpus: f64) -> f64 {
    let at_once = work.micro.max(1) as f64 * work.world.max(1) as f64;
    at_once / micro_step_seconds(work, feed, cpus)
}

/// Seconds of one micro-batch, data included.
pub(crate) fn micro_step_seconds(work: &Work, feed: Feed, cpus: f64) -> f64 {
    let cpus = cpus_of_a_rank(cpus, work.world);
    let step = model_seconds(work);
    let made = sane(work.sample_seconds) * work.micro.max(1) as f64;
    let mut seconds = if feed.workers == 0 {
        step + made
    } else {
        let taken = match sane(work.handover_seconds) {
            zero if zero <= 0.0 => HANDOVER_SECONDS,
            measured => measured,
        };
        let making = made / (feed.workers as f64).min(cpus);
        let busy = if work.on_cpu {
            step * cpus
        } else {
            sane(work.step_seconds)
        };
        let shared = (busy + taken + made) / cpus;
        let seconds = making.max(step + taken).max(shared);
        let ahead = if feed.prefetch == 1 {
            PREFETCH_ONE
        } else {
            1.0
        };
        let anew = if feed.persistent { 1.0 } else { STARTED_ANEW };
        seconds * ahead * anew
    };
    if !work.on_cpu && !feed.pin_memory {
        seconds *= NOT_PINNED;
    }
    if !work.on_cpu && work.recomputes {
        seconds *= RECOMPUTED;
    }
    seconds
}

/// Seconds that the model itself takes.
pub(crate) fn model_seconds(work: &Work) -> f64 {
    let step = sane(work.step_seconds).max(LEAST_STEP_SECONDS);
    if work.on_cpu {
        return step;
    }
    let again = if work.recomputes { RECOMPUTE } else { 1.0 };
    step.max(sane(work.card_seconds) * work.micro.max(1) as f64 * again)
}

/// Seconds of a step at micro-batch `micro` where only one at `rehearsed` is known.
pub(crate) fn scaled_step(seconds: f64, rehearsed: u64, micro: u64) -> f64 {
    let share = micro.max(1) as f64 / rehearsed.max(1) as f64;
    let seconds = sane(seconds);
    let fixed = (seconds * FIXED_SHARE).min(MAX_FIXED_SECONDS);
    fixed + (seconds - fixed) * share
}

/// Seconds of a card per sample, from the bytes that one more sample adds.
pub(crate) fn card_seconds_of(activation_bytes: f64) -> f64 {
    sane(activation_bytes) * PASSES / CARD_BYTES_PER_SECOND
}

fn cpus_of_a_rank(cpus: f64, world: u64) -> f64 {
    let cpus = if cpus.is_finite() {
        cpus.clamp(0.1, 65536.0)
    } else {
        1.0
    };
    (cpus / world.max(1) as f64).max(0.1)
}

/// A time that can be calculated with: at most a day.
fn sane(seconds: f64) -> f64 {
    if seconds.is_finite() {
        seconds.clamp(0.0, 86_400.0)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOKENS: Work = Work {
        micro: 32,
        world: 1,
        step_seconds: 0.010,
        card_seconds: 0.0,
        recomputes: false,
        on_cpu: true,
        sample_seconds: 1e-6,
        handover_seconds: 0.0,
        rehearsed_workers: 0,
    };

    fn with(workers: u64) -> Feed {
        Feed {
            workers,
            prefetch: 2,
            pin_memory: true,
            persistent: true,
        }
    }

    #[test]
    fn samples_that_cost_nothing_need_no_workers() {
        let none = samples_per_second(&TOKENS, with(0), 8.0);
        for workers in 1..9 {
            assert!(none > samples_per_second(&TOKENS, with(workers), 8.0));
        }
    }

    #[test]
    fn samples_that_cost_much_need_workers_and_no_more_than_processors() {
        let meshes = Work {
            sample_seconds: 0.05,
            on_cpu: false,
            ..TOKENS
        };
        let rate = |workers| samples_per_second(&meshes, with(workers), 4.0);
        assert!(rate(1) > rate(0));
        assert!(rate(4) > 3.0 * rate(1));
        assert!((rate(8) - rate(4)).abs() < 1e-9);
    }

    #[test]
    fn a_worker_beside_a_model_on_one_processor_is_slower_than_none() {
        let work = Work {
            sample_seconds: 0.001,
            ..TOKENS
        };
        let rate = |workers| samples_per_second(&work, with(workers), 1.0);
        assert!(rate(0) > rate(1));
    }

    #[test]
    fn computing_again_costs_a_third_where_the_card_is_busy() {
        let busy = Work {
            on_cpu: false,
            card_seconds: 0.01,
            ..TOKENS
        };
        let again = Work {
            recomputes: true,
            ..busy
        };
        let ratio =
            samples_per_second(&busy, with(0), 4.0) / samples_per_second(&again, with(0), 4.0);
        assert!((ratio - RECOMPUTE * RECOMPUTED).abs() < 1e-3);
    }

    fn any_seconds() -> impl Strategy<Value = f64> {
        prop_oneof![0.0..10.0, Just(f64::NAN), Just(f64::INFINITY), Just(-1.0)]
    }

    prop_compose! {
        fn any_work()(
            micro in 0..100_000_u64, world in 0..9_u64, on_cpu: bool, recomputes: bool,
            times in prop::collection::vec(any_seconds(), 4),
        ) -> Work {
            Work {
                micro, world, on_cpu, recomputes,
                step_seconds: times[0], card_seconds: times[1], sample_seconds: times[2], handover_seconds: times[3],
                rehearsed_workers: 0,
            }
        }
    }

    proptest! {
        #[test]
        fn every_rate_is_a_number(work in any_work(), workers in 0..100_u64, prefetch in 0..9_u64, cpus in any_seconds()) {
            let feed = Feed { workers, prefetch, pin_memory: false, persistent: false };
            let rate = samples_per_second(&work, feed, cpus);
            prop_assert!(rate.is_finite() && rate > 0.0, "{rate}");
        }

        #[test]
        fn one_worker_more_is_never_slower(work in any_work(), workers in 1..20_u64, cpus in 0.5..64.0_f64) {
            prop_assert!(samples_per_second(&work, with(workers + 1), cpus) >= samples_per_second(&work, with(workers), cpus));
        }

        #[test]
        fn a_larger_micro_batch_is_never_slower_on_a_card(work in any_work(), workers in 0..9_u64, cpus in 0.5..64.0_f64) {
            let small = Work { on_cpu: false, micro: work.micro.max(1), ..work };
            let large = Work { micro: small.micro * 2, ..small };
            let rate = |work| samples_per_second(work, with(workers), cpus);
            prop_assert!(rate(&large) >= rate(&small) * (1.0 - 1e-9));
        }
    }
}
