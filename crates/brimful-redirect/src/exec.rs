//! Starting programs: one that was built during the rehearsal lies in a layer, `nvidia-smi` is the phantom's, and every
//! child needs what `inherited` lists.

use std::ffi::{c_char, c_int, c_void};

use libc::AT_FDCWD;

use crate::abi::{exports, next, text};
use crate::config::{self, Config, REAL, config};
use crate::inherited::{for_child, gpu_program};
use crate::open::{is_writing, prepare};
use crate::path::PathBuf;
use crate::path::is_kernel_path;
use crate::resolve::{Last, Target, resolve};
use crate::strings::{Lines, List, Strings, strings};
use crate::sys::{self, Outcome, pointer};

/// Where a program lies, and its arguments if they change.
struct Program {
    path: PathBuf,
    /// The script's own path, if an interpreter is started for it.
    script: PathBuf,
    arguments: Option<List>,
    /// The first line of a script.
    line: [u8; 256],
}

impl Program {
    /// Resolves a program in the merged view. `EACCES` for a directory, as from the kernel.
    fn find(
        config: &Config,
        at: c_int,
        path: &[u8],
        arguments: Strings,
        program: &mut Self,
    ) -> Outcome<()> {
        let mut target = Target::new();
        resolve(config, at, path, Last::Follow, &mut target)?;
        let found = target.existing()?;
        if found.is_directory() {
            return Err(libc::EACCES);
        }
        program.path.set(&[target.physical.as_bytes()])?;
        if target.is_magic || sys::file_type(&found.stat) != libc::S_IFREG {
            return Ok(());
        }
        sys::access(program.path.as_ptr(), libc::X_OK, libc::AT_EACCESS)?;
        // As it was given: the kernel does not make it absolute either.
        program.script.set(&[path])?;
        program.interpret(config, found.place != REAL, arguments)
    }

    /// Starts the interpreter of a script itself, where the kernel would look for one of them in the wrong place.
    fn interpret(&mut self, config: &Config, is_layer: bool, arguments: Strings) -> Outcome<()> {
        let Ok(fd) = sys::open(&mut self.path, libc::O_RDONLY, 0) else {
            return Ok(());
        };
        let room = self.line.len() - 1;
        let buffer = pointer(self.line.as_mut_ptr());
        let len = sys::call(libc::SYS_read, [sys::int(fd.0), buffer, room, 0, 0, 0])?;
        drop(fd);
        let Some(line) = self
            .line
            .get(..len)
            .and_then(|line| line.strip_prefix(b"#!"))
        else {
            return Ok(());
        };
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let start = 2 + line.iter().take_while(|byte| is_blank(byte)).count();
        let end = start
            + self
                .line
                .iter()
                .skip(start)
                .take_while(|byte| !is_blank(byte) && **byte != b'\n' && **byte != 0)
                .count();
        let line_end = 2 + line.len();
        let argument = end
            + self
                .line
                .iter()
                .take(line_end)
                .skip(end)
                .take_while(|byte| is_blank(byte))
                .count();
        let Some(interpreter) = self.line.get(start..end).filter(|name| !name.is_empty()) else {
            return Ok(());
        };
        let mut target = Target::new();
        resolve(config, AT_FDCWD, interpreter, Last::Follow, &mut target)?;
        let found = target.existing()?;
        if found.place == REAL && !is_layer {
            return Ok(());
        }
        let mut list = List::new();
        let base = self.line.as_mut_ptr();
        for at in [end, line_end] {
            if let Some(byte) = self.line.get_mut(at) {
                *byte = 0;
            }
        }
        list.push(base.wrapping_add(start).cast());
        if argument < line_end {
            list.push(base.wrapping_add(argument).cast());
        }
        list.push(self.script.as_ptr());
        for given in strings(arguments).skip(1) {
            list.push(given);
        }
        list.push(std::ptr::null());
        self.path.set(&[target.physical.as_bytes()])?;
        self.arguments = Some(list);
        Ok(())
    }

    fn new() -> Self {
        Self {
            path: PathBuf::new(),
            script: PathBuf::new(),
            arguments: None,
            line: [0; 256],
        }
    }
}

/// The call itself; only comes back with an error.
fn run(
    at: c_int,
    path: *const c_char,
    arguments: Strings,
    variables: Strings,
    flags: c_int,
) -> Outcome<c_int> {
    let [path, arguments, variables] = [pointer(path), pointer(arguments), pointer(variables)];
    // Every kernel knows the old one.
    let done = if at == AT_FDCWD && flags == 0 {
        sys::call(libc::SYS_execve, [path, arguments, variables, 0, 0, 0])
    } else {
        sys::call(
            libc::SYS_execveat,
            [sys::int(at), path, arguments, variables, sys::int(flags), 0],
        )
    };
    done.map(sys::to_int)
}

