//! `system` and `popen`: libc starts the shell past this library, with the environment of this process as it is.

use std::ffi::{CString, c_char, c_int};

use crate::abi::{checked, checked_pointer, exports, next, text};
use crate::inherited;
use crate::strings::{Lines, split_line, strings};

/// The command of a shell that first gets what this environment lacks. `None`: it lacks nothing.
fn completed(command: *const c_char) -> Option<CString> {
    let command = text(command).ok()?;
    let mut made = Lines::new();
    let missing = inherited::missing_here(&mut made)?;
    let mut shell = Vec::new();
    for line in strings(missing.as_ptr()) {
        let (name, value) = split_line(line);
        shell.extend_from_slice(b"export ");
        shell.extend_from_slice(name);
        shell.push(b'=');
        quote(value, &mut shell);
        shell.push(b';');
    }
    shell.extend_from_slice(b"exec /bin/sh -c ");
    // Behind a space no command is taken for an option.
    quote(&[b" ", command].concat(), &mut shell);
    CString::new(shell).ok()
}

/// One word for a shell.
fn quote(word: &[u8], out: &mut Vec<u8>) {
    out.push(b'\'');
    for byte in word {
        if *byte == b'\'' {
            out.extend_from_slice(b"'\\'");
        }
        out.push(*byte);
    }
    out.push(b'\'');
}

exports! {
    fn system(command: *const c_char) -> c_int, -1; {
        let run = next!(c"system", fn(*const c_char) -> c_int);
        let completed = completed(command);
        checked(run(completed.as_ref().map_or(command, |own| own.as_ptr())))
    }
    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE, std::ptr::null_mut(); {
        let run = next!(c"popen", fn(*const c_char, *const c_char) -> *mut libc::FILE);
        let completed = completed(command);
        checked_pointer(run(completed.as_ref().map_or(command, |own| own.as_ptr()), mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_whatever_it_holds() {
        let mut out = Vec::new();
        quote(b"it's $HOME", &mut out);
        assert_eq!(out, b"'it'\\''s $HOME'");
    }
}
