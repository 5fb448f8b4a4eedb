//! A web server on the loopback for tests: serves ranges of bytes, counts what it is asked for, and misbehaves when told.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// What the server does wrong with the next requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Says that it cannot.
    Unavailable,
    /// Ends the connection in the middle of the body.
    ClosesEarly,
    /// Sends fewer bytes than the range has, and says so.
    SendsLess,
    /// Sends more bytes than the range has, and says so.
    SendsMore,
    /// Reports another range than it was asked for.
    OtherRange,
    /// Reports that the object is longer than it is.
    LongerObject,
    /// Reports that the object has as many bytes as a number can count.
    EndlessObject,
    /// Reports a range that ends there.
    EndlessRange,
    /// Sends all of the object.
    NoRanges,
    /// Says that it is not allowed, and repeats secrets.
    Forbidden,
    /// Sends the client on to this server under another name of the machine.
    RedirectsElsewhere,
    /// Sends the client on to another path of this server.
    RedirectsHere,
}

/// Serves one object under any path but `/missing`.
#[derive(Debug)]
pub(crate) struct Server {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    port: u16,
    object: Vec<u8>,
    version: String,
    /// Each fault, and for how many requests more.
    faults: Vec<(Fault, usize)>,
    asked: Vec<(u64, u64)>,
}

impl Server {
    pub(crate) fn start(object: Vec<u8>) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            port,
            object,
            version: "\"1\"".to_owned(),
            faults: Vec::new(),
            asked: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&shared);
                // A client that goes away is none of its business.
                std::thread::spawn(move || drop(serve(stream.unwrap(), &state)));
            }
        });
        Server { port, state }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("http://127.0.0.1:{}/{name}", self.port))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Misbehaves for so many requests.
    pub(crate) fn fail(&self, fault: Fault, times: usize) {
        self.state().faults.push((fault, times));
    }

    pub(crate) fn replace(&self, object: Vec<u8>, version: &str) {
        let mut state = self.state();
        state.object = object;
        version.clone_into(&mut state.version);
    }

    /// The beginnings and ends of the ranges that were asked for since the last time.
    pub(crate) fn asked(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.state().asked)
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while let Some(request) = lines.next().transpose()? {
        let (mut range, mut wanted) = (None, None);
        for line in lines.by_ref() {
            let line = line?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("range: bytes=") {
                let (first, last) = value.split_once('-').unwrap();
                range = Some(first.parse::<u64>().unwrap()..last.parse::<u64>().unwrap() + 1);
            }
            if let Some(value) = line.strip_prefix("if-match: ") {
                wanted = Some(value.to_owned());
            }
        }
        let (head, body) = {
            let mut state = state.lock().unwrap();
            let asked = range
                .as_ref()
                .map_or((0, 0), |range| (range.start, range.end));
            state.asked.push(asked);
            state.answer(&request, range, wanted.as_deref())
        };
        stream.write_all(head.as_bytes())?;
        if !request.starts_with("HEAD") {
            stream.write_all(&body)?;
        }
        if head.contains("connection: close") {
            return Ok(());
        }
    }
    Ok(())
}

impl State {
    /// The head of an answer, and its body.
    fn answer(
        &mut self,
        request: &str,
        range: Option<Range<u64>>,
        wanted: Option<&str>,
    ) -> (String, Vec<u8>) {
        let fault = self.faults.iter_mut().find(|(_, times)| *times > 0);
        let fault = fault.map(|(fault, times)| {
            *times -= 1;
            *fault
        });
        let said = |status: &str, text: &str| {
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n",
                text.len()
            );
            (head, text.as_bytes().to_vec())
        };
        let redirect = |host: &str| {
            let head = format!(
                "HTTP/1.1 302 Found\r\nlocation: http://{host}:{}/moved\r\ncontent-length: 0\r\n\r\n",
                self.port
            );
            (head, Vec::new())
        };
        match fault {
            Some(Fault::RedirectsElsewhere) => return redirect("localhost"),
            Some(Fault::RedirectsHere) => return redirect("127.0.0.1"),
            Some(Fault::Unavailable) => return said("503 Service Unavailable", "come back later"),
            Some(Fault::Forbidden) => {
                let text = "<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message>\
                            <StringToSign>hidden</StringToSign></Error>";
                return said("403 Forbidden", text);
            }
            _ => {}
        }
        if request.contains("/missing") {
            return said("404 Not Found", "");
        }
        if wanted.is_some_and(|wanted| wanted != self.version) {
            return said("412 Precondition Failed", "");
        }
        let len = self.object.len() as u64;
        let version = &self.version;
        let Some(range) = range.filter(|_| fault != Some(Fault::NoRanges)) else {
            let head =
                format!("HTTP/1.1 200 OK\r\netag: {version}\r\ncontent-length: {len}\r\n\r\n");
            return (head, self.object.clone());
        };
        if range.start >= len {
            return said("416 Range Not Satisfiable", "");
        }
        let end = range.end.min(len);
        let mut body = self.object[at(range.start)..at(end)].to_vec();
        let told = match fault {
            Some(Fault::SendsLess) => {
                body.truncate(body.len() / 2);
                body.len()
            }
            Some(Fault::SendsMore) => {
                body.resize(body.len() + 100_000, 0);
                body.len()
            }
            Some(Fault::ClosesEarly) => {
                let told = body.len();
                body.truncate(told / 2);
                told
            }
            _ => body.len(),
        };
        let total = match fault {
            Some(Fault::LongerObject) => len + 1000,
            Some(Fault::EndlessObject) => u64::MAX,
            _ => len,
        };
        let moved = u64::from(fault == Some(Fault::OtherRange));
        let close = match fault {
            Some(Fault::ClosesEarly) => "connection: close\r\n",
            _ => "",
        };
        let last = match fault {
            Some(Fault::EndlessRange) => u64::MAX,
            _ => end - 1 + moved,
        };
        let first = range.start + moved;
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\netag: {version}\r\ncontent-length: {told}\r\n\
             content-range: bytes {first}-{last}/{total}\r\n{close}\r\n"
        );
        (head, body)
    }
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}
