//! Answers that a fuzz target gives in place of a network. Nothing else calls [`answer_with`].
//!
//! Everything from the request of `object_store` on is the code that runs in production: only the HTTP client is
//! replaced.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::client::{HttpClient, HttpError, HttpRequest, HttpResponse, HttpService};
use reqwest::StatusCode;
use reqwest::header::{HeaderName, HeaderValue};

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Request {
    pub is_head: bool,
    /// The first and the last byte of the range.
    pub range: Option<(u64, u64)>,
}

/// What the object store answers.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub status: u16,
    /// Headers that HTTP does not allow are left out.
    pub headers: Vec<(&'static str, Vec<u8>)>,
    pub body: Vec<u8>,
}

type Script = Arc<dyn Fn(&Request) -> Answer + Send + Sync>;

static SCRIPT: Mutex<Option<Script>> = Mutex::new(None);

/// Answers every request of this process from now on. Before the first call there is a network.
pub fn answer_with(script: impl Fn(&Request) -> Answer + Send + Sync + 'static) {
    *SCRIPT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(script));
}

pub(super) fn client() -> Option<HttpClient> {
    let script = SCRIPT.lock().unwrap_or_else(PoisonError::into_inner);
    script.is_some().then(|| HttpClient::new(Scripted))
}

#[derive(Debug)]
struct Scripted;

impl HttpService for Scripted {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { Ok(response(answer(&request))) })
    }
}

fn answer(request: &HttpRequest) -> Answer {
    let script = SCRIPT
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let range = request.headers().get("range").and_then(|range| {
        let (first, last) = range
            .to_str()
            .ok()?
            .strip_prefix("bytes=")?
            .split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    let request = Request {
        is_head: request.method() == "HEAD",
        range,
    };
    script.map_or_else(Answer::default, |script| script(&request))
}

fn response(answer: Answer) -> HttpResponse {
    let mut response = HttpResponse::new(answer.body.into());
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::NOT_FOUND);
    for (name, value) in answer.headers {
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            response
                .headers_mut()
                .insert(HeaderName::from_static(name), value);
        }
    }
    response
}
