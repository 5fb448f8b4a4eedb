//! `brimful` touches no file, clock, environment or process; `unsafe` stays where it may be.

use crate::{files_below, read, root};

/// What the pure crate may not name, and what to do instead.
const FORBIDDEN: &[(&str, &str)] = &[
    (
        "std::fs",
        "read the file in brimful-probe and hand the value in",
    ),
    (
        "std::env",
        "take the variable as an argument; brimful-probe reads the environment",
    ),
    (
        "std::process",
        "return an action as a value; a crate at the edge carries it out",
    ),
    (
        "std::net",
        "decisions talk to no network; brimful-load reads object stores",
    ),
    (
        "std::thread",
        "decisions need no thread; run them from one at the edge",
    ),
    ("std::os", "platform code belongs into brimful-probe"),
    ("std::io::std", "return the text; only brimful-cli prints"),
    ("Instant", "take the moment as an argument"),
    ("SystemTime", "take the moment as an argument"),
    (
        "include_str!",
        "keep data in Rust tables, so that they are type-checked",
    ),
];

fn code_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn the_pure_crate_touches_nothing() {
    for path in files_below(&root().join("crates/brimful/src"), ".rs") {
        for (number, line) in code_of(&read(&path)) {
            for (word, way_out) in FORBIDDEN {
                assert!(
                    !line.contains(word),
                    "{}:{}: `{word}` in the crate that touches no file, clock, environment or process\n\n\
                     way out: {way_out}",
                    path.display(),
                    number + 1
                );
            }
        }
    }
}

/// Where `unsafe` may be, with its reason: namespaces and walls around a process, asking for accounts, reading a driver's
/// library, answering for one, standing in for libc, Python's interface, memory maps and batches that several threads fill.
const MAY_BE_UNSAFE: &[&str] = &[
    "crates/brimful-isolate/",
    "crates/brimful-load/",
    "crates/brimful-mapping/",
    "crates/brimful-phantom/",
    "crates/brimful-private/",
    "crates/brimful-probe/",
    "crates/brimful-redirect/",
    "crates/brimful-share/",
    "crates/brimful-supervise/",
    "crates/brimful-python/",
];

#[test]
fn unsafe_stays_where_it_may_be() {
    let root = root().canonicalize().unwrap();
    for folder in ["crates", "xtask"] {
        for path in files_below(&root.join(folder), ".rs") {
            let shown = path
                .strip_prefix(&root)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            if MAY_BE_UNSAFE
                .iter()
                .any(|allowed| shown.starts_with(allowed))
                || shown.ends_with("it/purity.rs")
            {
                continue;
            }
            for (number, line) in code_of(&read(&path)) {
                assert!(
                    !line.contains("unsafe_code")
                        && !line.contains("unsafe {")
                        && !line.contains("unsafe fn"),
                    "{shown}:{}: `unsafe` outside of {MAY_BE_UNSAFE:?}\n\n\
                     way out: use a safe interface (rustix, std), or move the call into brimful-probe behind a safe \
                     function with a SAFETY line",
                    number + 1
                );
            }
        }
    }
}
