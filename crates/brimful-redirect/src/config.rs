//! What the environment asks for: layers, prefixes, the token, and the page that all processes share.

use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use crate::environment::{LAYERS, PASS, REDIRECT, SHARED, TOKEN, set_token, variable};
use crate::errno::Outcome;
use crate::path::{self, PathBuf, is_at_or_below};
use crate::sys;

/// What belongs to the kernel is never redirected.
const ALWAYS_PASS: [&[u8]; 3] = [b"/proc", b"/sys", b"/dev"];
const MAX_LAYERS: usize = 24;

/// Stands for the real files among the places of a path.
pub(crate) const REAL: u8 = 31;

/// One layer: a directory with `f` (files), `t` (unfinished work).
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub directory: Vec<u8>,
    /// `directory/f`, in front of absolute paths.
    pub root: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Config {
    pub scratch: Vec<u8>,
    /// First the branch layers, top first, then the shared ones.
    pub layers: Vec<Layer>,
    pub n_branch: usize,
    pass: Vec<Vec<u8>>,
    /// Prefix and index in `layers`.
    pub shared: Vec<(Vec<u8>, u8)>,
    /// The line of [`LAYERS`] for children, where a branch was made.
    pub layers_line: Option<CString>,
}

/// Who decides where a path is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Realm {
    /// The real files.
    Pass,
    /// The top one of the branch layers.
    Branch,
    /// The layer with this index.
    Shared(u8),
}

impl Config {
    pub(crate) fn realm_of(&self, logical: &[u8]) -> Realm {
        if let Some((_, layer)) = self
            .shared
            .iter()
            .filter(|(prefix, _)| is_at_or_below(logical, prefix))
            .max_by_key(|(prefix, _)| prefix.len())
        {
            return Realm::Shared(*layer);
        }
        if ALWAYS_PASS
            .iter()
            .any(|prefix| is_at_or_below(logical, prefix))
            || is_at_or_below(logical, &self.scratch)
            || self
                .pass
                .iter()
                .any(|prefix| is_at_or_below(logical, prefix))
        {
            return Realm::Pass;
        }
        Realm::Branch
    }

    /// The layers of a realm, top first.
    pub(crate) fn layers_of(&self, realm: Realm) -> std::ops::Range<u8> {
        match realm {
            Realm::Pass => 0..0,
            Realm::Branch => 0..u8::try_from(self.n_branch).unwrap_or(0),
            Realm::Shared(layer) => layer..layer + 1,
        }
    }

    /// The root in front of a logical path; empty for the real files.
    pub(crate) fn root(&self, place: u8) -> &[u8] {
        self.layers
            .get(usize::from(place))
            .map_or(&[], |layer| &layer.root)
    }

    /// The logical path behind a physical one, in place; whether it lies in a layer.
    pub(crate) fn strip_root(&self, path: &mut PathBuf) -> bool {
        let Some(rest) = self
            .layers
            .iter()
            .find(|layer| is_at_or_below(path.as_bytes(), &layer.root))
            .map(|layer| layer.root.len())
        else {
            return false;
        };
        let mut logical = PathBuf::new();
        let stripped = logical.push(path.as_bytes().get(rest..).unwrap_or_default());
        stripped.is_ok() && path.set(&[logical.as_bytes()]).is_ok()
    }

    /// The same with one more layer on top.
    pub(crate) fn branched(&self, directory: &[u8]) -> Option<Self> {
        if directory.first() != Some(&b'/') || self.layers.len() >= MAX_LAYERS {
            return None;
        }
        let mut layers = vec![layer(directory)];
        layers.extend(self.layers.iter().cloned());
        let n_branch = self.n_branch + 1;
        let mut config = Self {
            scratch: self.scratch.clone(),
            n_branch,
            pass: self.pass.clone(),
            shared: self
                .shared
                .iter()
                .map(|(prefix, index)| (prefix.clone(), index + 1))
                .collect(),
            layers_line: None,
            layers,
        };
        config.layers_line = layers_line(&config.layer_list());
        Some(config)
    }

    /// The value of [`LAYERS`].
    pub(crate) fn layer_list(&self) -> Vec<u8> {
        let mut list = Vec::new();
        for layer in self.layers.iter().take(self.n_branch) {
            if !list.is_empty() {
                list.push(b':');
            }
            path::escape(&layer.directory, &mut list);
        }
        list
    }

