"""A machine "with a GPU" whose card never answers: NVIDIA's user-space driver, device nodes, files in /proc.

Runs a command in a mount namespace of its own, in which these exist. The machine outside stays as it is.
Needs root. Also a program: `python driver_box.py [--nodes real|null|none] [--no-proc] [--user] -- COMMAND...`
"""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGES = ["libcuda1", "libnvidia-ml1", "nvidia-smi"]
VERSION = "535.309.01"
NODES = {"nvidia0": (195, 0), "nvidiactl": (195, 255), "nvidia-uvm": (511, 0)}
PROC = {
    "version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {VERSION}  Mon Mar  9 20:43:12 UTC 2026\n",
    "params": "ModifyDeviceFiles: 1\nDeviceFileMode: 438\n",
    "gpus/0000:00:04.0/information": "Model: \t\t Tesla T4\nVideo BIOS: \t 90.04.??.??.??\n",
}
USER_ID = 54321
USER = ["setpriv", "--reuid", str(USER_ID), "--regid", str(USER_ID), "--clear-groups"]


def call(*words: str | Path, text: str | None = None, cwd: Path | None = None) -> None:
    """Run a program, which must succeed."""
    called = [str(word) for word in words]
    subprocess.run(called, input=text, cwd=cwd, text=True, check=True, capture_output=True, timeout=300)


def why_not() -> str | None:
    """Say what this machine lacks for the box."""
    if os.geteuid() != 0:
        return "the driver box needs root"
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return "the driver box needs unshare and mount"
    try:
        call("unshare", "--mount", "true")
    except subprocess.CalledProcessError:
        return "mount namespaces are refused here"
    return None


def driver() -> Path | None:
    """Return a folder with the driver's files as Debian ships them, downloaded once; None without them."""
    cache = Path(os.environ.get("BRIMFUL_CACHE") or Path.home() / ".cache/brimful")
    folder = cache / "driver-535"
    if (folder / "complete").exists():
        return folder
    with tempfile.TemporaryDirectory() as temporary:
        try:
            download(Path(temporary), folder)
        except (OSError, subprocess.CalledProcessError):
            return None
    (folder / "complete").touch()
    return folder


