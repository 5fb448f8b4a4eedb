//! A YAML or JSON config file of anyone's making: its values are replaced and read back, or it is refused with a message
//! fit to show.
use brimful::job::{Value, config_keys, with_values};

/// Runs one input.
pub(crate) fn run_input(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let keys = match config_keys(&text) {
        Ok(keys) => keys,
        Err(error) => {
            assert!(!error.to_string().chars().any(char::is_control), "{error}");
            error.hint();
            return;
        }
    };
    for key in keys.iter().take(8) {
        for value in [
            Value::Whole(7),
            Value::Number(0.5),
            Value::Text(text.chars().take(9).collect()),
        ] {
            let changed = match with_values(&text, &[(key.key.clone(), value.clone())]) {
                Ok(changed) => changed,
                Err(error) => {
                    assert!(!error.to_string().chars().any(char::is_control), "{error}");
                    continue;
                }
            };
            let after = config_keys(&changed).expect("it was read back");
            let found = after.iter().rev().find(|found| found.key == key.key);
            assert_eq!(found.and_then(|found| found.value.as_ref()), Some(&value));
        }
    }
}
