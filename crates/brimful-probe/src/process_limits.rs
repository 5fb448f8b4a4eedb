//! `/proc/self/limits` and `vm.max_map_count`.

use brimful::fact::{Fact, Gap};
use brimful::machine::{ProcessLimits, Rlimit};

use crate::files::{Files, malformed};

const LIMITS: &str = "/proc/self/limits";

pub(crate) fn read(files: &Files) -> ProcessLimits {
    let text = files.text(LIMITS);
    let limit = |name: &str| text.as_ref().and_then(|text| soft_limit(text, name));
    ProcessLimits {
        address_space: limit("Max address space"),
        data: limit("Max data size"),
        locked_memory: limit("Max locked memory"),
        open_files: limit("Max open files"),
        max_map_count: files.number("/proc/sys/vm/max_map_count"),
    }
}

/// A line such as `Max open files            1024                 1048576              files`.
fn soft_limit(text: &str, name: &str) -> Fact<Rlimit> {
    let Some(rest) = text.lines().find_map(|line| line.strip_prefix(name)) else {
        return Fact::Missing(Gap::FieldMissing {
            path: LIMITS.into(),
            field: name.into(),
        });
    };
    match rest.split_ascii_whitespace().next() {
        Some("unlimited") => Fact::Known(Rlimit::Unlimited),
        Some(number) => match number.parse() {
            Ok(value) => Fact::Known(Rlimit::Finite(value)),
            Err(_) => Fact::Missing(malformed(LIMITS, &format!("{name}{rest}"))),
        },
        None => Fact::Missing(malformed(LIMITS, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<Rlimit>) {
        assert_eq!(
            soft_limit(line, "Max open files").known().copied(),
            expected,
            "{line}"
        );
    }

    #[test]
    fn soft_limits() {
        check(
            "Max open files   1024  1048576  files",
            Some(Rlimit::Finite(1024)),
        );
        check(
            "Max open files   unlimited unlimited files",
            Some(Rlimit::Unlimited),
        );
        check("Max open files", None);
        check("Max open files   many", None);
        check("Max processes    5", None);
    }
}
