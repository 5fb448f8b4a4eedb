"""Does what training scripts do with files, in a tree with `data/`, `out/` and `notes.txt`."""

import csv
import ctypes
import dbm.dumb
import glob
import mmap
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile


def listing(top: str = ".") -> list[str]:
    found = []
    for directory, directories, files in os.walk(top):
        found += [os.path.join(directory, name) for name in directories + files]
    return sorted(found)


def show(*values: object) -> None:
    print(*values, flush=True)


def files() -> None:
    with open("notes.txt", "a") as file:
        file.write("appended\n")
    show(pathlib.Path("notes.txt").read_text())
    with open("data/values.bin", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[0:4] = b"MMAP"
    with open("data/values.bin", "r+b") as file:
        file.seek(2)
        file.write(b"xx")
    show(pathlib.Path("data/values.bin").read_bytes()[:8])
    try:
        open("notes.txt", "x").close()
    except FileExistsError as error:
        show("exists", error.errno)
    with open("out/results.csv", "a", newline="") as file:
        csv.writer(file).writerow([3, "0.5"])
    show(pathlib.Path("out/results.csv").read_text())
    # A checkpoint as it should be saved.
    for step in range(3):
        pathlib.Path("out/last.pt.tmp").write_text(f"step {step}")
        os.replace("out/last.pt.tmp", "out/last.pt")
    show(pathlib.Path("out/last.pt").read_text(), sorted(os.listdir("out")))
    os.chmod("notes.txt", 0o640)
    os.utime("notes.txt", (1_000_000_000, 1_000_000_001))
    show(oct(os.stat("notes.txt").st_mode), os.stat("notes.txt").st_mtime)
    os.setxattr("notes.txt", "user.tag", b"tagged")
    show(os.getxattr("notes.txt", "user.tag"))
    os.symlink("data", "link")
    pathlib.Path("link/new.txt").write_text("through a link")
    show(pathlib.Path("data/new.txt").read_text(), os.path.realpath("link/new.txt").endswith("/data/new.txt"))


def trees() -> None:
    shutil.copytree("data", "copy")
    shutil.move("copy", "moved")
    shutil.rmtree("out")
    show(os.path.exists("out"), listing())
    os.makedirs("out/new/deep")
    os.rename("data", "data.old")
    show(listing("data.old"), os.path.exists("data"))
    os.rename("data.old", "data")
    shutil.rmtree("moved")
    show(sorted(glob.glob("**/*.txt", recursive=True)), sorted(entry.name for entry in os.scandir(".")))
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory, "x").write_text("x")
        show(os.listdir(directory))
    with tempfile.NamedTemporaryFile("w+") as file:
        file.write("named")
        file.flush()
        show(os.path.getsize(file.name))
    with tempfile.TemporaryFile() as file:
        file.write(b"unnamed")


def libraries() -> None:
    connection = sqlite3.connect("data/base.db")
    connection.execute("pragma journal_mode=wal")
    connection.execute("create table if not exists t(a)")
    connection.executemany("insert into t values(?)", [(i,) for i in range(100)])
    connection.commit()
    show(connection.execute("select count(*), sum(a) from t").fetchall())
    connection.close()
    with zipfile.ZipFile("out/x.zip", "w") as archive:
        archive.write("notes.txt")
    with tarfile.open("out/x.tar.gz", "w:gz") as archive:
        archive.add("data")
    with tarfile.open("out/x.tar.gz") as archive:
        archive.extractall("out/unpacked")
    show(listing("out"))
    with dbm.dumb.open("out/store", "c") as store:
        store["key"] = "value"
    with dbm.dumb.open("out/store", "r") as store:
        show(store["key"])


def run(*command: str, **options: object) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    return f"{result.returncode} {result.stdout} {result.stderr}"


def children() -> None:
    show(
        run(
            "sh", "-c", "echo shell > shell.txt; cat shell.txt; echo more >> shell.txt; wc -l < shell.txt; ls"
        )
    )
    show(run("sh", "-c", "echo empty > bare.txt; cat bare.txt", env={"PATH": os.environ["PATH"]}))
    show(pathlib.Path("bare.txt").read_text())
    pathlib.Path("tool.sh").write_text('#!/bin/sh\necho tool $# "$1" >> tool.log; cat tool.log\n')
    os.chmod("tool.sh", 0o755)
    show(run("./tool.sh", "argument"))
    show(run("tool.sh", "found", env={**os.environ, "PATH": os.getcwd() + ":" + os.environ["PATH"]}))
    pathlib.Path("tool.py").write_text(f"#!{sys.executable}\nimport sys; print(sys.argv, __file__)\n")
    os.chmod("tool.py", 0o755)
    show(run("./tool.py", "one", "two"))
    actions = [(os.POSIX_SPAWN_OPEN, 1, "spawned.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)]
    process = os.posix_spawn("/bin/echo", ["echo", "spawned"], os.environ, file_actions=actions)
    os.waitpid(process, 0)
    show(pathlib.Path("spawned.txt").read_text())
    process = os.fork()
    if process == 0:
        pathlib.Path("forked.txt").write_text("forked")
        os._exit(0)
    os.waitpid(process, 0)
    show(pathlib.Path("forked.txt").read_text())
    show(
        run(
            sys.executable,
            "-c",
            "open('python.txt', 'w').write('1'); import os; print(sorted(os.listdir('.')))",
        )
    )
    if shutil.which("cc"):
        pathlib.Path("seven.c").write_text("int seven(void) { return 7; }")
        show(run("cc", "-shared", "-fPIC", "-o", "seven.so", "seven.c"))
        show(ctypes.CDLL(os.path.abspath("seven.so")).seven())
        pathlib.Path("main.c").write_text(
            '#include <stdio.h>\nint main(void) { FILE *f = fopen("c.txt", "w+");'
            ' fputs("from C", f); fclose(f); puts("ran"); return 0; }'
        )
        show(run("cc", "-o", "program", "main.c"), run("./program"), pathlib.Path("c.txt").read_text())


def serve(address: str) -> None:
    with multiprocessing.connection.Client(address) as client:
        client.send("hello")


def processes() -> None:
    with multiprocessing.connection.Listener(family="AF_UNIX") as listener:
        child = multiprocessing.get_context("fork").Process(target=serve, args=(listener.address,))
        child.start()
        with listener.accept() as connection:
            show(connection.recv())
        child.join()
    with multiprocessing.Manager() as manager:
        shared = manager.dict(key="value")
        show(dict(shared))
    errors = []

    def work(number: int) -> None:
        try:
            for i in range(50):
                path = pathlib.Path(f"threads/{number}/{i % 7}")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(str(i))
                assert path.read_text() == str(i)
                with open("notes.txt", "a") as file:
                    file.write("")
                if i % 10 == 0:
                    process = os.fork()
                    if process == 0:
                        path.with_suffix(".child").write_text("child")
                        os._exit(0)
                    os.waitpid(process, 0)
                path.unlink()
        except BaseException as error:  # noqa: BLE001
            errors.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    show(errors, listing("threads"))


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    for part in (files, trees, libraries, children, processes):
        show(f"== {part.__name__}")
        part()
    show("end", listing())
