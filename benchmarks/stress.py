"""What keeps a machine busy while the suite runs, so that its verdicts are seen not to depend on it.

Each kind is a context: it starts when entered and is gone, with all it did, when left.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil

from pvaffinity import leftovers

_SPIN = "while True: pass"
_WRITE = """
import os, sys
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.seek(0)
        file.write(os.urandom(1 << 22))
        os.fsync(file.fileno())
"""
_PAUSED = ("kube-scheduler", "kubelet")
_PAUSE, _BETWEEN = (2.0, 8.0), (5.0, 15.0)  # seconds, at random


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing."""
    yield


@contextlib.contextmanager
def busy(each: int = 1) -> Iterator[None]:
    """``each`` processes a core that compute all the time."""
    with _running([[sys.executable, "-c", _SPIN]] * each * (os.cpu_count() or 1)):
        yield


@contextlib.contextmanager
def disk() -> Iterator[None]:
    """A process that writes 4 MiB to the disk again and again and waits each time until they are there (fsync)."""
    with tempfile.TemporaryDirectory(prefix="pvaffinity-soak-", dir=Path.cwd()) as directory:
        with _running([[sys.executable, "-c", _WRITE, f"{directory}/file"]]):
            yield


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """A scheduler or a kubelet of a local cluster of this run directory stands still, 2 s to 8 s of every 10 or 20."""
    ended = threading.Event()
    thread = threading.Thread(target=_pause, args=(ended,), name="soak-pauses")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


STRESS: Mapping[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "quiet": quiet,
    "one busy process a core": busy,
    "two busy processes a core": lambda: busy(2),
    "disk writes with fsync": disk,
    "a scheduler or kubelet paused": paused,
}
"""All kinds by name."""


def _pause(ended: threading.Event) -> None:
    chance = random.Random()
    while not ended.wait(chance.uniform(*_BETWEEN)):
        if found := _components():
            process = chance.choice(found)
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
                try:
                    ended.wait(chance.uniform(*_PAUSE))
                finally:
                    process.resume()


def _components() -> list[psutil.Process]:
    """The schedulers and kubelets of the clusters in the run directory."""
    found = []
    for directory in leftovers.clusters_dir().glob("*"):
        for pid in leftovers.processes_of(directory):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.name() in _PAUSED:
                    found.append(process)
    return found


@contextlib.contextmanager
def _running(commands: list[list[str]]) -> Iterator[None]:
    processes = [subprocess.Popen(command, start_new_session=True) for command in commands]
    try:
        yield
        dead = [process.args for process in processes if process.poll() is not None]
        if dead:
            raise RuntimeError(f"the stress ended by itself, so the run was not under it: {dead}")
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_quiet(load: float = 1.0, seconds: float = 120.0) -> float:
    """Wait until the load average of a minute is below ``load``, for ``seconds`` at most; answers what it is then."""
    deadline = time.monotonic() + seconds
    while os.getloadavg()[0] > load and time.monotonic() < deadline:
        time.sleep(2)
    return os.getloadavg()[0]
