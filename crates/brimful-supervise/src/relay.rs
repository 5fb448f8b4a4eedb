//! Hands on what the training prints, as it comes, and keeps the end of it.
//!
//! One thread does nothing else, so no look at the machine ever delays a line. It also draws the status line, because it
//! alone knows where the output stands.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brimful::record::{OutputLine, Stream};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;

use crate::descriptors::write_all;
use crate::keeper::let_go;
use crate::status_line::{ROWS, StatusLine};
use crate::streams::{Route, follow_size};
use crate::tail::Tail;

/// A pipe holds as much.
const BUFFER: usize = 64 << 10;

/// What a killed brimful may lose of the end of the output, at most.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// The thread that hands on, and what others tell it.
#[derive(Debug)]
pub(crate) struct Relay {
    shared: Arc<Mutex<Shared>>,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// What to hand on from now on.
    begin: Option<(Vec<Route>, Option<File>)>,
    tails: Vec<Tail>,
    status: Option<String>,
    lines: Vec<String>,
    take_down: bool,
    resized: bool,
    /// Read what is there and end, even if somebody still holds the other end open.
    finish_by: Option<Instant>,
    /// Rows of the terminal while a status line is up.
    up_rows: Option<u16>,
}

impl Relay {
    /// Starts the thread, which waits for [`Relay::begin`]. Before the training: nobody would read what it prints.
    pub(crate) fn start() -> std::io::Result<Relay> {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (woken, wake) = rustix::pipe::pipe_with(flags)?;
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("relay".into())
            .stack_size(256 << 10)
            .spawn(move || {
                if let Some((routes, keeper)) = wait_for_routes(&woken, &for_thread) {
                    hand_on(routes, &woken, &for_thread, keeper.as_ref());
                }
            })?;
        Ok(Relay {
            shared,
            wake,
            thread: Some(thread),
        })
    }

    /// Hands on what comes from now on. The ends are kept in `tail_directory` too.
    pub(crate) fn begin(
        &self,
        routes: Vec<Route>,
        tail_directory: Option<&Path>,
        keeper: Option<File>,
    ) {
        let tails = routes
            .iter()
            .map(|route| Tail::new(route.stream, tail_directory))
            .collect();
        self.tell(|shared| {
            shared.tails = tails;
            shared.begin = Some((routes, keeper));
        });
    }

