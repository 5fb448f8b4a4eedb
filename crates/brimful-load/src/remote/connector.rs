//! Connections that a store cannot lead elsewhere.
//!
//! `object_store` follows redirects to any host, with all headers that its HTTP client does not know as secret, such as
//! the session token of S3. Here a redirect stays on its host. Only a plain `https://` address may lead to another host,
//! as those of the Hugging Face Hub do, and only over TLS and to a name: no request carries a credential there.

use std::time::Duration;

use object_store::client::{ClientConfigKey, HttpClient, HttpConnector};
use object_store::{ClientOptions, Error, Result};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Certificate, ClientBuilder, NoProxy, Proxy};
use url::{Host, Url};

/// As the HTTP client has it by itself.
const MAX_REDIRECTS: usize = 10;

/// Makes the HTTP client of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connector {
    /// The store is a web server to which no credentials are sent.
    pub(super) is_public: bool,
}

/// A store wants the request to be sent elsewhere.
#[derive(Debug, thiserror::Error)]
enum Redirected {
    #[error(
        "the object store redirects to another host, {host}; if you trust it, use the final URL"
    )]
    Elsewhere { host: String },
    #[error("the object store redirects more than {MAX_REDIRECTS} times")]
    TooOften,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        if let Some(client) = super::scripted::client() {
            return Ok(client);
        }
        let failed = |error: reqwest::Error| Error::Generic {
            store: "HTTP client",
            source: Box::new(error),
        };
        let is_public = self.is_public;
        let policy = Policy::custom(move |attempt| follow(attempt, is_public));
        let client = configured(options).map_err(failed)?;
        let client = client.redirect(policy).build().map_err(failed)?;
        Ok(HttpClient::new(client))
    }
}

fn follow(attempt: Attempt<'_>, is_public: bool) -> Action {
    let Some(first) = attempt.previous().first() else {
        return attempt.follow();
    };
    if attempt.previous().len() > MAX_REDIRECTS {
        return attempt.error(Redirected::TooOften);
    }
    if is_allowed(first, attempt.url(), is_public) {
        return attempt.follow();
    }
    let host = attempt.url().host_str().unwrap_or_default().to_owned();
    attempt.error(Redirected::Elsewhere { host })
}

fn is_allowed(first: &Url, next: &Url, is_public: bool) -> bool {
    let is_same = (first.host_str(), first.port_or_known_default())
        == (next.host_str(), next.port_or_known_default())
        && first.scheme() == next.scheme();
    let is_upgrade = first.host_str() == next.host_str()
        && (first.scheme(), next.scheme()) == ("http", "https")
        && (first.port(), next.port()) == (None, None);
    let has_user = !first.username().is_empty() || first.password().is_some();
    is_same
        || is_upgrade
        || is_public
            && !has_user
            && (first.scheme(), next.scheme()) == ("https", "https")
            && matches!(next.host(), Some(Host::Domain(name)) if name != "localhost")
}

