//! Whether the end is so near that acting now is right.
//!
//! Two ways lead here. A *trend* is robust and slow: a leak that has been seen for six seconds and more. A *burst* is
//! the last tenth of a second, or the last look however long ago it was, since a gigabyte per second fills what a small
//! container has left before there is a trend.
//!
//! The trade-off. Taking a burst at its word asks for a checkpoint too many when a load ends just below the trigger: one
//! checkpoint, spaced ever wider. Ending a job costs more, so [`pressing`] wants more: use has to go beyond
//! everything that the job has come back from in the last half hour, and still rise in the last look. A job that is
//! full and flat is never in danger here, however full: only a rise is.

use crate::units::rounded;
use crate::watch::host::HostHistory;
use crate::watch::looks::interval_ms;
use crate::watch::words::{size, size_of, span};

/// From the signal to the first byte of a checkpoint, as assumed: the rest of one call into C, then Python's handler.
pub(crate) const REACTION_MS: u64 = 150;
/// A checkpoint of 200 MB into the page cache, as assumed: 0.6 GB/s with its pickling.
const WRITE_MS: u64 = 350;
/// What a checkpoint needs beside what is there: the state dict of a small model gathered once more, as bytes.
const CHECKPOINT_ROOM: u64 = 200_000_000;
/// Until no thread of a killed process allocates any more, and for a supervisor that is late, as assumed.
const KILL_MS: u64 = 50;
/// The widest last reserve before a kill.
const KILL_ROOM: u64 = 32 << 20;
/// A slower rise than this is a matter for a trend, which needs six seconds.
const BURST_HORIZON_MS: f64 = 15_000.0;
/// A rise that leaves more time than this is said, not acted on.
const TREND_HORIZON_MS: f64 = 600_000.0;

/// A rise that ends at the brim before anybody can do much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Danger {
    /// Bytes per second by which headroom falls.
    pub rate: f64,
    pub headroom: u64,
    pub limit: u64,
    pub time_left_ms: u64,
    /// The job itself takes the memory, and not a neighbour. A burst is always taken for its own.
    pub is_own: bool,
}

/// A rise that calls for a checkpoint now.
pub(crate) fn danger(host: &HostHistory) -> Option<Danger> {
    burst_danger(host).or_else(|| trend_danger(host))
}

/// A rise that would justify ending the job: in danger, on new ground, and still rising.
///
/// `asked` is the headroom at which a checkpoint was asked for. Writing it takes memory at once, 200 MB in a tenth of a
/// second: that is no burst to end the job for. So much, or half of what was left where that is less, is allowed for.
pub(crate) fn pressing(host: &HostHistory, asked: Option<u64>) -> Option<Danger> {
    let is_the_checkpoint = asked.is_some_and(|asked| {
        let allowed = CHECKPOINT_ROOM.min(host.limit() / 10).min(asked / 2);
        host.last()
            .is_some_and(|point| point.headroom > asked.saturating_sub(allowed))
    });
    let burst = if is_the_checkpoint {
        None
    } else {
        pressing_burst(host)
    };
    burst.or_else(|| {
        let found = trend_danger(host)?;
        // While a checkpoint is written memory stands still: it is not the moment to end the job.
        let recent = host.fall_since(10_000)?;
        (recent >= 0.25 * found.rate * 10.0).then_some(found)
    })
}

/// So little is left that only a kill comes before the kernel's.
pub(crate) fn is_last_moment(danger: &Danger) -> bool {
    let look_ms = interval_ms(danger.headroom, danger.rate);
    let room = (danger.limit / 100).min(KILL_ROOM);
    danger.headroom as f64 <= danger.rate * (KILL_MS + look_ms) as f64 / 1e3 + room as f64
}

/// The headroom below which a rise of this rate calls for a checkpoint: what it takes during the next look, the
/// reaction and the write, and the room to write in.
///
/// The room is 200 MB, at most a tenth of a small limit, at least 3 % of it up to 1 GiB.
pub(crate) fn trigger_headroom(rate: f64, headroom: u64, limit: u64) -> f64 {
    let room = (limit / 10)
        .min(CHECKPOINT_ROOM)
        .max((limit / 100).saturating_mul(3).min(1 << 30));
    let look_ms = interval_ms(headroom, rate);
    rate * (REACTION_MS + WRITE_MS + look_ms) as f64 / 1e3 + room as f64
}

fn burst_danger(host: &HostHistory) -> Option<Danger> {
    let burst = host.burst()?;
    // Whichever is steeper: the first look into a burst shows only a part of its slope over any longer span.
    let found = Danger::at(host, burst.fast.max(burst.short))?;
    let is_news = host.is_new_ground(0).unwrap_or(false) || is_deep(burst.depth, found.limit);
    let is_close =
        found.headroom as f64 <= trigger_headroom(found.rate, found.headroom, found.limit);
    (is_news && is_close && found.left_ms() <= BURST_HORIZON_MS).then_some(found)
}

fn pressing_burst(host: &HostHistory) -> Option<Danger> {
    burst_danger(host)?;
    let burst = host.burst()?;
    let sure = burst.fast.min(burst.short);
    let is_news = host
        .is_new_ground(0)
        .unwrap_or_else(|| is_deep(burst.depth, host.limit()));
    (is_news && sure > 0.0 && burst.last_gap >= 0.25 * sure)
        .then(|| Danger::at(host, sure))
        .flatten()
}

/// A tenth of the limit is more than batches and collections move within ten seconds.
fn is_deep(depth: u64, limit: u64) -> bool {
    depth > 0 && depth >= limit / 10
}

fn trend_danger(host: &HostHistory) -> Option<Danger> {
    [host.fine.fall, host.middle.fall]
        .into_iter()
        .flatten()
        .filter(|fall| fall.trend.is_rising())
        .find_map(|fall| {
            let found = Danger {
                is_own: fall.is_own(),
                ..Danger::at(host, fall.trend.slope)?
            };
            // Growth in lumps: the next two have to fit as well.
            let lumps = host.largest_jump().saturating_mul(2).min(found.limit / 10);
            let trigger =
                trigger_headroom(found.rate, found.headroom, found.limit).max(lumps as f64);
            (found.headroom as f64 <= trigger && found.left_ms() <= TREND_HORIZON_MS)
                .then_some(found)
        })
}

impl Danger {
    /// What the present headroom means at this rate; `None` where it does not fall.
    fn at(host: &HostHistory, rate: f64) -> Option<Danger> {
        let headroom = host.last()?.headroom;
        (rate > 0.0).then(|| Danger {
            rate,
            headroom,
            limit: host.limit(),
            time_left_ms: rounded(headroom as f64 / rate * 1e3),
            is_own: true,
        })
    }

    fn left_ms(&self) -> f64 {
        self.headroom as f64 / self.rate * 1e3
    }

    pub(crate) fn message(&self) -> String {
        reaches_limit(self.time_left_ms, self.headroom, self.limit, self.rate)
    }
}

/// "host memory reaches its limit in about 4 minutes: 9.8 GiB of 12.7 GiB used, rising 12 MiB/s".
pub(crate) fn reaches_limit(left_ms: u64, headroom: u64, limit: u64, rate: f64) -> String {
    format!(
        "host memory reaches its limit in about {}: {} of {} used, rising {}/s",
        span(left_ms),
        size(limit.saturating_sub(headroom)),
        size(limit),
        size_of(rate)
    )
}
