//! Digests that tell whether bytes are the same. They protect against accidents, not against people.

use std::io::{self, Write};

use twox_hash::XxHash3_128;

/// As 32 hexadecimal digits.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(bytes))
}

/// Writes to a file and digests what is written.
pub(crate) struct DigestWriter<W> {
    inner: W,
    hasher: XxHash3_128,
    bytes: u64,
}

impl<W: Write> DigestWriter<W> {
    pub(crate) fn new(inner: W) -> DigestWriter<W> {
        DigestWriter {
            inner,
            hasher: XxHash3_128::new(),
            bytes: 0,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn digest(&self) -> String {
        format!("{:032x}", self.hasher.finish_128())
    }

    pub(crate) fn inner(&mut self) -> &mut W {
        &mut self.inner
    }
}

impl<W: Write> Write for DigestWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.write(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
