//! Text that a template must not escape again.

use minijinja::Value;
use serde::{Serialize, Serializer};

/// For numbers and base64 of ours, and for what a template has rendered: it has escaped everything else.
pub(super) fn as_markup<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    Value::from_safe_string(text.to_owned()).serialize(serializer)
}
