//! Objects in a store: `s3://`, `gs://`, `az://`, `https://` and `http://`.
//!
//! An object is read like a file, by ranges. Credentials, regions and endpoints come from the variables that
//! `object_store` knows (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT`, `AWS_ALLOW_HTTP`, `GOOGLE_SERVICE_ACCOUNT`,
//! `AZURE_STORAGE_ACCOUNT_NAME`, …); none is kept, and none is shown in a message.
//!
//! ```text
//!   small read ──▶ windows (a few MiB for all objects) ──▶ request of 16 KiB, more where reads go on in turn
//!   large read ─────────────────────────────────────────▶ request of exactly its bytes
//! ```
//!
//! Read first: `Object`, then `windows.rs`.

mod address;
mod bucket;
mod connector;
mod error;
mod runtime;
#[doc(hidden)]
pub mod scripted;
#[cfg(test)]
pub(crate) mod server;
mod store;
#[cfg(test)]
mod tests;
mod windows;

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;

use futures_util::StreamExt;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, GetResult, ObjectStore};
use twox_hash::XxHash3_64;

pub use self::bucket::{Bucket, UPLOAD_BYTES};
pub use crate::location::{is_remote, shown};

use self::address::Address;
use self::error::{is_of_no_bytes, read_error, wrong};
use self::runtime::Runtime;
use self::windows::WINDOWS;
use crate::catch_panics::catch_panics;

/// The largest request: what a slow line brings in the time that a request may take.
const MAX_REQUEST_BYTES: usize = 16 << 20;

/// Reads up to this go through windows. Larger ones are worth a request each.
const SMALL: usize = 64 << 10;

/// The longest object, as that of a file: offsets in it add up without wrapping around.
const MAX_LEN: u64 = i64::MAX.unsigned_abs();

/// Asked for when an object is opened, with its size: most headers are within.
const FIRST: u64 = 64 << 10;

/// Objects that are looked through at once when a dataset is opened.
const AT_ONCE: usize = 8;

/// Bytes of windows, of all objects together, that a process keeps.
pub const KEPT: u64 = windows::KEPT;

/// Bytes that a request holds on the way, at the most: the buffer of its connection (408 KiB), what TLS has not opened
/// yet, and a window that others no longer keep.
pub(crate) const ON_THE_WAY: u64 = 768 << 10;

/// One object, read by any number of threads at once.
pub(crate) struct Object {
    /// Without credentials.
    shown: PathBuf,
    store: Arc<dyn ObjectStore>,
    key: Key,
    runtime: Runtime,
    len: u64,
    /// What it was when it was opened, so that no two versions of it are mixed.
    version: Option<String>,
    /// Tells it from others of which the same is shown.
    hidden: Option<u64>,
    number: u64,
}

impl Object {
    /// Asks for the beginning of an object, and so for its size.
    pub(crate) fn open(path: &Path) -> io::Result<Object> {
        let mut object = Object::unopened(path)?;
        let beginning = object.runtime.wait(object.beginning())??;
        object.len = beginning.len;
        object.version = beginning.version;
        WINDOWS.put(object.number, 0, beginning.bytes);
        Ok(object)
    }

    /// Asks for the size of an object and for none of its bytes.
    pub(crate) fn open_unread(path: &Path) -> io::Result<Object> {
        let mut object = Object::unopened(path)?;
        let options = GetOptions::default().with_head(true);
        let found = object.runtime.wait(object.get(options))??;
        (object.len, object.version) = checked_len(&found)?;
        Ok(object)
    }

    fn unopened(path: &Path) -> io::Result<Object> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let address = Address::of(path)?;
        let runtime = Runtime::of_this_process()?;
        let store = store::of(&address, &runtime)?;
        Ok(Object {
            shown: shown(path).into_owned(),
            key: address.key,
            store,
            runtime,
            len: 0,
            version: None,
            hidden: hidden(path),
            number: OPENED.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// The path without credentials.
    pub(crate) fn path(&self) -> &Path {
        &self.shown
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Words that no other version of what has this path has, if its store tells versions.
    pub(crate) fn version(&self) -> Option<String> {
        let version = self.version.as_ref()?;
        Some(match self.hidden {
            Some(hidden) => format!("{version} {hidden:016x}"),
            None => version.clone(),
        })
    }

    /// Fills `out` with the bytes at `offset`, which are within the object.
    pub(crate) fn read_to(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        if out.len() > SMALL {
            return self.fetch(offset, out);
        }
        let fetch = |start, bytes: &mut [u8]| self.fetch(start, bytes);
        match WINDOWS.read(self.number, self.len, offset, out, fetch) {
            // All windows are on their way to other threads.
            Ok(false) => self.fetch(offset, out),
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn forget_windows(&self) {
        WINDOWS.forget(self.number);
    }

    fn fetch(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut start = offset;
        for part in out.chunks_mut(MAX_REQUEST_BYTES) {
            let end = start + part.len() as u64;
            self.runtime.wait(self.request(start..end, part))??;
            start = end;
        }
        Ok(())
    }

    /// One request for exactly these bytes.
    async fn request(&self, range: Range<u64>, out: &mut [u8]) -> io::Result<()> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: self.version.clone(),
            ..GetOptions::default()
        };
        let found = self.get(options).await?;
        if found.range != range || found.meta.size != self.len {
            return Err(wrong(
                format_args!("bytes {range:?} of {}", self.len),
                format_args!("{:?} of {}", found.range, found.meta.size),
            ));
        }
        fill(found, out).await
    }

    async fn beginning(&self) -> io::Result<Beginning> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(0..FIRST)),
            ..GetOptions::default()
        };
        let found = match self.get(options).await {
            Ok(found) => found,
            Err(error) if is_of_no_bytes(&error) => {
                let options = GetOptions::default().with_head(true);
                self.get(options)
                    .await
                    .and_then(|found| match found.meta.size {
                        0 => Ok(found),
                        _ => Err(error),
                    })?
            }
            Err(error) => return Err(error),
        };
        let (len, version) = checked_len(&found)?;
        if found.range != (0..len.min(FIRST)) {
            return Err(wrong(
                format_args!("the first bytes of {len}"),
                format_args!("bytes {:?}", found.range),
            ));
        }
        let mut bytes = vec![0; usize::try_from(len.min(FIRST)).map_err(io::Error::other)?];
        if len > 0 {
            fill(found, &mut bytes).await?;
        }
        Ok(Beginning {
            len,
            version,
            bytes: bytes.into(),
        })
    }

