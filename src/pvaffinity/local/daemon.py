"""One daemon: started, watched until it is ready, and told apart: *ready*, *exited* or *too late*.

A daemon is described by plain data (:class:`DaemonSpec`), so that a supervisor can read it from a file.
"""

from __future__ import annotations

__all__ = ["Daemon", "DaemonSpec", "StartError", "reason_of", "tail"]

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pvaffinity.budgets import BUDGETS
from pvaffinity.local.namespaces import die_with_parent
from pvaffinity.local.readiness import Readiness


@dataclass(frozen=True)
class DaemonSpec:
    """What to run.

    Attributes:
        name: unique in its cluster; the log is ``<name>.log``.
        argv: program and arguments.
        needs: names of daemons (or of other conditions) that must be ready before.
        node: the node whose file system it lives in, or "".
        env: its whole environment.
        ready: how to see that it is ready.
        seconds: how long that may take.
    """

    name: str
    argv: tuple[str, ...]
    needs: tuple[str, ...] = ()
    node: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    ready: Readiness = field(default_factory=Readiness)
    seconds: float = BUDGETS["component"].seconds

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DaemonSpec:
        """The inverse of :func:`dataclasses.asdict`."""
        return cls(
            **{
                **data,
                "argv": tuple(data["argv"]),
                "needs": tuple(data.get("needs", ())),
                "ready": Readiness(**data.get("ready", {})),
            }
        )


class StartError(Exception):
    """A daemon did not become ready.

    Attributes:
        what: one line, such as ``kube-apiserver exited (1): unrecognized feature gate: X``.
        daemon: its name.
        log: the end of its log.
    """

    def __init__(self, what: str, daemon: str, log: str = "") -> None:
        super().__init__(what)
        self.what, self.daemon, self.log = what, daemon, log


class Daemon:
    """One running (or ended) process of a :class:`DaemonSpec`."""

    def __init__(self, spec: DaemonSpec, logs: Path) -> None:
        self.spec = spec
        self.argv = spec.argv
        self.seconds = spec.seconds
        self.log = logs / f"{spec.name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.ready = False
        self._log_start = 0

    def start(
        self, enter: Callable[[], None] | None = None, argv: Sequence[str] = (), seconds: float | None = None
    ) -> None:
        """Start it in a session of its own; ``enter`` runs in the new process before the program does.

        ``argv`` and ``seconds`` are for this run, instead of those described.

        Raises:
            StartError: the program cannot be executed.
        """
        self.ready = False
        self.argv = tuple(argv) or self.spec.argv
        self.seconds = self.spec.seconds if seconds is None else seconds
        self._log_start = self.log.stat().st_size if self.log.exists() else 0

        def prepare() -> None:
            if enter is not None:
                enter()
            die_with_parent()

        try:
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=dict(self.spec.env),
                    start_new_session=True,
                    preexec_fn=prepare,
                )
        except OSError as error:
            what = f"{self.spec.name} cannot be started: {self.argv[0]}: {error.strerror}"
            raise StartError(what, self.spec.name) from error
        except subprocess.SubprocessError as error:
            raise StartError(f"{self.spec.name} cannot be started in its namespaces", self.spec.name) from error
        self.started_at = time.monotonic()

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.poll() is None

    def check(self) -> bool:
        """Look once, without waiting for long, whether it is ready.

        Raises:
            StartError: it has exited, or it is too late.
        """
        if self.process is not None and not self.running:
            code = self.process.returncode
            reason = reason_of(self.new_log())
            how = f"exited ({code})" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
            what = f"{self.spec.name} {how}" + (f": {reason}" if reason else "")
            raise StartError(what, self.spec.name, tail(self.log))
        self.ready = self.ready or self._look()
        if not self.ready and time.monotonic() - self.started_at > self.seconds:
            what = f"{self.spec.name} runs but was not ready within {self.seconds:g} s"
            raise StartError(what, self.spec.name, tail(self.log))
        return self.ready

    def new_log(self) -> str:
        """What it has written since it was last started."""
        try:
            with self.log.open("rb") as log:
                log.seek(self._log_start)
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def _look(self) -> bool:
        ready = self.spec.ready
        if ready.kind == "line":
            return ready.target in self.new_log()
        return ready.seen()

    def stop(self, number: int = signal.SIGTERM, seconds: float = 5.0) -> None:
        """Ask it to end, and kill it after ``seconds``; returns when it is gone."""
        if self.process is None or not self.running:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_KLOG_ERROR = re.compile(r'^[EF]\d{4} .*?\] (?:"command failed" err=)?"?(.*?)"?$')
_ETCD_ERROR = re.compile(r'^\{"level":"(?:fatal|panic)".*?"msg":"(.*?)"(?:.*?"error":"(.*?)")?')


def reason_of(log: str) -> str:
    """The one line of a log that says why a Kubernetes binary or etcd ended, or the last line of any other log."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for line in reversed(lines):
        if found := re.search(r'"command failed" err="(.*)"', line):
            return found[1].replace('\\"', '"')
        if found := _ETCD_ERROR.match(line):
            return ": ".join(part for part in found.groups() if part)
        if line.startswith(("Error: ", "error: ")):
            return line.partition(": ")[2]
        if found := re.match(r"(?:panic|fatal error|runtime): (.*)", line):
            return found[0]
    for line in reversed(lines):
        if found := _KLOG_ERROR.match(line):
            return found[1]
    return lines[-1][:300] if lines else ""


def tail(log: Path, lines: int = 12, width: int = 400) -> str:
    """The last lines of a log, long ones cut."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 65536))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(line[:width] for line in text.splitlines()[-lines:])


def stop_all(daemons: Sequence[Daemon]) -> None:
    """Kill in the given order, waiting for each: whatever depends on another goes first."""
    for daemon in daemons:
        daemon.stop(signal.SIGKILL)
