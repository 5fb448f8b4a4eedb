//! Files that are truncated during an epoch, and faults that are not ours: those end the process as they always did.

#![expect(clippy::disallowed_methods, reason = "tests make files of all kinds")]
#![expect(
    clippy::exit,
    clippy::panic,
    clippy::unwrap_used,
    reason = "functions that tests call"
)]

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use brimful::units::Bytes;
use brimful_load::loader::OnError;
use brimful_load::ops::Cast;
use brimful_load::pipeline::SampleCause;
use brimful_load::sources::Npy;
use brimful_load::{
    Access, Batch, DType, Loader, LoaderSettings, Next, Piece, Pipeline, ReadError, Reader, Source,
    Value,
};

/// What a process of its own does, and in which directory: one that is killed removes nothing.
const SCENARIO: &str = "BRIMFUL_TEST_SCENARIO";
const DIRECTORY: &str = "BRIMFUL_TEST_DIRECTORY";
const ROWS: u64 = 4000;
const ROW: usize = 256;

/// Rows of 32-bit numbers, of which none is zero: each row has its own.
fn rows(directory: &Path) -> PathBuf {
    let path = directory.join("rows.bin");
    let numbers = (0..ROWS).flat_map(|row| [u32::try_from(row).unwrap() + 1; ROW]);
    fs::write(
        &path,
        numbers.flat_map(u32::to_le_bytes).collect::<Vec<u8>>(),
    )
    .unwrap();
    path
}

fn truncate(path: &Path, len: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
}

fn pipeline(path: &Path, with_op: bool) -> Pipeline {
    let source = Npy::raw("row", path, DType::U32, &[ROW], None).unwrap();
    assert_eq!(source.choice().access, Access::Mapped);
    let pipeline = Pipeline::new(Arc::new(source));
    if !with_op {
        return pipeline;
    }
    pipeline
        .with("row", |_, _| Ok(Arc::new(Cast::new(DType::F32))))
        .unwrap()
}

fn loader(pipeline: Pipeline, on_error: OnError) -> Loader {
    let settings = LoaderSettings {
        batch_size: 16,
        shuffle_seed: Some(1),
        seed: 1,
        memory: Bytes::from_mib(16),
        threads: Some(4),
        prefetch: 4,
        rank: 0,
        world_size: 1,
        drop_last: false,
        on_error,
    };
    Loader::new(pipeline, settings).unwrap()
}

/// That every row of a batch is one of the file.
fn check_batch(batch: &Batch, is_float: bool) {
    let bytes = batch.fields[0].memory.bytes();
    let bytes = &bytes[..usize::try_from(batch.samples).unwrap() * ROW * 4];
    for row in bytes.as_chunks::<4>().0.chunks(ROW) {
        let number = |bytes: &[u8; 4]| {
            if is_float {
                f64::from(f32::from_le_bytes(*bytes))
            } else {
                f64::from(u32::from_le_bytes(*bytes))
            }
        };
        let first = number(&row[0]);
        assert!(first > 0.0, "zeros that the file does not hold");
        assert!(
            row.iter()
                .all(|bytes| number(bytes).to_bits() == first.to_bits())
        );
    }
}

/// The batches of an epoch, during which the file is truncated, and the error that ends it.
fn error_of_epoch(path: &Path, with_op: bool, len: u64) -> Option<String> {
    let loader = loader(pipeline(path, with_op), OnError::Raise);
    let mut epoch = loader.epoch(0, 0);
    for step in 0.. {
        if step == 5 {
            truncate(path, len);
        }
        match epoch.next(Duration::from_secs(30)) {
            Ok(Next::Batch(batch)) => check_batch(&batch, with_op),
            Ok(Next::NotYet) => panic!("no batch for half a minute"),
            Ok(Next::End) => return None,
            Err(error) => {
                let SampleCause::Read(ReadError::Truncated(truncated)) = &*error.cause else {
                    panic!("{:?}", error.cause);
                };
                assert_eq!(truncated.path, path);
                return Some(truncated.to_string());
            }
        }
    }
    None
}

#[test]
fn an_epoch_ends_with_an_error_that_names_the_file() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    for with_op in [false, true] {
        for len in [0, 4096, 1_000_001] {
            let path = rows(directory.path());
            let error = error_of_epoch(&path, with_op, len).unwrap();
            let expected = format!("it had 4096000 bytes and now has {len}");
            assert!(error.ends_with(&expected), "{error}");
            assert!(
                error.contains("was truncated while it was in use"),
                "{error}"
            );
        }
    }
}

