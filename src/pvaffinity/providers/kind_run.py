"""Runs pytest-kind in a process of its own: its output goes to a log, and it can be ended without leaving a container.

Ending kind takes care: a ``docker run`` it has begun goes on without it. So kind is ended first, the engine's clients
may finish, and only then are the containers deleted.
"""

from __future__ import annotations

__all__ = ["Creation", "die_with_parent", "end_group", "helper", "run", "stop", "wrap"]

import contextlib
import ctypes
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from pvaffinity.engine import Engine
from pvaffinity.local.owner import Owner
from pvaffinity.local.plan import MARKER
from pvaffinity.progress import Progress

UNDO_SECONDS = 120.0
"""How long a creation that was told to stop may take to delete what it has made."""
_STEP = re.compile(r"^\s*(?:•|✓|✗)?\s*([A-Z][\w\s().:-]+?)\s*(?:[^\x00-\x7f].*)?(?:\.\.\.)?\s*$")


def helper(*arguments: str) -> list[str]:
    """The command line of the process that calls pytest-kind."""
    return [sys.executable, "-m", "pvaffinity.providers.kind", str(os.getpid()), *arguments]


def wrap(kind: Path, directory: Path) -> None:
    """Put kind where pytest-kind finds it, with ``--retain``: else a failed creation would delete the nodes' logs."""
    binary = shlex.quote(str(kind))
    script = directory / "kind"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = create ] && exec {binary} "$@" --retain\nexec {binary} "$@"\n', encoding="utf-8"
    )
    script.chmod(0o700)


class Creation:
    """``kind create cluster``, running.

    Args:
        engine: the one to use.
        directory: the cluster's; the process works there, since pytest-kind writes to the working directory.
        arguments: of the process.
    """

    def __init__(self, engine: Engine, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.log = directory / "kind.log"
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                helper(*arguments),
                cwd=directory,
                env={**engine.env, MARKER: str(directory), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches us alone; what becomes of kind is our decision
            )
        Owner.of(self._process.pid).save(directory / "creator.json")

    def wait(self, progress: Progress) -> int:
        """Follow the log until it has ended; returns its exit code. Any exception ends it, and undoes its work."""
        position = 0
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(0.2)
                position = self._tell(position, progress)
                if self._process.returncode is not None:
                    return self._process.returncode
        except BaseException:
            self.stop()
            raise

    def _tell(self, position: int, progress: Progress) -> int:
        with self.log.open("rb") as log:
            log.seek(position)
            lines = log.read().decode(errors="replace").splitlines(keepends=True)
        for line in lines:
            if not line.endswith("\n"):
                break
            position += len(line.encode())
            if line.startswith(" •") and (match := _STEP.match(line)):
                progress(f"kind: {match[1].strip()}")
        return position

    def stop(self) -> None:
        """End it and what it has made."""
        stop(Owner.of(self._process.pid))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)


def stop(creator: Owner) -> None:
    """End a creation, which then deletes what it has made; after :data:`UNDO_SECONDS` it is killed."""
    if not creator.alive:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(creator.pid, signal.SIGTERM)
    with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        psutil.Process(creator.pid).wait(UNDO_SECONDS)
    if creator.alive:
        end_group(creator.pid, but=0)


def end_group(group: int, *, but: int, patience: float = 20.0) -> None:
    """Let the engine's clients of a process group finish; kill those that do not.

    Args:
        group: its number.
        but: a member to spare.
        patience: seconds.
    """
    deadline = time.monotonic() + patience
    while members := [p for p in _members(group) if p.pid != but]:
        late = time.monotonic() > deadline
        for process in members:
            with contextlib.suppress(psutil.Error):
                # "logs --follow" would never end; what creates a container must.
                if late or not {"run", "create", "rm"} & set(process.cmdline()):
                    process.kill()
        psutil.wait_procs(members, timeout=0.5)


def _members(group: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE and os.getpgid(process.pid) == group:
                found.append(process)
    return found


def run(engine: Engine, directory: Path, *arguments: str, timeout: float = 180.0) -> int:
    """Run the process to its end, whatever happens to us meanwhile: deletions are not interrupted."""
    with (directory / "kind.log").open("ab") as output:
        process = subprocess.Popen(
            helper(*arguments),
            cwd=directory,
            env=dict(engine.env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        return -1


def die_with_parent(parent: int) -> None:
    """In the process: become SystemExit when told to end, and be told so when the parent ends, however it does."""
    signal.signal(signal.SIGTERM, _exit)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        raise SystemExit(1)


def _exit(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
