"""Processes that share memory and semaphores by name, with the start method that is the argument."""

import multiprocessing
import os
import sys
from multiprocessing import shared_memory


def fill(results: object, semaphore: object, name: str) -> None:
    with semaphore:
        memory = shared_memory.SharedMemory(name=name)
        memory.buf[0] = 7
        memory.close()
        results.put(os.getpid())


if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    results, semaphore = multiprocessing.Queue(), multiprocessing.Semaphore(2)
    own = shared_memory.SharedMemory(create=True, size=4096)
    workers = [multiprocessing.Process(target=fill, args=(results, semaphore, own.name)) for _ in range(2)]
    for worker in workers:
        worker.start()
    assert len({results.get(timeout=30) for _ in workers}) == 2
    for worker in workers:
        worker.join(30)
    assert own.buf[0] == 7
    assert os.path.exists(f"/dev/shm/{own.name}")
    own.close()
    own.unlink()
    assert not os.path.exists(f"/dev/shm/{own.name}")

    outside = shared_memory.SharedMemory(name=sys.argv[2])
    assert bytes(outside.buf[:4]) == b"data"
    outside.buf[:4] = b"EVIL"
    outside.close()
    outside.unlink()
    assert not os.path.exists(f"/dev/shm/{sys.argv[2]}")
    print("done")
