"""Send to a POSIX message queue, and remove it."""

import os

from way import LIBC, QUEUE, attempt, checked

KIND = "queues and System V memory"
EXPECTED = {"overlay": "absent", "redirect": "denied"}


def do() -> None:
    queue = checked(LIBC.mq_open(QUEUE.encode(), os.O_WRONLY))
    checked(LIBC.mq_send(queue, b"EVIL", 4, 0))
    checked(LIBC.mq_unlink(QUEUE.encode()))


attempt(do)
