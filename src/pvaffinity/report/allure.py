"""Allure's HTML report, if a generator can be had: nothing of this project depends on it."""

from __future__ import annotations

__all__ = ["allure_html"]

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_NPM = "allure@3"
_TITLE = "Mutable PV node affinity"
# npm waits for minutes where there is no network; one short try is enough to know.
_QUIET_NPM = {
    "npm_config_fetch_retries": "0",
    "npm_config_fetch_timeout": "20000",
    "npm_config_update_notifier": "false",
    "npm_config_fund": "false",
    "npm_config_prefer_offline": "true",
    "CI": "1",
}


def allure_html(
    results: Path | Sequence[Path],
    destination: Path,
    *,
    history: Path | None = None,
    seconds: float = 120.0,
    progress: Callable[[str], None] = lambda _: None,
) -> Path | None:
    """Make one HTML file of Allure results; None where no generator can be had in time.

    An ``allure`` on the PATH is taken first (Allure 3, or Allure 2 from 2.24), then npm's ``allure`` through ``npx``,
    from its cache or the network. An older report in ``destination`` stays if none can be made.

    Args:
        results: what ``--alluredir`` was, or several of these, such as the legs of a CI matrix.
        history: a file in which Allure 3 keeps earlier results, for trends; this run is added to it.
        destination: a directory; the report is its ``index.html``.
        seconds: for all of it.
        progress: told which generator is tried, and why it is given up.
    """
    directories = [results] if isinstance(results, Path) else list(results)
    filled = [directory.absolute() for directory in directories if any(directory.glob("*-result.json"))]
    if not filled:
        progress(f"no Allure report: {', '.join(map(str, directories)) or 'no directory'} holds no results")
        return None
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="pvaffinity-allure-") as temporary:
        output = Path(temporary) / "report"
        for name, command in _generators(filled, output, history):
            left = deadline - time.monotonic()
            if left <= 1:
                break
            progress(f"Allure report by {name}")
            problem = _run(command, left, Path(temporary))
            index = output / "index.html"
            if problem is None and index.is_file():
                destination.parent.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(destination, ignore_errors=True)
                shutil.copytree(output, destination)
                return destination / "index.html"
            progress(f"  not by {name}: {problem or 'it wrote no report'}")
            shutil.rmtree(output, ignore_errors=True)
    return None


def _generators(results: Sequence[Path], output: Path, history: Path | None) -> list[tuple[str, list[str]]]:
    given = [str(directory) for directory in results]
    three = ["awesome", *given, "--single-file", "--report-name", _TITLE, "--output", str(output)]
    three += ["--history-path", str(history.absolute())] if history else []
    two = ["generate", *given, "--clean", "--single-file", "-o", str(output)]
    found = []
    if allure := shutil.which("allure"):
        found += [("allure (3)", [allure, *three]), ("allure (2)", [allure, *two])]
    if npx := shutil.which("npx"):
        found.append((f"npx {_NPM}", [npx, "--yes", _NPM, *three]))
    return found


def _run(command: list[str], seconds: float, directory: Path) -> str | None:
    """Run to the end; what went wrong in one line, or None. Time-outs end the whole process group."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=directory,
        env={**os.environ, **_QUIET_NPM},
        start_new_session=True,
        encoding="utf-8",
        errors="replace",
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        output = None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if output is None:
        return f"not done within {seconds:.0f} s"
    if process.returncode:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        telling = [line for line in lines if "error" in line.lower()] or lines
        return telling[0][:200] if telling else f"exit code {process.returncode}"
    return None