/// `execve`, redirected; only comes back with an error.
fn execute(
    at: c_int,
    path: *const c_char,
    arguments: Strings,
    variables: Strings,
) -> Outcome<c_int> {
    let mut made = Lines::new();
    let list = for_child(variables, &mut made);
    let variables = list.as_ref().map_or(variables, List::as_ptr);
    let (at, path) = gpu_program(path).map_or((at, path), |own| (AT_FDCWD, own));
    let Some((config, path_text)) = redirected(path)? else {
        return run(at, path, arguments, variables, 0);
    };
    let mut program = Program::new();
    Program::find(config, at, path_text, arguments, &mut program)?;
    let arguments = program.arguments.as_ref().map_or(arguments, List::as_ptr);
    run(AT_FDCWD, program.path.as_ptr(), arguments, variables, 0)
}

/// The configuration and the path, if the program may lie in a layer.
fn redirected<'a>(path: *const c_char) -> Outcome<Option<(&'static Config, &'a [u8])>> {
    let path = text(path)?;
    let config = config().filter(|_| config::generation() != 0 && !is_kernel_path(path));
    Ok(config.map(|config| (config, path)))
}

/// A program that is open already.
fn execute_open(
    at: c_int,
    path: *const c_char,
    arguments: Strings,
    variables: Strings,
    flags: c_int,
) -> Outcome<c_int> {
    let mut made = Lines::new();
    let list = for_child(variables, &mut made);
    let variables = list.as_ref().map_or(variables, List::as_ptr);
    run(at, path, arguments, variables, flags)
}

fn environ() -> Strings {
    crate::environment::environment_list()
}

/// Tries a program in every directory of `PATH`, as libc does.
fn search(
    file: *const c_char,
    mut run: impl FnMut(*const c_char) -> Outcome<c_int>,
) -> Outcome<c_int> {
    let name = text(file)?;
    if name.is_empty() {
        return Err(libc::ENOENT);
    }
    if name.contains(&b'/') {
        return run(file);
    }
    let list = strings(environ()).find_map(|line| text(line).ok()?.strip_prefix(b"PATH="));
    let mut error = libc::ENOENT;
    for directory in list.unwrap_or(b"/bin:/usr/bin").split(|byte| *byte == b':') {
        let mut path = PathBuf::new();
        let directory = if directory.is_empty() {
            b"."
        } else {
            directory
        };
        if path.set(&[directory, b"/", name]).is_err() {
            continue;
        }
        match run(path.as_ptr()) {
            Err(libc::EACCES) => error = libc::EACCES,
            Err(libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT) => {}
            other => return other,
        }
    }
    Err(error)
}

fn execute_searching(
    file: *const c_char,
    arguments: Strings,
    variables: Strings,
) -> Outcome<c_int> {
    search(file, |path| {
        match execute(AT_FDCWD, path, arguments, variables) {
            Err(libc::ENOEXEC) => {
                let mut list = List::new();
                list.push(c"/bin/sh".as_ptr());
                list.push(path);
                strings(arguments)
                    .skip(1)
                    .for_each(|argument| list.push(argument));
                list.push(std::ptr::null());
                execute(AT_FDCWD, c"/bin/sh".as_ptr(), list.as_ptr(), variables)
            }
            other => other,
        }
    })
}

type Spawn = (*mut libc::pid_t, *const c_void, *const c_void);

/// `posix_spawn`, which gives the error as its result.
fn spawn(
    path: *const c_char,
    (process, actions, attributes): Spawn,
    arguments: Strings,
    variables: Strings,
) -> Outcome<c_int> {
    type Function = extern "C" fn(
        *mut libc::pid_t,
        *const c_char,
        *const c_void,
        *const c_void,
        Strings,
        Strings,
    ) -> c_int;
    let run: Function = next!(
        c"posix_spawn",
        fn(
            *mut libc::pid_t,
            *const c_char,
            *const c_void,
            *const c_void,
            Strings,
            Strings,
        ) -> c_int
    );
    let mut made = Lines::new();
    let list = for_child(variables, &mut made);
    let variables = list.as_ref().map_or(variables, List::as_ptr);
    let path = gpu_program(path).unwrap_or(path);
    let Some((config, path_text)) = redirected(path)? else {
        return Ok(run(
            process, path, actions, attributes, arguments, variables,
        ));
    };
    let mut program = Program::new();
    Program::find(config, AT_FDCWD, path_text, arguments, &mut program)?;
    let arguments = program.arguments.as_ref().map_or(arguments, List::as_ptr);
    Ok(run(
        process,
        program.path.as_ptr(),
        actions,
        attributes,
        arguments,
        variables,
    ))
}

