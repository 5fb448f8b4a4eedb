//! A file that is made from code.

/// A file and what it must hold.
#[derive(Debug)]
pub(crate) struct Generated {
    pub(crate) path: &'static str,
    pub(crate) content: String,
}
