"""A second user who tries, as fast as Python can, to read and to replace everything that the first one makes.

Arguments: the first user's id, a log of what succeeded, a directory in which planted code leaves a mark when it runs,
and the places to look at. Runs until it is killed.
"""

import os
import stat
import sys
import time

VICTIM = int(sys.argv[1])
LOG, MARKS, PLACES = sys.argv[2], sys.argv[3], sys.argv[4:]
CODE = f"import os\nopen(os.path.join({MARKS!r}, f'{{os.getuid()}}-{{os.getpid()}}'), 'w').close()\n"
NAMES = (
    "sitecustomize.py",
    "usercustomize.py",
    "record.jsonl",
    "runs",
    "hook",
    "inside",
    "pressure",
    "lock",
    "x.gauge",
)


def attempt(what, path, action):
    try:
        action()
    except OSError:
        return
    with open(LOG, "a", encoding="utf-8", errors="replace") as log:
        log.write(f"{what} {path}\n")


def put(path):
    with open(path, "w", encoding="utf-8") as file:
        file.write(CODE)


def read(path):
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.read(handle, 1)
    finally:
        os.close(handle)


def attack_directory(path):
    attempt("listed", path, lambda: os.listdir(path))
    for name in NAMES:
        attempt("planted in", path, lambda name=name: put(os.path.join(path, name)))
        attempt(
            "linked in",
            path,
            lambda name=name: os.symlink("/etc/hostname", os.path.join(path, name + ".new")),
        )
    attempt("piped in", path, lambda: os.mkfifo(os.path.join(path, "fifo")))
    attempt("opened", path, lambda: os.chmod(path, 0o777))
    attempt("moved", path, lambda: os.rename(path, path + ".moved"))
    attempt("removed", path, lambda: os.rmdir(path))


def attack_file(path):
    attempt("read", path, lambda: read(path))
    attempt("wrote", path, lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)))
    attempt("replaced", path, lambda: os.replace(path, path + ".moved"))
    attempt("removed", path, lambda: os.unlink(path))


def visit(path):
    try:
        facts = os.lstat(path)
    except OSError:
        return
    if facts.st_uid != VICTIM:
        # A place that everybody may write to.
        if stat.S_ISDIR(facts.st_mode) and path in PLACES:
            descend(path)
        return
    if stat.S_ISDIR(facts.st_mode):
        attack_directory(path)
        descend(path)
    else:
        attack_file(path)


def descend(path):
    try:
        names = os.listdir(path)
    except OSError:
        # What can be guessed below it.
        names = NAMES
    for name in names:
        visit(os.path.join(path, name))


while True:
    for place in PLACES:
        visit(place)
    time.sleep(0.001)
