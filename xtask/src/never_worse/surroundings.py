"""Runs commands in surroundings made for real, and tells what can be seen of each from outside.

One JSON object per line comes in, a command and its surroundings, and one goes out. The surroundings are:

- `terminal`: an interactive shell with job control, in which the command leads a job and has the terminal;
- `pipe`: a shell script whose output goes through pipes, without a terminal;
- `cron`: the first process of a session, with a minimal environment;
- `sbatch`: a batch script in a session of its own, with its output in a file.

The shell is a process of this program that waits as a shell does, and prints nothing.
"""

import base64
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import resource
import select
import signal
import struct
import sys
import termios
import time

MARKER = "NEVER_WORSE"
# The last moment at which a command may still run.
TIME_LIMIT = 10.0
# For a command that has said that it is ready to go to sleep.
BEFORE_ACT = 0.05
# Lines of /proc/PID/status that are compared.
FROM_STATUS = {
    *("Umask", "SigBlk", "SigIgn", "SigCgt", "CapEff", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Groups"),
}
KEYS = {"INT": b"\x03", "QUIT": b"\x1c"}
# What the status line is drawn with, and taken down.
STATUS_LINE = re.compile(
    rb"\r?\n\x1b\[1A(?=\x1b7)|\x1b7\x1b\[1;\d+r\x1b8|\x1b7\x1b\[(?:r\x1b\[)?\d+;1H\x1b\[2K[^\x1b]*\x1b8"
)


class Run:
    """One command in its surroundings."""

    def __init__(self, case):
        self.case = case
        self.directory = pathlib.Path(case["directory"])
        self.out = b""
        self.err = b""
        self.terminal = None
        # What is read, by descriptor: the streams, and what the shell says.
        self.fds = {}
        self.said = b""
        # Where the shell hears.
        self.heard = None
        self.n_continued = 0
        self.has_acted = case.get("act") is None
        self.ready_at = None
        # The wait status and the seconds until the end.
        self.ended = None
        self.left = []
        self.give_up = 0.0
        self.late = False

    def environment(self):
        """The environment of the command, which has the marker by which it and its children are found."""
        inside = {"PATH": os.environ["PATH"], "HOME": str(self.directory), MARKER: self.case["marker"]}
        surroundings = self.case["surroundings"]
        if surroundings == "cron":
            inside |= {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "root"}
        else:
            inside |= {"LANG": "C.UTF-8", "USER": "someone", "EMPTY": "", "LINES_IN_IT": "a\nb=c"}
        if surroundings == "terminal":
            inside |= {"TERM": "xterm-256color", "SHELL": "/bin/bash"}
        if surroundings == "sbatch":
            inside |= {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0", "SLURM_CPUS_ON_NODE": "2"}
        for name, value in self.case.get("environment", {}).items():
            if value is None:
                inside.pop(name, None)
            else:
                inside[name] = value.replace("{directory}", str(self.directory))
        return inside

    def observe(self):
        """Run the command from its start to its end."""
        os.makedirs(self.directory, exist_ok=True)
        said_in, said_out = os.pipe()
        heard_in, self.heard = os.pipe()
        began = time.monotonic()
        shell = self.start_shell(said_out, heard_in)
        os.close(said_out)
        os.close(heard_in)
        self.fds[said_in] = "said"
        while self.goes_on():
            if not self.late and time.monotonic() - began > TIME_LIMIT:
                self.late = True
                self.end_marked()
            for fd in select.select(list(self.fds), [], [], 0.01)[0]:
                self.read(fd)
            if self.case["surroundings"] == "sbatch":
                with contextlib.suppress(FileNotFoundError):
                    self.out = (self.directory / "slurm.out").read_bytes()
            self.follow_shell()
            self.act_if_ready()
        self.read_the_rest()
        os.close(self.heard)
        os.waitpid(shell, 0)
        if self.ended is None:
            return {"problem": "the shell did not tell an end", "late": self.late}
        status, seconds = self.ended
        return {
            "status": status,
            "seconds": seconds,
            "late": self.late,
            "out": self.shown(STATUS_LINE.sub(b"", self.out)),
            "err": self.shown(self.err),
            "left": self.left,
            "terminal": self.word_after("terminal") or "",
            "state": self.state(),
        }

    def goes_on(self):
        """Whether there is something to wait for: the end, and then what is still on its way."""
        if self.ended is None:
            return bool(self.fds)
        return "said" in self.fds.values() and time.monotonic() < self.give_up

    def read(self, fd):
        """Read from the shell or from one of the streams."""
        try:
            chunk = os.read(fd, 1 << 16)
        except OSError:
            # The last process of a terminal has closed it.
            chunk = b""
        name = self.fds[fd]
        if not chunk:
            del self.fds[fd]
            os.close(fd)
        elif name == "said":
            self.said += chunk
        elif name == "out":
            self.out += chunk
        else:
            self.err += chunk

    def read_the_rest(self):
        """Read what is in the streams by now."""
        for fd in list(self.fds):
            while fd in self.fds and select.select([fd], [], [], 0)[0]:
                self.read(fd)
            if fd in self.fds:
                os.close(fd)

    def word_after(self, word):
        """What the shell has said after this word."""
        words = self.said.decode().split()
        return words[words.index(word) + 1] if word in words[:-1] else None

    def follow_shell(self):
        """Answer what the shell says: its command was stopped, or has ended."""
        n_stopped = self.said.count(b"stopped")
        if n_stopped > self.n_continued:
            self.n_continued += 1
            os.write(self.heard, b"f")
        if self.ended is None and self.said.endswith(b"end of it\n"):
            self.ended = int(self.word_after("ended")), float(self.word_after("after"))
            self.left = self.marked()
            self.end_marked()
            self.give_up = time.monotonic() + 0.5
            os.write(self.heard, b"x")

    def act_if_ready(self):
        """Act once, a moment after the command has said that it is ready."""
        if self.has_acted or b"ready" not in self.out:
            return
        now = time.monotonic()
        self.ready_at = self.ready_at or now
        command = self.word_after("pid")
        if command is not None and now - self.ready_at > BEFORE_ACT:
            self.has_acted = True
            self.act(int(command))

    def shown(self, output):
        """Encode output, without the name of the directory, which is another one in each run."""
        return base64.b64encode(output.replace(str(self.directory).encode(), b"{directory}")).decode()

    def start_shell(self, said_out, heard_in):
        """Start the process that stands for the shell."""
        surroundings = self.case["surroundings"]
        if surroundings == "terminal":
            shell, terminal = pty.fork()
            if shell == 0:
                self.be_shell(said_out, heard_in)
            self.terminal = terminal
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            self.fds[terminal] = "out"
            return shell
        out_in, out_out = os.pipe()
        err_in, err_out = os.pipe()
        shell = os.fork()
        if shell == 0:
            os.setsid()
            nothing = os.open("/dev/null", os.O_RDONLY)
            os.dup2(nothing, 0)
            if surroundings == "sbatch":
                flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_APPEND
                file = os.open(self.directory / "slurm.out", flags, 0o644)
                os.dup2(file, 1)
                os.dup2(file, 2)
            else:
                os.dup2(out_out, 1)
                os.dup2(out_out if surroundings == "cron" else err_out, 2)
            self.be_shell(said_out, heard_in)
        os.close(out_out)
        os.close(err_out)
        self.fds |= {out_in: "out", err_in: "err"}
        return shell

    def be_shell(self, said_out, heard_in):
        """Start the command as a shell does, and wait for it."""
        try:
            self.wait_as_shell(said_out, heard_in)
        finally:
            os._exit(0)

    def wait_as_shell(self, said_out, heard_in):
        """Wait for the command, and let it continue where it was stopped."""
        said_out, heard_in = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in (said_out, heard_in))
        os.closerange(3, 100)
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)
        is_terminal = self.case["surroundings"] == "terminal"
        if is_terminal:
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            signal.signal(signal.SIGTTIN, signal.SIG_IGN)
            signal.signal(signal.SIGTSTP, signal.SIG_IGN)
            size = struct.pack("HHHH", 24, 80, 0, 0)
            fcntl.ioctl(0, termios.TIOCSWINSZ, size)
        before = termios.tcgetattr(0) if is_terminal else None
        began = time.monotonic()
        command = os.fork()
        if command == 0:
            try:
                self.become_command()
            finally:
                os._exit(127)
        if is_terminal:
            with contextlib.suppress(OSError):
                os.setpgid(command, command)
            os.tcsetpgrp(0, command)
        os.write(said_out, f"pid {command}\n".encode())
        while True:
            try:
                _, status = os.waitpid(command, os.WUNTRACED)
            except InterruptedError:
                continue
            if not os.WIFSTOPPED(status):
                break
            os.tcsetpgrp(0, os.getpgrp())
            os.write(said_out, f"stopped {os.WSTOPSIG(status)}\n".encode())
            os.read(heard_in, 1)
            os.tcsetpgrp(0, command)
            os.killpg(command, signal.SIGCONT)
        seconds = time.monotonic() - began
        if is_terminal:
            foreground = "same" if os.tcgetpgrp(0) in (command, os.getpgrp()) else "another"
            os.tcsetpgrp(0, os.getpgrp())
            modes = "as_before" if termios.tcgetattr(0) == before else "changed"
            os.write(said_out, f"terminal foreground:{foreground},modes:{modes}\n".encode())
        os.write(said_out, f"ended {status} after {seconds} end of it\n".encode())
        os.read(heard_in, 1)

    def become_command(self):
        """Set up what the caller of the command has, and become it."""
        case = self.case
        leads_session = case["surroundings"] == "cron"
        if leads_session:
            os.setsid()
        if case["surroundings"] == "terminal":
            os.setpgid(0, 0)
            os.tcsetpgrp(0, os.getpgrp())
        os.chdir(self.directory)
        for name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGPIPE", "SIGXFSZ"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        for name in ("SIGTTOU", "SIGTTIN", "SIGTSTP"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        # A core dump of a program that crashes on purpose is of no use to anybody.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.RLIM_INFINITY))
        caller = case.get("caller", {})
        for name, limit in caller.get("limits", {}).items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
        if "umask" in caller:
            os.umask(caller["umask"])
        if "nice" in caller:
            os.nice(caller["nice"])
        if "descriptors" in caller:
            file = os.open("held", os.O_CREAT | os.O_RDWR, 0o600)
            reads, writes = os.pipe()
            os.dup2(file, 7)
            os.dup2(writes, 9)
            os.dup2(reads, 8)
        if caller.get("closed_input"):
            os.close(0)
        if "removed_directory" in caller:
            os.mkdir("gone")
            os.chdir("gone")
            os.rmdir("../gone")
        for name in caller.get("ignored", []):
            signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_IGN)
        blocked = [getattr(signal, f"SIG{name}") for name in caller.get("blocked", [])]
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        words = [word.replace("{directory}", str(self.directory)) for word in case["words"]]
        try:
            os.execvpe(words[0], words, self.environment())
        except FileNotFoundError:
            os._exit(127)
        except PermissionError:
            os._exit(126)

    def act(self, command):
        """Do what has to be done from outside, once the command is ready."""
        kind, _, what = self.case["act"].partition(":")
        if kind == "key" and self.terminal is not None:
            os.write(self.terminal, KEYS[what])
        elif kind in ("kill", "key"):
            os.kill(command, getattr(signal, f"SIG{what}"))
        elif kind == "group":
            os.killpg(os.getpgid(command), getattr(signal, f"SIG{what}"))
        elif kind == "type" and self.terminal is not None:
            os.write(self.terminal, what.encode())
        elif kind == "resize" and self.terminal is not None:
            fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        elif kind == "stop" and self.terminal is not None:
            os.write(self.terminal, b"\x1a")
        elif kind == "close":
            for fd, name in list(self.fds.items()):
                if name == "out" and fd != self.terminal:
                    del self.fds[fd]
                    os.close(fd)
        (self.directory / "acted").touch()

    def marked(self):
        """The processes of this command that are still there."""
        wanted = f"{MARKER}={self.case['marker']}".encode()
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdecimal():
                continue
            with contextlib.suppress(OSError):
                if wanted in pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append((int(entry), pathlib.Path(f"/proc/{entry}/comm").read_text().strip()))
        return sorted(name for pid, name in found if pid != os.getpid())

    def end_marked(self):
        """End what is left of this command. No other process has its marker."""
        wanted = f"{MARKER}={self.case['marker']}".encode()
        for entry in os.listdir("/proc"):
            if entry.isdecimal() and int(entry) != os.getpid():
                with contextlib.suppress(OSError):
                    if wanted in pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                        os.kill(int(entry), signal.SIGKILL)

    def state(self):
        """What `state.sh` has written about the start of the command."""
        read = {}
        with contextlib.suppress(OSError):
            text = (self.directory / "state").read_text(errors="replace")
            read = parse_state(text, (self.directory / "environ").read_bytes())
            read["descriptors"] = descriptors((self.directory / "descriptors").read_text(), self.directory)
        return read


