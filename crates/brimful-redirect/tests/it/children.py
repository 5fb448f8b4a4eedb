"""Starts children in every way, with environments of their own: they get what is brimful's, and nothing else.

``children.py STAGE``: the directory of the stand-ins that `children.rs` has made.
"""

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

STAGE = pathlib.Path(sys.argv[1])
OWN = str(STAGE / "libown.so")
LIBC = ctypes.CDLL(None, use_errno=True)
ENV = shutil.which("env") or "/usr/bin/env"
SHOWS = [ENV, "-0"]
# What Python and shells set by themselves.
NOT_GIVEN = {"LC_CTYPE", "PWD", "OLDPWD", "SHLVL", "_"}
KEPT = [
    "BRIMFUL_REDIRECT",
    "BRIMFUL_REDIRECT_SHARED", "BRIMFUL_REDIRECT_TOKEN",
    "BRIMFUL_HOOK",
    "BRIMFUL_NVIDIA_SMI",
    "BRIMFUL_REHEARSAL",
    "TRITON_LIBCUDA_PATH",
]
PRELOAD = ":".join(library for library in os.environ["LD_PRELOAD"].split(":") if "/libbrimful_" in library)
EXPECTED = {
    **{name: os.environ[name] for name in KEPT if name in os.environ},
    "LD_PRELOAD": PRELOAD,
    "PYTHONPATH": os.environ["BRIMFUL_HOOK"],
}


def check(way: str, shown: str, expected: dict[str, str] = EXPECTED) -> None:
    """Compare what a child has printed of its environment."""
    lines = [line.partition("=") for line in shown.split("\0") if line]
    found = {name: value for name, _, value in lines if name not in NOT_GIVEN}
    assert found == expected, f"{way}: {found}\nexpected {expected}"


def output(command: list[str], **options: object) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **options).stdout


def output_of(start: Callable[[], object]) -> str:
    """Return what a program prints that takes the place of a forked process."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.dup2(writing, 1)
            start()
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as file:
        shown = file.read()
    assert os.waitpid(process, 0)[1] == 0
    return shown


def spawned(spawn: Callable[..., int], command: list[str]) -> str:
    reading, writing = os.pipe()
    process = spawn(command[0], command, {}, file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1)])
    os.close(writing)
    with os.fdopen(reading) as file:
        shown = file.read()
    assert os.waitpid(process, 0)[1] == 0
    return shown


def c_list(*texts: str) -> ctypes.Array:
    return (ctypes.c_char_p * (len(texts) + 1))(*(text.encode() for text in texts), None)


def empty_environments() -> None:
    check("run", output(SHOWS, env={}))
    check("env -i", output(["env", "-i", *SHOWS]))
    check("shell", output(["sh", "-c", 'exec env -i "$@"', "sh", *SHOWS]))
    twice = f"import subprocess; subprocess.run({SHOWS!r}, env={{}}, check=True)"
    check("two levels", output([sys.executable, "-c", twice], env={}))
    check("posix_spawn", spawned(os.posix_spawn, SHOWS))
    check("posix_spawnp", spawned(os.posix_spawnp, ["env", "-0"]))
    check("execve", output_of(lambda: os.execve(ENV, SHOWS, {})))
    opened = os.open(ENV, os.O_RDONLY)
    check("fexecve", output_of(lambda: os.execve(opened, SHOWS, {})))
    words, nothing = [text.encode() for text in SHOWS], c_list()
    end = ctypes.c_void_p(None)
    check("execle", output_of(lambda: LIBC.execle(words[0], *words, end, nothing)))
    check("execvpe", output_of(lambda: LIBC.execvpe(words[0], c_list(*SHOWS), nothing)))
    check("execveat", output_of(lambda: LIBC.execveat(-100, words[0], c_list(*SHOWS), nothing, 0)))


def cleared_environment() -> None:
    """A process that empties its own environment: libc starts its shell by itself."""
    quoted = "'" + "' '".join(SHOWS) + "'"
    clear = "import ctypes, os, sys; os.environ.clear(); "
    system = clear + f"sys.exit(os.system({quoted!r}))"
    check("system", output([sys.executable, "-c", system]))
    popen = clear + (
        "libc = ctypes.CDLL(None); libc.popen.restype = ctypes.c_void_p; "
        f"stream = ctypes.c_void_p(libc.popen({quoted.encode()!r}, b'w')); sys.exit(libc.pclose(stream))"
    )
    check("popen", output([sys.executable, "-c", popen]))
    status = clear + "print(os.waitstatus_to_exitcode(os.system('exit 7')), os.system('-no'))"
    assert output([sys.executable, "-c", status], stderr=subprocess.DEVNULL) == f"7 {127 << 8}\n"
    check("execv", output([sys.executable, "-c", clear + f"os.execv({ENV!r}, {SHOWS!r})"]))


def replaced_preload() -> None:
    """As with jemalloc and tcmalloc: the script's library is loaded too, behind those of brimful."""
    own = {**EXPECTED, "LD_PRELOAD": f"{PRELOAD}:{OWN}"}
    check("replaced", output(SHOWS, env={"LD_PRELOAD": OWN}), own)
    assigned = ["env", "-i", "sh", "-c", 'LD_PRELOAD="$0" exec "$@"', OWN, *SHOWS]
    check("assigned", output(assigned), own)
    code = "import ctypes; print(ctypes.CDLL(None).own())"
    assert output([sys.executable, "-c", code], env={"LD_PRELOAD": OWN}) == "3\n"
    # What is complete is left as it is; what a script sets itself counts.
    given = {**EXPECTED, "LD_PRELOAD": f"{OWN}:{PRELOAD}", "PYTHONPATH": f"/a:{EXPECTED['PYTHONPATH']}"}
    check("complete", output(SHOWS, env=given), given)
    given = {**EXPECTED, "BRIMFUL_REHEARSAL": "given", "PATH": "/usr/bin:/bin", "PYTHONPATH": "/a"}
    changed = {"PATH": f"{STAGE}/bin:/usr/bin:/bin", "PYTHONPATH": f"{EXPECTED['PYTHONPATH']}:/a"}
    check("given", output(SHOWS, env=given), {**given, **changed})


