//! What every child gets, whatever environment the script gives it: a launcher may replace `LD_PRELOAD` (jemalloc,
//! tcmalloc) or the whole environment, and the rehearsal must not end there.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::abi::{self, exports, text};
use crate::config::config;
use crate::environment::{
    CONNECTIONS, HOOK, KEEPER, LAYERS, LIBRARY_PATH, NVIDIA_SMI, PASS, PATH, PRELOAD, PYTHONPATH,
    REDIRECT, SHARED, TOKEN, environment_list, variable,
};
use crate::gpu::GpuLibraries;
use crate::path;
use crate::strings::{Lines, List, Strings, split_line, strings};

/// Set where a script runs for real, to be measured.
const VERIFY: &str = "BRIMFUL_VERIFY";

/// What a child gets of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// If it is not given one: the value that this process has now, else the one that it was started with.
    Kept,
    /// If it is not given one: the value that this process has now. The hook removes the variable where it has done its
    /// work.
    Current,
    /// What it is given, with the entries of brimful in front.
    List,
    /// The layers of this process, also in place of others: a script may keep a copy of the environment from before a
    /// branch.
    Layers,
}

#[derive(Debug)]
struct Variable {
    name: &'static str,
    rule: Rule,
    /// Of the phantom or of the hook, and not of this library.
    is_of_stage: bool,
}

const fn own(name: &'static str, rule: Rule) -> Variable {
    Variable {
        name,
        rule,
        is_of_stage: false,
    }
}

const fn stage(name: &'static str, rule: Rule) -> Variable {
    Variable {
        name,
        rule,
        is_of_stage: true,
    }
}

/// Everything that a child needs, and nothing that is the script's own.
const INHERITED: &[Variable] = &[
    own(PRELOAD, Rule::List),
    own(REDIRECT, Rule::Kept),
    own(PASS, Rule::Kept),
    own(SHARED, Rule::Kept),
    own(TOKEN, Rule::Kept),
    own(LAYERS, Rule::Layers),
    own(CONNECTIONS, Rule::Kept),
    own(KEEPER, Rule::Kept),
    // Where the loader and Triton find the phantom, and the shell its `nvidia-smi`.
    stage(LIBRARY_PATH, Rule::List),
    stage(PATH, Rule::List),
    stage("TRITON_LIBCUDA_PATH", Rule::Kept),
    stage(NVIDIA_SMI, Rule::Kept),
    stage("BRIMFUL_PHANTOM_DEVICES", Rule::Kept),
    stage("BRIMFUL_PHANTOM_SHARED", Rule::Kept),
    stage("BRIMFUL_PHANTOM_CUDNN", Rule::Kept),
    stage("BRIMFUL_PHANTOM_CUDNN_VERSION", Rule::Kept),
    // The hook, and what it is to do.
    stage(PYTHONPATH, Rule::List),
    stage(HOOK, Rule::Kept),
    stage("BRIMFUL_ISOLATION", Rule::Kept),
    stage("BRIMFUL_ACCEPTS", Rule::Kept),
    stage("BRIMFUL_REHEARSAL", Rule::Kept),
    stage(VERIFY, Rule::Kept),
    stage("BRIMFUL_REHEARSAL_NODES", Rule::Current),
    stage("BRIMFUL_REHEARSAL_STEPS", Rule::Kept),
    stage("BRIMFUL_REHEARSAL_CASE", Rule::Kept),
    stage("BRIMFUL_REHEARSAL_WITH", Rule::Kept),
    stage("BRIMFUL_REHEARSAL_VARIANTS", Rule::Kept),
    stage("BRIMFUL_REHEARSAL_VARIANT", Rule::Kept),
    stage("BRIMFUL_REHEARSAL_ATTEMPT", Rule::Kept),
    stage("BRIMFUL_REHEARSAL_PROCESSORS", Rule::Kept),
    stage("BRIMFUL_REHEARSAL_WITHOUT_CUDA", Rule::Kept),
    stage("BRIMFUL_REHEARSAL_WITHOUT_SPEED", Rule::Kept),
    // Trackers: what the hook stores, and the switches of those that it does not turn off itself.
    stage("BRIMFUL_TRACKERS", Rule::Kept),
    stage("BRIMFUL_MLFLOW_URI", Rule::Kept),
    stage("WEAVE_DISABLED", Rule::Kept),
    stage("DVC_STUDIO_OFFLINE", Rule::Kept),
    stage("DVC_EXP_AUTO_PUSH", Rule::Kept),
];

