//! Descriptors: writing to them, and handing them to a program that is started.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};

/// Writes everything; false where nobody reads any more.
pub(crate) fn write_all(destination: impl AsFd, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match rustix::io::write(&destination, bytes) {
            Ok(n_written) => bytes = &bytes[n_written..],
            Err(Errno::INTR) => {}
            // Somebody else made this stream non-blocking; wait as a blocking one would.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&destination, PollFlags::OUT)], None);
            }
            Err(_) => return false,
        }
    }
    true
}

/// Descriptors that a program started now inherits.
pub(crate) struct Inherited<'a>(Vec<&'a OwnedFd>);

impl Inherited<'_> {
    pub(crate) fn new(descriptors: Vec<&OwnedFd>) -> io::Result<Inherited<'_>> {
        let inherited = Inherited(descriptors);
        for descriptor in &inherited.0 {
            set_inherited(descriptor, true)?;
        }
        Ok(inherited)
    }
}

impl Drop for Inherited<'_> {
    fn drop(&mut self) {
        for descriptor in &self.0 {
            let _ = set_inherited(descriptor, false);
        }
    }
}

/// Whether programs that are started from now on get this descriptor.
pub(crate) fn set_inherited(descriptor: impl AsFd, inherited: bool) -> io::Result<()> {
    let mut flags = fcntl_getfd(&descriptor)?;
    flags.set(FdFlags::CLOEXEC, !inherited);
    Ok(fcntl_setfd(&descriptor, flags)?)
}
