//! The frame of every report: head, headline, tiles, views, footer.

use brimful::units::Bytes;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value};
use serde::Serialize;

use crate::html::report::shown::Shown;
use crate::html::report::time::percent;
use crate::html::{code, harmless};

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");
/// SHA-256 of the script, in base64: no other script runs on the page.
const SCRIPT_HASH: &str = "G1O4oyZBe6YkN7Jctklvds0L/Ph3cWFyZLr6IPSlZ4M=";
/// At the beginning of every report; nothing else is replaced by a new one.
const GENERATOR: &str = "brimful report";
/// The mark is within this many bytes.
const HEAD_BYTES: usize = 1024;

/// Whether a file begins as a report of brimful does.
pub fn is_report(beginning: &[u8]) -> bool {
    let head = &beginning[..beginning.len().min(HEAD_BYTES)];
    let mark = format!("<meta name=\"generator\" content=\"{GENERATOR}");
    let has_mark = head.windows(mark.len()).any(|part| part == mark.as_bytes());
    head.starts_with(b"<!doctype html>") && has_mark
}

/// Everything around the views.
#[derive(Debug, Default, Serialize)]
pub(super) struct Frame {
    /// What the report is about, after "brimful".
    pub(super) subject: &'static str,
    /// The answer.
    pub(super) headline: Shown,
    pub(super) state: Option<StateChip>,
    pub(super) command: Option<Shown>,
    pub(super) facts: Vec<Shown>,
    pub(super) tiles: Vec<Tile>,
    pub(super) footer: Shown,
}

/// How it ended, in a few words.
#[derive(Debug, Serialize)]
pub(super) struct StateChip {
    /// `good`, `bad` or nothing.
    pub(super) class: &'static str,
    pub(super) text: Shown,
}

/// One value above the views.
#[derive(Debug, Default, Serialize)]
pub(super) struct Tile {
    pub(super) name: Shown,
    pub(super) value: String,
    pub(super) of: Option<String>,
    pub(super) percent: Option<f64>,
    pub(super) color: &'static str,
    pub(super) hint: Option<Shown>,
}

impl Tile {
    /// A memory with its peak and its limit.
    pub(super) fn of_memory(
        name: &str,
        peak: Bytes,
        limit: Option<Bytes>,
        color: &'static str,
    ) -> Tile {
        Tile {
            name: Shown::of(name),
            value: peak.to_string(),
            of: limit.map(|limit| format!("of {limit}")),
            percent: limit.map(|limit| percent(peak.get(), limit.get())),
            color,
            hint: None,
        }
    }
}

/// The views of one report, rendered.
#[derive(Debug)]
pub(super) struct Renderer {
    environment: Environment<'static>,
    views: Vec<String>,
}

impl Renderer {
    pub(super) fn new() -> Renderer {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        environment.add_filter("code", code);
        Renderer {
            environment,
            views: Vec::new(),
        }
    }

    /// Renders a view with its template.
    pub(super) fn add(
        &mut self,
        template: &'static str,
        view: &impl Serialize,
    ) -> Result<(), minijinja::Error> {
        let text = self
            .environment
            .render_str(template, Value::from(Serde(view)))?;
        self.views.push(text);
        Ok(())
    }

    /// The whole page.
    pub(super) fn page(self, frame: &Frame) -> Result<String, minijinja::Error> {
        let safe = |text: &str| Value::from_safe_string(text.to_owned());
        let views: Vec<Value> = self.views.iter().map(|view| safe(view)).collect();
        let policy = format!(
            "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{SCRIPT_HASH}'; \
             base-uri 'none'; form-action 'none'"
        );
        let around = minijinja::context! {
            policy,
            generator => format!("{GENERATOR} {}", env!("CARGO_PKG_VERSION")),
            css => safe(STYLE),
            script => safe(SCRIPT),
            views,
            ..Value::from(Serde(frame))
        };
        let page = self
            .environment
            .render_str(include_str!("page.html"), around)?;
        Ok(harmless(&page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::base64;

    /// FIPS 180-4, for this test alone.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the first 32 bits of a fraction"
    )]
    fn sha256(message: &[u8]) -> [u8; 32] {
        let primes: Vec<u32> = (2..312_u32)
            .filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0))
            .collect();
        let fraction = |root: f64| ((root.fract()) * 4_294_967_296.0) as u32;
        let mut state: Vec<u32> = primes[..8]
            .iter()
            .map(|p| fraction(f64::from(*p).sqrt()))
            .collect();
        // f64 has enough digits for the fractions of square roots and, as known, of cube roots.
        let constants: Vec<u32> = primes[..64]
            .iter()
            .map(|p| fraction(f64::from(*p).cbrt()))
            .collect();
        let mut bytes = message.to_vec();
        bytes.push(0x80);
        while bytes.len() % 64 != 56 {
            bytes.push(0);
        }
        bytes.extend((message.len() as u64 * 8).to_be_bytes());
        for block in bytes.chunks(64) {
            let mut words: Vec<u32> = block
                .chunks(4)
                .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
                .collect();
            for at in 16..64 {
                let (a, b) = (words[at - 15], words[at - 2]);
                let small = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
                let large = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
                let sum = words[at - 16]
                    .wrapping_add(small)
                    .wrapping_add(words[at - 7])
                    .wrapping_add(large);
                words.push(sum);
            }
            let mut s = state.clone();
            for at in 0..64 {
                let big1 = s[4].rotate_right(6) ^ s[4].rotate_right(11) ^ s[4].rotate_right(25);
                let choice = (s[4] & s[5]) ^ (!s[4] & s[6]);
                let first = s[7]
                    .wrapping_add(big1)
                    .wrapping_add(choice)
                    .wrapping_add(constants[at])
                    .wrapping_add(words[at]);
                let big0 = s[0].rotate_right(2) ^ s[0].rotate_right(13) ^ s[0].rotate_right(22);
                let majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
                s.rotate_right(1);
                s[4] = s[4].wrapping_add(first);
                s[0] = first.wrapping_add(big0).wrapping_add(majority);
            }
            for (sum, part) in state.iter_mut().zip(s) {
                *sum = sum.wrapping_add(part);
            }
        }
        let mut digest = [0; 32];
        for (place, word) in digest.chunks_mut(4).zip(state) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        digest
    }

    #[test]
    fn the_policy_allows_the_script_and_no_other() {
        assert_eq!(
            base64::encode(&sha256(b"abc")),
            "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="
        );
        assert_eq!(
            base64::encode(&sha256(SCRIPT.as_bytes())),
            SCRIPT_HASH,
            "put the left one into SCRIPT_HASH"
        );
        assert!(!SCRIPT.contains("</"), "it would end the script element");
    }

    #[test]
    fn only_our_own_pages_are_reports() {
        let page = Renderer::new().page(&Frame::default()).unwrap();
        assert!(is_report(page.as_bytes()));
        assert!(is_report(&page.as_bytes()[..HEAD_BYTES]));
        assert!(!is_report(b""));
        assert!(!is_report(
            b"<!doctype html><html><body>brimful report</body></html>"
        ));
    }
}