    async fn get(&self, options: GetOptions) -> io::Result<GetResult> {
        let found = without_panics(self.store.get_opts(&self.key, options)).await?;
        found.map_err(|error| read_error(&error))
    }
}

/// The size of an object, and its version.
fn checked_len(found: &GetResult) -> io::Result<(u64, Option<String>)> {
    let len = found.meta.size;
    if len > MAX_LEN {
        return Err(wrong(
            format_args!("an object of at most {MAX_LEN} bytes"),
            format_args!("{len}"),
        ));
    }
    // One that is only similar to the version that it names cannot be asked for.
    let version = found.meta.e_tag.clone();
    Ok((len, version.filter(|version| !version.starts_with("W/"))))
}

/// Waits for what `object_store` makes of an answer. It adds up what a header says, and panics where that overflows.
async fn without_panics<F: Future>(work: F) -> io::Result<F::Output> {
    let mut work = pin!(work);
    let done = poll_fn(
        |context| match catch_panics(|| work.as_mut().poll(context)) {
            Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(made)) => Poll::Ready(Some(made)),
            None => Poll::Ready(None),
        },
    );
    done.await
        .ok_or_else(|| wrong("an answer", "one that contradicts itself"))
}

/// A number for an address of which not all is shown: some servers tell objects apart by that.
fn hidden(path: &Path) -> Option<u64> {
    if shown(path) == path {
        return None;
    }
    // It is part of the name of an index, so that it must be the same after an update of brimful.
    Some(XxHash3_64::oneshot(path.as_os_str().as_encoded_bytes()))
}

/// Makes something of each path, in their order; or gives the failure of the first that has one.
///
/// Who looks through an object waits for answers most of the time, so that it is done with several at once. Files are
/// taken one after the other.
pub(crate) fn each<T: Send, E: Send>(
    paths: &[PathBuf],
    look: impl Fn(&Path) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let is_any_remote = paths.iter().any(|path| is_remote(path));
    let others = if is_any_remote { AT_ONCE - 1 } else { 0 };
    let next = AtomicUsize::new(0);
    let has_failed = AtomicBool::new(false);
    let work = || {
        let mut own = Vec::new();
        while !has_failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(number) else {
                break;
            };
            let made = look(path);
            has_failed.fetch_or(made.is_err(), Ordering::Relaxed);
            own.push((number, made));
        }
        own
    };
    let mut made = thread::scope(|scope| {
        let threads: Vec<_> = (1..paths.len())
            .take(others)
            // Where there can be no more threads, fewer will do.
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let mut made = work();
        for thread in threads {
            made.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        made
    });
    // Those that nobody took come after all that somebody did.
    made.sort_unstable_by_key(|&(number, _)| number);
    made.into_iter().map(|(_, made)| made).collect()
}

impl fmt::Debug for Object {
    /// Without its store, in which credentials are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}, {} bytes)", self.shown.display(), self.len)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.forget_windows();
    }
}

struct Beginning {
    len: u64,
    version: Option<String>,
    bytes: Box<[u8]>,
}

/// Puts the body of an answer where it belongs. However long it is, no more is taken than was asked for.
async fn fill(found: GetResult, out: &mut [u8]) -> io::Result<()> {
    let needed = out.len();
    let mut left = out;
    let mut body = found.into_stream();
    while let Some(bytes) = without_panics(body.next()).await? {
        let bytes = bytes.map_err(|error| read_error(&error))?;
        let Some((here, after)) = left.split_at_mut_checked(bytes.len()) else {
            return Err(wrong(format_args!("{needed} bytes"), "more"));
        };
        here.copy_from_slice(&bytes);
        left = after;
    }
    match left.len() {
        0 => Ok(()),
        missing => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("expected {needed} bytes, found {}", needed - missing),
        )),
    }
}
