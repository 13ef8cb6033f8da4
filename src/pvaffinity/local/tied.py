"""Programs that work for a long time end with the process that wants their result, however that ends."""

from __future__ import annotations

__all__ = ["tied"]

import os
import sys

# Between us and a program: when we die, the kernel tells it, and it interrupts the whole process group, whose first
# process, itself, ignores that and waits for the others, which remove what they have begun. Our own SIGINT to the group
# does the same.
_BETWEEN = """
import ctypes, os, signal, subprocess, sys
def stop(number, frame):
    signal.alarm(30)
    os.killpg(0, signal.SIGINT)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, lambda number, frame: None)
signal.signal(signal.SIGALRM, lambda number, frame: os.killpg(0, signal.SIGKILL))
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.nice(5)
sys.exit(subprocess.Popen(sys.argv[2:]).wait() and 1)
"""


def tied(*command: str) -> list[str]:
    """The command line that runs ``command``, politely, until it ends or this process does; its exit code is 0 or 1.

    To be started as the leader of a process group of its own (``process_group=0`` or ``start_new_session=True``), which
    is interrupted when this process ends, and killed 30 seconds later.
    """
    return [sys.executable, "-ISc", _BETWEEN, str(os.getpid()), *command]
