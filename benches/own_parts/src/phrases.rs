//! Phrases in a text: the index by first bytes that `explain` had, beside `aho-corasick`.
//!
//! The phrases are those of the tables in crates/brimful/src/explain/text; the text is a training log with all of them
//! in it, in small letters and without white space, as `explain` searches it.

use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use crate::memory::peak_of;
use crate::rounds::{Random, case, compare};

pub(crate) fn run() {
    let phrases = phrases();
    println!("{} phrases", phrases.len());
    let built = |kind| {
        AhoCorasick::builder()
            .kind(kind)
            .build(&phrases)
            .expect("a few hundred phrases")
    };
    let (by_first_bytes, bytes) = peak_of(|| ByFirstBytes::new(&phrases));
    println!("by first bytes: {bytes} bytes");
    let kinds = [
        AhoCorasickKind::NoncontiguousNFA,
        AhoCorasickKind::ContiguousNFA,
        AhoCorasickKind::DFA,
    ];
    let automata = kinds.map(|kind| built(Some(kind)));
    for automaton in &automata {
        let kind = automaton.kind();
        let (_, peak) = peak_of(|| built(Some(kind)));
        let held = automaton.memory_usage();
        println!("{kind:?}: {held} bytes, {peak} while it is built");
    }
    println!("by default: {:?}", built(None).kind());

    let mut build = vec![case("by first bytes", || {
        black_box(ByFirstBytes::new(black_box(&phrases)));
    })];
    for kind in kinds {
        let built = &built;
        build.push(case(format!("aho-corasick {kind:?}"), move || {
            black_box(built(Some(kind)));
        }));
    }
    compare("build", 60, build);

    for (name, len, n_planted) in [
        ("a log of 64 KiB", 64 << 10, 3),
        ("a log of 1 MiB", 1 << 20, 30),
        ("a log of 1 MiB full of phrases", 1 << 20, 20_000),
    ] {
        let text = log(len, n_planted, &phrases);
        let expected = by_first_bytes.places(&text);
        let mut search = vec![case("by first bytes", || {
            black_box(by_first_bytes.places(black_box(&text)));
        })];
        for automaton in &automata {
            assert_eq!(places(automaton, phrases.len(), &text), expected);
            let text = &text;
            search.push(case(
                format!("aho-corasick {:?}", automaton.kind()),
                move || {
                    black_box(places(automaton, automaton.patterns_len(), black_box(text)));
                },
            ));
        }
        compare(name, 60, search);
    }
}

fn places(automaton: &AhoCorasick, n_phrases: usize, text: &str) -> Vec<Vec<usize>> {
    let mut places = vec![Vec::new(); n_phrases];
    for found in automaton.find_overlapping_iter(text) {
        places[found.pattern()].push(found.start());
    }
    places
}

/// The index as it was until November 2026.
struct ByFirstBytes {
    phrases: Vec<String>,
    by_first_bytes: HashMap<[u8; 4], Vec<usize>>,
    may_begin: Vec<bool>,
}

impl ByFirstBytes {
    fn new(phrases: &[String]) -> ByFirstBytes {
        let mut index = ByFirstBytes {
            phrases: phrases.to_vec(),
            by_first_bytes: HashMap::new(),
            may_begin: vec![false; 1 << 16],
        };
        for (idx, phrase) in phrases.iter().enumerate() {
            let first = *phrase.as_bytes().first_chunk::<4>().expect("long enough");
            index.may_begin[pair(first[0], first[1])] = true;
            index.by_first_bytes.entry(first).or_default().push(idx);
        }
        index
    }

    fn places(&self, text: &str) -> Vec<Vec<usize>> {
        let mut places = vec![Vec::new(); self.phrases.len()];
        for (at, window) in text.as_bytes().windows(4).enumerate() {
            let &[a, b, c, d] = window else { continue };
            if !self.may_begin[pair(a, b)] {
                continue;
            }
            let Some(candidates) = self.by_first_bytes.get(&[a, b, c, d]) else {
                continue;
            };
            for candidate in candidates {
                if text.as_bytes()[at..].starts_with(self.phrases[*candidate].as_bytes()) {
                    places[*candidate].push(at);
                }
            }
        }
        places
    }
}

fn pair(a: u8, b: u8) -> usize {
    usize::from(a) << 8 | usize::from(b)
}

fn flat(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// The first argument of every `means(…)` and `ask(…)` in the tables.
fn phrases() -> Vec<String> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/brimful/src/explain/text");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the sources are there")
        .map(|entry| entry.expect("the sources are there").path())
        .collect();
    files.sort();
    let mut phrases = Vec::new();
    for file in files {
        let source = std::fs::read_to_string(&file).expect("the sources are there");
        for call in ["means(", "ask("] {
            for (at, _) in source.match_indices(call) {
                let rest = source[at + call.len()..].trim_start();
                let Some(literal) = rest.strip_prefix('"') else {
                    continue;
                };
                let mut words = String::new();
                let mut characters = literal.chars();
                while let Some(character) = characters.next().filter(|c| *c != '"') {
                    match character {
                        '\\' => words.extend(characters.next()),
                        _ => words.push(character),
                    }
                }
                phrases.push(flat(&words));
            }
        }
    }
    phrases.retain(|phrase| phrase.len() >= 4);
    assert!(phrases.len() > 100, "{} phrases were found", phrases.len());
    phrases
}

fn log(len: usize, n_planted: usize, phrases: &[String]) -> String {
    let mut random = Random(2);
    let mut lines = Vec::new();
    let mut written = 0;
    while written < len {
        let line = flat(&format!(
            "epoch {} step {} loss 0.{:04} lr {}e-4 grad_norm {} samples/s memory allocated {} MiB warning: the torch \
             DataLoader of this run creates 4 worker processes in total, error rate {}",
            written / 100_000,
            written / 80,
            random.below(10_000),
            random.below(10),
            random.below(100),
            random.below(40_000),
            random.below(100),
        ));
        written += line.len();
        lines.push(line);
    }
    for _ in 0..n_planted {
        let at = random.below(lines.len() as u64) as usize;
        let phrase = random.below(phrases.len() as u64) as usize;
        lines[at].push_str(&phrases[phrase]);
    }
    lines.concat()
}