const N_INHERITED: usize = INHERITED.len();

fn position(name: &[u8]) -> Option<usize> {
    INHERITED
        .iter()
        .position(|variable| variable.name.as_bytes() == name)
}

/// The entries of a list in a variable.
fn entries<'a>(list: &'static str, value: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    value
        .split(move |byte| *byte == b':' || *byte == b' ' && list == PRELOAD)
        .filter(|entry| !entry.is_empty())
}

/// An entry of brimful in a list.
#[derive(Debug)]
struct Entry {
    list: &'static str,
    text: Vec<u8>,
}

impl Entry {
    fn is_phantom(&self) -> bool {
        self.list == PRELOAD && path::name(&self.text).starts_with(b"libbrimful_phantom")
    }
}

/// What the environment held when this library was loaded.
#[derive(Debug)]
struct Loaded {
    /// `NAME=value`, for each variable of [`INHERITED`] that is kept.
    lines: Vec<Option<CString>>,
    entries: Vec<Entry>,
    /// Not where the script is to use this machine's GPU.
    gpu: Option<GpuLibraries>,
}

impl Loaded {
    fn from_values(read: impl Fn(&str) -> Option<Vec<u8>>) -> Self {
        let lines = INHERITED.iter().map(|variable| {
            let value = read(variable.name).filter(|_| variable.rule == Rule::Kept)?;
            CString::new([variable.name.as_bytes(), b"=", &value].concat()).ok()
        });
        let mut own: Vec<Entry> = entries(PRELOAD, &read(PRELOAD).unwrap_or_default())
            .filter(|library| path::name(library).starts_with(b"libbrimful_"))
            .map(|library| Entry {
                list: PRELOAD,
                text: library.to_vec(),
            })
            .collect();
        let phantom = own
            .iter()
            .find(|entry| entry.is_phantom())
            .map(|entry| path::parent(&entry.text).to_vec())
            .filter(|directory| !directory.is_empty());
        let searched = read(LIBRARY_PATH).unwrap_or_default();
        let library_path = phantom
            .clone()
            .filter(|own| entries(LIBRARY_PATH, &searched).any(|entry| entry == own));
        let programs = read(NVIDIA_SMI)
            .map(|program| path::parent(&program).to_vec())
            .filter(|directory| !directory.is_empty());
        for (list, entry) in [
            (LIBRARY_PATH, library_path),
            (PATH, programs),
            (PYTHONPATH, read(HOOK)),
        ] {
            own.extend(entry.map(|text| Entry { list, text }));
        }
        Self {
            lines: lines.collect(),
            entries: own,
            gpu: read(VERIFY)
                .is_none()
                .then(|| GpuLibraries::new(phantom.as_deref())),
        }
    }
}

/// What a child's environment is made from.
struct Known<'a> {
    loaded: &'a Loaded,
    /// The line of the layers, if this process writes into others than the first.
    layers: Option<&'a CStr>,
    /// The environment of this process.
    now: Strings,
    has_left_stage: bool,
}

impl Known<'static> {
    fn of_this_process() -> Self {
        Self {
            loaded: loaded(),
            layers: config().and_then(|config| config.layers_line.as_deref()),
            now: environment_list(),
            has_left_stage: HAS_LEFT_STAGE.load(Ordering::Relaxed),
        }
    }
}

