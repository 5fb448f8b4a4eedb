//! In which layers a directory lies.

use crate::config::{REAL, Realm};

/// In which layers a directory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirState {
    pub realm: Realm,
    /// A bit for every place whose content is visible.
    pub mask: u32,
}

impl DirState {
    pub(crate) fn pack(self) -> u64 {
        let realm = match self.realm {
            Realm::Pass => 0,
            Realm::Branch => 1,
            Realm::Shared(layer) => 2 + u64::from(layer),
        };
        realm << 32 | u64::from(self.mask)
    }

    pub(crate) fn unpack(packed: u64) -> Option<Self> {
        let realm = match packed >> 32 {
            0 => Realm::Pass,
            1 => Realm::Branch,
            layer => Realm::Shared(u8::try_from(layer - 2).ok()?),
        };
        Some(Self {
            realm,
            mask: packed as u32,
        })
    }

    pub(crate) fn has(self, place: u8) -> bool {
        self.mask & bit(place) != 0
    }

    /// Whether a layer holds a part of it.
    pub(crate) fn is_layered(self) -> bool {
        self.mask & !bit(REAL) != 0
    }

    /// The same for this library's own work, which the mode does not stop.
    pub(crate) fn opened(self) -> Self {
        Self {
            mask: self.mask & !UNSEARCHABLE,
            ..self
        }
    }
}

/// In the mask of a directory whose mode, as the script sees it, lets nobody look up names.
pub(crate) const UNSEARCHABLE: u32 = 1 << 30;

pub(crate) fn bit(place: u8) -> u32 {
    1 << place
}
