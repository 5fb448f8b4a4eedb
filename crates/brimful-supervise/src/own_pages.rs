//! Lets go of what this process only needed to start.
//!
//! When memory runs out, the kernel ends the process that holds most, and pages of a program's own file count. A small
//! script would outlive brimful, with nobody left to tell why it died.

use std::fs;
use std::path::Path;

/// Gives back the code of the running program. What of it runs again is mapped again, mostly from the page cache.
pub(crate) fn let_go_of_code() {
    let (Ok(program), Ok(maps)) = (
        fs::read_link("/proc/self/exe"),
        fs::read_to_string("/proc/self/maps"),
    ) else {
        return;
    };
    for (start, end) in code_of(&maps, &program) {
        #[expect(unsafe_code, reason = "no crate of ours wraps this request safely")]
        // SAFETY: a private mapping of a file that cannot be written through: the kernel reads the same bytes again.
        unsafe {
            libc::madvise(
                std::ptr::with_exposed_provenance_mut(start),
                end - start,
                libc::MADV_DONTNEED,
            );
        }
    }
}

/// Mappings of the program's file that can be executed and not written.
fn code_of(maps: &str, program: &Path) -> Vec<(usize, usize)> {
    let code = |line: &str| {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let is_code = fields.next()? == "r-xp";
        let file = fields.nth(3)?.trim_start();
        if !is_code || Path::new(file) != program {
            return None;
        }
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some((number(start)?, number(end)?)).filter(|(start, end)| start < end)
    };
    maps.lines().filter_map(code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_program_is_let_go_of() {
        let maps = "\
55d0a0000000-55d0a0100000 r--p 00000000 08:01 42                         /opt/brimful
55d0a0100000-55d0a0900000 r-xp 00100000 08:01 42                         /opt/brimful
55d0a0900000-55d0a0a00000 r--p 00900000 08:01 42                         /opt/brimful
55d0a0a00000-55d0a0a10000 rw-p 00a00000 08:01 42                         /opt/brimful
7f0000000000-7f0000100000 r-xp 00000000 08:01 7                          /usr/lib/libc.so.6
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
nonsense
";
        let found = code_of(maps, Path::new("/opt/brimful"));
        assert_eq!(found, [(0x55d0_a010_0000, 0x55d0_a090_0000)]);
    }

    #[test]
    fn the_code_runs_on_afterwards() {
        let_go_of_code();
        assert_eq!(code_of("", Path::new("/opt/brimful")), []);
    }
}
