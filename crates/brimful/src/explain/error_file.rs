//! The error file of torchelastic: what the worker that failed first raised.
//!
//! `torchrun` and `torch.distributed.elastic`'s `@record` write it as JSON to `TORCHELASTIC_ERROR_FILE`:
//! `{"message": {"message": "ValueError: …", "extraInfo": {"py_callstack": "…", "timestamp": "…"}}}`; where a process was
//! killed, the message is only text.

use serde::Deserialize;
use serde_json::Value;

/// What it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorFile {
    /// The class of the exception; empty where the message names none.
    pub type_name: String,
    pub message: String,
    /// As Python prints it; empty where there is none.
    pub traceback: String,
}

#[derive(Deserialize)]
struct Written {
    message: Value,
}

impl ErrorFile {
    /// Reads the file's bytes; nothing where they are something else.
    pub fn parse(bytes: &[u8]) -> Option<ErrorFile> {
        let Written { message } = serde_json::from_slice(bytes).ok()?;
        let (text, traceback) = match &message {
            Value::String(text) => (text.as_str(), ""),
            Value::Object(fields) => {
                let text = fields.get("message")?.as_str()?;
                let traceback = message
                    .pointer("/extraInfo/py_callstack")
                    .and_then(Value::as_str);
                (text, traceback.unwrap_or_default())
            }
            _ => return None,
        };
        let (type_name, message) = match text.split_once(": ") {
            Some((name, rest)) if is_class(name) => (name, rest),
            _ => ("", text),
        };
        Some(ErrorFile {
            type_name: type_name.to_owned(),
            message: message.to_owned(),
            traceback: traceback.to_owned(),
        })
    }

    /// As it would have been printed.
    pub fn text(&self) -> String {
        let ErrorFile {
            type_name,
            message,
            traceback,
        } = self;
        let last = if type_name.is_empty() {
            message.clone()
        } else {
            format!("{type_name}: {message}")
        };
        if traceback.trim_end().ends_with(&last) {
            return traceback.clone();
        }
        format!("{traceback}\n{last}\n")
    }
}

fn is_class(name: &str) -> bool {
    name.len() < 200
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::{Cause, Evidence, explain};

    #[test]
    fn an_exception_with_its_traceback() {
        let bytes = br#"{"message": {"message": "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  x\n", "timestamp": "1700000000"}}}"#;
        let file = ErrorFile::parse(bytes).unwrap();
        assert_eq!(file.type_name, "RuntimeError");
        assert!(file.traceback.starts_with("Traceback"));
        let verdict = explain(&Evidence {
            text: file.text(),
            ..Evidence::default()
        });
        assert_eq!(verdict.cause, Cause::CudaOomExhausted);
    }

    #[test]
    fn a_killed_process_has_only_a_message() {
        let bytes = br#"{"message": {"message": "Signal 9 (SIGKILL) received by PID 71", "extraInfo": {}}}"#;
        let file = ErrorFile::parse(bytes).unwrap();
        assert_eq!((file.type_name.as_str(), file.traceback.as_str()), ("", ""));
        assert_eq!(
            ErrorFile::parse(br#"{"message": "x"}"#).unwrap().message,
            "x"
        );
    }

    #[test]
    fn other_documents_are_none() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"message": 3}"#,
            r#"{"message": {"text": "x"}}"#,
        ] {
            assert_eq!(ErrorFile::parse(text.as_bytes()), None, "{text}");
        }
    }
}
