"""Ask a binary for its version, so that a wrong file is noticed before a cluster is started with it."""

from __future__ import annotations

__all__ = ["agrees", "version_of"]

import re
import subprocess
from pathlib import Path

_ARGUMENTS = {"kubectl": ["version", "--client"], "kubeadm": ["version", "-o", "short"]}
_VERSION = re.compile(r"\bv?(\d+\.\d+\.\d+\S*)")


def version_of(path: Path, name: str) -> str:
    """The version a binary reports, without the leading ``v``.

    Raises:
        OSError: it cannot be run.
        ValueError: it ran but told no version; the argument is its first line of output.
    """
    try:
        done = subprocess.run(
            [path, *_ARGUMENTS.get(name, ["--version"])],
            capture_output=True,
            encoding="utf-8",
            timeout=20,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise ValueError("it did not tell its version within 20 s") from None
    match = _VERSION.search(done.stdout)
    if done.returncode or not match:
        raise ValueError(((done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"])[0])
    return match[1]


def agrees(found: str, wanted: str) -> bool:
    """Whether a reported version is the wanted one.

    Build metadata (``+…``) is ignored. For a wanted pre-release any pre-release of that minor will do, since those who
    build Kubernetes from a branch have versions such as ``1.38.0-beta.0.123+abc-dirty``.
    """
    found = found.partition("+")[0]
    minor = wanted.rsplit(".", wanted.count(".") - 1)[0]
    return found == wanted or ("-" in wanted and "-" in found and found.startswith(f"{minor}."))
