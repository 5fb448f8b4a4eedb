"""Ends well, and leaves a process behind that has cut every tie: own session, other parent, no terminal."""

import os
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        time.sleep(600)
    os._exit(0)
os.wait()
print("trained")