impl Known<'_> {
    fn current(&self, name: &str) -> Option<*const c_char> {
        strings(self.now).find(|line| split_line(*line).0 == name.as_bytes())
    }

    /// The line that a child gets in place of what it is given, if it gets one.
    fn line(
        &self,
        variable: &Variable,
        kept: Option<&CStr>,
        given: Option<&[u8]>,
        made: &mut Lines,
    ) -> Option<*const c_char> {
        match variable.rule {
            Rule::List => self.list(variable.name, given.unwrap_or_default(), made),
            Rule::Layers => {
                let own = self.layers?.as_ptr();
                (given != Some(split_line(own).1)).then_some(own)
            }
            Rule::Kept if given.is_none() => {
                let current = self.current(variable.name);
                current.or_else(|| kept.map(CStr::as_ptr))
            }
            Rule::Current if given.is_none() => self.current(variable.name),
            Rule::Kept | Rule::Current => None,
        }
    }

    /// A list with the entries of brimful that `given` lacks in front.
    fn list(&self, list: &'static str, given: &[u8], made: &mut Lines) -> Option<*const c_char> {
        if given.is_empty() && list == PATH {
            // The default of whoever searches holds the system's directories.
            return None;
        }
        let missing = self.loaded.entries.iter().filter(|entry| {
            entry.list == list
                && !(self.has_left_stage && entry.is_phantom())
                && entries(list, given).all(|other| other != entry.text)
        });
        missing.clone().next()?;
        let values = missing
            .map(|entry| entry.text.as_slice())
            .chain(Some(given).filter(|given| !given.is_empty()));
        let parts = values.enumerate().flat_map(|(i, value)| {
            let separator: &[u8] = if i == 0 { b"=" } else { b":" };
            [separator, value]
        });
        Some(made.add(std::iter::once(list.as_bytes()).chain(parts)))
    }

    /// The lines that a child gets besides `given`, or in place of lines in it, and for which variables.
    fn additions(&self, given: Strings, made: &mut Lines) -> (List, [bool; N_INHERITED]) {
        let mut values: [Option<&[u8]>; N_INHERITED] = [None; N_INHERITED];
        for line in strings(given) {
            let (name, value) = split_line(line);
            if let Some(slot) = position(name).and_then(|i| values.get_mut(i)) {
                slot.get_or_insert(value);
            }
        }
        let mut list = List::new();
        let mut is_added = [false; N_INHERITED];
        let kept = self.loaded.lines.iter().map(Option::as_deref);
        let given = values.into_iter().zip(kept);
        for ((variable, (value, kept)), added) in INHERITED.iter().zip(given).zip(&mut is_added) {
            if self.has_left_stage && variable.is_of_stage {
                continue;
            }
            if let Some(line) = self.line(variable, kept, value, made) {
                list.push(line);
                *added = true;
            }
        }
        (list, is_added)
    }

    /// `given` with what it lacks. `None`: it lacks nothing.
    fn complete(&self, given: Strings, made: &mut Lines) -> Option<List> {
        let (mut list, is_added) = self.additions(given, made);
        if list.is_empty() {
            return None;
        }
        for line in strings(given) {
            let added = position(split_line(line).0).and_then(|i| is_added.get(i));
            if added != Some(&true) {
                list.push(line);
            }
        }
        list.push(std::ptr::null());
        Some(list)
    }

    /// The value of a variable that is kept, unless it is empty.
    fn value(&self, name: &str) -> Option<*const c_char> {
        let kept = position(name.as_bytes()).and_then(|i| self.loaded.lines.get(i)?.as_deref());
        let line = self.current(name).or_else(|| kept.map(CStr::as_ptr))?;
        let value = line.wrapping_add(name.len() + 1);
        (!split_line(line).1.is_empty()).then_some(value)
    }
}

static LOADED: AtomicPtr<Loaded> = AtomicPtr::new(std::ptr::null_mut());
static HAS_LEFT_STAGE: AtomicBool = AtomicBool::new(false);

