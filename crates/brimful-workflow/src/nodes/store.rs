//! A client of PyTorch's `TCPStore`, the key-value store that torchrun opens for the ranks of a job.
//!
//! Written here because PyTorch's own client needs seconds and 200 MB in every rank to be imported. The messages are
//! those of PyTorch 2.0 and later; `python/torch_tests/test_nodes.py` compares both clients on one store.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// `QueryType` of PyTorch.
mod query {
    pub(super) const VALIDATE: u8 = 0;
    pub(super) const SET: u8 = 1;
    pub(super) const GET: u8 = 3;
    pub(super) const CHECK: u8 = 5;
    pub(super) const WAIT: u8 = 6;
    pub(super) const MULTI_GET: u8 = 10;
}
const MAGIC: u32 = 0x3C85_F7CE;
/// PyTorch puts it before every key.
const KEY_PREFIX: &str = "/";
/// Bytes of a value at most.
const MAX_VALUE: u64 = 4 << 20;
/// A host that does not answer is asked again after this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Why the store could not be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("failed to connect to torchrun's store at {address}")]
    Connect {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("torchrun's store did not answer in time")]
    TimedOut,
    #[error("the connection to torchrun's store was lost")]
    Lost(#[source] io::Error),
    #[error("torchrun's store sent {0}, which no known version of PyTorch sends")]
    Unexpected(String),
}

/// A connection to a store.
#[derive(Debug)]
pub struct Store {
    stream: TcpStream,
    deadline: Instant,
}

impl Store {
    /// Connects, trying again until the deadline. No request waits longer than that.
    pub fn connect(host: &str, port: u16, deadline: Instant) -> Result<Store, StoreError> {
        loop {
            let error = match connect(host, port) {
                Ok(stream) => {
                    let mut store = Store { stream, deadline };
                    let mut message = vec![query::VALIDATE];
                    message.extend(MAGIC.to_ne_bytes());
                    store.send(&message)?;
                    return Ok(store);
                }
                Err(error) => error,
            };
            if Instant::now() + PAUSE >= deadline {
                return Err(StoreError::Connect {
                    address: format!("{host}:{port}"),
                    source: error,
                });
            }
            std::thread::sleep(PAUSE);
        }
    }

    pub fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let mut message = vec![query::SET];
        push_key(&mut message, key);
        push_bytes(&mut message, value);
        self.send(&message)
    }

    /// Waits until all keys are there.
    pub fn wait(&mut self, keys: &[String]) -> Result<(), StoreError> {
        self.send(&with_keys(query::WAIT, keys))?;
        match self.byte()? {
            0 => Ok(()),
            other => Err(StoreError::Unexpected(format!("{other} after a wait"))),
        }
    }

    /// Whether all keys are there.
    pub fn has(&mut self, keys: &[String]) -> Result<bool, StoreError> {
        self.send(&with_keys(query::CHECK, keys))?;
        Ok(self.byte()? == 0)
    }

    /// The value of a key that is there.
    pub fn get(&mut self, key: &str) -> Result<Vec<u8>, StoreError> {
        let mut message = vec![query::GET];
        push_key(&mut message, key);
        self.send(&message)?;
        self.value()
    }

    /// The values of keys that are there, in their order.
    pub fn get_all(&mut self, keys: &[String]) -> Result<Vec<Vec<u8>>, StoreError> {
        self.send(&with_keys(query::MULTI_GET, keys))?;
        keys.iter().map(|_| self.value()).collect()
    }

    fn send(&mut self, message: &[u8]) -> Result<(), StoreError> {
        let left = self.left()?;
        self.stream
            .set_write_timeout(Some(left))
            .and_then(|()| self.stream.write_all(message))
            .map_err(lost)
    }

    fn byte(&mut self) -> Result<u8, StoreError> {
        let mut byte = [0];
        self.read(&mut byte)?;
        Ok(byte[0])
    }

    fn value(&mut self) -> Result<Vec<u8>, StoreError> {
        let mut length = [0; 8];
        self.read(&mut length)?;
        let length = u64::from_ne_bytes(length);
        if length > MAX_VALUE {
            return Err(StoreError::Unexpected(format!("a value of {length} bytes")));
        }
        let mut value = vec![0; usize::try_from(length).unwrap_or(0)];
        self.read(&mut value)?;
        Ok(value)
    }

    fn read(&mut self, mut bytes: &mut [u8]) -> Result<(), StoreError> {
        while !bytes.is_empty() {
            let left = self.left()?;
            self.stream.set_read_timeout(Some(left)).map_err(lost)?;
            match self.stream.read(bytes) {
                Ok(0) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(n_read) => bytes = &mut bytes[n_read..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(error)),
            }
        }
        Ok(())
    }

    fn left(&self) -> Result<Duration, StoreError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(StoreError::TimedOut);
        }
        Ok(left)
    }
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn lost(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => StoreError::TimedOut,
        _ => StoreError::Lost(error),
    }
}

fn with_keys(kind: u8, keys: &[String]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend((keys.len() as u64).to_ne_bytes());
    for key in keys {
        push_key(&mut message, key);
    }
    message
}

fn push_key(message: &mut Vec<u8>, key: &str) {
    push_bytes(message, format!("{KEY_PREFIX}{key}").as_bytes());
}

fn push_bytes(message: &mut Vec<u8>, bytes: &[u8]) {
    message.extend((bytes.len() as u64).to_ne_bytes());
    message.extend(bytes);
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn answered(answer: &'static [u8]) -> Store {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(answer).expect("sent");
            // Until the client is done.
            let _ = io::copy(&mut stream, &mut io::sink());
        });
        let deadline = Instant::now() + Duration::from_millis(500);
        Store::connect("127.0.0.1", port, deadline).expect("connected")
    }

    #[test]
    fn a_value_that_is_too_long_is_not_read() {
        let error = answered(&[0xff; 8]).get("key").expect_err("too long");
        assert!(matches!(error, StoreError::Unexpected(_)), "{error}");
    }

    #[test]
    fn nobody_waits_beyond_the_deadline() {
        let error = answered(b"").wait(&["key".into()]).expect_err("no answer");
        assert!(matches!(error, StoreError::TimedOut), "{error}");
        let error = answered(&[1]).wait(&["key".into()]).expect_err("canceled");
        assert!(matches!(error, StoreError::Unexpected(_)), "{error}");
    }

    #[test]
    fn a_store_that_is_not_there_is_an_error() {
        let deadline = Instant::now() + Duration::from_millis(100);
        let error = Store::connect("127.0.0.1", 1, deadline).expect_err("no server");
        assert!(matches!(error, StoreError::Connect { .. }), "{error}");
    }
}
