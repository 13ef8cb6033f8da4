"""Processes named for good: a number and a start time, since numbers are used again; and the removal of directories."""

from __future__ import annotations

__all__ = ["Owner", "remove_tree", "remove_unused", "start_time", "wait_for"]

import contextlib
import json
import os
import select
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pvaffinity.errors import UserError
from pvaffinity.paths import write_whole

_FILE = "owner.json"


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot (proc_pid_stat(5), field 22); 0 where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


@dataclass(frozen=True)
class Owner:
    """One process, for as long as it lives."""

    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> Owner:
        """Name a process that runs now."""
        return cls(pid, start_time(pid))

    @property
    def alive(self) -> bool:
        """Whether that very process still runs."""
        return self.start != 0 and start_time(self.pid) == self.start

    @classmethod
    def load(cls, path: Path) -> Owner:
        """Read what :meth:`save` wrote.

        Raises:
            OSError: there is no such file.
            ValueError, TypeError: it holds something else.
        """
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def save(self, path: Path) -> None:
        """Write it to a file, whole or not at all."""
        write_whole(path, json.dumps(asdict(self)))

    def claim(self, directory: Path) -> None:
        """Say in a cluster's directory that it is this process's: ``pvaffinity clean`` leaves it alone from now on.

        Raises:
            UserError: nothing can be written there.
        """
        try:
            self.save(directory / _FILE)
        except OSError as error:
            raise UserError(
                f"{directory} cannot be used: {error.strerror}",
                "make room there, or set PVAFFINITY_RUN to another place",
            ) from error

    def descriptor(self) -> int | None:
        """A descriptor that becomes readable when it ends (pidfd_open(2)); None where there is none to be had."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return None
        if self.alive:
            return descriptor
        os.close(descriptor)
        return None


def remove_tree(path: Path) -> None:
    """Remove a directory and all in it, directories without permissions included. One that is gone is no error."""
    shutil.rmtree(path, ignore_errors=True)
    if not path.exists():
        return
    for directory, below, _ in os.walk(path):
        for each in (Path(directory), *(Path(directory, name) for name in below)):
            if not each.is_symlink():
                with contextlib.suppress(OSError):
                    each.chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def remove_unused(directory: Path) -> None:
    """Remove a cluster's directory in which nothing lies but the word of whose it is; any other stays as it is."""
    with contextlib.suppress(OSError):
        if {path.name for path in directory.iterdir()} <= {_FILE, f"{_FILE}.new"}:
            shutil.rmtree(directory)


def wait_for(pid: int, seconds: float) -> bool:
    """Wait for a child to end; False where it has not within ``seconds``."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # a kernel before 5.3
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return True
            time.sleep(0.01)
        return False
    try:
        if not select.select([descriptor], [], [], seconds)[0]:
            return False
        os.waitpid(pid, 0)
        return True
    finally:
        os.close(descriptor)