    /// From the values of the variables; `None` if files are to be left alone.
    fn from_values(read: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Self> {
        let scratch = trimmed(read(REDIRECT)?);
        if scratch.first() != Some(&b'/') {
            return None;
        }
        let list = |name| path::split_list(&read(name).unwrap_or_default());
        let mut layers: Vec<Layer> = list(LAYERS)
            .into_iter()
            .map(|part| layer(&trimmed(part.text)))
            .collect();
        if layers.is_empty() {
            layers.push(layer(&[&scratch, b"/layer-0".as_slice()].concat()));
        }
        layers.truncate(MAX_LAYERS);
        let n_branch = layers.len();
        let mut shared = Vec::new();
        for part in list(SHARED) {
            let Some((prefix, directory)) = part.pair() else {
                continue;
            };
            if layers.len() < usize::from(REAL) - 1
                && prefix.len() > 1
                && directory.len() > 1
                && let Ok(index) = u8::try_from(layers.len())
            {
                shared.push((trimmed(prefix.to_vec()), index));
                layers.push(layer(&trimmed(directory.to_vec())));
            }
        }
        Some(Self {
            scratch,
            layers,
            n_branch,
            pass: list(PASS)
                .into_iter()
                .map(|part| trimmed(part.text))
                .collect(),
            shared,
            layers_line: read(LAYERS).and_then(|list| layers_line(&list)),
        })
    }
}

fn layer(directory: &[u8]) -> Layer {
    Layer {
        directory: directory.to_vec(),
        root: [directory, b"/f"].concat(),
    }
}

fn layers_line(list: &[u8]) -> Option<CString> {
    CString::new([LAYERS.as_bytes(), b"=", list].concat()).ok()
}

fn trimmed(mut path: Vec<u8>) -> Vec<u8> {
    while path.last() == Some(&b'/') {
        path.pop();
    }
    path
}

const UNREAD: u8 = 0;
const READING: u8 = 1;
const READ: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNREAD);
static CONFIG: AtomicPtr<Config> = AtomicPtr::new(ptr::null_mut());
static SHARED_PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// In place of the shared page where it cannot be mapped: always "written", and other processes are not heard.
static OWN_PAGE: AtomicU64 = AtomicU64::new(1);

/// The configuration; `None` if files are to be left alone.
pub(crate) fn config() -> Option<&'static Config> {
    if STATE.load(Ordering::Acquire) != READ && !read() {
        return None;
    }
    // SAFETY: null, or leaked by `install` and never freed.
    unsafe { CONFIG.load(Ordering::Acquire).as_ref() }
}

/// Reads the environment once; false while that is under way.
fn read() -> bool {
    if STATE
        .compare_exchange(UNREAD, READING, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return STATE.load(Ordering::Acquire) == READ;
    }
    if let Some(mut config) = Config::from_values(variable) {
        // What a prefix leads to counts, not how it is spelled.
        for prefix in config
            .pass
            .iter_mut()
            .chain(config.shared.iter_mut().map(|(prefix, _)| prefix))
        {
            canonicalize(prefix);
        }
        let token = variable(TOKEN).unwrap_or_default();
        let token = String::from_utf8_lossy(&token);
        let digits = token.trim().trim_start_matches("0x");
        let token = u64::from_str_radix(digits, 16).unwrap_or(0);
        set_token(token as usize);
        map_shared_page(&config.scratch);
        install(config);
    }
    STATE.store(READ, Ordering::Release);
    true
}

pub(crate) fn install(config: Config) {
    CONFIG.store(Box::into_raw(Box::new(config)), Ordering::Release);
}

/// Replaces the longest existing beginning of a path by where it really lies.
fn canonicalize(prefix: &mut Vec<u8>) {
    let mut end = prefix.len();
    while end > 0 {
        let Some(head) = prefix.get(..end) else {
            return;
        };
        let Ok(mut path) = PathBuf::from_bytes(head) else {
            return;
        };
        if let Ok(fd) = sys::open(&mut path, libc::O_PATH, 0) {
            let mut real = PathBuf::new();
            if fd_path(fd.0, &mut real).is_ok() && real.as_bytes().first() == Some(&b'/') {
                let rest = prefix.split_off(end);
                *prefix = trimmed(real.as_bytes().to_vec());
                prefix.extend(rest);
            }
            return;
        }
        end = path::parent(head).len();
    }
}

