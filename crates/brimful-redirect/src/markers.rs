//! Names and link targets by which a layer says more than files can.

/// The target of a link in a layer that hides what lies below.
pub(crate) const WHITEOUT: &[u8] = b"brimful-whiteout:";

/// In front of the physical path of a file that was renamed without a copy.
pub(crate) const REFERENCE: &[u8] = b"brimful-reference:";

/// In a directory of a layer that hides all that lies below it.
pub(crate) const OPAQUE: &[u8] = b".brimful-opaque";

/// In a directory of a layer: a link whose target is its mode as the script sees it.
pub(crate) const MODE: &[u8] = b".brimful-mode";

pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name == OPAQUE || name == MODE
}
