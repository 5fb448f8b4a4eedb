//! What a store complains of, in words that hold no credentials.
//!
//! The errors of `object_store` quote the address of a request, in which a signature may be, and the answer of the
//! server, in which S3 repeats what was signed. So only the innermost error is told, and of an answer in XML only its
//! code and its message.

use std::fmt;
use std::io;

use brimful::printable::is_printable;
use object_store::Error;

/// Longest text of a server that is passed on.
const MAX_LEN: usize = 300;

/// An error of a store as one of reading.
pub(super) fn read_error(error: &Error) -> io::Error {
    let (kind, what) = match error {
        Error::NotFound { .. } => (io::ErrorKind::NotFound, "no such object: "),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => (
            io::ErrorKind::PermissionDenied,
            "access denied by the object store: ",
        ),
        Error::Precondition { .. } => (
            io::ErrorKind::InvalidData,
            "the object changed after it was opened: ",
        ),
        Error::NotSupported { .. } => (
            io::ErrorKind::Unsupported,
            "the server does not support range requests: ",
        ),
        _ => (io::ErrorKind::Other, ""),
    };
    let whole = error.to_string();
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    // The last place where S3 looks for credentials, which only its own machines have.
    let hint = if whole.contains("169.254.169.254") {
        "no credentials found (set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public \
         bucket): "
    } else {
        ""
    };
    let said = said(&innermost.to_string());
    io::Error::new(kind, format!("{what}{hint}{said}"))
}

/// An answer that is not what was asked for.
pub(super) fn wrong(expected: impl fmt::Display, found: impl fmt::Display) -> io::Error {
    let text =
        format!("unexpected response from the object store: expected {expected}, found {found}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Whether a range was refused, as that of an object without bytes is.
pub(super) fn is_of_no_bytes(error: &io::Error) -> bool {
    error.to_string().contains("416")
}

/// A text of a server, cut to what is fit for a message.
fn said(text: &str) -> String {
    let plain = match (element(text, "Code"), element(text, "Message")) {
        (None, None) => text.to_owned(),
        (code, message) => {
            let status = text.split('<').next().unwrap_or_default();
            let code = code.unwrap_or_default();
            format!("{status}{code} {}", message.unwrap_or_default())
        }
    };
    let plain: String = without_secrets(&plain)
        .chars()
        .map(|c| if is_printable(c) { c } else { ' ' })
        .take(MAX_LEN)
        .collect();
    plain.trim().to_owned()
}

/// What is in `<NAME>…</NAME>`.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(&format!("<{name}>"))?;
    Some(after.split_once(&format!("</{name}>"))?.0)
}

/// Takes users and what follows a `?` out of every address in a text.
fn without_secrets(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        plain.push_str(before);
        plain.push_str("://");
        let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ')' | '<' | '>');
        let end = after.find(is_end).unwrap_or(after.len());
        let (address, behind) = after.split_at(end);
        let address = address.split('?').next().unwrap_or_default();
        let host = address.find('/').unwrap_or(address.len());
        let user = address[..host].rfind('@').map_or(0, |at| at + 1);
        plain.push_str(&address[user..]);
        rest = behind;
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lose_what_is_secret() {
        for (text, expected) in [
            (
                "GET http://u:p@host/a?Signature=1 failed",
                "GET http://host/a failed",
            ),
            (
                "(https://host?token=x), https://b/c@d",
                "(https://host), https://b/c@d",
            ),
            ("no address ? here", "no address ? here"),
        ] {
            assert_eq!(without_secrets(text), expected);
        }
    }

    #[test]
    fn of_an_answer_in_xml_only_code_and_message_are_told() {
        let text = "status 403: <Error><Code>SignatureDoesNotMatch</Code><Message>It\ndiffers</Message>\
                    <StringToSign>secret</StringToSign></Error>";
        assert_eq!(said(text), "status 403: SignatureDoesNotMatch It differs");
        assert_eq!(said(&"x".repeat(1000)).len(), MAX_LEN);
    }
}
