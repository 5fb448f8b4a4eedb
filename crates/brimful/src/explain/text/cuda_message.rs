//! The figures in PyTorch's own out-of-memory message, from release 0.4.1 on.
//!
//! Three forms: the figures in brackets (to 2.0), in sentences (from 2.1), and in a list (the `cudaMallocAsync` backend).

use crate::explain::Cause;
use crate::explain::text::clean::{Reading, floor};
use crate::explain::text::size::{size_at_end, size_at_start};
use crate::units::Bytes;

/// What PyTorch says about the card when it raises.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::explain) struct CudaMessage {
    pub(in crate::explain) asked: Option<Bytes>,
    pub(in crate::explain) total: Option<Bytes>,
    pub(in crate::explain) free: Option<Bytes>,
    pub(in crate::explain) allocated: Option<Bytes>,
    /// Reserved by PyTorch and not allocated.
    pub(in crate::explain) unused: Option<Bytes>,
    /// The whole process, as the driver counts it.
    pub(in crate::explain) this_process: Option<Bytes>,
    /// Other processes that are named, with what they hold.
    pub(in crate::explain) processes: Vec<(u32, Bytes)>,
    /// A cap on this process, set by `set_per_process_memory_fraction`.
    pub(in crate::explain) allowed: Option<Bytes>,
    pub(in crate::explain) device: Option<u32>,
    /// AMD's, from the words of the message.
    pub(in crate::explain) is_hip: bool,
    /// From a release whose message speaks of `expandable_segments`.
    pub(in crate::explain) names_expandable_segments: bool,
}

/// As long as the longest message with a dozen processes in it.
const MESSAGE_LENGTH: usize = 2400;

impl CudaMessage {
    /// Reads the message that begins at or soon after `at`; `None` without any figure.
    pub(super) fn read(flat: &str, at: usize) -> Option<CudaMessage> {
        let mut text = &flat[floor(flat, at)..floor(flat, at.saturating_add(MESSAGE_LENGTH))];
        // A second message that follows must not lend its figures to this one.
        if let Some(first) = text.find("triedtoallocate") {
            let after = first + "triedtoallocate".len();
            if let Some(second) = text[after..].find("triedtoallocate") {
                text = &text[..after + second];
            }
        }
        let mut message = CudaMessage {
            asked: after(text, "triedtoallocate"),
            total: before(text, "totalcapacity")
                .or_else(|| after(text, "totalcapacityof"))
                .or_else(|| after(text, "totalcapactyof"))
                .or_else(|| after(text, "devicelimit:")),
            free: before(text, "isfree")
                .or_else(|| before(text, "free;"))
                .or_else(|| before(text, "free)"))
                .or_else(|| after(text, "free(accordingtocuda):")),
            allocated: before(text, "alreadyallocated")
                .or_else(|| before(text, "isallocatedbypytorch"))
                .or_else(|| after(text, "currentlyallocated:")),
            allowed: before(text, "allowed;"),
            this_process: after(text, "thisprocesshas"),
            device: device(text),
            is_hip: is_hip(&flat[floor(flat, at.saturating_sub(60))..floor(flat, at + 1200)]),
            names_expandable_segments: text.contains("expandable_segments"),
            ..CudaMessage::default()
        };
        if message.asked.is_none() {
            message.asked = after(text, "requested:");
        }
        message.unused = before(text, "isreservedbypytorchbutunallocated")
            .or_else(|| {
                // Releases 1.0 to 1.3 count what is unused; what would not fit on the card counts everything.
                let cached = before(text, "cached")?;
                let allocated = message.allocated.unwrap_or_default();
                let is_all = message
                    .total
                    .is_some_and(|total| allocated.saturating_add(cached) > total);
                Some(if is_all {
                    cached.saturating_sub(allocated)
                } else {
                    cached
                })
            })
            .or_else(|| {
                // "Reserved in total" holds what is allocated too.
                let reserved = before(text, "reservedintotal")?;
                Some(reserved.saturating_sub(message.allocated?))
            });
        message.processes = processes(text);
        let has_figures =
            message.asked.is_some() || message.total.is_some() || message.allocated.is_some();
        has_figures.then_some(message)
    }

