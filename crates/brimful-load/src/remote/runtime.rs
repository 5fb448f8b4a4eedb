//! The threads that drive requests, started with the first of them. Readers wait in threads of their own.

use std::future::Future;
use std::io;
use std::process;
use std::sync::{Mutex, PoisonError};

use tokio::runtime::{Builder, Runtime as Tokio};

/// Threads that move bytes from sockets; one decrypts more than most lines bring.
const THREADS: usize = 2;

/// One for each process, and never ended: threads may wait for it until the last moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runtime {
    tokio: &'static Tokio,
    /// A process that is forked off has none of the threads.
    process: u32,
}

impl Runtime {
    pub(super) fn of_this_process() -> io::Result<Runtime> {
        static STARTED: Mutex<Option<Runtime>> = Mutex::new(None);
        let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = *started
            && runtime.process == process::id()
        {
            return Ok(runtime);
        }
        let tokio = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("brimful-remote")
            .enable_all()
            .build()?;
        let runtime = Runtime {
            tokio: Box::leak(Box::new(tokio)),
            process: process::id(),
        };
        *started = Some(runtime);
        Ok(runtime)
    }

    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// Waits for an answer; in another process than that of its threads it would be forever.
    pub(super) fn wait<F: Future>(&self, answer: F) -> io::Result<F::Output> {
        if self.process != process::id() {
            return Err(io::Error::other(
                "it was opened before this process was forked off; open the dataset in the process that reads it",
            ));
        }
        Ok(self.tokio.block_on(answer))
    }
}
