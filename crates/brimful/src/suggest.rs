//! The near miss: what a mistyped name probably meant.

/// The known names closest to `typed`, best first, at most three.
///
/// ```
/// use brimful::suggest::closest;
/// assert_eq!(closest("colab-t5", ["colab-t4", "kaggle-p100"]), ["colab-t4"]);
/// ```
pub fn closest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let letters = |text: &str| -> String {
        let kept = text.chars().take(80).filter(|c| c.is_alphanumeric());
        kept.flat_map(char::to_lowercase).collect()
    };
    let typed = letters(typed);
    // One letter is near to everything.
    if typed.chars().count() < 2 {
        return Vec::new();
    }
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .map(|name| {
            let known = letters(name);
            let contained = known.contains(&typed) || typed.contains(&known);
            let alike = strsim::jaro_winkler(&typed, &known);
            // What begins alike is meant more often than what merely holds the same letters.
            let shared = typed
                .chars()
                .zip(known.chars())
                .take_while(|(a, b)| a == b)
                .count();
            let score = if contained { alike.max(0.9) } else { alike };
            (score + shared as f64 / 100.0, name)
        })
        .filter(|(score, _)| *score >= 0.85)
        .collect();
    // Of two that are equally close, the one that is known first: tables begin with what is used most.
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

/// [`closest`], for an error that outlives the names.
pub(crate) fn closest_owned<'a>(
    typed: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Vec<String> {
    closest(typed, known)
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// ` (did you mean `NAME`?)` for the closest name, to follow the name that was not found.
pub fn did_you_mean<T: AsRef<str>>(close: &[T]) -> String {
    close.first().map_or_else(String::new, |name| {
        format!(" (did you mean `{}`?)", name.as_ref())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_gets_no_suggestion() {
        assert!(closest("zzzz", ["colab-t4", "kaggle-p100"]).is_empty());
    }

    #[test]
    fn part_of_a_name_finds_it() {
        assert_eq!(
            closest("p100", ["colab-t4", "kaggle-p100"]),
            ["kaggle-p100"]
        );
    }
}
