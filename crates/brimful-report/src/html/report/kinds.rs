//! Names and colors of what memory is for. What stays is cool, what comes and goes is warm.

/// From the bottom of a stack to its top: name in JSON, name on the page, color.
const KINDS: [(&str, &str, &str); 7] = [
    ("weights", "weights", "weights"),
    ("optimizer_state", "optimizer state", "optimizer"),
    ("gradients", "gradients", "gradients"),
    ("workspaces", "workspaces", "workspaces"),
    ("activations", "activations", "activations"),
    ("temporaries", "temporaries", "temporaries"),
    ("other", "other", "rest"),
];

/// A kind of memory as a page shows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct KindStyle {
    pub(super) name: &'static str,
    pub(super) color: &'static str,
    /// Its place in the lists of a document.
    pub(super) index: usize,
}

/// The kinds of a document that are known, in the order in which they are stacked.
pub(super) fn stacked(of_document: &[String]) -> Vec<KindStyle> {
    let known = KINDS.iter().filter_map(|(id, name, color)| {
        let index = of_document.iter().position(|found| found == id)?;
        Some(KindStyle { name, color, index })
    });
    known.collect()
}
