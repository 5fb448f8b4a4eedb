//! What may differ under `brimful run`. The guide says so in the same words.

use anyhow::{Result, ensure};

/// The guide that lists them.
const GUIDE: &str = "docs/guides/run.md";

/// Something that differs, and is documented.
#[derive(Debug)]
pub(crate) struct Promise {
    pub(crate) id: &'static str,
    /// What the guide calls it, in bold.
    pub(crate) title: &'static str,
}

/// All of them, in the order of the guide.
pub(crate) const PROMISES: &[Promise] = &[
    Promise {
        id: "own_lines",
        title: "Its own lines.",
    },
    Promise {
        id: "hook_variables",
        title: "Variables of the hook.",
    },
    Promise {
        id: "nothing_left_running",
        title: "Nothing is left running.",
    },
    Promise {
        id: "session",
        title: "The first process of a session.",
    },
    Promise {
        id: "not_started",
        title: "A command that cannot be started.",
    },
    Promise {
        id: "brimful_is_killed",
        title: "A killed brimful.",
    },
];

/// Fails where the guide does not say what differs.
pub(crate) fn check_guide() -> Result<()> {
    let path = crate::shell::root().join(GUIDE);
    let text = std::fs::read_to_string(path)?;
    for promise in PROMISES {
        ensure!(
            text.contains(&format!("**{}**", promise.title)),
            "{GUIDE} does not document {:?}",
            promise.title
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_documents_every_promise() {
        check_guide().unwrap();
    }
}