    /// Reads a message that stands alone.
    pub(in crate::explain) fn of_text(text: &str) -> Option<CudaMessage> {
        CudaMessage::read(&Reading::new(text).flat, 0)
    }

    /// What this process holds, as well as it is known.
    pub(in crate::explain) fn own(&self) -> Bytes {
        let counted = self
            .allocated
            .unwrap_or_default()
            .saturating_add(self.unused.unwrap_or_default());
        match self.this_process {
            // The driver under Windows answers with nonsense at times, such as 17179869184 GiB.
            Some(whole) if self.total.is_none_or(|total| whole <= total) => whole.max(counted),
            _ => counted,
        }
    }

    /// What neither this process holds nor is free.
    pub(in crate::explain) fn others(&self) -> Bytes {
        match (self.total, self.free) {
            (Some(total), Some(free)) => total.saturating_sub(free).saturating_sub(self.own()),
            _ => Bytes::ZERO,
        }
    }

    /// Whether PyTorch found this process among those that the driver lists. In a container it often does not: then the
    /// driver lists it too, but under the host's number.
    pub(in crate::explain) fn knows_itself(&self) -> bool {
        self.this_process.is_some_and(|whole| whole == self.own())
    }

    /// Whether it names processes, none of them `ours`, that hold more than half of the GPU.
    pub(in crate::explain) fn names_others_that_hold_most(&self, ours: &[u32]) -> bool {
        let named = self.processes.iter().filter(|(pid, _)| !ours.contains(pid));
        let held = named.fold(Bytes::ZERO, |sum, (_, held)| sum.saturating_add(*held));
        let total = self.total.unwrap_or_default();
        self.knows_itself() && held <= total && held.share_of(total) > 0.5
    }

    /// Whether the figures alone show that it was this, and contradict each other nowhere.
    pub(in crate::explain) fn adds_up(&self, cause: Cause) -> bool {
        let (Some(asked), Some(total), Some(allocated)) = (self.asked, self.total, self.allocated)
        else {
            return false;
        };
        // A card with less than nothing left, or a process that holds more than there is.
        if asked == Bytes::ZERO || allocated > total || self.is_unified_memory() {
            return false;
        }
        match cause {
            Cause::CudaOomFragmented => self.is_fragmented() && self.free.is_some(),
            // Without the whole of this process, what another library holds in it may be taken for others.
            Cause::CudaOomOtherProcess => {
                self.others_hold_most() && self.free.is_some() && self.knows_itself()
            }
            _ => match (self.allowed, self.free) {
                (Some(allowed), _) => allocated.saturating_add(asked) > allowed,
                (None, Some(free)) => asked > free,
                (None, None) => self.own().saturating_add(asked) > total,
            },
        }
    }

    /// Which kind of out of memory the figures show.
    pub(in crate::explain) fn cause(&self) -> Cause {
        if self.is_fragmented() {
            Cause::CudaOomFragmented
        } else if self.others_hold_most() {
            Cause::CudaOomOtherProcess
        } else {
            Cause::CudaOomExhausted
        }
    }

    /// Enough lies unused inside of what PyTorch reserved, and it is much: a share of the card, or many times the
    /// request.
    fn is_fragmented(&self) -> bool {
        let (Some(asked), Some(unused)) = (self.asked, self.unused) else {
            return false;
        };
        if asked == Bytes::ZERO {
            return false;
        }
        let is_share = unused >= asked
            && self
                .total
                .is_some_and(|total| unused.share_of(total) >= 0.05);
        let is_multiple = unused.get() / 2 >= asked.get() && unused >= Bytes::from_mib(512);
        (is_share || is_multiple) && self.free.unwrap_or_default().saturating_add(unused) >= asked
    }

    fn others_hold_most(&self) -> bool {
        let Some(total) = self.total else {
            return false;
        };
        if self.is_unified_memory() {
            return false;
        }
        // A message that was cut before it says what this process holds: it is one of the listed at most.
        let is_own_known = self.allocated.is_some() || self.this_process.is_some();
        let others = match self.processes.iter().map(|(_, held)| *held).max() {
            _ if is_own_known => self.others(),
            Some(largest) => self.others().saturating_sub(largest),
            None => return false,
        };
        others.share_of(total) > 0.5
    }

