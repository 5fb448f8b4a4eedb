//! Writing objects. An object is there as a whole or not at all: one request, or an upload in parts that a last request
//! ends.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt;
use object_store::path::Path as Key;
use object_store::{
    GetOptions, MultipartUpload, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions,
    PutPayload,
};

use super::address::{Address, StoreAddress};
use super::error::{read_error, wrong};
use super::runtime::Runtime;
use super::{shown, store, without_panics};
use crate::location::parts;

/// Bytes of a part of an upload. S3 takes no smaller parts than 5 MiB, and at most 10,000 of them.
const PART: u64 = 8 << 20;

/// Bytes of memory that an upload holds: a part, and what of it is on the way.
pub const UPLOAD_BYTES: u64 = PART + (1 << 20);

/// Uploads that fail are repeated as a whole: the answer to the last request of one can be lost.
const ATTEMPTS: usize = 3;

/// A store that objects are written to, with its connections.
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    runtime: Runtime,
}

impl Bucket {
    /// The store of a path: `s3://`, `gs://` or `az://`.
    pub fn of(path: &Path) -> io::Result<Bucket> {
        let address = Address::of(path)?;
        if let StoreAddress::Http(_) = address.place {
            let text = format!(
                "expected s3://, gs:// or az://, found {}: a web server cannot be listed or written to",
                shown(path).display()
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let runtime = Runtime::of_this_process()?;
        Ok(Bucket {
            store: store::of(&address, &runtime)?,
            runtime,
        })
    }

    /// Bytes of an object; nothing where there is none.
    pub fn len_of(&self, path: &Path) -> io::Result<Option<u64>> {
        let key = Address::of(path)?.key;
        let options = GetOptions::default().with_head(true);
        let found = self
            .runtime
            .wait(without_panics(self.store.get_opts(&key, options)))??;
        or_missing(found.map(|found| found.meta.size))
    }

    /// An object of at most `max_bytes`; nothing where there is none.
    pub fn read(&self, path: &Path, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
        let key = Address::of(path)?.key;
        self.runtime.wait(async {
            let found = without_panics(self.store.get_opts(&key, GetOptions::default())).await?;
            let Some(found) = or_missing(found)? else {
                return Ok(None);
            };
            let mut bytes = Vec::new();
            let mut body = found.into_stream();
            while let Some(more) = without_panics(body.next()).await? {
                bytes.extend_from_slice(&more.map_err(|error| read_error(&error))?);
                if bytes.len() as u64 > max_bytes {
                    return Err(wrong(format_args!("at most {max_bytes} bytes"), "more"));
                }
            }
            Ok(Some(bytes))
        })?
    }

    /// Writes an object, in place of one that is there.
    pub fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let key = Address::of(path)?.key;
        let payload = PutPayload::from(bytes.to_vec());
        self.runtime.wait(self.put(&key, payload))?
    }

    /// Writes what a file has, in place of an object that is there.
    pub fn write_file(&self, path: &Path, file: &File) -> io::Result<()> {
        let key = Address::of(path)?.key;
        let len = file.metadata()?.len();
        let mut attempt = 1;
        loop {
            let written = self.runtime.wait(self.upload(&key, file, len))?;
            match written {
                // A store that has ended an upload knows nothing of it when it is asked again.
                Err(error)
                    if attempt < ATTEMPTS
                        && matches!(
                            error.kind(),
                            io::ErrorKind::Other | io::ErrorKind::NotFound
                        ) =>
                {
                    attempt += 1;
                }
                written => return written,
            }
        }
    }

    /// Objects in a folder and below, with their bytes, in the order of their names.
    pub fn list(&self, folder: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
        self.list_first(folder, usize::MAX)
    }

    /// Whether a folder has any object.
    pub fn has_any(&self, folder: &Path) -> io::Result<bool> {
        Ok(!self.list_first(folder, 1)?.is_empty())
    }

    fn list_first(&self, folder: &Path, max: usize) -> io::Result<Vec<(PathBuf, u64)>> {
        let (scheme, rest) = parts(folder).ok_or_else(|| wrong("a URL", "a path"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = Key::parse(prefix).map_err(io::Error::other)?;
        let mut found = self.runtime.wait(async {
            let mut found = Vec::new();
            let mut objects = self.store.list(Some(&prefix));
            while let Some(object) = without_panics(objects.next()).await? {
                let object = object.map_err(|error| read_error(&error))?;
                // `folder/` itself, as consoles make it.
                if object.location == prefix {
                    continue;
                }
                let path = format!("{scheme}://{bucket}/{}", object.location);
                found.push((PathBuf::from(path), object.size));
                if found.len() >= max {
                    break;
                }
            }
            Ok::<_, io::Error>(found)
        })??;
        found.sort();
        Ok(found)
    }

    /// Removes an object; one that is not there is removed already.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let key = Address::of(path)?.key;
        let removed = self
            .runtime
            .wait(without_panics(self.store.delete(&key)))??;
        or_missing(removed).map(drop)
    }

    async fn put(&self, key: &Key, payload: PutPayload) -> io::Result<()> {
        let put = self.store.put_opts(key, payload, PutOptions::default());
        let written = without_panics(put).await?;
        written.map(drop).map_err(|error| read_error(&error))
    }

    async fn upload(&self, key: &Key, file: &File, len: u64) -> io::Result<()> {
        if len <= PART {
            return self.put(key, part(file, 0, len)?).await;
        }
        let options = PutMultipartOptions::default();
        let begun = without_panics(self.store.put_multipart_opts(key, options)).await?;
        let mut upload = begun.map_err(|error| read_error(&error))?;
        let sent = send_parts(upload.as_mut(), file, len).await;
        if sent.is_err() {
            // What stays of it, the store removes by its own rules.
            let _ = without_panics(upload.abort()).await;
        }
        sent
    }
}

async fn send_parts(upload: &mut dyn MultipartUpload, file: &File, len: u64) -> io::Result<()> {
    let mut at = 0;
    while at < len {
        let bytes = PART.min(len - at);
        let sent = without_panics(upload.put_part(part(file, at, bytes)?)).await?;
        sent.map_err(|error| read_error(&error))?;
        at += bytes;
    }
    let completed = without_panics(upload.complete()).await?;
    completed.map(drop).map_err(|error| read_error(&error))
}

fn part(file: &File, offset: u64, bytes: u64) -> io::Result<PutPayload> {
    let mut part = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    file.read_exact_at(&mut part, offset)?;
    Ok(part.into())
}

fn or_missing<T>(found: object_store::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(read_error(&error)),
    }
}

impl fmt::Debug for Bucket {
    /// Without its store, in which credentials are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bucket")
    }
}
