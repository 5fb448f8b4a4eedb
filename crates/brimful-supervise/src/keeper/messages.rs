//! What brimful and the keeper say to each other.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::caller::SignalState;
use crate::exit_status::Ended;

/// Longer than any command line that the kernel takes.
const MAX_ORDER_BYTES: u32 = 16 << 20;

/// What brimful says, two bytes each.
pub(super) mod said {
    /// All is well: brimful ends by itself.
    pub(crate) const DONE: u8 = b'x';
    /// The training may begin.
    pub(crate) const GO: u8 = b'g';
    /// brimful knows of the training's end.
    pub(crate) const HEARD: u8 = b'a';
    /// Nobody reads this route any more.
    pub(crate) const LET_GO: u8 = b'c';
    /// A status line is up, on a terminal of so many rows.
    pub(crate) const ROWS: u8 = b'r';
}

/// What the keeper starts.
#[derive(Debug, Default)]
pub(crate) struct Order<'a> {
    pub(crate) command: &'a [OsString],
    /// The process group of the training; `None` for a new one.
    pub(crate) group: Option<i32>,
    /// What it has blocked and ignored.
    pub(crate) signals: SignalState,
    /// The run's directory, for the exit status.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) attempt: u32,
}

/// What the keeper reports, five bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The training stands at its gate, as this process.
    AtGate(i32),
    Started,
    /// It could not be started, with this error of the system.
    NotStarted(i32),
    Ended(Ended),
    /// It was stopped from its terminal.
    Stopped,
    /// The keeper has got this signal, as has everybody in its process group.
    Signaled(i32),
}

impl Report {
    pub(super) const SIZE: usize = 5;

    pub(super) fn to_bytes(self) -> [u8; Report::SIZE] {
        let (tag, number) = match self {
            Report::AtGate(pid) => (b'p', pid),
            Report::Started => (b'o', 0),
            Report::NotStarted(errno) => (b'e', errno),
            Report::Ended(Ended::Exited(code)) => (b'x', code),
            Report::Ended(Ended::Signaled(signal)) => (b'k', signal),
            Report::Ended(Ended::Unknown) => (b'u', 0),
            Report::Stopped => (b't', 0),
            Report::Signaled(signal) => (b's', signal),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [tag, a, b, c, d]
    }

    pub(super) fn from_bytes([tag, a, b, c, d]: [u8; Report::SIZE]) -> Option<Report> {
        let number = i32::from_le_bytes([a, b, c, d]);
        Some(match tag {
            b'p' => Report::AtGate(number),
            b'o' => Report::Started,
            b'e' => Report::NotStarted(number),
            b'x' => Report::Ended(Ended::Exited(number)),
            b'k' => Report::Ended(Ended::Signaled(number)),
            b'u' => Report::Ended(Ended::Unknown),
            b't' => Report::Stopped,
            b's' => Report::Signaled(number),
            _ => return None,
        })
    }
}

impl Order<'_> {
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.attempt.to_le_bytes());
        body.extend_from_slice(&self.group.unwrap_or(0).to_le_bytes());
        body.extend_from_slice(&self.signals.blocked.to_le_bytes());
        body.extend_from_slice(&self.signals.ignored.to_le_bytes());
        let directory = self.directory.as_deref().unwrap_or(Path::new(""));
        let words = self.command.iter().map(|word| word.as_bytes());
        for word in std::iter::once(directory.as_os_str().as_bytes()).chain(words) {
            let length = u32::try_from(word.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
            body.extend_from_slice(&length.to_le_bytes());
            body.extend_from_slice(word);
        }
        let length = u32::try_from(body.len())
            .ok()
            .filter(|length| *length <= MAX_ORDER_BYTES)
            .ok_or(io::ErrorKind::InvalidInput)?;
        Ok([&length.to_le_bytes(), body.as_slice()].concat())
    }
}

/// An order as the keeper has read it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReadOrder {
    pub(super) attempt: u32,
    pub(super) group: Option<i32>,
    pub(super) signals: SignalState,
    pub(super) directory: Option<PathBuf>,
    pub(super) command: Vec<OsString>,
}

impl ReadOrder {
    pub(super) fn read(mut from: impl Read) -> io::Result<ReadOrder> {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        if length > MAX_ORDER_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = Vec::new();
        from.take(u64::from(length)).read_to_end(&mut body)?;
        ReadOrder::parse(&body).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(body: &[u8]) -> Option<ReadOrder> {
        let (attempt, rest) = body.split_first_chunk()?;
        let (group, rest) = rest.split_first_chunk()?;
        let (blocked, rest) = rest.split_first_chunk()?;
        let (ignored, mut rest) = rest.split_first_chunk()?;
        let mut words = Vec::new();
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let (word, after) = after.split_at_checked(length)?;
            words.push(OsString::from_vec(word.to_vec()));
            rest = after;
        }
        let mut words = words.into_iter();
        Some(ReadOrder {
            attempt: u32::from_le_bytes(*attempt),
            group: Some(i32::from_le_bytes(*group)).filter(|group| *group != 0),
            signals: SignalState {
                blocked: u64::from_le_bytes(*blocked),
                ignored: u64::from_le_bytes(*ignored),
            },
            directory: words
                .next()
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            command: words.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_arrives_as_it_was_given() {
        let command: Vec<OsString> =
            vec!["python".into(), "".into(), OsString::from_vec(vec![0xff])];
        let order = Order {
            command: &command,
            group: Some(77),
            signals: SignalState {
                blocked: 1 << 63,
                ignored: 5,
            },
            directory: Some("/runs/a b".into()),
            attempt: 3,
        };
        let bytes = order.to_bytes().unwrap();
        let read = ReadOrder::read(bytes.as_slice()).unwrap();
        assert_eq!(read.command, command);
        assert_eq!((read.attempt, read.group), (3, Some(77)));
        assert_eq!(read.signals, order.signals);
        assert_eq!(read.directory, order.directory);
        for end in 0..bytes.len() - 1 {
            let cut = ReadOrder::read(&bytes[..end]);
            assert!(cut.is_err() || cut.unwrap().command != command);
        }
        assert!(ReadOrder::read([0xff; 64].as_slice()).is_err());
    }

    #[test]
    fn reports_arrive_as_they_were_made() {
        for report in [
            Report::AtGate(4711),
            Report::Started,
            Report::NotStarted(2),
            Report::Ended(Ended::Exited(255)),
            Report::Ended(Ended::Signaled(9)),
            Report::Ended(Ended::Unknown),
            Report::Stopped,
            Report::Signaled(15),
        ] {
            assert_eq!(Report::from_bytes(report.to_bytes()), Some(report));
        }
        assert_eq!(Report::from_bytes([0; 5]), None);
    }
}
