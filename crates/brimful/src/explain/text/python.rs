//! Any other exception of Python, and what only whole lines can tell.

use crate::explain::text::clean::Reading;
use crate::explain::text::exception::exception;
use crate::explain::text::phrases::{Hit, Phrase, ask};
use crate::explain::text::shape::{is_raised, is_reported, weak};
use crate::explain::text::sign::{Rank, Sign};
use crate::explain::{Cause, Detail};

use Cause::{Ambiguous, CudaOomExhausted, HostAllocFailed, NotMemory};

/// Words of programs that we do not know for memory that could not be had.
pub(super) const PHRASES: &[Phrase] = &[
    ask("out of memory", unknown_words),
    ask("out-of-memory", unknown_words),
    ask("out of GPU memory", unknown_words),
    ask("out of VRAM", unknown_words),
    ask("out of device memory", unknown_words),
    ask("out of video memory", unknown_words),
    ask("not enough memory", unknown_words),
    ask("insufficient memory", unknown_words),
    ask("insufficient GPU memory", unknown_words),
    ask("not enough GPU memory", unknown_words),
    ask("memory allocation failed", unknown_words),
    ask("memory allocation failure", unknown_words),
    ask("failed to allocate", unknown_words),
    ask("could not allocate", unknown_words),
    ask("couldn't allocate", unknown_words),
    ask("unable to alloc", unknown_words),
    ask("can't allocate memory", unknown_words),
    ask("memory exhausted", unknown_words),
    ask("内存不足", unknown_words),
    ask("显存不足", unknown_words),
];

/// Guesses and advice, in which the words say nothing about this run.
const HEDGES: &[&str] = &[
    "perhaps",
    "couldbe",
    "mightbe",
    "maybe",
    "possibl",
    "typically",
    "usually",
    "often",
    "probabl",
    "likely",
    "avoid",
    "prevent",
    "ifyou",
    "incase",
    "mayrun",
    "mightrun",
    "canlead",
    "maylead",
    "cancause",
    "maycause",
    "such as",
    "potential",
    "mayhave",
    "mightcause",
    "causes",
    "lookslike",
    "seems",
    "suspect",
    "guess",
];

const DEVICE: &[&str] = &[
    "cuda",
    "gpu",
    "hip",
    "rocm",
    "device",
    "vram",
    "cudnn",
    "cublas",
    "nccl",
    "hbm",
    "tpu",
    "显存",
    "tensorrt",
    "[trt]",
    "xlaruntimeerror",
    "jaxlib",
];

const HOST: &[&str] = &[
    "host",
    "cpu",
    "ofram",
    "systemmemory",
    "malloc",
    "heap",
    "libgomp",
    "mmap",
    "cc1plus",
    "java",
    "thesystem",
    "pandas",
    "tokenizing",
    "duckdb",
    "polars",
    "sqlite",
    "julia",
];

fn unknown_words(reading: &Reading, hit: Hit) -> Option<Sign> {
    let near = reading.around(hit.at, 90, 90);
    let line = &reading.lines[reading.line_at(hit.at)];
    if ["except ", "if ", "elif ", "#", "raise "]
        .iter()
        .any(|word| line.starts_with(word))
    {
        return None;
    }
    let is_guessed = HEDGES.iter().any(|hedge| near.contains(hedge));
    if is_guessed || reading.after(hit.end, 2).starts_with('?') {
        return Some(weak(hit));
    }
    if reading.after(hit.end, 200).contains("notafailure") {
        return None;
    }
    // How somebody reads a kill: `exited with code 137 (out of memory)`.
    let told = reading.before(hit.at, 40);
    if ["137", "code-9", "signal9", "sigkill", "killed"]
        .iter()
        .any(|word| told.contains(word))
    {
        return Some(weak(hit));
    }
    let wider = reading.around(hit.at, 160, 160);
    let speaks_of = |words: &[&str]| words.iter().any(|word| wider.contains(word));
    // Right after the words: "failed to allocate CPU memory".
    let what = reading.after(hit.end, 16);
    let is_host = ["cpu", "host", "ram", "systemmemory"]
        .iter()
        .any(|word| what.starts_with(word));
    let says_which = speaks_of(DEVICE) || speaks_of(HOST);
    let has_happened = is_raised(reading, hit) || (says_which && is_reported(reading, hit));
    if !has_happened {
        return Some(weak(hit));
    }
    // Where whose memory is not said: these words are the card's in this trade, the others the host's.
    let sounds_like_a_card = reading.after(hit.at, 5).starts_with("outof")
        || reading.after(hit.at, 6).starts_with("out-of");
    let cause = if is_host {
        HostAllocFailed
    } else if speaks_of(DEVICE) || (sounds_like_a_card && !speaks_of(HOST)) {
        CudaOomExhausted
    } else {
        HostAllocFailed
    };
    Some(hit.sign(Rank::Hinted, cause, Detail::UnknownWords))
}