/// Runs when the library is loaded: a program may change its environment before it starts another one.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    abi::guard((), || {
        loaded();
        Ok(())
    });
}

/// Read at load, or a little earlier: another library that is loaded before this one may open libraries.
fn loaded() -> &'static Loaded {
    let mut found = LOADED.load(Ordering::Acquire);
    if found.is_null() {
        found = Box::into_raw(Box::new(Loaded::from_values(variable)));
        LOADED.store(found, Ordering::Release);
    }
    // SAFETY: leaked and never changed.
    unsafe { &*found }
}

/// The environment of a child that is to get `given`; `None` if that lacks nothing.
pub(crate) fn for_child(given: Strings, made: &mut Lines) -> Option<List> {
    Known::of_this_process().complete(given, made)
}

/// What the environment of this process lacks for a child that inherits it, as a list that ends with null.
pub(crate) fn missing_here(made: &mut Lines) -> Option<List> {
    let known = Known::of_this_process();
    let (mut list, _) = known.additions(known.now, made);
    if list.is_empty() {
        return None;
    }
    list.push(std::ptr::null());
    Some(list)
}

/// The library to open when a program opens `path`; `None`: that very path.
pub(crate) fn gpu_library(path: *const c_char) -> Option<*const c_char> {
    let found = loaded().gpu.as_ref()?.in_place_of(text(path).ok()?)?;
    Some(found.as_ptr())
}

/// The `nvidia-smi` of the phantom, for every path of one.
pub(crate) fn gpu_program(path: *const c_char) -> Option<*const c_char> {
    if !text(path).ok()?.ends_with(b"/nvidia-smi") {
        return None;
    }
    Known::of_this_process().value(NVIDIA_SMI)
}

