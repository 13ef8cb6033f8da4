"""Talks to a cluster's supervisor over its control socket: status, stop, and stop and start of parts."""

from __future__ import annotations

__all__ = ["NoSupervisorError", "ask"]

import json
import socket
from pathlib import Path
from typing import Any


class NoSupervisorError(Exception):
    """Nobody answers on the control socket: the cluster has ended."""


def ask(directory: Path, order: str, *, timeout: float = 20.0, **more: Any) -> dict[str, Any]:
    """Send one order and return the answer; ``timeout`` is in seconds.

    Raises:
        NoSupervisorError: nobody answers.
    """
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout)
            client.connect(str(directory / "control.sock"))
            client.sendall(json.dumps({"do": order, **more}).encode() + b"\n")
            with client.makefile("rb") as answers:
                line = answers.readline()
    except OSError as error:
        raise NoSupervisorError(str(error)) from error
    if not line:
        raise NoSupervisorError("the supervisor ended without an answer")
    answer: dict[str, Any] = json.loads(line)
    return answer
