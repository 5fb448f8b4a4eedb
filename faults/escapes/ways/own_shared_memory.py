"""Share memory and a lock with children, as data loaders do."""

import multiprocessing
from multiprocessing import shared_memory

from way import attempt

KIND = "shared memory"
EXPECTED = {"overlay": "done", "redirect": "done"}


def fill(name: str, lock: object) -> None:
    with lock:
        memory = shared_memory.SharedMemory(name=name)
        memory.buf[0] += 1
        memory.close()


def do() -> None:
    context = multiprocessing.get_context("fork")
    memory = shared_memory.SharedMemory(create=True, size=4096)
    lock = context.Lock()
    children = [context.Process(target=fill, args=(memory.name, lock)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(20)
    assert memory.buf[0] == 3
    memory.close()
    memory.unlink()


attempt(do)
