//! The HTTP client of the exporter, in words that hold no credentials.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use reqwest::redirect::Policy;
use tokio::runtime::{Builder, Runtime};

/// A collector is near; what takes longer is repeated with newer values.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer that are looked at.
const MAX_ANSWER: usize = 64 << 10;

/// What became of the last request.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastError(Arc<Mutex<Option<String>>>);

impl LastError {
    fn set(&self, error: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    pub(crate) fn get(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Sends requests, on the thread that asks for it.
pub(crate) struct CollectorClient {
    http: reqwest::Client,
    runtime: Runtime,
    last_error: LastError,
}

/// The collector did not take the values.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotTaken(String);

impl CollectorClient {
    pub(crate) fn new(last_error: LastError) -> Result<CollectorClient, Box<dyn Error>> {
        let http = reqwest::Client::builder()
            .timeout(TIMEOUT)
            // Headers with API keys must not follow a redirect to another host.
            .redirect(Policy::none())
            .build()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(CollectorClient {
            http,
            runtime,
            last_error,
        })
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let request = reqwest::Request::try_from(request).map_err(|error| plain(&error))?;
        self.runtime.block_on(async {
            let sent = self.http.execute(request).await;
            let mut answer = sent.map_err(|error| plain(&error))?;
            let status = answer.status();
            let mut body = Vec::new();
            while let Some(part) = answer.chunk().await.map_err(|error| plain(&error))? {
                if body.len() + part.len() > MAX_ANSWER {
                    break;
                }
                body.extend_from_slice(&part);
            }
            if !status.is_success() {
                return Err(format!("the collector answered {status}"));
            }
            let mut response = Response::new(Bytes::from(body));
            *response.status_mut() = status;
            Ok(response)
        })
    }
}

/// The innermost error: the others quote the URL, which may have a password.
fn plain(error: &reqwest::Error) -> String {
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    if error.is_timeout() {
        return format!("no answer within {} seconds", TIMEOUT.as_secs());
    }
    let text = innermost.to_string();
    brimful::secrets::mask_text(&text)
}

impl fmt::Debug for CollectorClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CollectorClient")
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        match self.send(request) {
            Ok(response) => {
                self.last_error.set(None);
                Ok(response)
            }
            Err(error) => {
                self.last_error.set(Some(error.clone()));
                Err(Box::new(NotTaken(error)))
            }
        }
    }
}