    /// AMD's processors with graphics share the host's memory: what is missing there is held by programs, not by
    /// another user of the card. Their size is a setting in whole GiB; cards report a little less than they are sold as.
    pub(in crate::explain) fn is_unified_memory(&self) -> bool {
        self.is_hip
            && self.processes.is_empty()
            && self
                .total
                .is_some_and(|total| total >= Bytes::from_gib(32) && total.get() % Bytes::GIB == 0)
    }
}

fn is_hip(text: &str) -> bool {
    [
        "hipoutofmemory",
        "hiperror",
        "pytorch_hip_alloc_conf",
        "hipgraphs",
    ]
    .iter()
    .any(|word| text.contains(word))
}

/// The size right after the words.
fn after(text: &str, words: &str) -> Option<Bytes> {
    let at = text.find(words)? + words.len();
    size_at_start(&text[at..])
}

/// The size right before the words, wherever they first follow one.
fn before(text: &str, words: &str) -> Option<Bytes> {
    text.match_indices(words)
        .take(8)
        .find_map(|(at, _)| size_at_end(&text[..at]))
}

/// "GPU 0 has", "(GPU 0;".
fn device(text: &str) -> Option<u32> {
    text.match_indices("gpu").take(8).find_map(|(at, _)| {
        let rest = &text[at + 3..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let ends_well = rest[digits..].starts_with("has") || rest[digits..].starts_with(';');
        (digits > 0 && digits < 4 && ends_well).then(|| rest[..digits].parse().ok())?
    })
}

/// "Process 7 has 1.00 GiB memory in use", for each.
fn processes(text: &str) -> Vec<(u32, Bytes)> {
    text.match_indices("process")
        .take(64)
        .filter_map(|(at, word)| {
            let rest = &text[at + word.len()..];
            let digits = rest.bytes().take(10).take_while(u8::is_ascii_digit).count();
            let pid = rest[..digits].parse().ok()?;
            let size = size_at_start(rest[digits..].strip_prefix("has")?)?;
            Some((pid, size))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> CudaMessage {
        CudaMessage::read(&Reading::new(text).flat, 0).unwrap()
    }

    fn check(text: &str, cause: Cause) {
        assert_eq!(read(text).cause(), cause, "{:?}", read(text));
    }

    fn in_brackets(asked: &str, total: &str, allocated: &str, free: &str, last: &str) -> String {
        format!(
            "CUDA out of memory. Tried to allocate {asked} (GPU 1; {total} total capacity; {allocated} already \
             allocated; {free} free; {last})"
        )
    }

    #[test]
    fn figures_in_brackets() {
        let message = read(&in_brackets(
            "3.00 GiB",
            "8.00 GiB",
            "4.00 GiB",
            "1.00 GiB",
            "6.50 GiB reserved in total by PyTorch",
        ));
        assert_eq!(message.asked, Some(Bytes::from_gib(3)));
        assert_eq!(message.unused, Some(Bytes(5 << 29)));
        assert_eq!(message.device, Some(1));
        assert_eq!(message.own(), Bytes(13 << 29));
    }

    #[test]
    fn cached_was_unused_before_it_became_reserved() {
        check(
            &in_brackets(
                "1.00 GiB",
                "8.00 GiB",
                "4.00 GiB",
                "0 bytes",
                "3.00 GiB cached",
            ),
            Cause::CudaOomFragmented,
        );
        check(
            &in_brackets(
                "1.00 GiB",
                "8.00 GiB",
                "7.00 GiB",
                "0 bytes",
                "40.00 MiB cached",
            ),
            Cause::CudaOomExhausted,
        );
    }

    #[test]
    fn what_does_not_fit_even_in_one_piece_is_not_fragmented() {
        check(
            &in_brackets(
                "7.00 GiB",
                "8.00 GiB",
                "1.00 GiB",
                "100.00 MiB",
                "6.00 GiB cached",
            ),
            Cause::CudaOomExhausted,
        );
    }

    #[test]
    fn others_hold_the_card() {
        check(
            &in_brackets(
                "20.00 MiB",
                "8.00 GiB",
                "1.00 GiB",
                "10.00 MiB",
                "1.10 GiB reserved in total by PyTorch",
            ),
            Cause::CudaOomOtherProcess,
        );
        let text = "CUDA out of memory. Tried to allocate 30.00 MiB. GPU 2 has a total capacty of 24.00 GiB of which 9.00 MiB is \
                    free. Process 71 has 20.00 GiB memory in use. Including non-PyTorch memory, this process has 3.90 \
                    GiB memory in use. Of the allocated memory 3.20 GiB is allocated by PyTorch, and 100.00 MiB is reserved \
                    by PyTorch but unallocated.";
        check(text, Cause::CudaOomOtherProcess);
        assert!(read(text).adds_up(Cause::CudaOomOtherProcess));
        assert!(read(text).names_others_that_hold_most(&[]));
        assert!(
            !read(text).names_others_that_hold_most(&[71]),
            "71 is of the job"
        );
        assert_eq!(read(text).processes, [(71, Bytes::from_gib(20))]);
        assert_eq!(read(text).device, Some(2));
    }

    #[test]
    fn in_a_container_this_process_may_be_among_the_listed() {
        let listed = |held: &str| {
            format!(
                "CUDA out of memory. Tried to allocate 30.00 MiB. GPU 0 has a total capacity of 24.00 GiB of which 9.00 \
                 MiB is free. {held} Of the allocated memory 3.20 GiB is allocated by PyTorch, and 100.00 MiB is \
                 reserved by PyTorch but unallocated."
            )
        };
        // Another process, or another library in this one.
        for held in [
            "Process 900071 has 23.90 GiB memory in use.",
            "Process 900071 has 20.00 GiB memory in use. Process 900072 has 3.90 GiB memory in use.",
            "",
        ] {
            let message = read(&listed(held));
            assert_eq!(message.cause(), Cause::CudaOomOtherProcess);
            assert!(!message.adds_up(Cause::CudaOomOtherProcess), "{held}");
            assert!(!message.names_others_that_hold_most(&[]), "{held}");
        }
        // The number of this process belongs to another on the host, which holds less than PyTorch does here.
        let message = read(&listed(
            "Including non-PyTorch memory, this process has 1.00 GiB memory in use.",
        ));
        assert!(!message.knows_itself());
    }

    #[test]
    fn a_message_that_was_cut_after_its_list_of_processes() {
        let cut = |held: &str| {
            format!(
                "CUDA out of memory. Tried to allocate 30.00 MiB. GPU 2 has a total capacity of 24.00 GiB of which 9.00 MiB \
                 is free. Process 71 has {held} memory in use. Process 72 has 3.00 GiB memory in use."
            )
        };
        // Whichever of them this process is, others hold most.
        check(&cut("9.00 GiB"), Cause::CudaOomOtherProcess);
        check(&cut("20.00 GiB"), Cause::CudaOomExhausted);
    }

    #[test]
    fn a_process_of_absurd_size_is_not_believed() {
        let text = "CUDA out of memory. Tried to allocate 30.00 MiB. GPU 0 has a total capacity of 24.00 GiB of which 0 bytes is \
                    free. Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. Of the \
                    allocated memory 23.00 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated.";
        assert!(read(text).own() < Bytes::from_gib(24));
        check(text, Cause::CudaOomExhausted);
    }

    #[test]
    fn two_messages_do_not_mix() {
        let text = format!(
            "CUDA out of memory. Tried to allocate 1.00 GiB\n{}",
            in_brackets(
                "2.00 GiB",
                "8.00 GiB",
                "4.00 GiB",
                "0 bytes",
                "3.00 GiB cached"
            )
        );
        assert_eq!(read(&text).total, None);
    }

    #[test]
    fn the_list_of_the_asynchronous_backend() {
        let text = "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated : 3.00 GiB\n\
                    Requested : 2.00 GiB\nDevice limit : 4.00 GiB\nFree (according to CUDA): 0 bytes\n";
        let message = read(text);
        assert_eq!(message.asked, Some(Bytes::from_gib(2)));
        assert_eq!(message.cause(), Cause::CudaOomExhausted);
    }
}
