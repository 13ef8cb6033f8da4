"""Run the suite on a mutant: gate-off and gate-on clusters of the local provider, each run with reports of its own."""

from __future__ import annotations

__all__ = ["Run", "run", "selection"]

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pvaffinity.local.reporter import Reporter
from pvaffinity.mutants.catalogue import ALL, SAMPLE, Mutant
from pvaffinity.paths import write_whole
from pvaffinity.shape import ShapeError, from_json, shaped

_PATIENCE = 180.0  # seconds that an interrupted suite may take to delete its clusters
_NEVER = "not no_pod_escapes"  # the sweep of 260 rounds: a minute a cluster, and its forced twin is run
_RESTARTS = {"rollback": "test_rollback", "restart": "test_scheduler_restart"}  # a minute: components start anew
_SAMPLES = {
    "kube-apiserver": "not test_immutability or zone-to-region or clear or set-where-unset or beta-to-ga-zone or "
    "ga-to-beta or invalid_shape or status or stale",
    "": "not (test_immutability or test_rbac) or zone-to-region or patch_on_the_one_volume",
}


def selection(mutant: Mutant) -> tuple[str, str]:
    """Which checks run: pytest's ``-k`` expression, and in words."""
    sample = f"{_NEVER} and ({_SAMPLES.get(mutant.component, _SAMPLES[''])})"
    for behaviour, name in _RESTARTS.items():
        if not mutant.harmless and behaviour not in mutant.breaks:
            sample += f" and not {name}"
    known = {ALL: (_NEVER, ALL), "": (sample, SAMPLE)}
    expression, words = known.get(mutant.checks, (mutant.checks, f"-k '{mutant.checks}'"))
    if mutant.without:
        return f"({expression}) and not ({mutant.without})", f"{words} without {mutant.without}"
    return expression, words


@dataclass(frozen=True)
class Run:
    """What became of one run; kept beside its results, so that it need not be run again.

    Attributes:
        key: of the mutant, see :meth:`Mutant.key`.
        selection: the ``-k`` expression.
        code: pytest's exit code.
        seconds: how long it took.
    """

    key: str
    selection: str
    code: int
    seconds: float

    def of(self, mutant: Mutant, version: str) -> bool:
        """Whether it is one of this very mutant, with the checks that would run now."""
        return (self.key, self.selection) == (mutant.key(version), selection(mutant)[0])

    @classmethod
    def load(cls, reports: Path) -> Run | None:
        """The one kept in this directory, if any."""
        try:
            return shaped(cls, from_json((reports / "run.json").read_text(encoding="utf-8")))
        except (OSError, ShapeError):
            return None


def run(mutant: Mutant, version: str, binaries: Path, reports: Path, suites: Path, reporter: Reporter) -> Run:
    """Run the suite on a mutant.

    Args:
        mutant: which.
        version: of Kubernetes.
        binaries: a directory with its binaries, see :meth:`~pvaffinity.mutants.building.Builder.build`.
        reports: where results go; pytest's own output goes to ``output.txt`` there.
        suites: the directory of the suites.
        reporter: told that it goes on.
    """
    reports.mkdir(parents=True, exist_ok=True)
    (reports / "run.json").unlink(missing_ok=True)
    (reports / "conformance.json").unlink(missing_ok=True)
    expression = selection(mutant)[0]
    options = {"--provider": "local", "--binaries": binaries, "--kubernetes-version": version, "--reports": reports}
    command = [sys.executable, "-m", "pytest", str(suites), "-m", "not slow", "-k", expression]
    command += [str(part) for pair in options.items() for part in pair]
    command += ["-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider", "--tb", "short"]
    reporter.start(mutant.name)
    started = time.monotonic()
    code = _wait(command, suites.parent, reports / "output.txt", reporter)
    done = Run(mutant.key(version), expression, code, round(time.monotonic() - started, 1))
    write_whole(reports / "run.json", json.dumps(asdict(done), indent=1) + "\n")
    return done


def _wait(command: Sequence[str], directory: Path, output: Path, reporter: Reporter) -> int:
    """Run it to its end; interrupted, so is it, and has its time to delete clusters."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches it once, from here, and not from the terminal as well
        )
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(min(reporter.every, 1.0))
                reporter.tick("the suite is running")
        except BaseException:
            _end(process, reporter)
            raise


def _end(process: subprocess.Popen[bytes], reporter: Reporter) -> None:
    reporter.say("interrupted; the suite is deleting its clusters")
    for number, patience in ((signal.SIGINT, _PATIENCE), (signal.SIGTERM, 30.0), (signal.SIGKILL, 5.0)):
        if process.poll() is None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(patience)
