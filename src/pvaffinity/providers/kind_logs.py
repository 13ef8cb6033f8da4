"""The logs of a kind cluster's nodes, and what is told, and kept, of a cluster that could not be created."""

from __future__ import annotations

__all__ = ["add", "export", "failure", "keep"]

import re
from pathlib import Path

from pvaffinity.engine import Engine, EngineError
from pvaffinity.errors import UserError
from pvaffinity.paths import failures_dir
from pvaffinity.providers.kind_setup import Kind

_REASONS = (r"Error response from daemon: (.+)", r"^Error: (.+)", r"^error: (.+)", r"^ERROR: (.+)")
_TAIL = 25  # lines of kind's output in an error
_EXPORT = 120.0  # seconds within which kind has exported the logs of every node, or does without


def export(engine: Engine, kind: Kind, name: str, destination: Path) -> None:
    """Have kind export the logs of a cluster's nodes.

    Raises:
        EngineError: it could not, or not in two minutes.
    """
    as_engine = Engine(**{**vars(engine), "binary": str(kind.binary)})
    as_engine.run("export", "logs", str(destination.absolute()), f"--name={name}", timeout=_EXPORT)


def keep(engine: Engine, kind: Kind, name: str, text: str) -> Path | None:
    """Save kind's output and the nodes' logs of a cluster that will be deleted because it did not start.

    Returns:
        Where they are; None where nothing can be written.
    """
    kept = failures_dir() / name
    try:
        kept.mkdir(parents=True, exist_ok=True)
        (kept / "kind.log").write_text(text, encoding="utf-8")
        export(engine, kind, name, kept)
    except OSError:
        return None  # a full disk, most likely, which is no reason to tell less of what went wrong
    except EngineError:
        pass  # there may be no node yet
    return kept


def failure(engine: Engine, kind: Kind, name: str, what: str, text: str) -> UserError:
    """The error for a failed creation; keeps the logs.

    Args:
        engine: the cluster's.
        kind: that was told to create it.
        name: the cluster's.
        what: failed.
        text: kind's output, in which the reason is looked for.
    """
    kept = keep(engine, kind, name, text)
    lines = [line for line in text.splitlines() if line.strip()]
    found = (match[1] for sign in _REASONS if (match := re.search(sign, text, re.MULTILINE)))
    why = next(found, lines[-1].strip() if lines else "no message")
    if "no space left on device" in text.lower():
        fix = f"free some disk: {engine.name} system df"
    elif "port is already allocated" in text or "address already in use" in text:
        fix = "end whatever uses that port, or leave the port in the document out"
    else:
        fix = f"see the logs in {kept}; " * bool(kept) + f"to try it by hand: {kind.binary} create cluster"
    return UserError(f"{what}: {why[:300]}", fix, detail="\n".join(lines[-_TAIL:]))


def add(error: BaseException, note: str) -> None:
    """Tell something more with an error, whatever it is."""
    if isinstance(error, UserError):
        error.detail = f"{error.detail}\n{note}".lstrip("\n")
    else:
        error.add_note(note)
