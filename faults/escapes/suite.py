"""Tries every way out of a rehearsal, beside a job that must not notice.

`suite.py BRIMFUL [--guide FILE [--write]]`: each program of `ways/` runs under `brimful init`, at each level
of isolation, as root, as another user, and as root in what Docker allows. Before and after, the state of
`outside.py` is compared. Exits with 1 if something was reached, or if a way ended otherwise than its
`EXPECTED` says. The guide shows a table of what was found.
"""

import argparse
import ast
import concurrent.futures
import dataclasses
import fcntl
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

HERE = Path(__file__).parent
LEVELS = ["overlay", "redirect"]
OTHER_USER = 54321
TIME_LIMIT = 60
KINDS = [
    "files",
    "descriptors and terminal",
    "shared memory",
    "queues and System V memory",
    "processes",
    "machine",
    "services",
    "services without a network",
]
# Around the table in the guide.
BEGIN, END = "<!-- escapes: generated -->\n", "<!-- escapes: end -->\n"
OUTCOMES = {40: "done", 41: "denied", 42: "absent", 43: "skipped"}
STDIN = b"for the next program\n"

# What Docker leaves to root, and what its filter refuses of what matters here.
DOCKER_CAPABILITIES = [
    *("chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "net_bind_service"),
    *("net_raw", "sys_chroot", "mknod", "audit_write", "setfcap"),
]
DOCKER_REFUSES = HERE / "as_in_docker.py"


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    path: Path
    kind: str
    expected: dict[str, str]
    changes: list[str]
    options: list[str]

    @staticmethod
    def read(path: Path) -> "Way":
        constants = {}
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                try:
                    constants[node.targets[0].id] = ast.literal_eval(node.value)
                except ValueError:
                    continue
        return Way(
            path.stem,
            path,
            constants["KIND"],
            constants["EXPECTED"],
            constants.get("CHANGES", []),
            constants.get("OPTIONS", []),
        )


@dataclasses.dataclass(frozen=True)
class Person:
    name: str
    levels: list[str]
    prefix: list[str]
    uid: int


PERSONS = [
    Person("root", LEVELS, [], 0),
    Person(
        "user",
        LEVELS,
        ["setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups"],
        OTHER_USER,
    ),
    Person(
        "Docker",
        ["redirect"],
        [
            "setpriv",
            f"--bounding-set=-all,{','.join('+' + name for name in DOCKER_CAPABILITIES)}",
            "--inh-caps=-all",
            "python3",
            str(DOCKER_REFUSES),
        ],
        0,
    ),
]


@dataclasses.dataclass(frozen=True)
class Result:
    way: Way
    level: str
    person: str
    outcome: str
    problem: str | None


class Beside:
    """The job, running as a person."""

    def __init__(self, person: Person, directory: Path, program: Path) -> None:
        self.tree = directory / "tree"
        self.tree.mkdir()
        os.chown(self.tree, person.uid, person.uid)
        prefix = person.prefix if person.uid else []
        self.process = subprocess.Popen(
            [*prefix, "python3", str(program), str(self.tree)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.names = json.loads(self.process.stdout.readline())

    def state(self) -> dict[str, object]:
        if self.process.poll() is not None:
            return {"alive": False}
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait(10)


def run_way(brimful: Path, way: Way, level: str, person: Person, beside: Beside) -> tuple[str, str]:
    """The exit of one way, and what brimful said; raises if a stream or the terminal was touched."""
    master, slave = pty.openpty()
    read_end, write_end = os.pipe()
    log = os.open(beside.tree / "work/log.csv", os.O_WRONLY | os.O_APPEND)
    directory = os.open(beside.tree / "work", os.O_RDONLY | os.O_DIRECTORY)
    pipe_out, pipe_in = os.pipe()
    os.write(write_end, STDIN)
    settings = termios.tcgetattr(slave)

    def in_child() -> None:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        # Away from the numbers that are set next.
        sources = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 20) for descriptor in (log, directory, pipe_in)]
        for number, source in zip((7, 8, 9), sources, strict=True):
            os.dup2(source, number)
        os.closerange(20, 64)

    environment = {
        **os.environ,
        **beside.names,
        "HOME": str(beside.tree / "home"),
        "PYTHONPATH": str(way.path.parents[1]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NO_COLOR": "1",
    }
    command = [str(brimful), "init", "--output", "-", "--isolation", level, *way.options]
    try:
        done = subprocess.run(
            [*person.prefix, *command, "--", "python3", str(way.path)],
            cwd=beside.tree / "work",
            env=environment,
            stdin=read_end,
            capture_output=True,
            text=True,
            close_fds=False,
            preexec_fn=in_child,
            timeout=TIME_LIMIT,
            check=False,
        )
        problems = []
        if termios.tcgetattr(slave) != settings:
            problems.append("the terminal's settings changed")
        os.set_blocking(read_end, False)
        if os.read(read_end, 100) != STDIN:
            problems.append("standard input was read")
        os.set_blocking(pipe_out, False)
        try:
            leaked = os.read(pipe_out, 100)
        except BlockingIOError:
            leaked = b""
        if leaked:
            problems.append(f"a pipe got {leaked!r}")
        return done.stderr, "; ".join(problems)
    finally:
        for descriptor in (master, slave, read_end, write_end, log, directory, pipe_out, pipe_in):
            os.close(descriptor)


def judge(way: Way, level: str, person: Person, said: str) -> tuple[str, str | None]:
    if way.options and person.name == "Docker" and "a network namespace is not allowed" in said:
        return "not started", None
    found = re.search(r"ended with exit code (\d+)", said)
    outcome = OUTCOMES.get(int(found[1])) if found else None
    if outcome is None:
        return "failed", f"no outcome:\n{said}"
    if outcome != "skipped" and outcome not in way.expected[level].split("|"):
        return outcome, f"expected {way.expected[level]}, found {outcome}:\n{said}"
    return outcome, None


def differences(before: dict[str, object], after: dict[str, object], ignored: list[str]) -> str:
    return ", ".join(
        f"{name}: {before.get(name)} -> {after.get(name)}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name) and name not in ignored
    )


def try_all(brimful: Path, ways: list[Way], level: str, person: Person) -> list[Result]:
    results = []
    with tempfile.TemporaryDirectory() as held:
        directory = Path(held)
        directory.chmod(0o755)
        beside = Beside(person, directory, ways[0].path.parents[1] / "outside.py")
        try:
            before = beside.state()
            for way in ways:
                said, touched = run_way(brimful, way, level, person, beside)
                outcome, problem = judge(way, level, person, said)
                after = beside.state()
                if changed := differences(before, after, way.changes):
                    problem = f"reached: {changed}"
                elif touched:
                    problem = touched
                before = after
                results.append(Result(way, level, person.name, outcome, problem))
                if after.get("alive") is False:
                    break
            # What a daemon would do later.
            time.sleep(2)
            if changed := differences(before, beside.state(), []):
                late = next(way for way in ways if way.name == "daemon")
                results.append(Result(late, level, person.name, "failed", f"reached later: {changed}"))
        finally:
            beside.end()
    return results


def table(results: list[Result]) -> str:
    """Kinds in lines, levels and persons in columns."""
    columns = [(level, person.name) for level in LEVELS for person in PERSONS if level in person.levels]
    lines = [
        "| | " + " | ".join(f"{level}, {person}" for level, person in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    words = {"done": "own copy", "denied": "denied", "absent": "not there", "not started": "not started"}
    for kind in KINDS:
        cells = []
        for level, person in columns:
            mine = [it for it in results if (it.way.kind, it.level, it.person) == (kind, level, person)]
            reached = any(it.way.changes for it in mine)
            found = {words[it.outcome] for it in mine if it.outcome in words and not it.way.changes}
            if reached:
                found.add("reached and listed")
            cells.append(", ".join(sorted(found)))
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def is_shown(guide: Path, rows: str, *, write: bool) -> bool:
    """Whether the guide shows the table, which it does after it was written."""
    text = guide.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    new = f"{before}{BEGIN}\n{rows}\n{END}{after}"
    if write:
        guide.write_text(new)
    return write or new == text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("brimful", type=Path)
    parser.add_argument("--guide", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--ways", default="*")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: needs root, to try as another user too")
        return 0
    with tempfile.TemporaryDirectory() as held:
        # The directories that the program was built in and this suite lies in may be closed to others.
        directory = Path(held)
        directory.chmod(0o755)
        programs = Path(shutil.copytree(HERE, directory / "escapes"))
        ways = [Way.read(path) for path in sorted((programs / "ways").glob(f"{arguments.ways}.py"))]
        brimful = Path(shutil.copy(arguments.brimful, directory / "brimful"))
        for library in arguments.brimful.parent.glob("libbrimful_*.so"):
            shutil.copy(library, directory)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            tasks = [
                pool.submit(try_all, brimful, ways, level, person)
                for person in PERSONS
                for level in person.levels
            ]
            results = [result for task in tasks for result in task.result()]
    for result in results:
        if result.problem:
            print(f"{result.way.name} at {result.level} as {result.person}: {result.problem}\n")
        elif result.outcome == "skipped":
            print(f"skipped: {result.way.name} at {result.level} as {result.person}")
    problems = [result for result in results if result.problem]
    print(f"{len(results)} tries of {len(ways)} ways, {len(problems)} problems")
    if (
        arguments.guide
        and not problems
        and not is_shown(arguments.guide, table(results), write=arguments.write)
    ):
        print(f"{arguments.guide} shows another table; write it with --write:\n\n{table(results)}")
        return 1
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