def left_stage() -> None:
    """The hook's own comparison is made without the phantom, with redirected files."""
    leave = "import ctypes, os, sys; ctypes.CDLL(None).brimful_redirect_leave_stage(); "
    library = next(library for library in PRELOAD.split(":") if "/libbrimful_redirect" in library)
    expected = {name: value for name, value in EXPECTED.items() if name.startswith("BRIMFUL_REDIRECT")}
    expected["LD_PRELOAD"] = library
    execute = f"os.execve({ENV!r}, {SHOWS!r}, {{}})"
    check("left", output([sys.executable, "-c", leave + execute]), expected)


def programs() -> None:
    """Every `nvidia-smi` is the stage's."""
    for command in (["/usr/bin/nvidia-smi", "-L"], ["/opt/x/nvidia-smi", "-L"], ["nvidia-smi", "-L"]):
        for environment in (None, {}, {"PATH": "/usr/bin:/bin"}):
            assert output(command, env=environment) == "phantom -L\n", (command, environment)
    assert output(["sh", "-c", "nvidia-smi -L"], env={"PATH": "/usr/bin:/bin"}) == "phantom -L\n"
    real = str(STAGE / "real/nvidia-smi")
    assert output([real, "-L"]) == "phantom -L\n"
    code = f"import subprocess; subprocess.run([{real!r}, '-L'], check=True)"
    assert output([sys.executable, "-c", code], env={"BRIMFUL_NVIDIA_SMI": ""}) == "real -L\n"
    assert spawned(os.posix_spawn, ["/usr/bin/nvidia-smi"]) == "phantom\n"
    assert output([str(STAGE / "real/not-nvidia-smi")]) == "real\n"


def libraries() -> None:
    """NVIDIA's libraries are the phantom by any path; others are found as ever."""
    real = STAGE / "real"
    for path in (real / "libcuda.so.1", real / "libcuda.so.535.309.01", "libcuda.so.535.309.01"):
        assert ctypes.CDLL(str(path)).cuInit(0) == 7, path
    for path in (real / "libnvidia-ml.so.1", "libnvidia-ml.so"):
        assert ctypes.CDLL(str(path)).cuInit(0) == 7, path
    # Found by the run path of the library that asks for it.
    assert ctypes.CDLL(str(STAGE / "asking/libasking.so")).ask() == 5
    code = f"import ctypes; print(ctypes.CDLL('{real}/libcuda.so.1').cuInit(0))"
    assert output([sys.executable, "-c", code], env={}) == "7\n"
    # Who has no phantom has no GPU either.
    for name in ("libcuda.so.1", "libnvidia-ml.so.1", f"{real}/libcuda.so.1"):
        code = (
            "import ctypes, os, sys\n"
            "if len(sys.argv) > 1:\n"
            "    ctypes.CDLL(None).brimful_redirect_leave_stage()\n"
            "    command = [sys.executable, '-c', sys.argv[1]]\n"
            f"    os.execve(sys.executable, command, {{'LD_LIBRARY_PATH': '{real}'}})\n"
            f"try:\n    ctypes.CDLL('{name}')\n    print('loaded')\n"
            "except OSError as error:\n    print(str(error).partition(': ')[2])\n"
        )
        missing = "cannot open shared object file: No such file or directory\n"
        assert output([sys.executable, "-c", code, code]) == missing, name


empty_environments()
cleared_environment()
replaced_preload()
left_stage()
programs()
libraries()
print("ok")