/// A client as `object_store` makes it from the same options.
fn configured(options: &ClientOptions) -> reqwest::Result<ClientBuilder> {
    use ClientConfigKey as Key;
    let text = |key| options.get_config_value(&key);
    let is_set = |key| text(key).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let time = |key| text(key).and_then(|value| duration(&value));
    let mut builder = ClientBuilder::new()
        .user_agent(text(Key::UserAgent).unwrap_or_else(|| "brimful".to_owned()))
        .https_only(!is_set(Key::AllowHttp))
        .danger_accept_invalid_certs(is_set(Key::AllowInvalidCertificates))
        // Lengths are those of the objects.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate();
    if let Some(headers) = options.get_default_headers() {
        builder = builder.default_headers(headers.clone());
    }
    if let Some(url) = text(Key::ProxyUrl) {
        let mut proxy = Proxy::all(url)?;
        if let Some(certificate) = text(Key::ProxyCaCertificate) {
            let certificate = Certificate::from_pem(certificate.as_bytes())?;
            builder = builder.add_root_certificate(certificate);
        }
        if let Some(excluded) = text(Key::ProxyExcludes) {
            proxy = proxy.no_proxy(NoProxy::from_string(&excluded));
        }
        builder = builder.proxy(proxy);
    }
    if let Some(limit) = time(Key::Timeout) {
        builder = builder.timeout(limit);
    }
    if let Some(limit) = time(Key::ConnectTimeout) {
        builder = builder.connect_timeout(limit);
    }
    if let Some(limit) = time(Key::PoolIdleTimeout) {
        builder = builder.pool_idle_timeout(limit);
    }
    if let Some(max) = text(Key::PoolMaxIdlePerHost).and_then(|max| max.parse().ok()) {
        builder = builder.pool_max_idle_per_host(max);
    }
    if let Some(interval) = time(Key::Http2KeepAliveInterval) {
        builder = builder.http2_keep_alive_interval(interval);
    }
    if let Some(limit) = time(Key::Http2KeepAliveTimeout) {
        builder = builder.http2_keep_alive_timeout(limit);
    }
    if is_set(Key::Http2KeepAliveWhileIdle) {
        builder = builder.http2_keep_alive_while_idle(true);
    }
    if let Some(max) = text(Key::Http2MaxFrameSize).and_then(|max| max.parse::<u32>().ok()) {
        builder = builder.http2_max_frame_size(max);
    }
    if is_set(Key::Http1Only) {
        builder = builder.http1_only();
    }
    if is_set(Key::Http2Only) {
        builder = builder.http2_prior_knowledge();
    }
    Ok(builder)
}

/// A time as `object_store` writes it: `30s`, `1m 30s`, `500ms`.
fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u32 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = match &rest[..letters] {
            "ns" | "nsec" => Duration::from_nanos(1),
            "us" | "usec" => Duration::from_micros(1),
            "ms" | "msec" | "millis" => Duration::from_millis(1),
            "s" | "sec" | "secs" | "second" | "seconds" => Duration::from_secs(1),
            "m" | "min" | "mins" | "minute" | "minutes" => Duration::from_mins(1),
            "h" | "hr" | "hrs" | "hour" | "hours" => Duration::from_hours(1),
            "d" | "day" | "days" => Duration::from_hours(24),
            _ => return None,
        };
        total = total.checked_add(unit.checked_mul(number)?)?;
        rest = rest[letters..].trim_start();
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(first: &str, next: &str) -> (bool, bool) {
        let url = |text: &str| Url::parse(text).unwrap();
        let (first, next) = (url(first), url(next));
        (
            is_allowed(&first, &next, false),
            is_allowed(&first, &next, true),
        )
    }

    #[test]
    fn a_store_stays_on_its_host_and_a_public_address_may_lead_to_another_name() {
        for (first, next, expected) in [
            ("https://a.org/x", "https://a.org/y", (true, true)),
            ("http://a.org/x", "https://a.org/y", (true, true)),
            ("https://a.org/x", "http://a.org/y", (false, false)),
            ("https://a.org/x", "https://a.org:8443/y", (false, true)),
            ("http://a.org/x", "http://b.org/x", (false, false)),
            ("http://a.org/x", "https://b.org/x", (false, false)),
            ("https://a.org/x", "https://cdn.b.org/x", (false, true)),
            ("https://u:p@a.org/x", "https://cdn.b.org/x", (false, false)),
            (
                "https://a.org/x",
                "https://169.254.169.254/x",
                (false, false),
            ),
            ("https://a.org/x", "https://[::1]/x", (false, false)),
            ("https://a.org/x", "https://localhost/x", (false, false)),
        ] {
            assert_eq!(allowed(first, next), expected, "{first} to {next}");
        }
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for (text, expected) in [
            ("30s", Some(30_000)),
            ("1m 30s", Some(90_000)),
            ("500ms", Some(500)),
            ("2 hours", Some(7_200_000)),
            ("", None),
            ("30", None),
            ("x", None),
            ("99999999999s", None),
        ] {
            assert_eq!(
                duration(text),
                expected.map(Duration::from_millis),
                "{text}"
            );
        }
    }
}
