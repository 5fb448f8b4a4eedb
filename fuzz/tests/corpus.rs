//! Every kept input of every target, in a process of its own for each target (`cargo nextest`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brimful_fuzz::{TARGETS, quiet_panics};
use serde::Deserialize;

/// An input that takes longer is a finding. libFuzzer has the same limit for optimized code.
const MAX_INPUT_TIME: Duration = Duration::from_secs(10);

/// The part of `Cargo.toml` about files that are inputs too.
#[derive(Deserialize)]
struct Manifest {
    package: Package,
}

#[derive(Deserialize)]
struct Package {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    seeds: BTreeMap<String, Seeds>,
}

#[derive(Deserialize)]
struct Seeds {
    directory: PathBuf,
    extensions: Vec<String>,
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{directory:?}: {error}"));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn inputs(name: &str) -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut inputs = files_in(&own.join("corpus").join(name));
    let manifest: Manifest =
        toml::from_str(&fs::read_to_string(own.join("Cargo.toml")).unwrap()).unwrap();
    if let Some(seeds) = manifest.package.metadata.seeds.get(name) {
        let files = files_in(&own.join("..").join(&seeds.directory));
        inputs.extend(files.into_iter().filter(|path| {
            let extension = path.extension().unwrap_or_default();
            seeds
                .extensions
                .iter()
                .any(|wanted| extension == wanted.as_str())
        }));
    }
    inputs
}

fn replay(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    quiet_panics();
    let inputs = inputs(name);
    assert!(!inputs.is_empty());
    for path in inputs {
        let bytes = fs::read(&path).unwrap();
        let start = Instant::now();
        let outcome = std::panic::catch_unwind(|| (target.run)(&bytes));
        assert!(outcome.is_ok(), "panic: {}", path.display());
        assert!(
            start.elapsed() < MAX_INPUT_TIME,
            "too slow: {}",
            path.display()
        );
    }
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test] fn $name() { replay(stringify!($name)); })*

        #[test]
        fn every_target_is_here() {
            let here = [$(stringify!($name)),*];
            assert_eq!(TARGETS.iter().map(|target| target.name).collect::<Vec<_>>(), here);
        }
    };
}

replays! {
    arrow checkpoints config decode explain gauges hdf5 hook_lines index_caches job lines machine npy
    object_store_answers off parquet parsers rehearsal_facts share snapshot tar tokenizer
}