def download(work: Path, folder: Path) -> None:
    """Fetch Debian's packages, of the part of its archive that a machine does not list as a rule."""
    listed = [Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")]
    text = next(path for path in listed if path.exists()).read_text()
    sources = work / ("debian.sources" if "Types:" in text else "debian.list")
    changed = [
        line.rstrip() + " non-free" if line.startswith(("Components:", "deb ")) else line
        for line in text.splitlines()
    ]
    sources.write_text("\n".join(changed) + "\n")
    (work / "lists/partial").mkdir(parents=True)
    options = [
        f"Dir::Etc::SourceList={sources}",
        "Dir::Etc::SourceParts=-",
        f"Dir::State::Lists={work}/lists",
        "APT::Sandbox::User=root",
    ]
    apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
    call(*apt, "update")
    call(*apt, "download", *PACKAGES, cwd=work)
    for package in work.glob("*.deb"):
        call("dpkg-deb", "-x", package, folder)


def aborting_library(folder: Path) -> Path:
    """Compile a libcuda.so.1 that ends whatever loads it."""
    library = folder / "libcuda.so.1"
    source = """
        #include <stdlib.h>
        __attribute__((constructor)) static void loaded(void) { abort(); }
        int cuInit(unsigned int flags) { return (int)flags; }
    """
    call("cc", "-shared", "-fPIC", "-xc", "-", "-o", library, text=source)
    return library


def linked_program(library: Path, program: Path) -> None:
    """Compile a program that the loader gives a libcuda.so.1 before anything of it runs."""
    source = "int cuInit(unsigned int flags); int main(void) { return cuInit(0); }"
    call("cc", "-xc", "-", "-o", program, "-L", library.parent, f"-l:{library.name}", text=source)


def command(  # noqa: PLR0913
    arguments: list[str],
    *,
    nodes: str = "real",
    proc: bool = True,
    libraries: Path | None = None,
    libcuda: Path | None = None,
    user: bool = False,
) -> list[str]:
    """Return the command that runs another one in the box."""
    words = [sys.executable, __file__, "--nodes", nodes]
    words += [] if proc else ["--no-proc"]
    words += ["--libraries", str(libraries)] if libraries else []
    words += ["--libcuda", str(libcuda)] if libcuda else []
    words += ["--user"] if user else []
    return ["unshare", "--mount", "--propagation", "private", *words, "--", *arguments]


def mount(*words: str | Path) -> None:
    """Mount in this namespace."""
    call("mount", *words)


def lay_out_nodes(kind: str) -> None:
    """Give /dev a folder of its own, in which the device nodes stand beside what was there."""
    with tempfile.TemporaryDirectory(dir="/run") as before:
        mount("--rbind", "/dev", before)
        mount("-t", "tmpfs", "-o", "mode=755,dev", "dev", "/dev")
        for entry in sorted(Path(before).iterdir()):
            place = Path("/dev") / entry.name
            if entry.is_symlink():
                place.symlink_to(entry.readlink())
            elif entry.is_dir():
                place.mkdir()
                mount("--rbind", entry, place)
            elif stat.S_ISCHR(entry.stat().st_mode):
                # Not bound: /dev/ptmx looks for its terminals beside itself.
                os.mknod(place, entry.stat().st_mode, entry.stat().st_rdev)
                place.chmod(stat.S_IMODE(entry.stat().st_mode))
            else:
                place.touch()
                mount("--bind", entry, place)
        call("umount", "--recursive", "--lazy", before)
    for name, (major, minor) in NODES.items():
        place = Path("/dev") / name
        if kind == "real":
            os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
            place.chmod(0o666)
        else:
            place.touch()
            mount("--bind", "/dev/null", place)


def lay_out_proc() -> None:
    """Cover /proc/driver with a folder that names the driver."""
    mount("-t", "tmpfs", "driver", "/proc/driver")
    for name, text in PROC.items():
        file = Path("/proc/driver/nvidia") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def lay_out_libraries(driver_files: Path | None, libcuda: Path | None) -> None:
    """Put the driver's libraries and nvidia-smi where the loader and the shell look."""
    folders = {"usr/lib/x86_64-linux-gnu": "libraries", "usr/bin": "programs"}
    with tempfile.TemporaryDirectory(dir="/run") as work:
        mount("-t", "tmpfs", "work", work)
        for folder, name in folders.items():
            upper, scratch = Path(work, name), Path(work, name + ".work")
            upper.mkdir()
            scratch.mkdir()
            for file in sorted((driver_files / folder).rglob("*")) if driver_files else []:
                if not file.is_dir():
                    shutil.copy2(file, upper / file.name, follow_symlinks=False)
            if name == "libraries" and libcuda is not None:
                (upper / "libcuda.so.1").unlink(missing_ok=True)
                shutil.copy2(libcuda, upper / "libcuda.so.1")
            # Debian keeps nvidia-smi behind its system of alternatives.
            kept = driver_files / "usr/lib/nvidia/current/nvidia-smi" if driver_files else None
            if name == "programs" and kept is not None and kept.exists():
                shutil.copy2(kept, upper / "nvidia-smi")
            mount(
                "-t",
                "overlay",
                "-o",
                f"lowerdir=/{folder},upperdir={upper},workdir={scratch}",
                "box",
                f"/{folder}",
            )
        call("umount", "--lazy", work)


def open_to_users(folders: set[Path]) -> None:
    """Let every user reach folders that lie in ones that are closed to them, such as root's home."""
    closed = {
        parent for folder in folders for parent in folder.parents if not parent.stat().st_mode & stat.S_IXOTH
    }
    inside = sorted(folder for folder in folders if closed & set(folder.parents))
    with tempfile.TemporaryDirectory(dir="/run") as held:
        for place, folder in enumerate(inside):
            Path(held, str(place)).mkdir()
            mount("--rbind", folder, Path(held, str(place)))
        for parent in sorted(closed):
            # Those below the first are gone then.
            if parent.exists():
                mount("-t", "tmpfs", "-o", "mode=755", "opened", parent)
        for place, folder in enumerate(inside):
            folder.mkdir(parents=True, exist_ok=True)
            mount("--rbind", Path(held, str(place)), folder)
            call("umount", "--recursive", "--lazy", Path(held, str(place)))


def main() -> None:
    """Lay out the box, and become the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", choices=["real", "null", "none"], default="real")
    parser.add_argument("--no-proc", action="store_true")
    parser.add_argument("--libraries", type=Path)
    parser.add_argument("--libcuda", type=Path)
    parser.add_argument("--user", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    if asked.nodes != "none":
        lay_out_nodes(asked.nodes)
    if not asked.no_proc:
        lay_out_proc()
    if asked.libraries or asked.libcuda:
        lay_out_libraries(asked.libraries, asked.libcuda)
    words = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
    if asked.user:
        open_to_users({Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)})
        words = [*USER, *words]
    os.execvp(words[0], words)  # noqa: S606 - the command is the caller's


if __name__ == "__main__":
    main()