exports! {
    /// From now on what this process starts gets neither the phantom nor the hook. Its files stay redirected, and the
    /// GPU of this machine hidden.
    fn brimful_redirect_leave_stage() -> c_int, -1; {
        HAS_LEFT_STAGE.store(true, Ordering::Relaxed);
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTED_WITH: &[(&str, &str)] = &[
        (
            "LD_PRELOAD",
            "/stage/libbrimful_phantom.so:/usr/lib/libown.so /x/libbrimful_redirect.so",
        ),
        ("BRIMFUL_HOOK", "/hook"),
        ("PYTHONPATH", "/hook:/own"),
        ("BRIMFUL_REHEARSAL", "/results"),
        ("BRIMFUL_REHEARSAL_NODES", "2"),
        ("HOME", "/home/me"),
    ];
    const LIBRARIES: &str = "LD_PRELOAD=/stage/libbrimful_phantom.so:/x/libbrimful_redirect.so";

    /// What is known where a child is started.
    struct Case {
        started_with: Vec<(&'static str, &'static str)>,
        now: Vec<&'static str>,
        layers: Option<&'static CStr>,
        has_left_stage: bool,
    }

    impl Case {
        fn new(more: &[(&'static str, &'static str)]) -> Self {
            Self {
                started_with: [STARTED_WITH, more].concat(),
                now: Vec::new(),
                layers: None,
                has_left_stage: false,
            }
        }

        /// The environment of the child, sorted; `None` if it is the one that was given.
        fn child(&self, given: &[&str]) -> Option<Vec<String>> {
            let loaded = Loaded::from_values(|name| {
                let found = self.started_with.iter().find(|(own, _)| *own == name);
                found.map(|(_, value)| value.as_bytes().to_vec())
            });
            let c_strings = |lines: &[&str]| -> Vec<CString> {
                let lines = lines.iter();
                lines.map(|line| CString::new(*line).unwrap()).collect()
            };
            let c_list = |lines: &[CString]| -> Vec<*const c_char> {
                let pointers = lines.iter().map(|line| line.as_ptr());
                pointers.chain([std::ptr::null()]).collect()
            };
            let (now, given) = (c_strings(&self.now), c_strings(given));
            let (now, given) = (c_list(&now), c_list(&given));
            let known = Known {
                loaded: &loaded,
                layers: self.layers,
                now: now.as_ptr(),
                has_left_stage: self.has_left_stage,
            };
            let mut made = Lines::new();
            let list = known.complete(given.as_ptr(), &mut made)?;
            let mut lines: Vec<String> = strings(list.as_ptr())
                .map(|line| String::from_utf8(text(line).unwrap().to_vec()).unwrap())
                .collect();
            lines.sort();
            Some(lines)
        }

        fn check(&self, given: &[&str], expected: &[&str]) {
            let mut expected = expected.to_vec();
            expected.sort_unstable();
            assert_eq!(self.child(given).unwrap(), expected);
        }
    }

    #[test]
    fn an_empty_environment_gets_what_is_brimfuls_and_nothing_else() {
        let expected = [
            "BRIMFUL_HOOK=/hook",
            "BRIMFUL_REHEARSAL=/results",
            LIBRARIES,
            "PYTHONPATH=/hook",
        ];
        Case::new(&[]).check(&[], &expected);
    }

    #[test]
    fn the_scripts_own_lists_stay_behind_brimfuls_entries() {
        let preload = format!("{LIBRARIES}:/usr/lib/libtcmalloc.so.4 /usr/lib/libx.so");
        let given = [
            "LD_PRELOAD=/usr/lib/libtcmalloc.so.4 /usr/lib/libx.so",
            "PYTHONPATH=/a:/b",
            "SEED=7",
        ];
        let expected = [
            "BRIMFUL_HOOK=/hook",
            "BRIMFUL_REHEARSAL=/results",
            &preload,
            "PYTHONPATH=/hook:/a:/b",
            "SEED=7",
        ];
        Case::new(&[]).check(&given, &expected);
    }

    #[test]
    fn a_complete_environment_is_left_alone() {
        let preload = format!("{LIBRARIES}:/usr/lib/libtcmalloc.so.4");
        let mut given = vec![
            preload.as_str(),
            "PYTHONPATH=/a:/hook",
            "BRIMFUL_HOOK=/hook",
            "BRIMFUL_REHEARSAL=",
        ];
        assert_eq!(Case::new(&[]).child(&given), None);
        // As large as those of clusters.
        given.resize(1000, "A=1");
        assert_eq!(Case::new(&[]).child(&given), None);
    }

    #[test]
    fn what_the_process_has_now_counts_more_than_what_it_was_started_with() {
        let case = Case {
            now: vec![
                "BRIMFUL_REHEARSAL=/now",
                "BRIMFUL_REHEARSAL_ATTEMPT=1",
                "BRIMFUL_REHEARSAL_NODES=3",
            ],
            ..Case::new(&[])
        };
        let expected = [
            "BRIMFUL_HOOK=/given",
            "BRIMFUL_REHEARSAL=/now",
            "BRIMFUL_REHEARSAL_ATTEMPT=1",
            "BRIMFUL_REHEARSAL_NODES=3",
            LIBRARIES,
            "PYTHONPATH=/hook",
        ];
        case.check(&["BRIMFUL_HOOK=/given"], &expected);
    }

    #[test]
    fn search_paths_get_the_stages_directories_where_they_belong() {
        let case = Case::new(&[
            ("BRIMFUL_NVIDIA_SMI", "/bin of/nvidia-smi"),
            ("LD_LIBRARY_PATH", "/stage:/own"),
        ]);
        let expected = [
            "BRIMFUL_HOOK=/hook",
            "BRIMFUL_NVIDIA_SMI=/bin of/nvidia-smi",
            "BRIMFUL_REHEARSAL=/results",
            "LD_LIBRARY_PATH=/stage",
            LIBRARIES,
            "PATH=/bin of:/usr/bin",
            "PYTHONPATH=/hook",
        ];
        case.check(&["PATH=/usr/bin"], &expected);
        let lines = case.child(&["PATH=", "LD_LIBRARY_PATH=/theirs"]).unwrap();
        assert!(lines.contains(&"PATH=".to_owned()), "{lines:?}");
        assert!(lines.contains(&"LD_LIBRARY_PATH=/stage:/theirs".to_owned()));
        // The loader was not told of the stage.
        let elsewhere = Case::new(&[("LD_LIBRARY_PATH", "/own")]);
        let lines = elsewhere.child(&[]).unwrap();
        let is_search_path = |line: &String| line.starts_with("LD_LIBRARY_PATH");
        assert!(!lines.iter().any(is_search_path), "{lines:?}");
    }

    #[test]
    fn the_layers_of_the_process_replace_older_ones() {
        let case = Case {
            layers: Some(c"BRIMFUL_REDIRECT_LAYERS=/s/t4"),
            started_with: Vec::new(),
            ..Case::new(&[])
        };
        let own = "BRIMFUL_REDIRECT_LAYERS=/s/t4";
        case.check(&["BRIMFUL_REDIRECT_LAYERS=/s/layer-0"], &[own]);
        case.check(&[], &[own]);
        assert_eq!(case.child(&[own]), None);
    }

    #[test]
    fn who_leaves_the_stage_keeps_redirected_files() {
        let case = Case {
            has_left_stage: true,
            now: vec!["BRIMFUL_REHEARSAL=/now"],
            ..Case::new(&[("BRIMFUL_REDIRECT", "/scratch")])
        };
        let expected = [
            "BRIMFUL_REDIRECT=/scratch",
            "LD_PRELOAD=/x/libbrimful_redirect.so",
            "SEED=7",
        ];
        case.check(&["SEED=7"], &expected);
    }

    #[test]
    fn long_values_and_many_lines_fit() {
        let long = "x".repeat(10_000);
        let given = format!("LD_PRELOAD={long}");
        let mut lines = vec![given.as_str()];
        lines.resize(1000, "A=1");
        let child = Case::new(&[]).child(&lines).unwrap();
        assert!(child.contains(&format!("{LIBRARIES}:{long}")));
        assert_eq!(child.iter().filter(|line| *line == "A=1").count(), 999);
    }

    #[test]
    fn a_value_is_found_now_or_at_load_unless_it_is_empty() {
        let loaded =
            Loaded::from_values(|name| (name == NVIDIA_SMI).then(|| b"/stage/nvidia-smi".to_vec()));
        let value = |now: Strings| {
            let known = Known {
                loaded: &loaded,
                layers: None,
                now,
                has_left_stage: false,
            };
            let found = known.value(NVIDIA_SMI);
            found.map(|found| text(found).unwrap().to_vec())
        };
        assert_eq!(value(std::ptr::null()).unwrap(), b"/stage/nvidia-smi");
        let empty = [c"BRIMFUL_NVIDIA_SMI=".as_ptr(), std::ptr::null()];
        assert_eq!(value(empty.as_ptr()), None);
    }

    /// What the phantom and the hook read must come with them.
    #[test]
    fn every_variable_of_a_rehearsal_is_inherited() {
        let listed: Vec<&str> = include_str!("../../brimful/src/env_vars.rs")
            .lines()
            .collect();
        let readers = [
            "the rehearsal's hook",
            "the phantom GPU",
            "the redirect library",
        ];
        let mut n_found = 0;
        for lines in listed.windows(2) {
            let Some((_, name)) = lines[0].split_once(" = \"BRIMFUL_") else {
                continue;
            };
            if readers.iter().any(|reader| lines[1].contains(reader)) {
                let name = format!("BRIMFUL_{}", name.trim_end_matches("\","));
                assert!(position(name.as_bytes()).is_some(), "{name}");
                n_found += 1;
            }
        }
        assert!(n_found > 20, "{n_found}");
    }
}
