//! Tables in which one key is the name of a kind, and the others are its options.

use serde::Serialize;

use crate::expression::error::ExpressionError;

/// Which one of `kinds` a table has, and whether the rest of its keys belong to it. `written` are the keys that it has.
pub(super) fn kind_of(
    noun: &str,
    kinds: &[(&'static str, &[&str])],
    written: &[String],
) -> Result<&'static str, ExpressionError> {
    let known = |key: &str| kinds.iter().find(|(name, _)| *name == key);
    let found: Vec<&(&str, &[&str])> = written.iter().filter_map(|key| known(key)).collect();
    let [(kind, options)] = found.as_slice() else {
        let names: Vec<&str> = kinds.iter().map(|(name, _)| *name).collect();
        return Err(ExpressionError::Malformed {
            what: noun.to_owned(),
            expected: format!("exactly one of {}", names.join(", ")),
            found: if written.is_empty() {
                "nothing".to_owned()
            } else {
                written.join(", ")
            },
        });
    };
    let stray = written
        .iter()
        .find(|key| key != kind && !options.contains(&key.as_str()));
    match stray {
        None => Ok(kind),
        Some(stray) => Err(ExpressionError::Malformed {
            what: format!("`{kind}`"),
            expected: if options.is_empty() {
                "no options".to_owned()
            } else {
                format!("only the options {}", options.join(", "))
            },
            found: format!("`{stray}`"),
        }),
    }
}

/// The keys that a table would be written with.
pub(super) fn keys_of(table: &impl Serialize) -> Vec<String> {
    match serde_json::to_value(table) {
        Ok(serde_json::Value::Object(map)) => map.into_iter().map(|(key, _)| key).collect(),
        _ => Vec::new(),
    }
}