    fn tell(&self, change: impl FnOnce(&mut Shared)) {
        change(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = rustix::io::write(&self.wake, b"x");
    }

    /// Shows this in the status line from now on.
    pub(crate) fn show(&self, text: String) {
        self.tell(|shared| shared.status = Some(text));
    }

    /// Puts a line of brimful's own between those of the training.
    pub(crate) fn say(&self, line: String) {
        self.tell(|shared| shared.lines.push(line));
    }

    /// Takes the status line down and waits until that is done, so that somebody else may use the terminal.
    pub(crate) fn take_down(&self) {
        self.tell(|shared| {
            shared.take_down = true;
            shared.status = None;
        });
        let give_up = Instant::now() + Duration::from_millis(200);
        while Instant::now() < give_up {
            let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            if !shared.take_down {
                return;
            }
            drop(shared);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The terminal has another size.
    pub(crate) fn resized(&self) {
        self.tell(|shared| shared.resized = true);
    }

    pub(crate) fn rows_in_use(&self) -> Option<u16> {
        self.shared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .up_rows
    }

    /// Hands on what is still in the streams, and ends.
    pub(crate) fn finish(&mut self, within: Duration) {
        self.tell(|shared| shared.finish_by = Some(Instant::now() + within));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// The end of each stream so far.
    pub(crate) fn tails(&self, at_ms: u64) -> Vec<OutputLine> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.tails.iter().map(|tail| tail.line(at_ms)).collect()
    }

    pub(crate) fn remove_tail_files(&self) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.tails.iter_mut().for_each(Tail::remove_files);
    }
}

/// `None` where there is nothing to hand on.
fn wait_for_routes(woken: &OwnedFd, shared: &Mutex<Shared>) -> Option<(Vec<Route>, Option<File>)> {
    let mut buffer = [0; 64];
    loop {
        let (begin, ends) = {
            let mut shared = lock(shared);
            (shared.begin.take(), shared.finish_by.is_some())
        };
        if begin.is_some() || ends {
            return begin;
        }
        let _ = poll(&mut [PollFd::new(woken, PollFlags::IN)], None);
        drain(woken, &mut buffer);
    }
}

fn hand_on(routes: Vec<Route>, woken: &OwnedFd, shared: &Mutex<Shared>, keeper: Option<&File>) {
    let mut routes: Vec<Option<Route>> = routes.into_iter().map(Some).collect();
    // Outlives the route: the line is taken down after the training has closed its end.
    let screen = terminal_of(&routes).and_then(|route| route.destination.try_clone().ok());
    // Likewise: a last word may come after it.
    let voice = routes
        .iter()
        .enumerate()
        .filter_map(|(idx, route)| Some((idx, route.as_ref()?)))
        .rfind(|(_, route)| route.stream != Stream::Stdout)
        .and_then(|(idx, route)| {
            Some(Voice {
                idx,
                is_terminal: route.is_terminal,
                destination: route.destination.try_clone().ok()?,
            })
        });
    let mut line = StatusLine::default();
    let mut buffer = vec![0; BUFFER];
    // Whether what was handed on so far ends with a whole line.
    let mut at_start = vec![true; routes.len()];
    let mut flushed_at = Instant::now();
    loop {
        let open: Vec<usize> = (0..routes.len())
            .filter(|idx| routes[*idx].is_some())
            .collect();
        let finish_by = lock(shared).finish_by;
        if finish_by.is_some_and(|by| open.is_empty() || Instant::now() >= by) {
            break;
        }
        let flushing = lock(shared).tails.iter().any(|tail| !tail.is_on_disk());
        let ready = wait(&routes, &open, woken, finish_by.is_some() || flushing);
        if flushing && (ready.is_empty() || flushed_at.elapsed() > FLUSH_EVERY) {
            lock(shared).tails.iter_mut().for_each(Tail::flush);
            flushed_at = Instant::now();
        }
        drain(woken, &mut buffer);
        for idx in ready {
            let Some(route) = &routes[idx] else { continue };
            match rustix::io::read(&route.source, &mut buffer) {
                Ok(0) | Err(Errno::IO) => routes[idx] = None,
                Ok(n_read) => {
                    let bytes = &buffer[..n_read];
                    if route.is_terminal {
                        line.follow(bytes);
                    }
                    at_start[idx] = bytes.ends_with(b"\n");
                    lock(shared).tails[idx].push(bytes);
                    // Where nobody reads any more, the training learns of it as it would without us.
                    if !write_all(&route.destination, bytes) {
                        routes[idx] = None;
                        if let Some(keeper) = keeper {
                            let_go(keeper, idx);
                        }
                    }
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => routes[idx] = None,
            }
        }
        if line.is_between() {
            say(voice.as_ref(), shared, &at_start);
        }
        attend(&routes, &mut line, shared);
    }
    say(voice.as_ref(), shared, &at_start);
    if let Some(screen) = screen {
        write_all(screen, line.take_down().as_bytes());
    }
    lock(shared).up_rows = None;
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The routes that have something to read, once there is something to do.
fn wait(routes: &[Option<Route>], open: &[usize], woken: &OwnedFd, not_long: bool) -> Vec<usize> {
    let mut waiting: Vec<PollFd<'_>> = open
        .iter()
        .filter_map(|idx| routes[*idx].as_ref())
        .map(|route| PollFd::new(&route.source, PollFlags::IN))
        .collect();
    waiting.push(PollFd::new(woken, PollFlags::IN));
    let soon = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    if poll(&mut waiting, not_long.then_some(&soon)).is_err() {
        return Vec::new();
    }
    open.iter()
        .zip(&waiting)
        .filter(|(_, found)| !found.revents().is_empty())
        .map(|(idx, _)| *idx)
        .collect()
}

fn drain(woken: &OwnedFd, buffer: &mut [u8]) {
    while rustix::io::read(woken, &mut *buffer).is_ok_and(|n_read| n_read > 0) {}
}

fn terminal_of(routes: &[Option<Route>]) -> Option<&Route> {
    routes.iter().flatten().rfind(|route| route.is_terminal)
}

/// Where brimful's own lines go: to standard error, beside those of the training.
struct Voice {
    /// The route that the training's lines take there.
    idx: usize,
    is_terminal: bool,
    destination: OwnedFd,
}

/// Says brimful's own lines, on lines of their own.
fn say(voice: Option<&Voice>, shared: &Mutex<Shared>, at_start: &[bool]) {
    let lines = std::mem::take(&mut lock(shared).lines);
    let Some(voice) = voice else { return };
    let mut at_start = at_start[voice.idx];
    for text in lines {
        let text = match (voice.is_terminal, at_start) {
            // A progress bar stands on this line; it draws itself again below.
            (true, _) => format!("\r\x1b[K{text}\n"),
            (false, true) => format!("{text}\n"),
            (false, false) => format!("\n{text}\n"),
        };
        write_all(&voice.destination, text.as_bytes());
        at_start = true;
    }
}

/// Does what others asked for: a new text, a new size, no line.
fn attend(routes: &[Option<Route>], line: &mut StatusLine, shared: &Mutex<Shared>) {
    let Some(route) = terminal_of(routes) else {
        lock(shared).take_down = false;
        return;
    };
    let (status, take_down, resized) = {
        let mut shared = lock(shared);
        (
            shared.status.take(),
            std::mem::take(&mut shared.take_down),
            std::mem::take(&mut shared.resized),
        )
    };
    if take_down {
        write_all(&route.destination, line.take_down().as_bytes());
        follow_size(route, 0);
        lock(shared).up_rows = None;
        return;
    }
    if let Some(text) = &status {
        line.set_text(text);
    }
    if resized || status.is_some() {
        let shows = line.is_up() || status.is_some();
        let Some(size) = follow_size(route, if shows { ROWS } else { 0 }) else {
            return;
        };
        if shows {
            let drawn = line.draw(size.ws_row, size.ws_col);
            write_all(&route.destination, drawn.as_bytes());
            lock(shared).up_rows = line.is_up().then_some(size.ws_row);
        }
    }
}
