"""Who may use a cluster when: many at once, or one alone, over all processes of a session.

A readers-writer lock of two files beside the cluster (flock(2)), which the kernel lets go of when a process ends,
however it ends. Whoever wants the cluster alone closes the door first, so that it does not wait for ever while others
come and go. A cluster that was altered and not put right again is lent to nobody.
"""

from __future__ import annotations

__all__ = ["AlteredError", "alone", "altered", "shared"]

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from pvaffinity.errors import UserError

_DOOR, _ROOM, _ALTERED = "turn.door", "turn.room", "altered"

_held: dict[Path, list[int]] = {}  # the turns of this process: taking one more must not wait for ourselves


class AlteredError(UserError):
    """The cluster is not as configured any more, because whoever altered it did not or could not restore it."""


@contextlib.contextmanager
def shared(directory: Path) -> Iterator[None]:
    """Use a cluster as others do at the same time; waits while somebody has it alone.

    Args:
        directory: the cluster's own.

    Raises:
        AlteredError: it is not as configured.
    """
    with _turn(directory, fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Use a cluster while nobody else does; waits until all others have let go of it.

    Args:
        directory: the cluster's own.

    Raises:
        AlteredError: it is not as configured.
        RuntimeError: this process uses it already, as others may at the same time.
    """
    with _turn(directory, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def altered(directory: Path, what: str) -> Iterator[Callable[[], None]]:
    """Whatever happens meanwhile, the cluster is lent to nobody afterwards unless what is yielded was called.

    For whoever has the cluster alone. It holds also for those that come after us if we are killed in the middle.

    Args:
        directory: the cluster's own.
        what: is done to it, such as ``kube-scheduler was stopped``.

    Yields:
        To be called when everything is as configured again.
    """
    mark = directory / _ALTERED
    mark.write_text("\n".join([*_altered(mark), what]), encoding="utf-8")

    def restored() -> None:
        left = _altered(mark)
        left.remove(what)
        if left:  # another alteration, within or around this one
            mark.write_text("\n".join(left), encoding="utf-8")
        else:
            mark.unlink()

    yield restored


@contextlib.contextmanager
def _turn(directory: Path, kind: int) -> Iterator[None]:
    if turns := _held.get(directory):
        if kind == fcntl.LOCK_EX and fcntl.LOCK_EX not in turns:
            raise RuntimeError(f"{directory} is shared already: to have it alone, let go of it first")
        turns.append(kind)
        try:
            yield
        finally:
            turns.pop()
        return
    with contextlib.ExitStack() as locks:
        with contextlib.ExitStack() as entering:
            # One who wants it alone stays in the door; the others only pass through.
            (locks if kind == fcntl.LOCK_EX else entering).enter_context(_locked(directory / _DOOR, kind))
            locks.enter_context(_locked(directory / _ROOM, kind))
        _check(directory)
        _held[directory] = [kind]
        try:
            yield
        finally:
            del _held[directory]


@contextlib.contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


def _check(directory: Path) -> None:
    if left := _altered(directory / _ALTERED):
        raise AlteredError(
            f"cluster {directory.name} is not as configured any more: {', '.join(left)}, and it was not restored",
            "see the first failure of a test that has the cluster alone; run the others again",
        )


def _altered(mark: Path) -> list[str]:
    try:
        # one even if it is empty: somebody was killed while writing
        return mark.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return []
