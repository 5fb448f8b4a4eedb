//! Signals that end brimful, deferred until what it started has ended.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ctrl-C and the like, deferred until the rehearsal has been taken down.
pub(crate) struct Interruption(Vec<(i32, Arc<AtomicBool>)>);

impl Interruption {
    pub(crate) fn watch() -> Self {
        let signals = [
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
            signal_hook::consts::SIGHUP,
        ];
        let mut flags = Vec::new();
        for signal in signals {
            let flag = Arc::new(AtomicBool::new(false));
            if signal_hook::flag::register(signal, Arc::clone(&flag)).is_ok() {
                flags.push((signal, flag));
            }
        }
        Interruption(flags)
    }

    /// Breaks once a signal has arrived.
    pub(crate) fn check(&self) -> ControlFlow<()> {
        if self.0.iter().any(|(_, flag)| flag.load(Ordering::Relaxed)) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Ends this process as the signal would have.
    pub(crate) fn obey(&self) {
        for (signal, _) in self
            .0
            .iter()
            .filter(|(_, flag)| flag.load(Ordering::Relaxed))
        {
            let _ = signal_hook::low_level::emulate_default_handler(*signal);
        }
    }
}