/// Where the kernel says that a descriptor leads.
pub(crate) fn fd_path(fd: c_int, out: &mut PathBuf) -> Outcome<()> {
    if fd < 0 {
        return Err(libc::EBADF);
    }
    let mut link = PathBuf::from_bytes(b"/proc/self/fd/")?;
    let mut digits = [0_u8; 10];
    let mut start = digits.len();
    let mut rest = fd;
    loop {
        start -= 1;
        if let Some(digit) = digits.get_mut(start) {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        }
        rest /= 10;
        if rest == 0 || start == 0 {
            break;
        }
    }
    link.push(digits.get(start..).unwrap_or_default())?;
    sys::read_link(&mut link, out).map_err(|error| {
        if error == libc::ENOENT {
            libc::EBADF
        } else {
            error
        }
    })
}

fn map_shared_page(scratch: &[u8]) {
    const SIZE: usize = 4096;
    let map = || -> Outcome<*mut AtomicU64> {
        let mut path = PathBuf::from_bytes(scratch)?;
        path.push_component(b"state")?;
        let fd = sys::open(&mut path, libc::O_RDWR | libc::O_CREAT, 0o600)?;
        sys::call(libc::SYS_ftruncate, [sys::int(fd.0), SIZE, 0, 0, 0, 0])?;
        let protection = sys::int(libc::PROT_READ | libc::PROT_WRITE);
        let page = sys::call(
            libc::SYS_mmap,
            [
                0,
                SIZE,
                protection,
                sys::int(libc::MAP_SHARED),
                sys::int(fd.0),
                0,
            ],
        )?;
        Ok(ptr::with_exposed_provenance_mut(page))
    };
    if let Ok(page) = map() {
        SHARED_PAGE.store(page, Ordering::Release);
    }
}

fn page() -> &'static AtomicU64 {
    // SAFETY: null, or a page that stays mapped for good.
    unsafe { SHARED_PAGE.load(Ordering::Acquire).as_ref() }.unwrap_or(&OWN_PAGE)
}

/// Counts the changes of directories and links in all layers; zero while nothing was ever written.
pub(crate) fn generation() -> u64 {
    page().load(Ordering::Acquire)
}

/// Whether a generation that did not change means that nothing changed.
pub(crate) fn generation_is_shared() -> bool {
    !SHARED_PAGE.load(Ordering::Acquire).is_null()
}

/// Tells all processes that the shape of a layer has changed.
pub(crate) fn changed() {
    page().fetch_add(1, Ordering::AcqRel);
}

/// Tells all processes that something was written.
pub(crate) fn written() {
    if generation() == 0 {
        changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::from_values(|name| {
            let value = match name {
                REDIRECT => "/scratch/",
                PASS => "/results:/with\\:colon/",
                SHARED => "/home/hub=/scratch/shared",
                _ => return None,
            };
            Some(value.as_bytes().to_vec())
        })
        .unwrap()
    }

    #[test]
    fn a_path_belongs_to_one_realm() {
        let config = config();
        for (path, realm) in [
            ("/results/x", Realm::Pass),
            ("/results-not", Realm::Branch),
            ("/with:colon", Realm::Pass),
            ("/dev/shm/x", Realm::Pass),
            ("/scratch/layer-0/f/x", Realm::Pass),
            ("/home/hub/model", Realm::Shared(1)),
            ("/home", Realm::Branch),
        ] {
            assert_eq!(config.realm_of(path.as_bytes()), realm, "{path}");
        }
    }

    #[test]
    fn physical_paths_become_the_ones_that_the_script_knows() {
        let config = config();
        let mut path = PathBuf::from_bytes(b"/scratch/layer-0/f/home/x").unwrap();
        assert!(config.strip_root(&mut path));
        assert_eq!(path.as_bytes(), b"/home/x");
        assert!(!config.strip_root(&mut path));
    }

    #[test]
    fn a_branch_lies_on_top_and_is_inherited() {
        let branched = config().branched(b"/scratch/t4").unwrap();
        assert_eq!(branched.layer_list(), b"/scratch/t4:/scratch/layer-0");
        assert_eq!(branched.realm_of(b"/home/hub"), Realm::Shared(2));
        assert_eq!(branched.root(0), b"/scratch/t4/f");
        assert_eq!(
            branched.layers_line.unwrap().as_c_str(),
            c"BRIMFUL_REDIRECT_LAYERS=/scratch/t4:/scratch/layer-0"
        );
        assert!(config().branched(b"relative").is_none());
    }

    #[test]
    fn without_an_absolute_scratch_directory_files_are_left_alone() {
        assert!(Config::from_values(|_| None).is_none());
        assert!(Config::from_values(|_| Some(b"relative".to_vec())).is_none());
    }
}