#[test]
fn samples_of_a_truncated_file_are_skipped_and_none_is_made_of_zeros() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = rows(directory.path());
    let loader = loader(pipeline(&path, true), OnError::Skip);
    let mut epoch = loader.epoch(0, 0);
    truncate(&path, 2_000_000);
    while let Next::Batch(batch) = epoch.next(Duration::from_secs(30)).unwrap() {
        check_batch(&batch, true);
    }
    assert!(loader.statistics().skipped > 0);
}

/// This test as a process of its own.
fn run(scenario: &str) -> Output {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "scenario", "--include-ignored", "--nocapture"])
        .env(SCENARIO, scenario)
        .env(DIRECTORY, directory.path())
        .output()
        .unwrap()
}

fn check_killed(scenario: &str) -> String {
    let output = run(scenario);
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGBUS),
        "{scenario}: {shown}"
    );
    shown
}

fn check_exit(scenario: &str, code: i32) {
    let output = run(scenario);
    let shown = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{scenario}: {shown}");
}

#[test]
fn a_fault_in_memory_that_is_not_ours_ends_the_process() {
    check_killed("foreign fault");
    check_killed("foreign fault inside a guard");
    check_killed("sent by kill");
}

#[test]
fn bytes_that_nobody_checks_are_never_zeros() {
    check_killed("unguarded read");
}

#[test]
fn a_handler_that_was_there_before_is_called() {
    check_exit("earlier handler", 42);
    check_exit("later handler", 42);
}

#[test]
fn a_handler_that_returns_does_not_keep_the_process_in_a_loop() {
    check_killed("handler that returns");
}

#[test]
fn a_handler_that_restores_the_one_before_and_raises_works_before_and_after() {
    let shown = check_killed("faulthandler before");
    assert_eq!(shown.matches("fatal").count(), 1, "{shown}");
    let shown = check_killed("faulthandler after");
    assert_eq!(shown.matches("fatal").count(), 2, "{shown}");
    let shown = check_killed("faulthandler between");
    assert_eq!(shown.matches("fatal").count(), 1, "{shown}");
}

#[test]
fn a_forked_process_has_the_same_protection() {
    check_exit("fork", 7);
}

#[test]
#[ignore = "started by the other tests"]
fn scenario() {
    let (Ok(scenario), Some(directory)) = (std::env::var(SCENARIO), std::env::var_os(DIRECTORY))
    else {
        return;
    };
    let directory = Path::new(&directory);
    handlers::enlarge_stack();
    match scenario.as_str() {
        "foreign fault" => {
            guarded_fault(directory);
            foreign_fault(directory);
        }
        "foreign fault inside a guard" => {
            let path = rows(directory);
            let reader = Reader::open(&path, Access::Mapped).unwrap();
            let _ = reader.view(0, 10, &mut [], |_| foreign_fault(directory));
        }
        "sent by kill" => {
            // Rust's own handler takes the first one for nothing.
            handlers::reset();
            guarded_fault(directory);
            handlers::send();
        }
        "unguarded read" => {
            let path = rows(directory);
            let source = Npy::raw("row", &path, DType::U32, &[ROW], None).unwrap();
            let mut values = [Value::default()];
            source.read(ROWS - 10, &mut values).unwrap();
            truncate(&path, 0);
            assert_ne!(values[0].bytes()[0], 0);
        }
        "earlier handler" => {
            handlers::install(handlers::exit_42);
            guarded_fault(directory);
            foreign_fault(directory);
        }
        "later handler" => {
            guarded_fault(directory);
            handlers::install(handlers::exit_42);
            // A file that is mapped, or a loop that begins, puts ours on top again.
            guarded_fault(directory);
            foreign_fault(directory);
        }
        "handler that returns" => {
            handlers::install(handlers::nothing);
            guarded_fault(directory);
            foreign_fault(directory);
        }
        "faulthandler before" => {
            handlers::install(handlers::like_faulthandler);
            guarded_fault(directory);
            foreign_fault(directory);
        }
        "faulthandler after" => {
            let path = rows(directory);
            let reader = Reader::open(&path, Access::Mapped).unwrap();
            handlers::install(handlers::like_faulthandler);
            // It is asked first, reports, and leaves the rest to ours.
            check_truncated(&reader, &path);
            handlers::install(handlers::like_faulthandler);
            foreign_fault(directory);
        }
        "faulthandler between" => {
            guarded_fault(directory);
            handlers::install(handlers::like_faulthandler);
            guarded_fault(directory);
            foreign_fault(directory);
        }
        "fork" => {
            let path = rows(directory);
            let reader = Reader::open(&path, Access::Mapped).unwrap();
            let code = handlers::forked(|| {
                check_truncated(&reader, &path);
                assert!(error_of_epoch(&rows(directory), true, 0).is_some());
            });
            std::process::exit(if code == 0 { 7 } else { 1 });
        }
        other => panic!("{other}"),
    }
    panic!("{scenario}: the process has survived");
}

