"""Talks to a cluster's supervisor over its control socket: status, stop, and stop and start of parts."""

from __future__ import annotations

__all__ = ["NoAnswerError", "NoSupervisorError", "SlowError", "ask"]

import json
import socket
from pathlib import Path
from typing import Any


class NoAnswerError(Exception):
    """No answer came, for one of the following reasons."""


class NoSupervisorError(NoAnswerError):
    """Nobody is there on the control socket: the cluster has ended."""


class SlowError(NoAnswerError):
    """The supervisor is there, and its answer did not come in time; the order may still be obeyed."""


def ask(directory: Path, order: str, *, timeout: float = 20.0, **more: Any) -> dict[str, Any]:
    """Send one order and return the answer; ``timeout`` is in seconds.

    Raises:
        NoSupervisorError: nobody is there.
        SlowError: the answer did not come in time.
    """
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout)
            client.connect(str(directory / "control.sock"))
            client.sendall(json.dumps({"do": order, **more}).encode() + b"\n")
            with client.makefile("rb") as answers:
                line = answers.readline()
    except TimeoutError as error:
        raise SlowError(f"the order {order} was not answered within {timeout:g} s") from error
    except OSError as error:
        raise NoSupervisorError(str(error)) from error
    if not line:
        raise NoSupervisorError("the supervisor ended without an answer")
    answer: dict[str, Any] = json.loads(line)
    return answer
