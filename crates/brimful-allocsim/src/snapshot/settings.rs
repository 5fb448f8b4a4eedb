//! The allocator's settings as a snapshot has them.

use crate::pickle::{Dict, Value};

/// More settings than this are not kept, nor longer texts in them.
const MAX_SETTINGS: usize = 512;
const MAX_SETTING_CHARS: usize = 4096;

pub(super) fn settings_of(dict: Dict<'_>) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    for (key, value) in dict.iter().take(MAX_SETTINGS) {
        let Some(name) = setting_text(key) else {
            continue;
        };
        if let Value::Dict(nested) = value {
            let left = MAX_SETTINGS.saturating_sub(settings.len());
            settings.extend(nested.iter().take(left).filter_map(|(key, value)| {
                Some((
                    format!("{name}.{}", setting_text(key)?),
                    setting_text(value)?,
                ))
            }));
        } else if let Some(text) = setting_text(value) {
            settings.push((name, text));
        }
    }
    settings
}

/// A setting's value, written as in `PYTORCH_CUDA_ALLOC_CONF`.
fn setting_text(value: Value<'_>) -> Option<String> {
    Some(match value {
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Str(text) => text.chars().take(MAX_SETTING_CHARS).collect(),
        _ => return None,
    })
}
