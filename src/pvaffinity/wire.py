"""What is on the wire between client and API server: streams of JSON lines, and a way to end one early."""

from __future__ import annotations

__all__ = ["WatchStop", "decode", "lines", "selectors"]

import contextlib
import json
from collections.abc import Iterator

import urllib3

from pvaffinity.objects import Obj


class WatchStop:
    """Lets one thread end another thread's watch at once."""

    def __init__(self) -> None:
        self._answer: urllib3.BaseHTTPResponse | None = None
        self.closed = False

    def attach(self, answer: urllib3.BaseHTTPResponse) -> None:
        """Called by the watch when its stream is open."""
        self._answer = answer
        if self.closed:
            self.close()

    def close(self) -> None:
        """End the stream now; the watch's iterator finishes without an error."""
        self.closed = True
        if self._answer is not None:
            with contextlib.suppress(RuntimeError, ValueError, OSError):  # it has ended already
                self._answer.shutdown()


def lines(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The whole lines of a streamed answer, as they come."""
    rest = b""
    for chunk in answer.stream(65536, decode_content=True):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())


def selectors(labels: str | None, fields: str | None) -> dict[str, str]:
    """Label and field selector as query parameters."""
    return {k: v for k, v in (("labelSelector", labels), ("fieldSelector", fields)) if v}


def decode(data: bytes) -> Obj:
    """An answer's JSON; whatever is none becomes a message."""
    try:
        decoded = json.loads(data)
    except ValueError:
        return {"message": data.decode(errors="replace")[:500]}
    return decoded if isinstance(decoded, dict) else {"value": decoded}
