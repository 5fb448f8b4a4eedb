//! The step of a checkpoint, where its name says so.

use std::path::Path;

/// `checkpoint-500`, `epoch=3-step=500.ckpt`, `ckpt_500.pt`, `500.pt`. Other numbers may count anything.
pub(super) fn of_name(path: &Path) -> Option<u64> {
    let stem = path.file_stem()?.to_str()?.to_lowercase();
    let number = |text: &str| -> Option<u64> {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    if let Some(number) = number(&stem).filter(|_| stem.bytes().all(|byte| byte.is_ascii_digit())) {
        return Some(number);
    }
    ["step", "checkpoint", "ckpt", "iter", "iteration"]
        .iter()
        .find_map(|word| {
            let (_, rest) = stem.rsplit_once(word)?;
            number(rest.trim_start_matches(['=', '-', '_']))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_from_names_and_epochs_are_not() {
        for (name, step) in [
            ("out/checkpoint-500", Some(500)),
            ("epoch=3-step=1500.ckpt", Some(1500)),
            ("global_step7", Some(7)),
            ("ckpt_20.pt", Some(20)),
            ("0042.pt", Some(42)),
            ("last.pt", None),
            ("epoch_3.pt", None),
            ("model-v2.pt", None),
            ("step-99999999999999999999999.pt", None),
            ("step.pt", None),
        ] {
            assert_eq!(of_name(Path::new(name)), step, "{name}");
        }
    }
}