/// Signs that stand on lines of their own: exceptions, and a shell's word for a process that was killed.
///
/// An exception whose message another family understood is not any exception.
pub(super) fn signs_of_lines(reading: &Reading, places: &Places) -> Vec<Sign> {
    let mut signs = Vec::new();
    for (idx, line) in reading.lines.iter().enumerate() {
        let hit = Hit {
            at: reading.start_of(idx),
            end: reading.start_of(idx),
        };
        if says_killed(line) {
            signs.push(hit.sign(Rank::Signaled, Ambiguous, Detail::Sigkill));
        } else if says_terminated(line) {
            signs.push(hit.sign(Rank::Raised, NotMemory, Detail::Terminated));
        } else if says_aborted(line) {
            signs.push(hit.sign(Rank::Aftermath, Ambiguous, Detail::Aborted));
        }
        if let Some((at, name)) = exception(line) {
            let at = hit.at
                + line[..at]
                    .chars()
                    .filter(|c| !c.is_whitespace())
                    .map(char::len_utf8)
                    .sum::<usize>();
            let hit = Hit { at, end: at };
            let end_of_message = reading.start_of(idx + 1).saturating_add(MESSAGE_GOES_ON);
            let end_of_line = reading.start_of(idx + 1);
            if has_one(&places.claimed, at, end_of_message)
                || has_one(&places.echoes, at, end_of_line)
            {
                continue;
            }
            let short = name.rsplit('.').next().unwrap_or(name);
            if CONSEQUENCES
                .iter()
                .any(|name| name.eq_ignore_ascii_case(short))
            {
                signs.push(hit.sign(Rank::Aftermath, Ambiguous, Detail::FailedElsewhere));
            } else {
                signs.push(hit.sign(Rank::Raised, NotMemory, Detail::Exception));
            }
        }
        if reports_error(line) && !has_one(&places.all, hit.at, reading.start_of(idx + 1)) {
            signs.push(hit.sign(Rank::Raised, NotMemory, Detail::Exception));
        }
        if logs_error(line) && !has_one(&places.all, hit.at, reading.start_of(idx + 1)) {
            signs.push(hit.sign(Rank::Aftermath, NotMemory, Detail::Exception));
        }
        if signs.len() > MAX_LINES_WITH_SIGNS {
            break;
        }
    }
    signs
}

/// A line at the level of errors, in a log: what it says is at least not known to be about memory.
fn logs_error(line: &str) -> bool {
    ["[ERROR]", "[error]", "[E]", "[FATAL]", "[fatal]"]
        .iter()
        .any(|level| line.contains(level))
}

/// What the other families understood of a text, in order.
#[derive(Debug)]
pub(super) struct Places {
    claimed: Vec<usize>,
    /// What is said of another process.
    echoes: Vec<usize>,
    /// Everything.
    all: Vec<usize>,
}

impl Places {
    pub(super) fn new(
        mut claimed: Vec<usize>,
        mut echoes: Vec<usize>,
        mut all: Vec<usize>,
    ) -> Places {
        claimed.sort_unstable();
        echoes.sort_unstable();
        all.sort_unstable();
        Places {
            claimed,
            echoes,
            all,
        }
    }
}

/// Whether one of these places lies there.
fn has_one(places: &[usize], from: usize, to: usize) -> bool {
    let first = places.partition_point(|place| *place < from);
    places.get(first).is_some_and(|place| *place < to)
}

