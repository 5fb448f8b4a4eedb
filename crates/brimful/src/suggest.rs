//! The near miss: what a mistyped name probably meant.

/// The known names closest to `typed`, best first, at most three.
///
/// ```
/// use brimful::suggest::closest;
/// assert_eq!(closest("colab-t5", ["colab-t4", "kaggle-p100"]), ["colab-t4"]);
/// ```
pub fn closest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let typed: String = typed.chars().take(80).collect::<String>().to_lowercase();
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .map(|name| {
            let lower = name.to_lowercase();
            let contained = !typed.is_empty() && (lower.contains(&typed) || typed.contains(&lower));
            let alike = strsim::jaro_winkler(&typed, &lower);
            (if contained { alike.max(0.9) } else { alike }, name)
        })
        .filter(|(score, _)| *score >= 0.85)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, name)| name).collect()
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
