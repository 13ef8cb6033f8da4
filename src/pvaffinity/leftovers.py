"""What sessions that ended badly left behind: directories whose owner is gone, and processes that belong to them.

A process is ours if its environment or command line carries the mark of a directory below :func:`run_dir`; a name such
as ``kubelet`` proves nothing. Clusters of a living owner are left alone unless everything is asked for.
"""

from __future__ import annotations

__all__ = [
    "Leftover",
    "claim_session",
    "clusters_dir",
    "end_processes",
    "find",
    "not_removed",
    "old_failures",
    "processes_of",
    "remove",
    "remove_ended_sessions",
]

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from pvaffinity.errors import UserError
from pvaffinity.local import control
from pvaffinity.local.owner import Owner, remove_tree
from pvaffinity.local.processes import end_processes, marked, processes_of
from pvaffinity.paths import failures_dir, run_dir

_SESSION_OWNER = "owner"  # not .json: those are records of clusters
_OLD = 7 * 24 * 3600.0  # seconds for which the logs of a failed creation are kept
_YOUNG = 60.0  # seconds in which a directory without owner.json may still be on its way


@dataclass(frozen=True)
class Leftover:
    """One cluster directory.

    Attributes:
        directory: where.
        provider: who made it, "local" where nothing says otherwise.
        owner: the process it belongs to, if it says so.
        processes: pids that belong to it.
        kept: whether its session left it running on purpose.
    """

    directory: Path
    provider: str
    owner: Owner | None
    processes: tuple[int, ...]
    kept: bool = False

    @property
    def owned(self) -> bool:
        """Whether somebody still needs it."""
        return self.kept or (self.owner is not None and self.owner.alive)

    def __str__(self) -> str:
        state = f"its owner (process {self.owner.pid}) " if self.owner else "its owner "
        state = "left running on purpose" if self.kept else state + ("runs" if self.owned else "is gone")
        count = len(self.processes)
        return f"{self.directory.name}: {state}, {count} process{'' if count == 1 else 'es'}"


def clusters_dir() -> Path:
    """Where cluster directories are made."""
    return run_dir() / "clusters"


def find(*, everything: bool = False) -> list[Leftover]:
    """Clusters nobody owns any more; with ``everything`` also those with a living owner."""
    found_by_mark = dict(marked())
    directories = {path for path in clusters_dir().glob("*") if path.is_dir()}
    directories |= {path for path in found_by_mark.values() if clusters_dir() in path.parents}
    found = [_look(path, found_by_mark) for path in sorted(directories)]
    return [each for each in found if everything or not (each.owned or _young(each))]


def remove(leftover: Leftover) -> None:
    """End its processes and remove its directory; what is already gone is no error.

    Raises:
        UserError: its engine does not answer, or its directory cannot be removed; what is left can be tried again.
    """
    if leftover.provider == "local":
        with contextlib.suppress(control.NoAnswerError):
            control.ask(leftover.directory, "stop")
        end_processes(leftover.directory)
    else:
        from pvaffinity import providers
        from pvaffinity.providers.base import Cluster

        name, directory = leftover.directory.name, leftover.directory
        kubeconfig = directory / "admin.kubeconfig"
        cluster = Cluster(name, leftover.provider, "", "", directory, kubeconfig, None, frozenset())
        providers.load(leftover.provider).delete(cluster)
    remove_tree(leftover.directory)
    if leftover.directory.exists():
        raise UserError(f"{leftover.directory} cannot be removed", f"rm -r {leftover.directory}, as who may")


def not_removed(failures: Mapping[str, UserError]) -> UserError:
    """One error for all clusters that could not be removed, by name."""
    if len(failures) == 1:
        ((name, error),) = failures.items()
        return UserError(f"{name} could not be removed: {error.what}", error.fix, detail=error.detail)
    lines = [f"{name}: {error.what}\n  to fix: {error.fix}" for name, error in failures.items()]
    return UserError(
        f"{len(failures)} clusters could not be removed: {', '.join(failures)}",
        "do what is said of each below, then: pvaffinity clean",
        detail="\n".join(lines),
    )


def claim_session(directory: Path) -> None:
    """Say that this process needs a session's directory, so that others can tell when it does no more.

    Raises:
        UserError: nothing can be written there.
    """
    try:
        Owner.of(os.getpid()).save(directory / _SESSION_OWNER)
    except OSError as error:
        raise UserError(
            f"{directory} cannot be written: {error.strerror}",
            "make room there, or set PVAFFINITY_RUN to another directory",
        ) from error


def remove_ended_sessions() -> list[Path]:
    """Remove the directories of sessions and processes that have ended without doing so, such as by SIGKILL."""
    ended = []
    for claim in sorted((run_dir() / "sessions").glob(f"*/{_SESSION_OWNER}")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            if not Owner.load(claim).alive:
                remove_tree(claim.parent)
                ended.append(claim.parent)
    for scratch in sorted((run_dir() / "scratch").glob("*-*-*")):
        pid = scratch.name.split("-")[1]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            remove_tree(scratch)
            ended.append(scratch)
    return ended


def old_failures(*, everything: bool = False) -> list[Path]:
    """Logs of clusters that could not be created: those nobody has written to for a week, or all of them."""
    since = time.time() - _OLD
    found = []
    for path in sorted(failures_dir().glob("*")):
        with contextlib.suppress(OSError):  # somebody else has just removed it
            if everything or path.stat().st_mtime < since:
                found.append(path)
    return found


def _look(path: Path, by_mark: dict[int, Path]) -> Leftover:
    owner: Owner | None = None
    kept = False
    with contextlib.suppress(OSError, ValueError, TypeError):
        data = json.loads((path / "owner.json").read_text(encoding="utf-8"))
        kept = bool(data.pop("kept", False))
        owner = None if kept else Owner(**data)
    # Said by its own file where the cluster never was made to the end.
    provider = next((name for name in ("kind", "existing") if (path / f"{name}.json").exists()), "local")
    with contextlib.suppress(OSError, ValueError, KeyError):
        provider = json.loads((path / "cluster.json").read_text(encoding="utf-8"))["provider"]
    processes = tuple(sorted(pid for pid, where in by_mark.items() if where == path))
    return Leftover(path, provider, owner, processes, kept and (provider != "local" or bool(processes)))


def _young(leftover: Leftover) -> bool:
    """Whether it may be another session's that is being made this very moment."""
    if (leftover.directory / "owner.json").exists():
        return False
    with contextlib.suppress(OSError):
        return time.time() - leftover.directory.stat().st_mtime < _YOUNG
    return False
