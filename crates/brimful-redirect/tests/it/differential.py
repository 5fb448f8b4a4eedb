"""Compares random file operations under the library with the same ones on a plain copy.

``differential.py LIBRARY DIRECTORY FIRST_SEED SEEDS OPERATIONS``: for every seed a tree is made twice;
``actor.py`` runs on the one as it is and on the other under the library. What it prints must be equal, and
the second tree unchanged.
Exit code 1 and the first difference otherwise.
"""

import hashlib
import os
import pathlib
import random
import shutil
import stat
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
NAMES = ["a", "b", "c", "d", "e.txt", "long name", "\u00fc"]


def make_tree(root: pathlib.Path, seed: int) -> None:
    rng = random.Random(f"tree {seed}")
    root.mkdir(parents=True)
    directories = [root]
    for _ in range(rng.randint(3, 14)):
        path = rng.choice(directories) / rng.choice(NAMES)
        if os.path.lexists(path):
            continue
        kind = rng.random()
        if kind < 0.4:
            path.mkdir()
            directories.append(path)
        elif kind < 0.85:
            path.write_text(f"content {rng.random()}" * rng.choice([0, 1, 3]))
            if rng.random() < 0.2:
                os.setxattr(path, "user.test", b"old")
            path.chmod(rng.choice([0o644, 0o600, 0o755, 0o444]))
        else:
            path.symlink_to(rng.choice(["a", "b/c", "../a", ".", "nowhere", "d", str(root / "b")]))
    for path in [*root.rglob("*"), root]:
        if not path.is_symlink():
            os.utime(path, (1_000_000_000, 1_000_000_000 + len(path.name)))


def fingerprint(root: pathlib.Path) -> str:
    """Names, kinds, modes, owners, times, attributes and content of a real tree."""
    digest = hashlib.sha256()
    for path in sorted([*root.rglob("*"), root]):
        status = path.lstat()
        line = [
            str(path),
            status.st_mode,
            status.st_uid,
            status.st_gid,
            status.st_mtime_ns,
            status.st_ino,
            status.st_size,
        ]
        if stat.S_ISLNK(status.st_mode):
            line.append(os.readlink(path))
        else:
            line.append([(name, os.getxattr(path, name)) for name in sorted(os.listxattr(path))])
        if stat.S_ISREG(status.st_mode):
            line.append(path.read_bytes())
        digest.update(repr(line).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def run(library: str | None, root: pathlib.Path, scratch: pathlib.Path, seed: int, count: int) -> list[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}
    if library:
        environment |= {"LD_PRELOAD": library, "BRIMFUL_REDIRECT": str(scratch), "BRANCH": str(scratch)}
    command = [sys.executable, str(HERE / "actor.py"), str(root), str(seed), str(count)]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    lines = result.stdout.splitlines()
    if result.returncode != 0:
        lines.append(f"exit code {result.returncode}: {result.stderr[-2000:]}")
    return lines


def remove(directory: pathlib.Path) -> None:
    """Also directories that their owner may not read."""
    for top, names, _ in os.walk(directory):
        for name in names:
            path = os.path.join(top, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(directory, ignore_errors=True)


def check(library: str, directory: pathlib.Path, seed: int, count: int) -> str | None:
    # In directories of their own: paths with `..` lead there.
    plain, real, scratch = directory / "copy" / "t", directory / "real" / "t", directory / "scratch"
    remove(directory)
    make_tree(plain, seed)
    make_tree(real, seed)
    scratch.mkdir()
    # Links to absolute paths lead to each tree's own root.
    before = fingerprint(real.parent)
    expected = run(None, plain, scratch, seed, count)
    found = run(library, real, scratch, seed, count)
    if fingerprint(real.parent) != before:
        return f"seed {seed}: the real tree has changed"
    for line, other in zip(expected, found, strict=False):
        if line != other:
            return f"seed {seed}:\nexpected {line}\nfound    {other}"
    if len(expected) != len(found):
        n_equal = min(len(expected), len(found))
        longer = max(expected, found, key=len)
        return f"seed {seed}: {len(expected)} lines expected, {len(found)} found; {longer[n_equal]}"
    return None


def main() -> int:
    library, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    first, seeds, count = (int(argument) for argument in sys.argv[3:6])
    failed = 0
    for seed in range(first, first + seeds):
        difference = check(library, directory / f"{seed}", seed, count)
        if difference:
            failed += 1
            print(difference, flush=True)
            if failed >= int(os.environ.get("MAX_FAILURES", "1")):
                return 1
        remove(directory / f"{seed}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
