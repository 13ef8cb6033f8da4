"""A real session of checks, started as a user would, whose own cluster can be harmed while it runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from pvaffinity import leftovers
from pvaffinity.paths import cache_dir
from selftests.awaiting import eventually

ROOT = Path(__file__).resolve().parents[1]


class MidRun:
    """``pytest CHECKS -n 2`` on a local gate-on cluster, in a run directory of its own; a context manager.

    Args:
        directory: for its reports.
        checks: what it is given.
    """

    def __init__(self, directory: Path, *checks: str) -> None:
        self.reports = directory / "reports"
        self.lines: list[str] = []
        self._began = time.monotonic()
        where = ["--provider=local", "--cluster-config=gate-on", f"--reports={self.reports}", "-pno:cacheprovider"]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}  # we may be a worker ourselves
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-v", "-n2", *where, *checks],
            cwd=ROOT,
            env={**clean, "PVAFFINITY_CACHE": str(cache_dir()), "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> MidRun:
        self._reader.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:  # a test has failed in the middle of it
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)
        self._reader.join(30)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(f"{time.monotonic() - self._began:6.1f} {line.rstrip()}")

    @property
    def said(self) -> str:
        """All its output so far, each line with the seconds since its start."""
        return "\n".join(self.lines)

    def passed(self) -> set[str]:
        """The checks that have passed until now."""
        return {line.split()[-1] for line in self.lines if " PASSED suites/" in line}

    def await_passed(self, count: int) -> set[str]:
        """Wait until so many checks have passed; which ones."""
        eventually(lambda: len(self.passed()) >= count or self._process.poll() is not None, 180)
        assert self._process.poll() is None, self.said
        return self.passed()

    @property
    def cluster(self) -> Path:
        """The directory of the one cluster it has made."""
        (found,) = leftovers.find(everything=True)
        return found.directory

    def process_of(self, component: str, *flags: str) -> psutil.Process:
        """A process of its cluster, by its name and flags."""
        processes = [psutil.Process(pid) for each in leftovers.find(everything=True) for pid in each.processes]
        (found,) = [p for p in processes if p.name() == component and {*flags} <= {*p.cmdline()}]
        return found

    def workers(self) -> list[psutil.Process]:
        """Its xdist workers, which execnet starts with a line to read from stdin."""
        children = psutil.Process(self._process.pid).children()
        return [p for p in children if "stdin.readline" in " ".join(p.cmdline())]

    def end(self, seconds: float) -> int:
        """Its exit code, within so many seconds from now."""
        began = time.monotonic()
        try:
            code = self._process.wait(seconds)
            self._reader.join(30)
        finally:
            print(f"{time.monotonic() - began:.1f} s later, it has said\n{self.said}")
        return code

    def results(self) -> dict[str, tuple[str, str]]:
        """Outcome and reason of each check, from its report."""
        (cluster,) = json.loads((self.reports / "conformance.json").read_text(encoding="utf-8"))["clusters"]
        tests: list[dict[str, Any]] = [test for each in cluster["behaviours"] for test in each["tests"]]
        return {test["id"]: (test["outcome"], test["reason"]) for test in tests}
