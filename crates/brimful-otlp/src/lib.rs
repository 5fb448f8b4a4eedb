//! Metrics of a run, sent to an OpenTelemetry collector by OTLP over HTTP.
//!
//! What is sent is made from a [`LiveRun`](brimful::live::LiveRun), which follows a run record, so nothing here touches
//! the run or its supervisor. Names are those of OpenTelemetry's semantic conventions where there is one.
//!
//! A collector that cannot be reached costs a line of text: nothing is buffered, and the next values are sent again.
//!
//! Read first: [`Exporter`] and [`measurements`].

mod client;
mod exporter;
mod metrics;

pub use exporter::{Exporter, OtlpError};
pub use metrics::{INSTRUMENTS, Instrument, InstrumentKind, Measurement, measurements};