exports! {
    fn execve(path: *const c_char, arguments: Strings, variables: Strings) -> c_int, -1; {
        execute(AT_FDCWD, path, arguments, variables)
    }
    fn execv(path: *const c_char, arguments: Strings) -> c_int, -1; { execute(AT_FDCWD, path, arguments, environ()) }
    fn execvp(file: *const c_char, arguments: Strings) -> c_int, -1; {
        execute_searching(file, arguments, environ())
    }
    fn execvpe(file: *const c_char, arguments: Strings, variables: Strings) -> c_int, -1; {
        execute_searching(file, arguments, variables)
    }
    fn fexecve(fd: c_int, arguments: Strings, variables: Strings) -> c_int, -1; {
        if fd < 0 || arguments.is_null() || variables.is_null() {
            return Err(libc::EINVAL);
        }
        execute_open(fd, c"".as_ptr(), arguments, variables, libc::AT_EMPTY_PATH)
    }
    fn execveat(at: c_int, path: *const c_char, arguments: Strings, variables: Strings, flags: c_int) -> c_int, -1; {
        if flags == 0 {
            execute(at, path, arguments, variables)
        } else {
            execute_open(at, path, arguments, variables, flags)
        }
    }
    fn posix_spawn(process: *mut libc::pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings, variables: Strings) -> c_int, libc::EIO; {
        Ok(spawn(path, (process, actions, attributes), arguments, variables).unwrap_or_else(|error| error))
    }
    fn posix_spawnp(process: *mut libc::pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Strings, variables: Strings) -> c_int, libc::EIO; {
        let found = search(file, |path| match spawn(path, (process, actions, attributes), arguments, variables)? {
            0 => Ok(0),
            error => Err(error),
        });
        Ok(found.err().unwrap_or(0))
    }
    fn posix_spawn_file_actions_addopen(actions: *mut c_void, fd: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int, libc::EIO; {
        let add = next!(c"posix_spawn_file_actions_addopen", fn(*mut c_void, c_int, *const c_char, c_int, libc::mode_t) -> c_int);
        let Some(config) = config().filter(|_| is_writing(flags) || config::generation() != 0) else {
            return Ok(add(actions, fd, path, flags, mode));
        };
        if path.is_null() || is_kernel_path(text(path)?) {
            return Ok(add(actions, fd, path, flags, mode));
        }
        // The child opens the file inside libc: it must be where it is to be before.
        let mut target = Target::new();
        match prepare(config, AT_FDCWD, text(path)?, flags, mode, &mut target) {
            Ok(_) => Ok(add(actions, fd, target.physical.as_ptr(), flags, mode)),
            // The error comes up in the child, where the caller expects it.
            Err(_) => Ok(add(actions, fd, path, flags, mode)),
        }
    }
}

/// `execl` and its like: the registers hold the first arguments, the stack the others.
#[cfg(target_arch = "x86_64")]
mod variadic {
    use std::arch::naked_asm;

    use super::{List, Strings, c_char, c_int, environ, execute, execute_searching};
    use crate::abi::guard;

    macro_rules! variadic {
        ($($name:ident = $kind:literal)*) => {$(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $name() -> c_int {
                naked_asm!(
                    "sub rsp, 56",
                    "mov [rsp], rdi",
                    "mov [rsp + 8], rsi",
                    "mov [rsp + 16], rdx",
                    "mov [rsp + 24], rcx",
                    "mov [rsp + 32], r8",
                    "mov [rsp + 40], r9",
                    "mov rdi, rsp",
                    "lea rsi, [rsp + 64]",
                    "mov edx, {kind}",
                    "call {run}",
                    "add rsp, 56",
                    "ret",
                    kind = const $kind,
                    run = sym run,
                )
            }
        )*};
    }
    variadic! { execl = 0 execle = 1 execlp = 2 }

    extern "C" fn run(registers: Strings, stack: Strings, kind: c_int) -> c_int {
        guard(-1, || {
            // SAFETY: the six registers, then what the caller put on the stack; nothing is read behind the terminating
            // null, except the environment of `execle`.
            let argument = |i: usize| unsafe {
                if i < 6 {
                    *registers.add(i)
                } else {
                    *stack.add(i - 6)
                }
            };
            let mut list = List::new();
            let mut i = 1;
            loop {
                let value: *const c_char = argument(i);
                list.push(value);
                i += 1;
                if value.is_null() {
                    break;
                }
            }
            match kind {
                0 => execute(libc::AT_FDCWD, argument(0), list.as_ptr(), environ()),
                1 => execute(
                    libc::AT_FDCWD,
                    argument(0),
                    list.as_ptr(),
                    argument(i).cast(),
                ),
                _ => execute_searching(argument(0), list.as_ptr(), environ()),
            }
        })
    }
}
