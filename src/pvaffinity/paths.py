"""Where the project keeps things: a cache that may be deleted at any time, and a directory for what runs."""

from __future__ import annotations

__all__ = ["cache_dir", "expanded", "failures_dir", "run_dir", "scratch_dir", "write_whole"]

import contextlib
import os
import tempfile
from pathlib import Path

import platformdirs

from pvaffinity.errors import UserError

_SOCKET_PATH_LIMIT = 107  # sun_path of Linux, less the terminating zero
_LONGEST_BELOW = 60  # clusters/<name>/nodes/<node>/cri.sock


def cache_dir() -> Path:
    """Binaries and builds: ``$PVAFFINITY_CACHE``, else the platform's cache directory of the user."""
    return Path(os.environ.get("PVAFFINITY_CACHE") or platformdirs.user_cache_dir("pvaffinity"))


def run_dir() -> Path:
    """Running clusters and sessions: ``$PVAFFINITY_RUN``, else ``pvaffinity-<uid>`` in the temporary directory.

    Short, since Unix sockets lie in it; private to the user.

    Raises:
        UserError: it belongs to somebody else, cannot be made, or its path is too long for a socket.
    """
    named = os.environ.get("PVAFFINITY_RUN")
    path = Path(named) if named else Path(tempfile.gettempdir()) / f"pvaffinity-{os.getuid()}"
    if len(str(path)) + _LONGEST_BELOW > _SOCKET_PATH_LIMIT:
        raise UserError(
            f"{path} is too long a path for Unix sockets", "set PVAFFINITY_RUN to a short directory, such as /tmp/pv"
        )
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = path.stat().st_uid
    except OSError as error:
        raise UserError(
            f"{path} cannot be used: {error.strerror}", "set PVAFFINITY_RUN to a directory you may write"
        ) from error
    if owner != os.getuid():
        raise UserError(f"{path} belongs to user {owner}", "set PVAFFINITY_RUN to a directory of your own")
    return path


def expanded(path: Path) -> Path:
    """A path with ``~`` and ``~user`` resolved; that of nobody stays as it is, so that it will not be found."""
    with contextlib.suppress(RuntimeError):
        return path.expanduser()
    return path


def failures_dir() -> Path:
    """Where the logs of clusters are that could not be created; ``pvaffinity clean`` removes old ones."""
    return run_dir() / "failed"


def scratch_dir(what: str) -> Path:
    """A new private directory of this process, below the run directory; it removes it itself.

    Its name tells whose it is (``<what>-<pid>-…``), so that what a killed process left can be found.
    """
    parent = run_dir() / "scratch"
    parent.mkdir(mode=0o700, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{what}-{os.getpid()}-", dir=parent))


def write_whole(path: Path, text: str) -> Path:
    """Write a file, whole or not at all; returns its path. One process at a time may write it.

    What is cut short, on a full disk for instance, must not look like the file, nor match ``*.json``.
    """
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    return temporary.replace(path)