def parse_state(text, environ):
    """The attributes that a command has from its start on, by name."""
    read = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        value = value.strip()
        if name in {
            "Umask",
            "SigBlk",
            "SigIgn",
            "SigCgt",
            "CapEff",
            "NoNewPrivs",
            "Seccomp",
            "Cpus_allowed",
            "Groups",
        }:
            read[name] = value
        elif line.startswith("Max "):
            found = re.match(r"Max ([a-z ]+?)  +(\S+) +(\S+)", line)
            if found:
                read[f"limit of {found[1]}"] = f"{found[2]} {found[3]}"
        elif found := re.match(r"(\d+) \(.*\) ", line):
            pid = found[1]
            fields = line[found.end() :].split()
            group, session, terminal, foreground = fields[2], fields[3], fields[4], fields[5]
            read["leads its process group"] = str(pid == group)
            read["leads its session"] = str(pid == session)
            read["has a terminal"] = str(terminal != "0")
            read["is in the foreground"] = str(foreground == group)
            read["nice"] = fields[16]
    for entry in environ.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name:
            read[f"variable {name.decode(errors='replace')}"] = base64.b64encode(value).decode()
    return read


def descriptors(text, directory):
    """Numbers of open descriptors, and what they lead to."""
    found = []
    for line in text.splitlines():
        link = re.search(r" (\d+) -> (.*)$", line)
        if link is None:
            continue
        number, target = link[1], link[2].replace(str(directory), "{directory}")
        target = re.sub(r"^/dev/pts/\d+$", "a terminal", target)
        target = re.sub(r"^(pipe|socket):.*", r"a \1", target)
        found.append(f"{number} is {target}")
    return ", ".join(sorted(found))


def main():
    """Answer one line after the other."""
    for line in sys.stdin:
        case = json.loads(line)
        try:
            seen = Run(case).observe()
        except OSError as error:
            seen = {"problem": f"{type(error).__name__}: {error}", "late": False}
        print(json.dumps(seen), flush=True)


main()