/// `error: …`, `train.py: error: …`, `fatal: …`, as programs of other languages end.
fn reports_error(line: &str) -> bool {
    let begins = |text: &str| {
        [
            "error: ",
            "Error: ",
            "ERROR: ",
            "fatal: ",
            "FATAL: ",
            "fatal error: ",
            "Fatal error: ",
        ]
        .iter()
        .any(|word| text.starts_with(word))
    };
    begins(line)
        || line.starts_with("Error in ")
        || (line.contains("sh: ") && line.ends_with(": not found"))
        || line
            .split_once(": ")
            .is_some_and(|(name, rest)| !name.contains(' ') && name.len() < 60 && begins(rest))
}

/// A message may go on for a line or two, by a wrap or of itself.
const MESSAGE_GOES_ON: usize = 120;
const MAX_LINES_WITH_SIGNS: usize = 4096;

/// What is raised because another process, or the other end of a pipe, is gone.
const CONSEQUENCES: &[&str] = &[
    "ChildFailedError",
    "CalledProcessError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "BrokenProcessPool",
    "TerminatedWorkerError",
    "WorkerLostError",
    "WorkerCrashedError",
    "RayActorError",
    "ActorDiedError",
    "RayTaskError",
    "KilledWorker",
    "EOFError",
    "BrokenPipeError",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "ConnectionAbortedError",
    "SystemExit",
    "Empty",
    "Full",
    "DeadKernelError",
    "EngineDeadError",
    "AsyncEngineDeadError",
    "MQEngineDeadError",
    "MPClientEngineMonitor",
    "FutureCancelledError",
    "RayChannelError",
    "NodeDiedError",
    "OwnerDiedError",
    "ActorUnavailableError",
];

/// `Killed` as shells print it: alone, after a number, or glued to the end of a progress bar.
fn says_killed(line: &str) -> bool {
    const WORDS: [&str; 12] = [
        "Killed",
        "已杀死",
        "已砍掉",
        "Getötet",
        "Processus arrêté",
        "Terminado (killed)",
        "Убито",
        "強制終了",
        "죽었음",
        "Ucciso",
        "Morto",
        "Вбито",
    ];
    if line.contains("zsh: killed")
        || line.contains("Killed: 9")
        || line.ends_with("signal: killed")
        || line == "killed"
    {
        return true;
    }
    for word in WORDS {
        for (at, _) in line.match_indices(word).take(8) {
            let before = line[..at].trim_end();
            // In the DataLoader's words, which say whose.
            if before.ends_with("signal:") {
                continue;
            }
            let after = &line[at + word.len()..];
            let is_glued_to_words = before
                .chars()
                .next_back()
                .is_some_and(|c| c.is_alphabetic() || c == '_' || c == '"' || c == '\'');
            let ends_line = after.trim_start().is_empty()
                || after.trim() == "."
                || after.trim_start().starts_with("(core dumped)");
            // A shell pads the word before the command.
            let is_padded = after.starts_with("  ");
            let follows_pid = before
                .chars()
                .next_back()
                .is_some_and(|c| c.is_ascii_digit() || c == '+' || c == ']' || c == '-');
            let follows_task =
                before.ends_with(':') && (before.contains("task") || before.contains("line "));
            if (ends_line && !is_glued_to_words)
                || (is_padded && (before.is_empty() || follows_pid))
                || (follows_task && ends_line)
            {
                return true;
            }
        }
    }
    // zsh's list of jobs: `[1]  + 4711 killed     python train.py`.
    line.find(" killed  ").is_some_and(|at| {
        line[..at]
            .trim_end()
            .ends_with(|c: char| c.is_ascii_digit())
    })
}

fn says_terminated(line: &str) -> bool {
    line == "Terminated"
        || line.ends_with(": Terminated")
        || line.ends_with("]Terminated")
        || line.contains(" Terminated  ")
        || line.contains("Terminated: 15")
        || line.starts_with("zsh: terminated")
}

fn says_aborted(line: &str) -> bool {
    line == "Aborted"
        || line.contains(" Aborted  ")
        || line.starts_with("zsh: abort")
        || line.contains("Abort trap: 6")
}
