"""Who may still take how much of this machine, when several clusters are being made at the same time.

What a cluster takes shows only when it runs. Until then it is *reserved*: by a file of the process that makes the
cluster, below :func:`pvaffinity.paths.run_dir`, which every other process of the user counts as taken. A reservation
ends with :func:`settle`, with its process, or after :data:`_LONGEST` seconds.
"""

from __future__ import annotations

__all__ = ["Room", "reserve", "reserved", "settle"]

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock

from pvaffinity.errors import RoomError, UserError
from pvaffinity.local.owner import Owner
from pvaffinity.paths import run_dir, write_whole

_LONGEST = 900.0
"""Seconds; a cluster that is not up by then has failed, or its maker has forgotten to say."""


@dataclass(frozen=True)
class Room:
    """What a cluster takes: bytes of memory, and inotify instances."""

    memory: int = 0
    instances: int = 0

    def __add__(self, other: Room) -> Room:
        return Room(self.memory + other.memory, self.instances + other.instances)


def reserve(need: Room, refuse: Callable[[Room], UserError | None]) -> None:
    """Take room for the cluster that this process is about to make, in place of what it reserved before.

    Args:
        need: what the cluster takes.
        refuse: looks at the machine, given what others have reserved; the error to raise, or None where it fits. No
            other process reserves anything meanwhile.

    Raises:
        UserError: it does not fit; RoomError where only the reservations of others are in the way.
    """
    directory = _directory()
    try:
        with FileLock(directory / "lock"):
            others = reserved()
            if error := refuse(others):
                if others != Room() and not refuse(Room()):
                    raise RoomError(error.what, f"wait until the other cluster is up, or {error.fix}")
                raise error
            mine = asdict(Owner.of(os.getpid())) | asdict(need)
            write_whole(directory / f"{os.getpid()}.json", json.dumps(mine))
    except OSError as error:
        raise UserError(
            f"{directory} cannot be written: {error.strerror}",
            "make room there, or set PVAFFINITY_RUN to another directory",
        ) from error


def reserved() -> Room:
    """What other processes have reserved and not yet settled; removes what ended processes had reserved."""
    total = Room()
    for path, need in _reservations():
        if path.stem != str(os.getpid()):
            total += need
    return total


def settle() -> None:
    """The cluster that this process made is up, or will never be: what it takes can be seen."""
    with contextlib.suppress(OSError):
        (_directory() / f"{os.getpid()}.json").unlink(missing_ok=True)


def _reservations() -> Iterator[tuple[Path, Room]]:
    for path in sorted(_directory().glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            data = json.loads(path.read_text(encoding="utf-8"))
            lasts = time.time() - path.stat().st_mtime < _LONGEST
            if lasts and Owner(data["pid"], data["start"]).alive:
                yield path, Room(data["memory"], data["instances"])
            else:
                path.unlink(missing_ok=True)


def _directory() -> Path:
    path = run_dir() / "reservations"
    path.mkdir(mode=0o700, exist_ok=True)
    return path
