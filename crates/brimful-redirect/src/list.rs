//! What a directory holds: in one place, and merged from all layers.

use std::collections::BTreeMap;

use crate::config::{Config, REAL};
use crate::dir_state::DirState;
use crate::entries::{EntryKind, each_entry};
use crate::layer::physical;
use crate::markers::is_reserved;
use crate::path::{self, PathBuf};
use crate::resolve::{Special, lookup, special};
use crate::sys::{self, Outcome};

/// The names that the layers add to a directory, or hide in it (`None`).
pub(crate) type Names = BTreeMap<Vec<u8>, Option<EntryKind>>;

/// What the layers say about the names in a directory.
pub(crate) fn layer_names(config: &Config, logical: &[u8], state: DirState) -> Outcome<Names> {
    let mut names = Names::new();
    for place in config
        .layers_of(state.realm)
        .filter(|place| state.has(*place))
    {
        add_layer(config, place, logical, &mut names)?;
    }
    // A shared layer may begin with one of the names.
    for (prefix, _) in &config.shared {
        if path::parent(prefix) == logical && !prefix.is_empty() {
            let around = crate::resolve::around(config, state.opened(), prefix);
            let prefix_path = PathBuf::from_bytes(prefix)?;
            let mut at = PathBuf::new();
            if let Some(found) = lookup(config, around, &prefix_path, &mut at)? {
                let kind = EntryKind {
                    file_type: type_of(&found.stat),
                    inode: found.stat.st_ino,
                };
                names.insert(path::name(prefix).to_vec(), Some(kind));
            }
        }
    }
    Ok(names)
}

fn add_layer(config: &Config, place: u8, logical: &[u8], names: &mut Names) -> Outcome<()> {
    let mut directory = physical(config, place, logical)?;
    let mut entry = PathBuf::from_bytes(directory.as_bytes())?;
    let len = entry.len();
    let read = each_entry(&mut directory, &mut |name, kind| {
        if is_reserved(name) || names.contains_key(name) {
            return Ok(true);
        }
        let mut kind = Some(kind);
        if matches!(
            kind,
            Some(EntryKind {
                file_type: libc::DT_LNK | libc::DT_UNKNOWN,
                ..
            })
        ) {
            entry.truncate(len);
            entry.push_component(name)?;
            match special(&mut entry) {
                Ok(Special::Whiteout) => kind = None,
                Ok(Special::Reference(mut file)) => {
                    kind = sys::lstat(&mut file).ok().map(|stat| EntryKind {
                        file_type: type_of(&stat),
                        inode: stat.st_ino,
                    });
                }
                Ok(Special::None) | Err(_) => {}
            }
        }
        names.insert(name.to_vec(), kind);
        Ok(true)
    });
    match read {
        Err(libc::ENOENT) => Ok(()),
        other => other,
    }
}

fn type_of(stat: &libc::stat) -> u8 {
    (sys::file_type(stat) >> 12) as u8
}

/// Every visible name in a directory.
pub(crate) fn visible(config: &Config, logical: &[u8], state: DirState) -> Outcome<Vec<Vec<u8>>> {
    let names = layer_names(config, logical, state)?;
    let mut all: Vec<Vec<u8>> = Vec::new();
    if state.has(REAL) {
        each_entry(&mut PathBuf::from_bytes(logical)?, &mut |name, _| {
            if !names.contains_key(name) {
                all.push(name.to_vec());
            }
            Ok(true)
        })?;
    }
    all.extend(
        names
            .into_iter()
            .filter_map(|(name, kind)| kind.map(|_| name)),
    );
    Ok(all)
}

/// Whether nothing in a directory is visible.
pub(crate) fn is_empty(config: &Config, logical: &[u8], state: DirState) -> Outcome<bool> {
    let names = layer_names(config, logical, state)?;
    if names.values().any(Option::is_some) {
        return Ok(false);
    }
    let mut is_empty = true;
    if state.has(REAL) {
        each_entry(&mut PathBuf::from_bytes(logical)?, &mut |name, _| {
            is_empty = names.contains_key(name);
            Ok(is_empty)
        })?;
    }
    Ok(is_empty)
}
