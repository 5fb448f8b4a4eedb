//! Sending the latest values again and again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brimful::env_vars::{OTEL_METRIC_EXPORT_INTERVAL, OTEL_SERVICE_NAME};
use brimful::live::LiveRun;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry_otlp::{ExporterBuildError, MetricExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};

use crate::client::{CollectorClient, LastError};
use crate::metrics::{INSTRUMENTS, Instrument, InstrumentKind, Measurement, measurements};

/// Where OTLP over HTTP takes metrics, below the address of a collector.
const METRICS_PATH: &str = "v1/metrics";
/// Between two exports, unless `OTEL_METRIC_EXPORT_INTERVAL` says otherwise. Memory can rise fast.
const INTERVAL: Duration = Duration::from_secs(10);

/// Why no metrics can be sent.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    #[error("expected the URL of a collector, such as http://localhost:4318, found `{0}`")]
    Url(String),
    #[error("failed to prepare the export of metrics")]
    Build(#[from] ExporterBuildError),
    #[error("failed to prepare the export of metrics: {0}")]
    Client(String),
}

/// The latest values, as the instruments read them.
type Latest = Arc<Mutex<Vec<Measurement>>>;

/// Sends the metrics of one run.
#[derive(Debug)]
pub struct Exporter {
    provider: SdkMeterProvider,
    latest: Latest,
    last_error: LastError,
}

impl Exporter {
    /// Sends to the collector at `url`, or else to the one that `OTEL_EXPORTER_OTLP_ENDPOINT` names. `attributes`
    /// describe the run, beside those of `OTEL_RESOURCE_ATTRIBUTES`.
    pub fn new(url: Option<&str>, attributes: &[(&str, String)]) -> Result<Exporter, OtlpError> {
        let last_error = LastError::default();
        let client = CollectorClient::new(last_error.clone())
            .map_err(|error| OtlpError::Client(error.to_string()))?;
        let builder = MetricExporter::builder()
            .with_http()
            .with_http_client(client);
        let exporter = match url {
            Some(url) => builder.with_endpoint(metrics_url(url)?).build()?,
            None => builder.build()?,
        };
        let reader = PeriodicReader::builder(exporter);
        let reader = if std::env::var_os(OTEL_METRIC_EXPORT_INTERVAL).is_some() {
            reader.build()
        } else {
            reader.with_interval(INTERVAL).build()
        };
        let attributes = attributes
            .iter()
            .map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone()));
        let mut resource = Resource::builder();
        if std::env::var_os(OTEL_SERVICE_NAME).is_none() {
            resource = resource.with_service_name("brimful");
        }
        let provider = SdkMeterProvider::builder()
            .with_reader(reader)
            .with_resource(resource.with_attributes(attributes).build())
            .build();
        let latest = Latest::default();
        let meter = provider.meter("brimful");
        for instrument in INSTRUMENTS {
            observe(&meter, instrument, &latest);
        }
        Ok(Exporter {
            provider,
            latest,
            last_error,
        })
    }

    /// Takes the values that are sent next.
    pub fn update(&self, run: &LiveRun) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = measurements(run);
    }

    /// Sends the latest values now.
    pub fn flush(&self) {
        // The client remembers what went wrong.
        let _ = self.provider.force_flush();
    }

    /// Why the last values did not reach the collector.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.get()
    }

    /// Sends the latest values a last time.
    pub fn shut_down(&self) {
        let _ = self.provider.shutdown();
    }
}

/// The address of a collector as people write it, with the path for metrics unless it is there.
fn metrics_url(url: &str) -> Result<String, OtlpError> {
    let is_http = url.starts_with("http://") || url.starts_with("https://");
    if !is_http || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(OtlpError::Url(brimful::secrets::mask_text(url)));
    }
    let url = url.trim_end_matches('/');
    if url.ends_with(METRICS_PATH) {
        return Ok(url.to_owned());
    }
    Ok(format!("{url}/{METRICS_PATH}"))
}

fn observe(meter: &Meter, instrument: &'static Instrument, latest: &Latest) {
    let latest = Arc::clone(latest);
    let each = move |observe: &mut dyn FnMut(f64, &[KeyValue])| {
        let latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
        for one in latest.iter().filter(|one| one.name == instrument.name) {
            let attributes: Vec<KeyValue> = one
                .attributes
                .iter()
                .map(|(key, value)| KeyValue::new(*key, value.clone()))
                .collect();
            observe(one.value, &attributes);
        }
    };
    macro_rules! build {
        ($builder:ident) => {{
            let _registered = meter
                .$builder(instrument.name)
                .with_unit(instrument.unit)
                .with_description(instrument.description)
                .with_callback(move |observer| {
                    each(&mut |value, attributes| observer.observe(value, attributes));
                })
                .build();
        }};
    }
    match instrument.kind {
        InstrumentKind::UpDownCounter => build!(f64_observable_up_down_counter),
        InstrumentKind::Gauge => build!(f64_observable_gauge),
        InstrumentKind::Counter => build!(f64_observable_counter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_as_people_write_them() {
        let full = "http://localhost:4318/v1/metrics";
        for url in ["http://localhost:4318", "http://localhost:4318/", full] {
            assert_eq!(metrics_url(url).expect("a URL"), full);
        }
        for url in ["localhost:4318", "grpc://x", "http://a b"] {
            assert!(matches!(metrics_url(url), Err(OtlpError::Url(_))), "{url}");
        }
    }

    #[test]
    fn a_collector_that_is_not_there_is_a_line_of_text() {
        let exporter = Exporter::new(Some("http://127.0.0.1:1"), &[]).expect("an exporter");
        exporter.update(&LiveRun::default());
        exporter.flush();
        let error = exporter.last_error().expect("an error");
        assert!(error.contains("refused"), "{error}");
        exporter.shut_down();
    }
}
