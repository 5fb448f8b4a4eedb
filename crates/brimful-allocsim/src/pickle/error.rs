//! Why a pickle was not read, and what to do then.

use super::FileKind;

/// Why a pickle was not read. Every `at` is the byte where the refused instruction starts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PickleError {
    #[error("expected a pickle, found {found}")]
    NotAPickle { found: FileKind },
    #[error("expected plain data, found the class or function `{name}` at byte {at}")]
    Class { name: String, at: usize },
    #[error("expected plain data, found {what} (instruction {instruction}) at byte {at}")]
    NotPlain {
        what: &'static str,
        instruction: &'static str,
        at: usize,
    },
    #[error(
        "expected {wanted} bytes for the instruction at byte {at}, found the end of the file after {left}"
    )]
    Truncated { wanted: u64, left: u64, at: usize },
    #[error("expected a pickle instruction at byte {at}, found {found:#04x}")]
    UnknownInstruction { found: u8, at: usize },
    #[error("expected pickle protocol 0 to 5, found {found} at byte {at}")]
    UnknownProtocol { found: u8, at: usize },
    #[error("expected {expected}, found {found} at byte {at}")]
    Malformed {
        expected: &'static str,
        found: &'static str,
        at: usize,
    },
    #[error("expected an integer of at most 64 bits, found one of {n_bytes} bytes at byte {at}")]
    IntegerTooLarge { n_bytes: usize, at: usize },
    #[error(
        "expected a {kind} that is complete, found one changed after another value held it, at byte {at}"
    )]
    ContainsItself { kind: &'static str, at: usize },
    #[error("expected values nested at most {limit} deep, found more at byte {at}")]
    TooDeep { limit: u16, at: usize },
    #[error("expected at most {limit} bytes of values, found more at byte {at}")]
    TooLarge { limit: u64, at: usize },
    #[error("expected at most {limit} memo entries, found index {found} at byte {at}")]
    MemoTooLarge { limit: usize, found: u64, at: usize },
}

impl PickleError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            PickleError::NotAPickle { found } => found.hint(),
            PickleError::Class { .. } | PickleError::NotPlain { .. } => {
                "nothing of it was run; if you do not know who made this file, do not load it in Python either"
            }
            PickleError::Truncated { .. } => {
                "the file was cut short, often by a full disk or a killed run; write it again"
            }
            PickleError::UnknownProtocol { .. } => {
                "write it again with `pickle.dump(value, file, protocol=4)`"
            }
            PickleError::TooLarge { .. } => {
                "record fewer events, as in `_record_memory_history(max_entries=100000)`"
            }
            PickleError::UnknownInstruction { .. }
            | PickleError::Malformed { .. }
            | PickleError::IntegerTooLarge { .. }
            | PickleError::ContainsItself { .. }
            | PickleError::TooDeep { .. }
            | PickleError::MemoTooLarge { .. } => {
                "pass a file written by `torch.cuda.memory._dump_snapshot` or `pickle.dump`"
            }
        }
    }
}
