"""The processes of a cluster, told by the mark in their environment; a name such as ``kubelet`` proves nothing."""

from __future__ import annotations

__all__ = ["end_processes", "marked", "processes_of"]

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from pvaffinity.local.plan import MARKER


def processes_of(directory: Path) -> tuple[int, ...]:
    """Pids of this user that carry the mark of a cluster directory."""
    return tuple(sorted(pid for pid, path in marked() if path == directory))


def end_processes(directory: Path, seconds: float = 5.0) -> None:
    """Kill every process of a cluster directory and wait until all are gone, for at most ``seconds``."""
    deadline = time.monotonic() + seconds
    while (pids := processes_of(directory)) and time.monotonic() < deadline:
        gone = []
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process = psutil.Process(pid)
                process.send_signal(signal.SIGKILL)
                gone.append(process)
        psutil.wait_procs(gone, timeout=1)


def marked() -> Iterator[tuple[int, Path]]:
    """Every process of this user that carries a mark, with the directory it names."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            if mark := process.environ().get(MARKER):
                yield process.pid, Path(mark)