/// Maps a file, truncates it and reads it.
fn guarded_fault(directory: &Path) {
    let path = rows(directory);
    check_truncated(&Reader::open(&path, Access::Mapped).unwrap(), &path);
}

fn check_truncated(reader: &Reader, path: &Path) {
    truncate(path, 0);
    let mut out = [0; 100];
    let error = reader.read_to(100_000, &mut out, &mut Piece::default());
    assert!(error.unwrap_err().to_string().contains("was truncated"));
}

/// Reads a file that somebody else has mapped.
fn foreign_fault(directory: &Path) {
    let path = directory.join("foreign");
    fs::write(&path, vec![1; 100_000]).unwrap();
    let map = handlers::mapped(&path);
    truncate(&path, 0);
    assert_ne!(map[50_000], 0);
}

/// What other libraries of a process do.
#[expect(unsafe_code, reason = "handlers as C libraries have them")]
mod handlers {
    use std::fs::File;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, Ordering};

    use libc::{c_int, sigaction};
    use memmap2::Mmap;

    static BEFORE: AtomicPtr<sigaction> = AtomicPtr::new(null_mut());

    pub(super) fn install(handler: extern "C" fn(c_int)) {
        // SAFETY: both actions are valid, and the handler has the signature of one without SA_SIGINFO.
        unsafe {
            let mut action: sigaction = std::mem::zeroed();
            let mut before: sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_NODEFER | libc::SA_ONSTACK;
            sigaction(libc::SIGBUS, &raw const action, &raw mut before);
            BEFORE.store(Box::into_raw(Box::new(before)), Ordering::SeqCst);
        }
    }

    /// Gives this thread room for three nested handlers. A signal's frame takes up to 11 KiB on CPUs with AVX-512 and
    /// AMX, where the stack that Rust reserves for handlers overflows.
    pub(super) fn enlarge_stack() {
        const BYTES: usize = 256 << 10;
        let stack = libc::stack_t {
            ss_sp: Box::leak(vec![0_u8; BYTES].into_boxed_slice())
                .as_mut_ptr()
                .cast(),
            ss_flags: 0,
            ss_size: BYTES,
        };
        // SAFETY: the memory is never freed.
        unsafe { libc::sigaltstack(&raw const stack, null_mut()) };
    }

    pub(super) fn reset() {
        // SAFETY: it has no conditions.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }

    pub(super) extern "C" fn exit_42(_: c_int) {
        // SAFETY: it has no conditions.
        unsafe { libc::_exit(42) }
    }

    pub(super) extern "C" fn nothing(_: c_int) {}

    /// As CPython's `faulthandler_fatal_error`: reports, restores the handler before it, and raises the signal again.
    pub(super) extern "C" fn like_faulthandler(signal: c_int) {
        let text = b"fatal\n";
        // SAFETY: the text is valid, and so is the action that was stored.
        unsafe {
            libc::write(2, text.as_ptr().cast(), text.len());
            sigaction(signal, BEFORE.load(Ordering::SeqCst), null_mut());
            libc::raise(signal);
        }
    }

    pub(super) fn send() {
        // SAFETY: it has no conditions.
        unsafe { libc::kill(libc::getpid(), libc::SIGBUS) };
        std::thread::sleep(std::time::Duration::from_secs(10));
    }

    pub(super) fn mapped(path: &Path) -> Mmap {
        // SAFETY: what happens when it is truncated is tested.
        unsafe { Mmap::map(&File::open(path).unwrap()).unwrap() }
    }

    /// Runs something in a fork of this process, and gives the exit code of that.
    pub(super) fn forked(work: impl FnOnce()) -> c_int {
        // SAFETY: the process has no other thread that matters to what is done after it.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let is_ok = catch_unwind(AssertUnwindSafe(work)).is_ok();
                libc::_exit(c_int::from(!is_ok));
            }
            let mut status = 0;
            libc::waitpid(child, &raw mut status, 0);
            if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                -1
            }
        }
    }
}
